//! The side that programs set as their proxy.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use whimbrel_core::Guid;
use whimbrel_stream::CutOff;

use crate::body::{
    BodyError, ContentWay, PipedBody, invalid, piped, read_head, receive, send, send_last,
    stated_length,
};
use crate::cache::{
    AnswerCache, AskingTurn, CacheFinding, StoredAnswer, is_for_cache, pass_and_collect, policy,
};
use crate::headers::{CONTENT, WHOLE_BODY, add_via, is_circling, strip};
use crate::kept::{KeptRequests, KeptState, PAGE};
use crate::origin::is_own;
use crate::plane::{PlaneReader, PlaneWriter, StreamPlane, reason};
use crate::wire::{MAX_FIELDS, StreamPurpose, decode_response, encode_request, encode_tunnel};

/// Bound of the connections of programs.
const MAX_CONNECTIONS: usize = 1024;
/// A program must send a request's head within this time.
const HEAD: Duration = Duration::from_secs(30);
/// Pause when the machine has no room for a further connection.
const ROOM_PAUSE: Duration = Duration::from_millis(100);
/// How often a request that may be repeated is sent when the server side was started again.
const MAX_ATTEMPTS: usize = 3;

/// A server that has had a request for this long without an answer may not answer it at all: others ask for themselves.
const SLOW: Duration = Duration::from_secs(5);
/// Pause before a kept request is asked again.
const KEPT_PAUSE: Duration = Duration::from_secs(10);

/// Finds the host behind the first part of `NAME.whimbrel`.
pub type FindName = Arc<dyn Fn(&str) -> Option<Guid> + Send + Sync>;

/// What a client side does.
#[derive(Clone)]
pub struct ClientOptions {
    /// The host of the server side; without one only `NAME.whimbrel` is reached.
    pub server: Option<Guid>,
    /// Finds the host of `NAME.whimbrel`.
    pub find: FindName,
    /// Bound of the stored answers, in bytes; 0 stores nothing.
    pub cache: u64,
    /// A stale answer is given if its server has not confirmed it in this time.
    pub stale_after: Duration,
    /// How long a request that was not answered is asked again.
    pub keep: Duration,
}

/// A body of an answer.
pub type AnswerBody = BoxBody<Bytes, BodyError>;

struct ClientSide {
    plane: StreamPlane,
    options: ClientOptions,
    cache: Arc<AnswerCache>,
    kept: KeptRequests,
}

/// A request whose answer may be stored.
struct Question {
    request: Request<()>,
    /// The fields of the asker's own request.
    headers: HeaderMap,
    stale: Option<Arc<StoredAnswer>>,
    turn: Option<AskingTurn>,
    peer: Guid,
}

fn copy_of(parts: &Parts) -> Parts {
    let mut copy = Request::new(());
    *copy.method_mut() = parts.method.clone();
    *copy.uri_mut() = parts.uri.clone();
    *copy.headers_mut() = parts.headers.clone();
    copy.into_parts().0
}

fn copy_of_request(request: &Request<()>) -> Request<()> {
    let mut copy = Request::new(());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Serves the programs that connect, for ever.
pub async fn serve(listener: TcpListener, plane: StreamPlane, options: ClientOptions) -> io::Error {
    let cache = Arc::new(AnswerCache::new(options.cache));
    let side = Arc::new(ClientSide {
        plane,
        kept: KeptRequests::new(options.keep),
        options,
        cache,
    });
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return io::ErrorKind::BrokenPipe.into();
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) if is_of_caller(&error) => continue,
            Err(error) if is_of_machine(&error) => {
                tracing::warn!(%error, "no further connection is accepted for a moment");
                tokio::time::sleep(ROOM_PAUSE).await;
                continue;
            }
            Err(error) => return error,
        };
        let side = Arc::clone(&side);
        tokio::spawn(async move {
            side.connection(stream).await;
            drop(place);
        });
    }
}

/// True for a failure of one connection, and not of the listener.
fn is_of_caller(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// True if the machine has no room for a further connection now.
fn is_of_machine(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let known = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| known.contains(&errno))
}

