//! A node's counters, as OpenMetrics over HTTP: `GET /metrics` for Prometheus.
//!
//! One listener serves every plane of a node: the page is made of snapshots that each plane's loop
//! takes of itself.

mod callers;
mod family;
mod http;
mod links;
mod native;
mod ndn;
mod tcp_proxy;

use std::net::{SocketAddr, TcpListener};
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
use whimbrel_io::{EventLoop, LoopHandle};

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
        TcpListener::bind(address).map_err(|source| StartError::Metrics { address, source })?;
    listener.set_nonblocking(true).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let run = move || {
        runtime.block_on(async move {
            let pages = Arc::new(Pages::of(sources));
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

/// The page of a node, which is made at most once in [`FRESH`].
struct Pages {
    sources: Vec<Source>,
    // Locked while a page is made: whoever asks meanwhile gets the same one.
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl Pages {
    fn of(sources: Vec<Source>) -> Pages {
        let last = Mutex::new(None);
        Pages { sources, last }
    }

    /// Returns the page, or `None` if the node does not answer in time.
    async fn newest(&self) -> Option<Bytes> {
        let mut last = self.last.lock().await;
        let is_fresh = |(made, _): &&(Instant, Bytes)| made.elapsed() < FRESH;
        if let Some((_, page)) = last.as_ref().filter(is_fresh) {
            return Some(page.clone());
        }
        *last = None;
        let sources = self.sources.clone();
        let waited = tokio::task::spawn_blocking(move || gathered(&sources)).await;
        let page = Bytes::from(page(waited.ok().flatten()?).ok()?);
        *last = Some((Instant::now(), page.clone()));
        Some(page)
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
    for snapshot in taken {
        registry.register_collector(snapshot);
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Debug)]
    struct Empty;

    impl Collector for Empty {
        fn encode(
            &self,
            _encoder: prometheus_client::encoding::DescriptorEncoder,
        ) -> Result<(), std::fmt::Error> {
            Ok(())
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn who_asks_often_makes_no_further_snapshots() {
        run(asked_often());
    }

    async fn asked_often() {
        let taken = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&taken);
        let source = Source(Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let (sender, snapshot) = mpsc::channel();
            sender.send(Box::new(Empty) as Taken).ok()?;
            Some(snapshot)
        }));
        let pages = Arc::new(Pages::of(vec![source]));
        let began = Instant::now();
        let asked: Vec<_> = (0..200)
            .map(|_| {
                let pages = Arc::clone(&pages);
                tokio::spawn(async move { pages.newest().await })
            })
            .collect();
        for page in asked {
            assert!(page.await.is_ok_and(|page| page.is_some()));
        }
        // One, and one more for each time that a busy machine takes longer than a page is fresh.
        let most = 1 + began.elapsed().as_millis() / FRESH.as_millis();
        assert!(u128::from(taken.load(Ordering::Relaxed)) <= most);
        tokio::time::sleep(FRESH).await;
        let before = taken.load(Ordering::Relaxed);
        assert!(pages.newest().await.is_some());
        assert_eq!(taken.load(Ordering::Relaxed), before + 1);
    }

    #[test]
    fn a_node_that_does_not_answer_leaves_no_page() {
        let pages = Pages::of(vec![Source(Arc::new(|| None))]);
        run(async { assert!(pages.newest().await.is_none()) });
    }
}
