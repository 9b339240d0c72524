//! The bare relay, the reference for a router between two programs. It copies bytes between two
//! sockets without parsing them.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use crate::BenchError;

/// Maximum of bytes in one read or write.
const CHUNK: usize = 256 << 10;
/// Kernel buffers of the sockets, as a router's (`whimbrel_io`).
const KERNEL_BUFFER: usize = 1 << 20;

/// One direction.
struct Pipe {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Pipe {
    fn new() -> Pipe {
        Pipe {
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Moves the available bytes; returns false once the source has ended.
    fn pump(&mut self, mut from: &UnixStream, mut to: &UnixStream) -> std::io::Result<bool> {
        if self.is_empty() {
            match from.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => (self.start, self.end) = (0, count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        match to.write(self.buffer.get(self.start..self.end).unwrap_or_default()) {
            Ok(count) => self.start += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

/// Listens on `socket`, calls `ready`, and copies between the first two programs that connect until
/// one of them leaves.
pub fn relay(socket: &Path, ready: impl FnOnce()) -> Result<(), BenchError> {
    let failed = || BenchError::system(format!("relay on {}", socket.display()));
    let listener = UnixListener::bind(socket).map_err(failed())?;
    ready();
    let (one, other) = (
        accept(&listener).map_err(failed())?,
        accept(&listener).map_err(failed())?,
    );
    let (mut forth, mut back) = (Pipe::new(), Pipe::new());
    loop {
        let wanted = |incoming: &Pipe, outgoing: &Pipe| {
            let input = if incoming.is_empty() {
                PollFlags::IN
            } else {
                PollFlags::empty()
            };
            let output = if outgoing.is_empty() {
                PollFlags::empty()
            } else {
                PollFlags::OUT
            };
            input | output
        };
        let mut ends = [
            PollFd::new(&one, wanted(&forth, &back)),
            PollFd::new(&other, wanted(&back, &forth)),
        ];
        poll(&mut ends, None).map_err(|error| failed()(error.into()))?;
        // Reading from or writing to a closed one fails.
        let moved = forth
            .pump(&one, &other)
            .and_then(|open| Ok(open && back.pump(&other, &one)?));
        match moved {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(failed()(error)),
        }
    }
}

fn accept(listener: &UnixListener) -> std::io::Result<UnixStream> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    // Smaller buffers than requested only cost speed.
    let _ = set_socket_send_buffer_size(&stream, KERNEL_BUFFER);
    let _ = set_socket_recv_buffer_size(&stream, KERNEL_BUFFER);
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_both_ways_until_one_end_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("relay");
        let (sender, listening) = std::sync::mpsc::channel();
        let at = path.clone();
        let running = std::thread::spawn(move || relay(&at, || sender.send(()).unwrap()));
        listening.recv().unwrap();
        let (mut one, mut other) = (
            UnixStream::connect(&path).unwrap(),
            UnixStream::connect(&path).unwrap(),
        );
        let sent: Vec<u8> = (0..5_000_000u32).map(|index| (index % 251) as u8).collect();
        let wire = sent.clone();
        let mut writer = one.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(&wire).unwrap());
        let mut arrived = vec![0; sent.len()];
        other.read_exact(&mut arrived).unwrap();
        assert!(arrived == sent);
        writing.join().unwrap();
        other.write_all(b"back").unwrap();
        let mut answer = [0; 4];
        one.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"back");
        drop(other);
        running.join().unwrap().unwrap();
    }
}
