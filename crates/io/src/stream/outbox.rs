//! Output that waits for a stream socket.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// Memory that an empty outbox may keep, bytes.
const SPARE: usize = 64 << 10;

/// Output of one stream, in order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    start: usize,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns the buffer to append to.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Skips the first `count` bytes, which were written already. The outbox must have been empty
    /// before.
    pub(crate) fn skip(&mut self, count: usize) {
        self.start += count;
    }

    /// Swaps the memory of an empty outbox with `buffer`; swaps it back when all of it is written.
    pub(crate) fn exchange(&mut self, buffer: &mut Vec<u8>) {
        std::mem::swap(buffer, &mut self.bytes);
        self.start = 0;
    }

    /// Writes once. Returns true if nothing is left. After a partial write the kernel's buffer is
    /// full.
    pub(crate) fn write_to(&mut self, stream: impl AsFd, calls: &mut u64) -> Result<bool, Errno> {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        if !rest.is_empty() {
            *calls += 1;
            self.start += write_once(stream, rest)?;
        }
        if self.start < self.bytes.len() {
            return Ok(false);
        }
        self.bytes.clear();
        self.start = 0;
        Ok(true)
    }

    /// Returns true if it is empty and holds more memory than small frames need.
    pub(crate) fn is_inflated(&self) -> bool {
        self.bytes.is_empty() && self.bytes.capacity() > SPARE
    }

    /// Releases memory, if no output waits.
    pub(crate) fn deflate(&mut self) {
        if self.is_inflated() {
            self.bytes = Vec::new();
        }
    }
}

/// Writes once. Returns 0 if the kernel's buffer is full.
pub(crate) fn write_once(stream: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    match rustix::io::retry_on_intr(|| rustix::io::write(&stream, bytes)) {
        Err(Errno::AGAIN) => Ok(0),
        outcome => outcome,
    }
}
