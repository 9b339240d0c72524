//! A file through the kernel's TCP with few system calls, as a careful program moves it.

use std::fs::File;
use std::io::{self, Read};
use std::net::TcpStream;

use rustix::fs::sendfile;

/// Bytes that a receiver takes from its socket with one system call. `std::io::copy` takes 8 KiB at
/// a time, with which a receiver on a fast link spends most of its time in system calls.
pub const BLOCK: usize = 1 << 20;
/// Bound of the bytes that Linux sends with one call (sendfile(2)).
const MAX_SENDFILE: usize = 0x7fff_f000;

/// Sends a whole file from its start, without a copy through this process. Returns its length.
pub fn send_file(stream: &TcpStream, file: &File) -> io::Result<u64> {
    let mut at = 0;
    loop {
        match sendfile(stream, file, Some(&mut at), MAX_SENDFILE) {
            Ok(0) => return Ok(at),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Passes all received bytes to `sink`, up to the end of the stream. Returns their number.
pub fn receive(
    mut stream: impl Read,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut buffer = vec![0; BLOCK];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(received),
            Ok(count) => {
                take(&buffer[..count])?;
                received += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};
    use std::net::{Shutdown, TcpListener};

    #[test]
    fn a_file_arrives_as_it_is_and_wherever_its_cursor_stands() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 7)
            .map(|at| ((at * 31) >> 3) as u8)
            .collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.seek(io::SeekFrom::Start(11)).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(send_file(&server, &file).unwrap(), bytes.len() as u64);
                server.shutdown(Shutdown::Write).unwrap();
            });
            let mut arrived = Vec::new();
            let count = receive(&client, |block| {
                arrived.extend_from_slice(block);
                Ok(())
            });
            assert_eq!(count.unwrap(), bytes.len() as u64);
            assert!(arrived == bytes);
        });
    }
}
