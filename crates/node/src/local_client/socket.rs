//! A program's end of the socket of its host or router. Blocking, with timeouts.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest, check_greeting, greeting};

use super::{LocalError, WRITE_PATIENCE, connect_socket};

/// The largest frame that a daemon sends or takes, in bytes: the largest chunk with room for its
/// headers.
const MAX_FRAME: usize = (4 << 20) + (64 << 10);
/// A connection to a daemon: the frames of `docs/protocols/local.md` on a Unix stream.
#[derive(Debug)]
pub(super) struct SocketClient {
    stream: UnixStream,
    incoming: Incoming,
    head: Vec<u8>,
    // True once the daemon has said that it speaks this protocol.
    greeted: bool,
}

/// A frame on its way in.
#[derive(Debug, Default)]
struct Incoming {
    prefix: [u8; 4],
    prefix_filled: usize,
    body: BytesMut,
    body_filled: usize,
}

impl SocketClient {
    /// Attaches to the daemon that listens on `path`.
    pub(super) fn connect(path: &Path) -> Result<SocketClient, LocalError> {
        SocketClient::over(connect_socket(path)?)
    }

    /// Uses a connected stream. [`SocketClient::receive`] detects a daemon of another version.
    pub(super) fn over(stream: UnixStream) -> Result<SocketClient, LocalError> {
        stream
            .set_write_timeout(Some(WRITE_PATIENCE))
            .map_err(LocalError::Io)?;
        let mut client = SocketClient {
            stream,
            incoming: Incoming::default(),
            head: Vec::new(),
            greeted: false,
        };
        client.head.extend_from_slice(&[0; 4]);
        client.head.extend_from_slice(&greeting());
        client.write_frame(&[])?;
        Ok(client)
    }

    /// Sends one request.
    pub(super) fn send(&mut self, request: &LocalRequest) -> Result<(), LocalError> {
        self.head.clear();
        self.head.extend_from_slice(&[0; 4]);
        let tail = request.encode_head(&mut self.head);
        self.write_frame(&tail)
    }

    /// Writes the frame whose content is in `head`, after room for its length, and in `tail`.
    fn write_frame(&mut self, tail: &[u8]) -> Result<(), LocalError> {
        let length = (self.head.len() - 4 + tail.len()) as u32;
        self.head[..4].copy_from_slice(&length.to_be_bytes());
        let (mut head, mut tail) = (&self.head[..], tail);
        while !head.is_empty() || !tail.is_empty() {
            match self
                .stream
                .write_vectored(&[IoSlice::new(head), IoSlice::new(tail)])
            {
                Ok(0) => return Err(LocalError::Closed),
                Ok(written) => {
                    let of_head = written.min(head.len());
                    head = &head[of_head..];
                    tail = &tail[written - of_head..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// Returns the next event, or `None` if none has come within `patience`.
    pub(super) fn receive(&mut self, patience: Duration) -> Result<Option<LocalEvent>, LocalError> {
        let until = Instant::now() + patience;
        loop {
            if let Some(frame) = self.incoming.take_frame()? {
                if !self.greeted {
                    check_greeting(&frame).map_err(LocalError::Version)?;
                    self.greeted = true;
                    continue;
                }
                return LocalEvent::decode(&frame)
                    .map(Some)
                    .map_err(|fault| LocalError::Protocol(fault.to_string()));
            }
            let left = until
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(1));
            self.stream
                .set_read_timeout(Some(left))
                .map_err(LocalError::Io)?;
            match self.stream.read(self.incoming.room()) {
                Ok(0) => return Err(LocalError::Closed),
                Ok(count) => self.incoming.filled(count),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Ok(None),
                    // A signal: the program checks its flags.
                    io::ErrorKind::Interrupted => return Ok(None),
                    _ => return Err(broken(error)),
                },
            }
        }
    }
}

fn broken(error: io::Error) -> LocalError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LocalError::Closed,
        _ => LocalError::Io(error),
    }
}

impl Incoming {
    fn room(&mut self) -> &mut [u8] {
        if self.prefix_filled < 4 {
            &mut self.prefix[self.prefix_filled..]
        } else {
            &mut self.body[self.body_filled..]
        }
    }

    fn filled(&mut self, count: usize) {
        if self.prefix_filled < 4 {
            self.prefix_filled += count;
        } else {
            self.body_filled += count;
        }
    }

