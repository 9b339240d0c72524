//! A browser emulator: it requests the document of a page, then what that names, and so on, as [MFTP §5.3]'s *epload*
//! does. It computes nothing.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::object::{octet_of, path_of};
use super::pages::WebPage;
use super::{failed, runtime};
use crate::browser::HttpVersion;
use crate::{LabError, TransferMeter, TransferRecord};

/// Requests at a time on a connection that carries several: the least that servers of HTTP/2 and HTTP/3 should admit
/// (RFC 9113, section 6.5.2).
const CONCURRENT: usize = 100;
/// Octets that are checked at a time.
const BLOCK: usize = 4096;

/// The way of an emulator to its server.
#[derive(Clone, Debug)]
pub struct PageRoute {
    /// The version of HTTP.
    pub http: HttpVersion,
    /// The server.
    pub server: SocketAddr,
    /// The proxy that is asked for what the server has.
    pub proxy: Option<SocketAddr>,
    /// Connections of HTTP/1.1, each with one request at a time.
    pub connections: usize,
    /// The certificate of a server of HTTP/3.
    pub certificate: PathBuf,
}

/// Something that carries a request.
#[derive(Clone)]
enum WebLine {
    Two(http2::SendRequest<Empty<Bytes>>),
    #[cfg(feature = "peers")]
    Three {
        requests: super::quic::QuicLine,
        // It ends with its last copy.
        _endpoint: quinn::Endpoint,
    },
}

type IdleLine = http1::SendRequest<Empty<Bytes>>;

/// An emulator, which keeps its connections from page to page. It belongs to the host whose thread makes and runs it.
pub struct WebEmulator {
    route: Arc<PageRoute>,
    runtime: Runtime,
    /// Connections of HTTP/1.1 without a request.
    idle: Vec<IdleLine>,
    /// The connection of HTTP/2 or HTTP/3.
    line: Option<WebLine>,
}

/// A request under way.
struct PageFetch {
    route: Arc<PageRoute>,
    meter: Arc<Mutex<TransferMeter>>,
    page: usize,
    object: usize,
    size: u32,
}

/// What a request leaves: the object, and the connection that is free again.
type PageArrival = Result<(usize, Option<IdleLine>), LabError>;

impl WebEmulator {
    /// Returns an emulator without connections.
    pub fn new(route: PageRoute) -> Result<WebEmulator, LabError> {
        Ok(WebEmulator {
            route: Arc::new(route),
            runtime: runtime()?,
            idle: Vec::new(),
            line: None,
        })
    }

    /// Loads a page. One that takes longer than `patience` is not whole, and its connections are closed.
    pub fn load(
        &mut self,
        number: usize,
        page: &WebPage,
        patience: Duration,
    ) -> Result<TransferRecord, LabError> {
        let started = Instant::now();
        let meter = Arc::new(Mutex::new(TransferMeter::new(started)));
        let WebEmulator {
            route,
            runtime,
            idle,
            line,
        } = self;
        let loading = load(Arc::clone(route), idle, line, number, page, &meter);
        let is_whole = runtime.block_on(async {
            match tokio::time::timeout(patience, loading).await {
                Ok(outcome) => outcome.map(|()| true),
                Err(_) => Ok(false),
            }
        })?;
        if !is_whole {
            self.idle.clear();
            self.line = None;
        }
        let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = std::mem::replace(&mut *meter, TransferMeter::new(started));
        Ok(measured.finish(Instant::now(), is_whole))
    }
}

async fn load(
    route: Arc<PageRoute>,
    idle: &mut Vec<IdleLine>,
    line: &mut Option<WebLine>,
    number: usize,
    page: &WebPage,
    meter: &Arc<Mutex<TransferMeter>>,
) -> Result<(), LabError> {
    let most = match route.http {
        HttpVersion::One => route.connections,
        _ => CONCURRENT,
    };
    if route.http != HttpVersion::One && line.is_none() {
        *line = Some(WebLine::connect(&route).await?);
    }
    let mut ready = VecDeque::from([0]);
    let mut under_way: JoinSet<PageArrival> = JoinSet::new();
    loop {
        while under_way.len() < most
            && let Some(object) = ready.pop_front()
        {
            let fetch = PageFetch {
                route: Arc::clone(&route),
                meter: Arc::clone(meter),
                page: number,
                object,
                size: page.objects[object].size,
            };
            match line.clone() {
                Some(line) => under_way.spawn(fetch.on_shared(line)),
                None => under_way.spawn(fetch.alone(idle.pop())),
            };
        }
        let Some(arrived) = under_way.join_next().await else {
            return Ok(());
        };
        let arrived = arrived.map_err(|fault| failed("a page", fault))?;
        let (object, free) = arrived?;
        idle.extend(free);
        ready.extend(page.named_by(object));
    }
}

