//! A server of objects (`super::object`).

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::object::answer;
use super::{QuicPlan, WEB_PORT, runtime};
use crate::baseline::listen;
use crate::browser::HttpVersion;
use crate::{CongestionControl, LabError, Namespace};

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
                let quic = QuicPlan {
                    address: address.into(),
                    congestion: plan.congestion,
                    certificate: &plan.certificate,
                };
                super::quic::serve(host, quic, runtime, Arc::clone(&stop))?
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
