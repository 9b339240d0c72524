//! A program's end of the socket of its host or router. Blocking, with timeouts.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

use crate::error::LocalError;
use crate::frames::{EventFrames, RequestFrames};
use crate::place::check_own;
use crate::way::{HostWay, RequestWay};

/// Time in which a daemon must read what is written to it; afterwards it counts as gone.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// Connects to the socket of a daemon of this machine. Refuses one that another user could have put
/// there.
pub fn connect_socket(path: &Path) -> Result<UnixStream, LocalError> {
    check_own(path)?;
    UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::NotADirectory => LocalError::Nobody(path.to_owned()),
        io::ErrorKind::PermissionDenied => LocalError::NotPermitted(path.to_owned()),
        _ => LocalError::Io(error),
    })
}

/// A connection to a daemon: the frames of `docs/protocols/local.md` on a Unix stream.
#[derive(Debug)]
pub(crate) struct SocketClient {
    stream: UnixStream,
    events: EventFrames,
    requests: RequestFrames,
}

impl SocketClient {
    /// Uses a connected stream. [`SocketClient::receive`] detects a daemon of another version.
    pub(crate) fn over(stream: UnixStream) -> Result<SocketClient, LocalError> {
        stream
            .set_write_timeout(Some(WRITE_PATIENCE))
            .map_err(LocalError::Io)?;
        let mut client = SocketClient {
            stream,
            events: EventFrames::default(),
            requests: RequestFrames::default(),
        };
        client.write_all()?;
        Ok(client)
    }

    fn write_all(&mut self) -> Result<(), LocalError> {
        while let Some([head, tail]) = self.requests.next_bytes() {
            match self
                .stream
                .write_vectored(&[IoSlice::new(head), IoSlice::new(tail)])
            {
                Ok(0) => return Err(LocalError::Closed),
                Ok(written) => self.requests.note_written(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }
}

impl RequestWay for SocketClient {
    fn send_all(&mut self, requests: Vec<LocalRequest>) -> Result<(), LocalError> {
        requests.iter().for_each(|it| self.requests.push(it));
        self.write_all()
    }
}

impl HostWay for SocketClient {
    fn receive(&mut self, patience: Duration) -> Result<Option<LocalEvent>, LocalError> {
        let until = Instant::now() + patience;
        loop {
            if let Some(event) = self.events.next_event()? {
                return Ok(Some(event));
            }
            let left = until
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(1));
            self.stream
                .set_read_timeout(Some(left))
                .map_err(LocalError::Io)?;
            match self.stream.read(self.events.room()) {
                Ok(0) => return Err(LocalError::Closed),
                Ok(count) => self.events.note_filled(count),
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

/// Returns the failure of a stream: a daemon that has ended, or another one.
pub(crate) fn broken(error: io::Error) -> LocalError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LocalError::Closed,
        _ => LocalError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_mobilityfirst::local::greeting;

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
        client
            .send_all(vec![LocalRequest::Cancel { request: 9 }])
            .unwrap();
        let mut frame = [0; 9];
        daemon.read_exact(&mut frame).unwrap();
        assert_eq!(frame, [0, 0, 0, 5, 1, 0, 0, 0, 9]);
        drop(daemon);
        assert!(matches!(
            client.send_all(vec![LocalRequest::Cancel { request: 9 }]),
            Err(LocalError::Closed)
        ));
    }

    #[test]
    fn a_socket_without_daemon_is_said_to_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let missing = connect_socket(&folder.path().join("host.sock"));
        assert!(matches!(missing, Err(LocalError::Nobody(_))));
    }
}
