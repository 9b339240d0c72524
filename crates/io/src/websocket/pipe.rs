//! The socket that `tungstenite` sees: received bytes, and bytes to be written.

use std::io::{self, Read, Write};

use crate::stream::Outbox;

/// A pair of byte buffers. Reading fails with `WouldBlock` at the end of the received bytes;
/// writing always succeeds.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    input: Vec<u8>,
    start: usize,
    ended: bool,
    pub(super) outbox: Outbox,
}

impl Pipe {
    /// Adds bytes that were read from the peer.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.start == self.input.len() {
            self.input.clear();
            self.start = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    /// Notes that the peer sends nothing more.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.input.get(self.start..).unwrap_or_default();
        if rest.is_empty() && !self.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut source = rest;
        let count = source.read(buffer)?;
        self.start += count;
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outbox.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
