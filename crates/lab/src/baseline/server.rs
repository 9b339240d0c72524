//! An HTTP/1.1 server of one file, which reports the counters of its TCP connections.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::CongestionControl;
use super::copy::{receive, send_file};
use crate::{LabError, Namespace};

const MAX_REQUEST: usize = 8192;
const REQUEST_PATIENCE: Duration = Duration::from_secs(60);
const MAX_CONNECTIONS: usize = 64;
/// Interval at which the kernel is asked about a connection.
const SAMPLES: Duration = Duration::from_millis(500);
/// Bound of the samples of all connections: later ones are not taken.
const MAX_SAMPLES: usize = 100_000;

/// Counters of the sending kernel (TCP_INFO), summed over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderStats {
    /// Connections that were closed.
    pub connections: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Payload bytes of these.
    pub retransmitted_bytes: u64,
    /// Segments sent, retransmissions included.
    pub segments: u64,
    /// Shortest round-trip time that any connection saw, in microseconds.
    pub min_rtt_micros: u32,
    /// Retransmission timeouts in a row without an answer, at the end of a connection.
    pub pending_timeouts: u64,
}

/// A connection's sender at a moment, as the kernel sees it (TCP_INFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSample {
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Congestion window in segments.
    pub window: u32,
    /// Retransmission timeout in microseconds.
    pub timeout_micros: u32,
    /// Segments sent again so far.
    pub retransmitted: u32,
}

/// Serves one file under every path until it is stopped or dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddrV4,
    length: u64,
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    file: PathBuf,
    stats: Mutex<SenderStats>,
    samples: Mutex<Vec<KernelSample>>,
    open: Mutex<Vec<TcpStream>>,
}