impl ClientSide {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let service = service_fn(move |request| {
            let side = Arc::clone(&self);
            async move { Ok::<_, Infallible>(side.answer(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(128 << 10)
            .max_headers(MAX_FIELDS)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a program's connection ended early");
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<AnswerBody> {
        let host = request.uri().host().map(str::to_owned);
        let host = host.or_else(|| Some(own_target_host(request.headers())?.to_owned()));
        if host.as_deref() == Some(PAGE) {
            return self.page();
        }
        let outcome = match *request.method() {
            Method::CONNECT => self.tunnel(request).await,
            _ => self.exchange(request).await,
        };
        outcome.unwrap_or_else(|refusal| refusal.response())
    }

    /// Lists the requests that wait.
    fn page(&self) -> Response<AnswerBody> {
        let mut response = Response::new(text(self.kept.page(Instant::now()).into()));
        let headers = response.headers_mut();
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, html);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    async fn exchange(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<AnswerBody>, ProxyRefusal> {
        let (request, peer) = self.prepare(request)?;
        let (parts, body) = request.into_parts();
        if body.is_end_stream() && is_for_cache(&parts) {
            return self.cached(parts, peer).await;
        }
        let (changes, url) = (!parts.method.is_safe(), parts.uri.to_string());
        let answer = match body.is_end_stream() {
            true => {
                let head = Request::from_parts(parts, ());
                self.ask_again(peer, head, &Notify::new()).await?
            }
            false => {
                let mut body = body;
                let head = Request::from_parts(parts, ());
                let asked = self.ask(peer, &head, &mut body, &Notify::new()).await;
                asked.map_err(|error| ProxyRefusal::of_stream(&error, peer))?
            }
        };
        if changes && !answer.status().is_client_error() && !answer.status().is_server_error() {
            self.cache.invalidate(&url);
        }
        Ok(answer.map(BodyExt::boxed))
    }

    /// Answers from the cache, or asks and stores.
    async fn cached(
        self: Arc<Self>,
        parts: Parts,
        peer: Guid,
    ) -> Result<Response<AnswerBody>, ProxyRefusal> {
        let url = parts.uri.to_string();
        let mut found = self.cache.find(&parts);
        let mut turn = None;
        if !matches!(found, CacheFinding::Fresh(_)) {
            // Several that ask for one thing cause one request.
            turn = self.cache.turn(&url).await;
            if turn.is_none() {
                found = self.cache.find(&parts);
            }
        }
        let (stale, asked) = match found {
            CacheFinding::Fresh(response) => return Ok(response.map(BodyExt::boxed)),
            CacheFinding::Stale(stale, request) => (Some(stale), *request),
            CacheFinding::Nothing => (None, copy_of(&parts)),
        };
        let question = Question {
            request: Request::from_parts(asked, ()),
            headers: parts.headers.clone(),
            stale: stale.clone(),
            turn,
            peer,
        };
        // It continues without its asker: the answer is stored for the next one.
        let mut asking = tokio::spawn(Arc::clone(&self).ask_and_store(question));
        let outcome = match &stale {
            None => asking.await,
            Some(stale) => {
                match tokio::time::timeout(self.options.stale_after, &mut asking).await {
                    Ok(outcome) => outcome,
                    Err(_) => match stale.stale(&parts.headers) {
                        Some(response) => return Ok(response.map(BodyExt::boxed)),
                        None => asking.await,
                    },
                }
            }
        };
        let outcome = outcome.unwrap_or_else(|_| {
            Err(ProxyRefusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request has failed",
            ))
        });
        let is_away = match &outcome {
            Ok(response) => matches!(response.status().as_u16(), 502..=504),
            Err(refusal) => refusal.status.is_server_error(),
        };
        let stale = stale
            .filter(|_| is_away)
            .and_then(|stale| stale.stale(&parts.headers));
        match stale {
            Some(response) => Ok(response.map(BodyExt::boxed)),
            None => outcome.map(|response| response.map(BodyExt::boxed)),
        }
    }

    async fn ask_and_store(
        self: Arc<Self>,
        question: Question,
    ) -> Result<Response<PipedBody>, ProxyRefusal> {
        let Question {
            mut request,
            headers,
            stale,
            mut turn,
            peer,
        } = question;
        request.headers_mut().insert(WHOLE_BODY, CONTENT);
        let slow = Notify::new();
        let response = {
            let asking = self.ask_until_answered(peer, &request, &slow);
            tokio::pin!(asking);
            tokio::select! {
                response = &mut asking => response?,
                () = slow.notified() => {
                    turn = None;
                    asking.await?
                }
            }
        };
        let (parts, body) = response.into_parts();
        if parts.status == StatusCode::NOT_MODIFIED
            && let Some(stale) = &stale
            && let Some(response) = self.cache.confirmed(stale, &request, &parts, &headers)
        {
            return Ok(response);
        }
        let Some(policy) = policy(&request, &parts) else {
            return Ok(Response::from_parts(parts, body));
        };
        let (cache, max) = (Arc::clone(&self.cache), self.cache.max_length());
        match stated_length(&parts.headers) {
            Some(length) if length <= max => {
                let (stored, growing, response) = cache.store(&request, &parts, policy, length);
                drop(turn);
                tokio::spawn(async move {
                    if !growing.fill(body, length).await {
                        cache.forget(&request, &stored);
                    }
                });
                Ok(response)
            }
            Some(_) => Ok(Response::from_parts(parts, body)),
            None => {
                let (sender, piped) = piped(None);
                let mut response = Response::new(piped);
                *response.status_mut() = parts.status;
                *response.headers_mut() = parts.headers.clone();
                tokio::spawn(async move {
                    if let Some(whole) = pass_and_collect(body, sender, max).await {
                        cache.store_whole(&request, parts, policy, whole);
                    }
                });
                Ok(response)
            }
        }
    }

    /// Asks, and when the server side is silent for too long, again and again: a request that its program has given up
    /// is answered when the link returns, and stored.
    async fn ask_until_answered(
        &self,
        peer: Guid,
        request: &Request<()>,
        slow: &Notify,
    ) -> Result<Response<PipedBody>, ProxyRefusal> {
        let number = self.kept.begin(Instant::now(), &request.uri().to_string());
        loop {
            let outcome = self.ask_again(peer, copy_of_request(request), slow).await;
            let Some(number) = number else {
                return outcome;
            };
            let now = Instant::now();
            let state = match &outcome {
                Ok(response) => KeptState::Answered(response.status()),
                Err(refusal)
                    if refusal.status == StatusCode::GATEWAY_TIMEOUT
                        && self.kept.is_worth_it(now, number) =>
                {
                    tokio::time::sleep(KEPT_PAUSE).await;
                    continue;
                }
                Err(_) => KeptState::GivenUp,
            };
            self.kept.end(now, number, state);
            return outcome;
        }
    }

    /// Asks; once more if the server side was started again and the request may be repeated.
    async fn ask_again(
        &self,
        peer: Guid,
        head: Request<()>,
        slow: &Notify,
    ) -> Result<Response<PipedBody>, ProxyRefusal> {
        let mut attempts = 1;
        loop {
            let body = Empty::<Bytes>::new().map_err(|never| match never {});
            let mut body: BoxBody<Bytes, BodyError> = body.boxed();
            match self.ask(peer, &head, &mut body, slow).await {
                Ok(response) => return Ok(response),
                Err(error) => {
                    let is_lost = reason(&error) == Some(CutOff::Unknown);
                    if !is_lost || !head.method().is_idempotent() || attempts >= MAX_ATTEMPTS {
                        return Err(ProxyRefusal::of_stream(&error, peer));
                    }
                    attempts += 1;
                }
            }
        }
    }

    /// Sends a request, and returns the answer's head with a body that follows. Tells `slow` if the server side has the
    /// whole request for long.
    async fn ask<B>(
        &self,
        peer: Guid,
        head: &Request<()>,
        body: &mut B,
        slow: &Notify,
    ) -> io::Result<Response<PipedBody>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BodyError>,
    {
        let stream = self.plane.open(peer).map_err(io::Error::other)?;
        let (mut reader, mut writer) = stream.split();
        writer.queue(Bytes::copy_from_slice(&[StreamPurpose::Exchange.code()]));
        let head_bytes = encode_request(head);
        writer
            .queue(head_bytes.map_err(|fault| io::Error::new(io::ErrorKind::InvalidInput, fault))?);
        let answer = {
            let sending = async {
                // One that takes a content may have to ask for the rest of it.
                match head.headers().contains_key(WHOLE_BODY) {
                    true => send(&mut writer, body).await?,
                    false => send_last(&mut writer, body).await?,
                }
                writer.acknowledged().await?;
                tokio::time::sleep(SLOW).await;
                slow.notify_one();
                Ok::<(), io::Error>(())
            };
            // A server may answer before it has the whole body.
            let receiving = read_head(&mut reader);
            tokio::pin!(sending, receiving);
            let mut is_sent = false;
            loop {
                tokio::select! {
                    answer = &mut receiving => break answer?,
                    sent = &mut sending, if !is_sent => {
                        sent?;
                        is_sent = true;
                    }
                }
            }
        };
        let response = decode_response(answer).map_err(invalid)?;
        let (mut parts, ()) = response.into_parts();
        strip(&mut parts.headers);
        let (sender, body) = piped(stated_length(&parts.headers));
        let plane = self.plane.clone();
        tokio::spawn(async move {
            let way = ContentWay::new(&plane, &mut writer);
            let outcome = receive(&mut reader, &sender, Some(way)).await;
            end(reader, writer, outcome.is_ok()).await;
        });
        Ok(Response::from_parts(parts, body))
    }

    /// Checks a program's request; returns it with an absolute target, and the host that answers it.
    fn prepare(
        &self,
        request: Request<Incoming>,
    ) -> Result<(Request<Incoming>, Guid), ProxyRefusal> {
        let (mut parts, body) = request.into_parts();
        let target = match parts.uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => parts.uri.clone(),
            Some(_) => {
                return Err(ProxyRefusal::bad(
                    "only http:// can be asked of a proxy; https:// needs CONNECT",
                ));
            }
            None => own_target(&parts)?,
        };
        let authority = target
            .authority()
            .ok_or_else(|| ProxyRefusal::bad("the request names no server"))?;
        if authority.as_str().contains('@') {
            return Err(ProxyRefusal::bad("a target must not contain a user"));
        }
        let host = HeaderValue::from_str(authority.as_str());
        let peer = self.peer_of(authority.host())?;
        let headers = &mut parts.headers;
        if is_circling(headers) {
            return Err(ProxyRefusal::new(
                StatusCode::LOOP_DETECTED,
                "the request goes round in a circle",
            ));
        }
        // The target decides, whatever the field says (RFC 9112 section 3.2.2).
        headers.insert(
            header::HOST,
            host.map_err(|_| ProxyRefusal::bad("the server's name is not valid"))?,
        );
        strip(headers);
        add_via(headers);
        parts.uri = target;
        Ok((Request::from_parts(parts, body), peer))
    }

    /// Returns the host that asks the server of this name.
    fn peer_of(&self, host: &str) -> Result<Guid, ProxyRefusal> {
        if !is_own(host) {
            return self.options.server.ok_or_else(|| {
                ProxyRefusal::new(
                    StatusCode::FORBIDDEN,
                    "this proxy reaches NAME.whimbrel only; name a server side with `--to`",
                )
            });
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let name = host.strip_suffix(".whimbrel").unwrap_or_default();
        (self.options.find)(name).ok_or_else(|| {
            let text = format!(
                "no host is known as `{name}`: neither an alias of the directory nor 64 hexadecimal digits (with a dot anywhere)"
            );
            ProxyRefusal::new(StatusCode::NOT_FOUND, &text)
        })
    }

    async fn tunnel(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<AnswerBody>, ProxyRefusal> {
        let authority = request.uri().authority();
        let authority = authority.ok_or_else(|| ProxyRefusal::bad("CONNECT names no server"))?;
        if authority.port_u16().is_none() || authority.as_str().contains('@') {
            return Err(ProxyRefusal::bad("CONNECT needs HOST:PORT"));
        }
        let peer = self.peer_of(authority.host())?;
        let opened = self.open_tunnel(peer, authority.as_str()).await;
        let (reader, writer) = opened.map_err(|error| match error {
            TunnelError::Refused(status, why) => ProxyRefusal::new(status, &why),
            TunnelError::Stream(error) => ProxyRefusal::of_stream(&error, peer),
        })?;
        tokio::spawn(async move {
            let Ok(program) = hyper::upgrade::on(request).await else {
                return;
            };
            let mut program = TokioIo::new(program);
            let mut stream = tokio::io::join(reader, writer);
            let sizes = 64 << 10;
            let copied =
                tokio::io::copy_bidirectional_with_sizes(&mut program, &mut stream, sizes, sizes);
            if let Err(error) = copied.await {
                tracing::debug!(%error, "a tunnel ended early");
            }
        });
        Ok(Response::new(nothing()))
    }

    async fn open_tunnel(
        &self,
        peer: Guid,
        authority: &str,
    ) -> Result<(PlaneReader, PlaneWriter), TunnelError> {
        let stream = self.plane.open(peer).map_err(io::Error::other)?;
        let (mut reader, mut writer) = stream.split();
        writer.queue(Bytes::copy_from_slice(&[StreamPurpose::Tunnel.code()]));
        writer.queue(encode_tunnel(authority).map_err(invalid)?);
        writer.send().await?;
        let status = reader.read_u16().await?;
        let mut why = vec![0; usize::from(reader.read_u8().await?)];
        reader.read_exact(&mut why).await?;
        if status == StatusCode::OK.as_u16() {
            return Ok((reader, writer));
        }
        writer.finish();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        let why = String::from_utf8_lossy(&why).into_owned();
        Err(TunnelError::Refused(status, why))
    }
}

enum TunnelError {
    Refused(StatusCode, String),
    Stream(io::Error),
}

impl From<io::Error> for TunnelError {
    fn from(error: io::Error) -> TunnelError {
        TunnelError::Stream(error)
    }
}

/// Ends a stream: after a whole answer as both sides want, and else by cutting it off.
async fn end(mut reader: PlaneReader, mut writer: PlaneWriter, is_whole: bool) {
    if is_whole {
        writer.finish();
        // The end follows the body's last frame.
        while let Ok(rest) = reader.read_bytes(usize::MAX).await
            && !rest.is_empty()
        {}
    }
}

/// Returns the target of a request that was sent to this proxy as to a server.
fn own_target(parts: &http::request::Parts) -> Result<Uri, ProxyRefusal> {
    let help = "this is a proxy: set http://ADDRESS:PORT as the proxy of your program (http_proxy, https_proxy)";
    let host = parts
        .headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let host = host.ok_or_else(|| ProxyRefusal::bad(help))?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if !is_own(name) {
        return Err(ProxyRefusal::bad(help));
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let target = format!("http://{name}{path}").parse();
    target.map_err(|_| ProxyRefusal::bad("the target is not valid"))
}

/// Returns the host that a request to this proxy as to a server names.
fn own_target_host(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    Some(host.rsplit_once(':').map_or(host, |(name, _)| name))
}

/// Returns an empty body.
pub fn nothing() -> AnswerBody {
    text(Bytes::new())
}

/// Returns a body of these bytes.
pub fn text(bytes: Bytes) -> AnswerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// Why a request gets no answer of a server.
#[derive(Debug)]
struct ProxyRefusal {
    status: StatusCode,
    why: String,
}

impl ProxyRefusal {
    fn new(status: StatusCode, why: &str) -> ProxyRefusal {
        let why = why.to_owned();
        ProxyRefusal { status, why }
    }

    fn bad(why: &str) -> ProxyRefusal {
        ProxyRefusal::new(StatusCode::BAD_REQUEST, why)
    }

    /// Explains a stream that has failed.
    fn of_stream(error: &io::Error, peer: Guid) -> ProxyRefusal {
        if error.kind() == io::ErrorKind::InvalidInput {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return ProxyRefusal::new(status, &format!("the request cannot be sent: {error}"));
        }
        let status = match reason(error) {
            Some(CutOff::NotPermitted) => StatusCode::FORBIDDEN,
            Some(CutOff::Full) => StatusCode::SERVICE_UNAVAILABLE,
            Some(CutOff::Silent) => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        };
        ProxyRefusal {
            status,
            why: format!("no answer of the server side {peer}: {error}"),
        }
    }

    fn response(self) -> Response<AnswerBody> {
        let mut response = Response::new(text(format!("{}\n", self.why).into()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}
