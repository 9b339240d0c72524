//! A node's counters, as OpenMetrics over HTTP: `GET /metrics` for Prometheus.
//!
//! One listener serves every plane of a node: the page is made of snapshots that each plane's loop
//! takes of itself.

mod callers;
mod diagnostics;
mod family;
mod http;
mod links;
mod native;
mod ndn;
mod tcp_proxy;

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;
use whimbrel_core::Machine;
use whimbrel_io::{EventLoop, LoopHandle, listen_tcp};

use crate::Node;
use crate::name_store::NameStore;
use crate::ndn::NdnRouter;
use crate::run::StartError;
use crate::tcp_proxy::run::ProxyGateway;

/// Time in which a busy node must take its snapshot.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for which a page is given again: a snapshot takes the node's own thread, so those who ask
/// must not decide how often there is one.
const FRESH: Duration = Duration::from_millis(250);

type Taken = Box<dyn Collector>;
type Ask = dyn Fn() -> Option<mpsc::Receiver<Taken>> + Send + Sync;

/// One plane of a node, which can be asked for a snapshot.
pub struct Source(Arc<Ask>);

impl Clone for Source {
    fn clone(&self) -> Source {
        Source(Arc::clone(&self.0))
    }
}

impl Source {
    /// Returns the source of a host, a name server, or a router's MobilityFirst plane.
    pub fn native(node: LoopHandle<Node<NameStore>>) -> Source {
        Source::of(node, |event_loop| {
            Box::new(native::Snapshot::of(event_loop))
        })
    }

    /// Returns the source of a router's NDN plane.
    pub fn ndn(router: LoopHandle<NdnRouter>) -> Source {
        Source::of(router, |event_loop| Box::new(ndn::Snapshot::of(event_loop)))
    }

    /// Returns the source of a TCP/ICN proxy.
    pub(crate) fn tcp_proxy(proxy: LoopHandle<ProxyGateway>) -> Source {
        Source::of(proxy, |event_loop| {
            Box::new(tcp_proxy::Snapshot::of(event_loop))
        })
    }

    fn of<M: Machine + 'static>(
        handle: LoopHandle<M>,
        take: fn(&mut EventLoop<M>) -> Taken,
    ) -> Source {
        Source(Arc::new(move || {
            let (sender, snapshot) = mpsc::channel();
            let task = move |event_loop: &mut EventLoop<M>| {
                // The asking thread may have given up.
                let _ = sender.send(take(event_loop));
            };
            handle.post_to_loop(task).ok().map(|()| snapshot)
        }))
    }
}

/// Answers `GET /metrics` on `address` for as long as the process lives. Returns the bound address.
pub fn serve(address: SocketAddr, sources: Vec<Source>) -> Result<SocketAddr, StartError> {
    let failed = |source| StartError::System {
        what: "socket for metrics",
        source,
    };
    let listener =
        listen_tcp("metrics", address).map_err(|source| StartError::Metrics { address, source })?;
    listener.set_nonblocking(true).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let run = move || {
        runtime.block_on(async move {
            let pages = Arc::new(Pages::of(sources, FRESH));
            let answer = move || Arc::clone(&pages).answer();
            let routes = axum::Router::new().route("/metrics", get(answer));
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => http::serve(listener, routes, http::Bounds::default()).await,
                Err(error) => tracing::error!(%error, "metrics are not served"),
            }
        });
    };
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(run)
        .map_err(failed)?;
    Ok(local)
}

/// A page and when it was made; `None` if the node did not answer.
type Made = (Instant, Option<Bytes>);

/// The page of a node, which is made at most once in `fresh`.
struct Pages {
    sources: Vec<Source>,
    fresh: Duration,
    // Locked while a page is made: whoever asks meanwhile gets the same one.
    last: Arc<Mutex<Option<Made>>>,
}

impl Pages {
    fn of(sources: Vec<Source>, fresh: Duration) -> Pages {
        let last = Arc::new(Mutex::new(None));
        Pages {
            sources,
            fresh,
            last,
        }
    }

    /// Returns the page, or `None` if the node does not answer in time.
    async fn newest(&self) -> Option<Bytes> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((made, page)) = &*last
            && made.elapsed() < self.fresh
        {
            return page.clone();
        }
        let sources = self.sources.clone();
        // A task of its own: a request that is given up must not free the way for a further snapshot
        // while this one is taken.
        let making = tokio::spawn(async move {
            let waited = tokio::task::spawn_blocking(move || gathered(&sources)).await;
            let taken = waited.ok().flatten();
            let page = taken.and_then(|taken| page(taken).ok()).map(Bytes::from);
            *last = Some((Instant::now(), page.clone()));
            page
        });
        making.await.ok().flatten()
    }

    async fn answer(self: Arc<Pages>) -> Response {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        let silent = (
            StatusCode::SERVICE_UNAVAILABLE,
            "the node does not answer\n",
        );
        match self.newest().await {
            Some(page) => ([(header::CONTENT_TYPE, kind)], page).into_response(),
            None => silent.into_response(),
        }
    }
}

/// Returns a snapshot of every source, or `None`: a partial page would look like vanished counters.
fn gathered(sources: &[Source]) -> Option<Vec<Taken>> {
    let until = Instant::now() + PATIENCE;
    let asked: Vec<_> = sources.iter().map(|Source(ask)| ask()).collect();
    let taken = asked.into_iter().map(|snapshot| {
        let left = until.saturating_duration_since(Instant::now());
        snapshot?.recv_timeout(left).ok()
    });
    taken.collect()
}

/// Returns the text of the page.
fn page(taken: Vec<Taken>) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(diagnostics::Snapshot));
    for snapshot in taken {
        registry.register_collector(snapshot);
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
