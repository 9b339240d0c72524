//! A proxy that ends TCP connections and continues with connections of its own: split TCP, as in
//! mobile networks and over satellite links (RFC 3135 §2.4).

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use socket2::{Domain, SockRef, Socket, Type};

use super::CongestionControl;
use super::copy::receive;
use super::server::{SenderStats, listen, tcp_info};
use crate::{LabError, Namespace};

/// Forwards the bytes of either side until it is stopped or dropped. Only the kernel's socket
/// buffers hold bytes for the slower side.
#[derive(Debug)]
pub(super) struct TcpProxy {
    address: SocketAddrV4,
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddrV4,
    congestion: CongestionControl,
    stats: Mutex<SenderStats>,
    open: Mutex<Vec<TcpStream>>,
}

impl TcpProxy {
    /// Listens at `address` in `host` (port 0: any free one), and connects to `upstream` for each
    /// connection.
    pub(super) fn start(
        host: &Namespace,
        address: SocketAddrV4,
        upstream: SocketAddrV4,
        congestion: CongestionControl,
    ) -> Result<TcpProxy, LabError> {
        let (listener, address) = listen(host, address, congestion, false)?;
        let listener = Arc::new(listener);
        let shared = Arc::new(Shared {
            upstream,
            congestion,
            stats: Mutex::default(),
            open: Mutex::default(),
        });
        let acceptor = {
            let (listener, shared) = (listener.clone(), shared.clone());
            host.spawn_thread("tcp-proxy", move || accept(&listener, &shared))?
        };
        Ok(TcpProxy {
            address,
            listener,
            shared,
            acceptor: Some(acceptor),
        })
    }

    pub(super) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Closes every connection and returns the counters of those towards clients.
    pub(super) fn stop(mut self) -> SenderStats {
        self.close();
        *locked(&self.shared.stats)
    }

    fn close(&mut self) {
        // On Linux this wakes the thread that waits in accept.
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.close();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut connections = Vec::new();
    while let Ok((client, peer)) = listener.accept() {
        let shared = Arc::clone(shared);
        // A thread begins in the namespace of the thread that starts it.
        connections.push(std::thread::spawn(move || {
            if let Err(error) = pass_on(&client, &shared) {
                tracing::warn!(%peer, %error, "the proxy's connection broke");
            }
            match tcp_info(&client) {
                Ok(info) => locked(&shared.stats).add(&info),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the kernel's counters of a connection")
                }
            }
        }));
    }
    for stream in locked(&shared.open).drain(..) {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for connection in connections {
        let _ = connection.join();
    }
}

fn pass_on(client: &TcpStream, shared: &Shared) -> io::Result<()> {
    let upstream = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    upstream.set_tcp_congestion(shared.congestion.name().as_bytes())?;
    upstream.connect(&SocketAddr::V4(shared.upstream).into())?;
    let upstream = TcpStream::from(upstream);
    for stream in [client, &upstream] {
        stream.set_nodelay(true)?;
        locked(&shared.open).push(stream.try_clone()?);
    }
    std::thread::scope(|scope| {
        let request = scope.spawn(|| copy(client, &upstream));
        let answer = copy(&upstream, client);
        match request.join() {
            Ok(request) => request.and(answer),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Copies up to the end of the stream, and then ends the other stream.
fn copy(from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let copied = receive(from, |block| to.write_all(block));
    // The other direction may have ended first.
    let _ = to.shutdown(Shutdown::Write);
    copied.map(drop)
}
