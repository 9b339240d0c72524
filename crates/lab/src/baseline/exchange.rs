//! One connection of the kernel's TCP on which both ends send a file at the same time.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::copy::{receive, send_file};
use super::{CongestionControl, TcpBaseline};
use crate::{LabError, Namespace, TransferMeter, TransferRecord};

/// A file that both ends sent each other.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpExchange {
    /// The client's measurements: the time is that of the last byte that arrived there. It is complete if
    /// both directions are.
    pub record: TransferRecord,
    /// BLAKE3 hash of what each end received, in hexadecimal.
    pub blake3: Vec<String>,
}

/// What one end received: bytes, and their BLAKE3 hash.
type Arrived = (u64, String);

impl TcpBaseline {
    /// Sends `file` from `server` to `client` and back on one connection at once.
    pub fn exchange(
        &self,
        server: (&Namespace, Ipv4Addr),
        client: &Namespace,
        file: &Path,
    ) -> Result<TcpExchange, LabError> {
        let (host, address) = server;
        let ends = [host, client];
        self.buffers.prepare(self.receive_buffer, &ends, &ends)?;
        let failed = || LabError::system(format!("exchange {}", file.display()));
        let listener = host.enter(|| TcpListener::bind((address, 0)))?;
        let listener = listener.map_err(failed())?;
        let at = listener.local_addr().map_err(failed())?;
        let started = Instant::now();
        let mut meter = TransferMeter::new(started);
        let connected = client.enter(|| connect(at, self.patience))?;
        let Ok(near) = connected else {
            return Ok(TcpExchange {
                record: meter.finish(Instant::now(), false),
                blake3: Vec::new(),
            });
        };
        let (far, _) = listener.accept().map_err(failed())?;
        for end in [&near, &far] {
            set_congestion(end, self.congestion).map_err(failed())?;
        }
        let deadline = started + self.patience;
        let mut arrived = |bytes: usize| meter.arrived(Instant::now(), bytes as u64);
        let (sent, got) = cross([&near, &far], file, deadline, &mut arrived);
        let end = Instant::now();
        let length = std::fs::metadata(file).map_err(failed())?.len();
        let whole = got.iter().flatten().filter(|(bytes, _)| *bytes == length);
        let completed = sent && whole.count() == got.len();
        Ok(TcpExchange {
            record: meter.finish(end, completed),
            blake3: got.into_iter().flatten().map(|(_, hash)| hash).collect(),
        })
    }
}

fn connect(at: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&at, patience)
}

fn set_congestion(stream: &TcpStream, control: CongestionControl) -> io::Result<()> {
    SockRef::from(stream).set_tcp_congestion(control.name().as_bytes())
}

/// Sends the file both ways until `deadline`. Returns whether all of it was sent, and what each end received;
/// `arrived` hears what the first one does.
fn cross(
    ends: [&TcpStream; 2],
    file: &Path,
    deadline: Instant,
    arrived: &mut (dyn FnMut(usize) + Send),
) -> (bool, [Option<Arrived>; 2]) {
    let [near, far] = ends;
    let (done, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let senders = ends.map(|end| {
            let done = done.clone();
            scope.spawn(move || {
                let sent = File::open(file).and_then(|file| send_file(end, &file));
                let sent = sent.and_then(|_| end.shutdown(Shutdown::Write));
                let _ = done.send(());
                sent.is_ok()
            })
        });
        let receivers = [(near, Some(arrived)), (far, None)].map(|(end, arrived)| {
            let done = done.clone();
            scope.spawn(move || {
                let found = hashed(end, arrived);
                let _ = done.send(());
                found
            })
        });
        let left = || deadline.saturating_duration_since(Instant::now());
        if (0..4).any(|_| ended.recv_timeout(left()).is_err()) {
            // The threads wait for these only.
            let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
        }
        let sent = senders.map(|it| it.join().unwrap_or_default());
        let got = receivers.map(|it| it.join().unwrap_or_default());
        (sent.iter().all(|it| *it), got)
    })
}

fn hashed(end: &TcpStream, mut arrived: Option<&mut (dyn FnMut(usize) + Send)>) -> Option<Arrived> {
    let mut hasher = blake3::Hasher::new();
    let count = receive(end, |bytes| {
        hasher.update(bytes);
        if let Some(arrived) = &mut arrived {
            arrived(bytes.len());
        }
        Ok(())
    });
    Some((count.ok()?, hasher.finalize().to_hex().to_string()))
}
