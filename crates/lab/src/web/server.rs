//! A server whose paths state the size of what they name: `/PAGE/OBJECT/OCTETS`.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::{WEB_PORT, runtime};
use crate::baseline::listen;
use crate::browser::HttpVersion;
use crate::{CongestionControl, LabError, Namespace};

/// Largest object, octets.
const LARGEST: usize = 16 << 20;
/// Pause after a failure of the listener.
const PAUSE: Duration = Duration::from_millis(10);

/// What a server is.
#[derive(Clone, Debug)]
pub struct WebServerPlan {
    /// The version of HTTP: over TCP without TLS, the third over QUIC.
    pub http: HttpVersion,
    /// The sender's congestion control.
    pub congestion: CongestionControl,
    /// Where a server of HTTP/3 leaves its certificate.
    pub certificate: PathBuf,
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct WebServer {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl WebServer {
    /// Listens on all addresses of a host.
    pub fn start(host: &Namespace, plan: &WebServerPlan) -> Result<WebServer, LabError> {
        let stop = Arc::new(Notify::new());
        let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, WEB_PORT);
        let runtime = runtime()?;
        let thread = match plan.http {
            HttpVersion::Three => {
                super::quic::serve(host, address.into(), plan, runtime, Arc::clone(&stop))?
            }
            http => {
                let (listener, _) = listen(host, address, plan.congestion, false)?;
                let prepared = listener.set_nonblocking(true);
                prepared.map_err(LabError::system("prepare a socket"))?;
                let stopped = Arc::clone(&stop);
                host.spawn_thread("web server", move || {
                    runtime.block_on(async {
                        tokio::select! {
                            outcome = serve(listener, http) => {
                                if let Err(error) = outcome {
                                    tracing::warn!(%error, "the web server has ended");
                                }
                            }
                            () = stopped.notified() => {}
                        }
                    });
                })?
            }
        };
        Ok(WebServer {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: std::net::TcpListener, http: HttpVersion) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => drop(tokio::spawn(connection(stream, peer, http))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, http: HttpVersion) {
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(stream);
    let service = service_fn(async |request: Request<Incoming>| {
        Ok::<_, Infallible>(answer(request.uri().path()).map(Full::new))
    });
    let outcome = match http {
        HttpVersion::Two => {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.serve_connection(stream, service).await
        }
        _ => {
            let builder = hyper::server::conn::http1::Builder::new();
            builder.serve_connection(stream, service).await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, %peer, "a connection ended early");
    }
}

/// Returns the octet that an object consists of.
pub(super) fn octet_of(page: usize, object: usize) -> u8 {
    (page * 31 + object) as u8
}

/// Returns the path of an object.
pub(super) fn path_of(page: usize, object: usize, size: u32) -> String {
    format!("/{page}/{object}/{size}")
}

/// Answers a request for a path.
pub(super) fn answer(path: &str) -> Response<Bytes> {
    let mut parts = path.trim_start_matches('/').split('/');
    let mut number = || parts.next()?.parse::<usize>().ok();
    let named = (number(), number(), number());
    let (body, status) = match named {
        (Some(page), Some(object), Some(size)) if size <= LARGEST => {
            (vec![octet_of(page, object); size].into(), StatusCode::OK)
        }
        _ => (Bytes::new(), StatusCode::NOT_FOUND),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    // Each object is requested once: a cache on the way would take part in nothing.
    let no_store = header::HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}
