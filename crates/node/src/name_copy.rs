//! All records of a name server on this machine, and a file of them.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use whimbrel_core::Guid;
use whimbrel_gnrs::wire::{Code, Frame, MAX_FRAME, Message};
use whimbrel_gnrs::{Record, RecordKey, RecordView};

use crate::keys::random_bytes;

/// Time for one answer, and tries.
const PATIENCE: Duration = Duration::from_millis(500);
const TRIES: u32 = 10;
/// How a file of records begins.
const HEAD: &[u8] = b"whimbrel-records 1\n";
/// What its last bytes are the hash of.
const CONTEXT: &str = "whimbrel 2026 file of gnrs records";
const HASH_LEN: u64 = 32;

/// Why the records of a name server are not listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// It does not answer.
    #[error("no name server responds at {0}")]
    Silent(SocketAddr),
    /// It is elsewhere, or has its records on a cluster.
    #[error(
        "the name server at {0} lists its records only to programs on its own machine (127.0.0.1), and not those of a cluster, which has backups of its own"
    )]
    Refused(SocketAddr),
    /// The system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The records of a name server on this machine, one frame of them at a time.
#[derive(Debug)]
pub struct RecordLister {
    socket: UdpSocket,
    server: SocketAddr,
    cookie: u64,
    after: RecordKey,
}

impl RecordLister {
    /// Lists the records of the server at this address from the first one on.
    pub fn new(server: SocketAddr) -> io::Result<RecordLister> {
        let any = match server {
            SocketAddr::V4(_) => "127.0.0.1:0",
            SocketAddr::V6(_) => "[::1]:0",
        };
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(RecordLister {
            socket,
            server,
            cookie: 0,
            after: RecordKey::binding(Guid::NONE),
        })
    }

    /// Returns the next records, as many as fit into a frame; none at the end.
    pub fn next_part(&mut self) -> Result<Vec<Record>, ListError> {
        for _ in 0..TRIES {
            let id = u64::from_ne_bytes(random_bytes()?);
            let mut request = Vec::new();
            let message = Message::List { after: self.after };
            Frame::request(id, self.cookie, message).encode(&mut request);
            match self.socket.send_to(&request, self.server) {
                // Nobody listens there, perhaps for now.
                Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                    return Err(error.into());
                }
                _ => {}
            }
            let mut buffer = [0; MAX_FRAME];
            let Ok((length, from)) = self.socket.recv_from(&mut buffer) else {
                continue;
            };
            let Ok(frame) = Frame::decode(&buffer[..length]) else {
                continue;
            };
            if from != self.server || frame.id != id {
                continue;
            }
            self.cookie = frame.cookie;
            match frame.message {
                Message::ListAnswer { records } => {
                    let records: Vec<Record> = records.iter().map(|it| it.to_owned()).collect();
                    if let Some(last) = records.last() {
                        self.after = last.filed_under();
                    }
                    return Ok(records);
                }
                Message::Refused if frame.code == Code::NeedCookie => {}
                Message::Refused => return Err(ListError::Refused(self.server)),
                _ => {}
            }
        }
        Err(ListError::Silent(self.server))
    }
}

/// Writes a file of records.
#[derive(Debug)]
pub struct RecordWriter {
    file: BufWriter<File>,
    hasher: blake3::Hasher,
}

impl RecordWriter {
    /// Begins a new file, which must not exist, for this user only.
    pub fn create(path: &Path) -> io::Result<RecordWriter> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = File::options();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let mut file = BufWriter::new(file);
        file.write_all(HEAD)?;
        let hasher = blake3::Hasher::new_derive_key(CONTEXT);
        Ok(RecordWriter { file, hasher })
    }

    /// Adds a record.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.hasher.update(record.as_bytes());
        self.file.write_all(record.as_bytes())
    }

    /// Ends the file; it is on the disk then.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.write_all(self.hasher.finalize().as_bytes())?;
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

/// Reads all of a file of records; an error if it is not whole.
pub fn read_records(path: &Path) -> io::Result<Vec<Record>> {
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut file = BufReader::new(file);
    let mut head = [0; HEAD.len()];
    let body = length.checked_sub(HEAD.len() as u64 + HASH_LEN);
    let is_one = file.read_exact(&mut head).is_ok() && head == *HEAD;
    let body = body.filter(|_| is_one);
    let body = body.ok_or_else(|| broken("it is not a file of `whimbrel gnrs backup`"))?;
    let mut bytes = Vec::new();
    file.by_ref().take(body).read_to_end(&mut bytes)?;
    let mut hash = [0; HASH_LEN as usize];
    file.read_exact(&mut hash)?;
    if blake3::derive_key(CONTEXT, &bytes) != hash {
        return Err(broken("it was changed or cut off: its hash does not fit"));
    }
    let mut records = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (record, after) =
            RecordView::split(rest).map_err(|fault| broken(&fault.to_string()))?;
        records.push(record.to_owned());
        rest = after;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_gnrs::{KeyPair, Statement};

    #[test]
    fn a_file_of_records_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        let record = |seed| {
            let keys = KeyPair::from_secret(&[seed; 32]);
            Record::binding(&keys, &Statement::new(1000, 1000, vec![])).unwrap()
        };
        let mut writer = RecordWriter::create(&path).unwrap();
        (1..=3).for_each(|seed| writer.write(&record(seed)).unwrap());
        writer.finish().unwrap();
        assert!(RecordWriter::create(&path).is_err(), "it is overwritten");
        let all: Vec<Record> = (1..=3).map(record).collect();
        assert_eq!(read_records(&path).unwrap(), all);
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 5, HEAD.len(), 100, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(read_records(&path).is_err(), "{cut}");
        }
    }
}