fn fault(reason: impl std::fmt::Display) -> LabError {
    failed("an object of a page", reason)
}

async fn connect(address: SocketAddr) -> Result<TokioIo<TcpStream>, LabError> {
    let stream = TcpStream::connect(address).await.map_err(fault)?;
    let _ = stream.set_nodelay(true);
    Ok(TokioIo::new(stream))
}

impl WebLine {
    async fn connect(route: &PageRoute) -> Result<WebLine, LabError> {
        match route.http {
            #[cfg(feature = "peers")]
            HttpVersion::Three => {
                let (endpoint, requests) =
                    super::quic::connect(route.server, &route.certificate).await?;
                Ok(WebLine::Three {
                    requests,
                    _endpoint: endpoint,
                })
            }
            _ => {
                let stream = connect(route.server).await?;
                let shaken = http2::handshake(TokioExecutor::new(), stream).await;
                let (requests, connection) = shaken.map_err(fault)?;
                tokio::spawn(connection);
                Ok(WebLine::Two(requests))
            }
        }
    }
}

impl PageFetch {
    fn path(&self) -> String {
        path_of(self.page, self.object, self.size)
    }

    /// Returns what takes the pieces of the object's body, and checks them.
    fn taker(&self) -> impl FnMut(&[u8]) -> Result<(), LabError> + use<> {
        let octets = [octet_of(self.page, self.object); BLOCK];
        let meter = Arc::clone(&self.meter);
        move |piece| {
            let mut blocks = piece.chunks(BLOCK);
            if blocks.any(|block| *block != octets[..block.len()]) {
                return Err(fault("it arrived with the octets of another one"));
            }
            let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
            meter.arrived(Instant::now(), piece.len() as u64);
            Ok(())
        }
    }

    fn request(&self, target: String) -> Result<Request<Empty<Bytes>>, LabError> {
        let request = Request::get(target).header("Host", self.route.server.to_string());
        request.body(Empty::new()).map_err(fault)
    }

    /// Fetches the object on a connection of HTTP/1.1, a new one if none is free.
    async fn alone(self, idle: Option<IdleLine>) -> PageArrival {
        let mut line = match idle {
            Some(line) => line,
            None => {
                let stream = connect(self.route.proxy.unwrap_or(self.route.server)).await?;
                let (line, connection) = http1::handshake(stream).await.map_err(fault)?;
                tokio::spawn(connection);
                line
            }
        };
        line.ready().await.map_err(fault)?;
        let target = match self.route.proxy {
            Some(_) => format!("http://{}{}", self.route.server, self.path()),
            None => self.path(),
        };
        let response = line.send_request(self.request(target)?).await;
        self.take(response.map_err(fault)?).await?;
        Ok((self.object, Some(line)))
    }

    /// Fetches the object on a connection that carries several.
    async fn on_shared(self, line: WebLine) -> PageArrival {
        match line {
            WebLine::Two(mut line) => {
                line.ready().await.map_err(fault)?;
                let mut request =
                    self.request(format!("http://{}{}", self.route.server, self.path()))?;
                request.headers_mut().remove("Host");
                let response = line.send_request(request).await;
                self.take(response.map_err(fault)?).await?;
            }
            #[cfg(feature = "peers")]
            WebLine::Three { mut requests, .. } => {
                let mut taker = self.taker();
                let mut octets = 0;
                let mut wrong = None;
                let arrived = |piece: &[u8]| {
                    octets += piece.len();
                    wrong = wrong.take().or(taker(piece).err());
                };
                super::quic::get(&mut requests, self.route.server, &self.path(), arrived).await?;
                wrong.map_or(Ok(()), Err)?;
                self.check(octets)?;
            }
        }
        Ok((self.object, None))
    }

    async fn take(&self, response: http::Response<hyper::body::Incoming>) -> Result<(), LabError> {
        if !response.status().is_success() {
            return Err(fault(response.status()));
        }
        let mut body = response.into_body();
        let mut taker = self.taker();
        let mut octets = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(fault)?;
            if let Some(data) = frame.data_ref() {
                octets += data.len();
                taker(data)?;
            }
        }
        self.check(octets)
    }

    fn check(&self, octets: usize) -> Result<(), LabError> {
        match octets == self.size as usize {
            true => Ok(()),
            false => Err(fault(format_args!(
                "{octets} of {} octets arrived",
                self.size
            ))),
        }
    }
}