impl HttpServer {
    /// Listens at `address` in `host` (port 0: any free one), each connection with the given
    /// congestion control. `is_multipath`: clients may use several paths at once.
    pub fn start(
        host: &Namespace,
        address: SocketAddrV4,
        file: &Path,
        congestion: CongestionControl,
        is_multipath: bool,
    ) -> Result<HttpServer, LabError> {
        let length = File::open(file)
            .and_then(|file| file.metadata())
            .map_err(LabError::system(format!("read '{}'", file.display())))?
            .len();
        let (listener, address) = listen(host, address, congestion, is_multipath)?;
        let listener = Arc::new(listener);
        let shared = Arc::new(Shared {
            file: file.to_owned(),
            stats: Mutex::default(),
            samples: Mutex::default(),
            open: Mutex::default(),
        });
        let acceptor = {
            let (listener, shared) = (listener.clone(), shared.clone());
            std::thread::Builder::new()
                .name("http-server".to_owned())
                .spawn(move || accept(&listener, &shared))
                .map_err(LabError::system("start a thread"))?
        };
        Ok(HttpServer {
            address,
            length,
            listener,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Returns the bytes of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns what was seen of its connections every half second, so far.
    pub fn samples(&self) -> Vec<KernelSample> {
        let samples = self.shared.samples.lock();
        samples.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes every connection and returns their counters.
    pub fn stop(mut self) -> SenderStats {
        self.close();
        *self
            .shared
            .stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&mut self) {
        // On Linux this wakes the thread that waits in accept.
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.close();
    }
}

/// Listens in `host` with this congestion control for each accepted connection. Returns the address
/// too.
pub(crate) fn listen(
    host: &Namespace,
    address: SocketAddrV4,
    congestion: CongestionControl,
    is_multipath: bool,
) -> Result<(TcpListener, SocketAddrV4), LabError> {
    let listening = || -> io::Result<TcpListener> {
        let protocol = is_multipath.then_some(Protocol::MPTCP);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, protocol)?;
        socket.set_reuse_address(true)?;
        // Accepted sockets inherit it.
        socket.set_tcp_congestion(congestion.name().as_bytes())?;
        socket.bind(&address.into())?;
        socket.listen(16)?;
        Ok(socket.into())
    };
    let listener = host.enter(listening)?.map_err(LabError::system(format!(
        "listen at {address} with {}",
        congestion.name()
    )))?;
    let bound = listener
        .local_addr()
        .map_err(LabError::system("read a socket's address"))?;
    let SocketAddr::V4(address) = bound else {
        return Err(LabError::BadTopology(format!(
            "{bound} is not an IPv4 address"
        )));
    };
    Ok((listener, address))
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut connections: Vec<JoinHandle<()>> = Vec::new();
    while let Ok((stream, peer)) = listener.accept() {
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= MAX_CONNECTIONS {
            tracing::warn!(%peer, "too many connections at once, this one is refused");
            continue;
        }
        let handle = stream.try_clone().and_then(|copy| {
            shared
                .open
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(copy);
            let shared = shared.clone();
            std::thread::Builder::new()
                .name("http-connection".to_owned())
                .spawn(move || serve(&stream, &shared))
        });
        match handle {
            Ok(handle) => connections.push(handle),
            Err(error) => tracing::warn!(%peer, %error, "a connection cannot be served"),
        }
    }
    for stream in shared
        .open
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .drain(..)
    {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for connection in connections {
        let _ = connection.join();
    }
}

fn serve(stream: &TcpStream, shared: &Shared) {
    let answered = std::thread::scope(|scope| {
        let (ended, end) = mpsc::channel::<()>();
        scope.spawn(move || {
            while end.recv_timeout(SAMPLES) == Err(mpsc::RecvTimeoutError::Timeout) {
                sample(stream, shared);
            }
        });
        let answered = answer(stream, &shared.file);
        drop(ended);
        answered
    });
    if let Err(error) = answered {
        tracing::debug!(%error, "an HTTP connection broke");
    }
    match tcp_info(stream) {
        Ok(info) => shared
            .stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(&info),
        Err(error) => tracing::warn!(%error, "cannot read the kernel's counters of a connection"),
    }
}

/// Notes the kernel's view of a connection.
fn sample(stream: &TcpStream, shared: &Shared) {
    let Ok(info) = tcp_info(stream) else {
        return;
    };
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let unix_ms = since_epoch.unwrap_or_default().as_millis();
    let samples = shared.samples.lock();
    let mut samples = samples.unwrap_or_else(PoisonError::into_inner);
    if samples.len() < MAX_SAMPLES {
        samples.push(KernelSample {
            unix_ms: u64::try_from(unix_ms).unwrap_or(u64::MAX),
            window: info.tcpi_snd_cwnd,
            timeout_micros: info.tcpi_rto,
            retransmitted: info.tcpi_total_retrans,
        });
    }
}

fn answer(mut stream: &TcpStream, path: &Path) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REQUEST_PATIENCE))?;
    let request = read_head(stream)?;
    if !request.starts_with(b"GET ") {
        return stream.write_all(
            b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    )?;
    send_file(stream, &file)?;
    stream.shutdown(Shutdown::Write)?;
    // Until the client closes too, segments may still be sent again, and they must be counted.
    stream.set_read_timeout(None)?;
    receive(stream, |_| Ok(())).map(drop)
}

/// Returns the bytes up to the empty line that ends a request's or a response's head, without it.
/// Reads nothing after it.
pub(super) fn read_head(mut stream: impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_REQUEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the HTTP head is too long",
            ));
        }
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    head.truncate(head.len() - 4);
    Ok(head)
}

impl SenderStats {
    pub(super) fn add(&mut self, info: &libc::tcp_info) {
        self.connections += 1;
        self.retransmitted_segments += u64::from(info.tcpi_total_retrans);
        self.retransmitted_bytes += info.tcpi_bytes_retrans;
        self.segments += u64::from(info.tcpi_segs_out);
        self.pending_timeouts += u64::from(info.tcpi_backoff);
        let rtt = info.tcpi_min_rtt;
        if self.connections == 1 || rtt < self.min_rtt_micros {
            self.min_rtt_micros = rtt;
        }
    }
}

pub(super) fn tcp_info(stream: &TcpStream) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has that size.
    let result = unsafe {
        libc::getsockopt(
            stream.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was zeroed, the kernel overwrote a prefix, and every bit pattern is a valid
    // `tcp_info`.
    Ok(unsafe { info.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_at_the_empty_line_and_leaves_the_body() {
        let mut stream: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nbody";
        assert_eq!(
            read_head(&mut stream).unwrap(),
            b"GET / HTTP/1.1\r\nHost: x"
        );
        assert_eq!(stream, b"body");
    }

    #[test]
    fn a_head_without_an_end_is_refused() {
        assert_eq!(
            read_head(io::repeat(b'a')).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        assert_eq!(
            read_head(&b"GET"[..]).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
