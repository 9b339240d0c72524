//! HTTP for strangers: whoever reaches the page's port can connect, and the process has few file
//! descriptors, which its links need.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use whimbrel_core::network_of;

/// The bounds of the page's server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections at once. For a further one, an unfinished one gives way.
    connections: usize,
    /// Time for the head of a request.
    head: Duration,
    /// Time for a whole connection, which is one request and its answer.
    whole: Duration,
}

/// The longest head of a request, in bytes. The least that hyper takes.
const MAX_HEAD: usize = 8192;

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections: 16,
            head: Duration::from_secs(5),
            // A busy node takes 5 s for its snapshots; Prometheus waits for 10 s.
            whole: Duration::from_secs(15),
        }
    }
}

struct Connection {
    // The network ([`network_of`]).
    from: u128,
    task: JoinHandle<()>,
}

/// The connections that are not finished, the oldest first.
#[derive(Default)]
struct Connections(VecDeque<Connection>);

impl Connections {
    /// The network with the most connections gives its oldest one up until there is room for another.
    /// The one at hand counts with those of its network, `from`.
    fn make_room(&mut self, most: usize, from: u128) {
        self.0.retain(|it| !it.task.is_finished());
        while self.0.len() >= most.max(1) {
            let held = |of: u128| {
                let held = self.0.iter().filter(|it| it.from == of).count();
                held + usize::from(of == from)
            };
            let most_held = self.0.iter().map(|it| held(it.from)).max().unwrap_or(0);
            let place = self.0.iter().position(|it| held(it.from) == most_held);
            if let Some(oldest) = place.and_then(|place| self.0.remove(place)) {
                tracing::debug!("an unfinished request for metrics gives way to a new one");
                oldest.task.abort();
            }
        }
    }
}

/// Answers requests by `routes`, for ever.
pub(super) async fn serve(listener: TcpListener, routes: Router, bounds: Bounds) {
    let mut connections = Connections::default();
    loop {
        let (stream, from) = match listener.accept().await {
            Ok((stream, remote)) => (stream, network_of(remote.ip())),
            Err(error) => {
                // Of one connection, or of this process, which may have no file descriptor left.
                tracing::debug!(%error, "a request for metrics was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        connections.make_room(bounds.connections, from);
        let task = tokio::spawn(converse(stream, routes.clone(), bounds));
        connections.0.push_back(Connection { from, task });
    }
}

async fn converse(stream: TcpStream, routes: Router, bounds: Bounds) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    match tokio::time::timeout(bounds.whole, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a request for metrics failed"),
        Err(_) => tracing::debug!("a request for metrics took too long"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, SocketAddr, TcpStream};

    use axum::routing::get;

    use super::*;

    /// A page at an address of this machine.
    fn page(bounds: Bounds) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let builder = std::thread::Builder::new();
        let run = move || {
            runtime.block_on(async {
                let routes = Router::new().route("/metrics", get(|| async { "a 1\n" }));
                serve(TcpListener::from_std(listener).unwrap(), routes, bounds).await
            })
        };
        builder.spawn(run).unwrap();
        address
    }

    /// A connection with a part of a request.
    fn begun(address: SocketAddr, part: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        let patience = Duration::from_secs(20);
        stream.set_read_timeout(Some(patience)).unwrap();
        stream.write_all(part).unwrap();
        stream
    }

    /// What comes until the other end closes.
    fn rest(mut stream: TcpStream) -> String {
        let mut all = Vec::new();
        // A connection that gave way may be reset.
        let closed = stream.read_to_end(&mut all);
        let is_late = closed.is_err_and(|it| it.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!is_late, "it is not closed");
        String::from_utf8(all).unwrap()
    }

    const WHOLE: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn unfinished_requests_are_bounded_and_hold_up_no_other() {
        let long = Duration::from_secs(3600);
        let address = page(Bounds {
            head: long,
            whole: long,
            ..Bounds::default()
        });
        let mut slow: Vec<_> = (0..300).map(|_| begun(address, b"GET /metr")).collect();
        assert!(rest(begun(address, WHOLE)).ends_with("a 1\n"));
        // All but the newest have given way; those have not.
        let mut kept = slow.split_off(slow.len() - 15);
        for stream in slow {
            assert_eq!(rest(stream), "");
        }
        let newest = kept.last_mut().unwrap();
        newest
            .write_all(b"ics HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        assert!(rest(kept.pop().unwrap()).ends_with("a 1\n"));
    }

    #[tokio::test]
    async fn who_has_the_most_connections_gives_way() {
        let mut connections = Connections::default();
        let address = |last: u8| network_of(IpAddr::from([192, 0, 2, last]));
        let take = |connections: &mut Connections, last| {
            connections.make_room(4, address(last));
            let task = tokio::spawn(std::future::pending());
            let from = address(last);
            connections.0.push_back(Connection { from, task });
        };
        for last in [7, 1, 1, 1, 1, 1, 8, 1] {
            take(&mut connections, last);
        }
        let held: Vec<u128> = connections.0.iter().map(|it| it.from).collect();
        assert_eq!(held, [7, 1, 8, 1].map(address));
    }

    #[test]
    fn requests_have_a_time_and_a_size() {
        let address = page(Bounds {
            head: Duration::from_millis(100),
            ..Bounds::default()
        });
        assert!(rest(begun(address, WHOLE)).ends_with("a 1\n"));
        assert_eq!(rest(begun(address, b"GET /metrics HTTP/1.1\r\n")), "");
        assert_eq!(rest(begun(address, b"")), "");
        let mut large = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
        large.resize(2 * MAX_HEAD, b'x');
        assert!(rest(begun(address, &large)).starts_with("HTTP/1.1 431"));
    }
}