    /// Returns the frame, if it is whole.
    fn take_frame(&mut self) -> Result<Option<Bytes>, LocalError> {
        if self.prefix_filled < 4 {
            return Ok(None);
        }
        let length = u32::from_be_bytes(self.prefix) as usize;
        if length > MAX_FRAME || length == 0 {
            return Err(LocalError::Protocol(format!("a frame of {length} bytes")));
        }
        if self.body.len() != length {
            self.body = BytesMut::zeroed(length);
            self.body_filled = 0;
        }
        if self.body_filled < length {
            return Ok(None);
        }
        self.prefix_filled = 0;
        Ok(Some(core::mem::take(&mut self.body).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(content: &[u8]) -> Vec<u8> {
        [&(content.len() as u32).to_be_bytes()[..], content].concat()
    }

    /// Returns a client, and a daemon that has read its greeting and written one.
    fn pair() -> (SocketClient, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let client = SocketClient::over(ours).unwrap();
        let mut greeted = [0; 10];
        theirs.read_exact(&mut greeted).unwrap();
        assert_eq!(greeted[..], frame(&greeting()));
        theirs.write_all(&frame(&greeting())).unwrap();
        (client, theirs)
    }

    #[test]
    fn a_daemon_of_another_version_is_refused_with_a_clear_text() {
        let complete = framed(&LocalEvent::Complete {
            request: 1,
            content_len: 2,
        });
        let mut later = greeting();
        later[5] += 1;
        let cases = [(frame(&later), "version 2"), (complete, "names no version")];
        for (first, text) in cases {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut client = SocketClient::over(ours).unwrap();
            theirs.write_all(&first).unwrap();
            let refused = client.receive(Duration::from_secs(10)).unwrap_err();
            assert!(matches!(refused, LocalError::Version(_)), "{refused}");
            assert!(refused.to_string().contains(text), "{refused}");
        }
    }

    fn framed(event: &LocalEvent) -> Vec<u8> {
        let mut body = Vec::new();
        let tail = event.encode_head(&mut body);
        body.extend_from_slice(&tail);
        frame(&body)
    }

    #[test]
    fn events_arrive_whole_however_the_stream_is_cut() {
        let (mut client, mut daemon) = pair();
        let event = LocalEvent::Status {
            request: 7,
            json: "{\"a\":1}".repeat(1000),
        };
        let bytes = framed(&event).repeat(2);
        for piece in bytes.chunks(333) {
            daemon.write_all(piece).unwrap();
        }
        let patience = Duration::from_secs(10);
        assert_eq!(client.receive(patience).unwrap(), Some(event.clone()));
        assert_eq!(client.receive(patience).unwrap(), Some(event));
        assert_eq!(client.receive(Duration::from_millis(5)).unwrap(), None);
        drop(daemon);
        assert!(matches!(client.receive(patience), Err(LocalError::Closed)));
    }

    #[test]
    fn a_time_out_in_the_middle_of_a_frame_loses_nothing() {
        let (mut client, mut daemon) = pair();
        let event = LocalEvent::Complete {
            request: 1,
            content_len: 2,
        };
        let bytes = framed(&event);
        for cut in [2, 6] {
            daemon.write_all(&bytes[..cut]).unwrap();
            assert_eq!(client.receive(Duration::from_millis(5)).unwrap(), None);
            daemon.write_all(&bytes[cut..]).unwrap();
            assert_eq!(
                client.receive(Duration::from_secs(10)).unwrap(),
                Some(event.clone())
            );
        }
    }

    #[test]
    fn nonsense_from_a_daemon_is_an_error_and_takes_no_memory() {
        let (mut client, mut daemon) = pair();
        daemon.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(matches!(
            client.receive(Duration::from_secs(10)),
            Err(LocalError::Protocol(_))
        ));
        let (mut client, mut daemon) = pair();
        daemon.write_all(&[0, 0, 0, 1, 99]).unwrap();
        assert!(matches!(
            client.receive(Duration::from_secs(10)),
            Err(LocalError::Protocol(_))
        ));
    }

    #[test]
    fn a_request_is_one_frame() {
        let (mut client, mut daemon) = pair();
        client.send(&LocalRequest::Cancel { request: 9 }).unwrap();
        let mut frame = [0; 9];
        daemon.read_exact(&mut frame).unwrap();
        assert_eq!(frame, [0, 0, 0, 5, 1, 0, 0, 0, 9]);
        drop(daemon);
        assert!(matches!(
            client.send(&LocalRequest::Cancel { request: 9 }),
            Err(LocalError::Closed)
        ));
    }

    #[test]
    fn a_socket_without_daemon_is_said_to_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let missing = SocketClient::connect(&folder.path().join("host.sock"));
        assert!(matches!(missing, Err(LocalError::Nobody(_))));
    }
}
