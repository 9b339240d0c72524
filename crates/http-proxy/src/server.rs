//! The side that asks the servers of the web.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Either, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::io::AsyncReadExt;
use whimbrel_core::Guid;
use whimbrel_stream::CutOff;

use crate::body::{invalid, piped, read_frame, read_head, receive, send_last, stated_length};
use crate::headers::{CONTENT, WHOLE_BODY, add_via, is_circling, strip};
use crate::origin::{
    OriginClient, OriginConnector, OriginRule, UnreachedServer, is_own, no_body, split,
};
use crate::plane::{Accepted, PlaneReader, PlaneStream, PlaneWriter, StreamPlane};
use crate::resuming::Resumption;
use crate::shared::{SharedBodies, shared_length};
use crate::wire::{
    BodyFrame, MAX_FIELDS, StreamPurpose, decode_request, encode_response, encode_tunnel_answer,
};

/// How long a caller may take to say what it wants.
const FIRST_WORD: Duration = Duration::from_secs(120);
/// How long an idle connection to a server is kept.
const IDLE: Duration = Duration::from_secs(60);

/// Who may use a server side.
#[derive(Clone, Debug)]
pub enum PermittedCallers {
    /// Anybody.
    Anyone,
    /// These hosts.
    Listed(BTreeSet<Guid>),
}

impl PermittedCallers {
    fn permits(&self, name: &Guid) -> bool {
        match self {
            PermittedCallers::Anyone => true,
            PermittedCallers::Listed(names) => names.contains(name),
        }
    }
}

/// What a server side does.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Who may use it.
    pub callers: PermittedCallers,
    /// Which servers it asks.
    pub origins: OriginRule,
}

#[derive(Debug)]
struct ServerSide {
    callers: PermittedCallers,
    rule: Arc<OriginRule>,
    client: OriginClient,
    shared: SharedBodies,
}

/// Serves the streams that others open, until the host is closed.
pub async fn serve(mut accepted: Accepted, plane: StreamPlane, options: ServerOptions) {
    let rule = Arc::new(options.origins);
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(16)
        .http1_max_buf_size(128 << 10)
        .http1_max_headers(MAX_FIELDS)
        // Old devices send both; they are not passed on (RFC 9112 sections 5.1 and 5.2).
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .build(OriginConnector(Arc::clone(&rule)));
    let side = Arc::new(ServerSide {
        callers: options.callers,
        rule,
        client,
        shared: SharedBodies::new(plane),
    });
    while let Some(stream) = accepted.recv().await {
        if !side.callers.permits(&stream.peer()) {
            tracing::info!(caller = %stream.peer(), "a caller that is not permitted");
            stream.cut(CutOff::NotPermitted);
            continue;
        }
        let side = Arc::clone(&side);
        tokio::spawn(async move {
            let caller = stream.peer();
            if let Err(error) = side.answer(stream).await {
                tracing::debug!(%caller, %error, "a stream ended early");
            }
        });
    }
}

impl ServerSide {
    async fn answer(&self, stream: PlaneStream) -> io::Result<()> {
        let (mut reader, writer) = stream.split();
        let first = tokio::time::timeout(FIRST_WORD, reader.read_u8());
        match StreamPurpose::from_code(first.await.map_err(io::Error::from)??) {
            Some(StreamPurpose::Exchange) => {
                let mut writer = writer;
                self.exchange(&mut reader, &mut writer).await?;
                writer.finish();
                drained(&mut reader).await
            }
            Some(StreamPurpose::Tunnel) => self.tunnel(reader, writer).await,
            None => {
                reader.stream().cut(CutOff::Ended);
                Ok(())
            }
        }
    }

    async fn exchange(&self, reader: &mut PlaneReader, writer: &mut PlaneWriter) -> io::Result<()> {
        let head = tokio::time::timeout(FIRST_WORD, read_head(reader));
        let head = head.await.map_err(io::Error::from)??;
        let request = decode_request(head).map_err(invalid)?;
        let takes_content = request.headers().get(WHOLE_BODY) == Some(&CONTENT);
        tracing::debug!(method = %request.method(), target = %request.uri(), "request");
        let request = match self.prepare(request) {
            Ok(request) => request,
            Err((status, why)) => return refuse(writer, status, &why).await,
        };
        let (mut parts, ()) = request.into_parts();
        // Most requests have no body: their end is the next frame.
        let (body, feeding) = match read_frame(reader).await? {
            BodyFrame::End(_) => (no_body(), None),
            first => {
                let (sender, body) = piped(stated_length(&parts.headers));
                (Either::Right(body), Some((first, sender)))
            }
        };
        if feeding.is_none() {
            parts.headers.remove(header::TRANSFER_ENCODING);
        }
        let asked = Request::from_parts(parts.clone(), ());
        let request = Request::from_parts(parts, body);
        let takes_content = takes_content && feeding.is_none();
        let answer = self.client.request(request);
        let feed = async {
            if let Some((first, sender)) = feeding {
                if let BodyFrame::Data(data) = first {
                    let _ = sender.send(Ok(hyper::body::Frame::data(data))).await;
                }
                receive(reader, &sender, None).await?;
            }
            reader.stream().until_cut().await;
            Err::<(), io::Error>(io::ErrorKind::ConnectionAborted.into())
        };
        let pass_on = async {
            match answer.await {
                Ok(response) => self.pass_on(writer, &asked, response, takes_content).await,
                Err(error) => {
                    let (status, why) = explain(&error);
                    refuse(writer, status, &why).await.map(|()| None)
                }
            }
        };
        let shared = {
            tokio::pin!(feed, pass_on);
            tokio::select! {
                outcome = &mut pass_on => outcome?,
                outcome = &mut feed => return outcome,
            }
        };
        if let Some(body) = shared
            && let Ok(passed) = reader.read_u64().await
        {
            // The asker could not have the content, or not all of it.
            let rest = body.slice(
                usize::try_from(passed)
                    .unwrap_or(usize::MAX)
                    .min(body.len())..,
            );
            send_last(writer, Full::new(rest).map_err(|never| match never {})).await?;
        }
        Ok(())
    }

    async fn pass_on(
        &self,
        writer: &mut PlaneWriter,
        asked: &Request<()>,
        response: Response<hyper::body::Incoming>,
        takes_content: bool,
    ) -> io::Result<Option<Bytes>> {
        let (mut parts, body) = response.into_parts();
        strip(&mut parts.headers);
        add_via(&mut parts.headers);
        let resumption = Resumption::of(&self.client, asked, parts.status, &parts.headers);
        let shared = takes_content
            .then(|| shared_length(asked, &parts))
            .flatten();
        let Ok(head) = encode_response(&Response::from_parts(parts, ())) else {
            let why = "the server's answer has a head that is too long";
            let refused = refuse(writer, StatusCode::BAD_GATEWAY, why).await;
            return refused.map(|()| None);
        };
        writer.queue(head);
        let (sender, body) = match resumption {
            None if shared.is_none() => return send_last(writer, body).await.map(|()| None),
            None => (None, Either::Left(body)),
            Some(resumption) => {
                let (sender, piped) = piped(None);
                (Some(resumption.run(body, sender)), Either::Right(piped))
            }
        };
        let running = async {
            if let Some(running) = sender {
                running.await;
            }
        };
        let passing = async {
            match shared {
                None => send_last(writer, body).await.map(|()| None),
                Some(length) => self.shared.pass_on(writer, body, length).await,
            }
        };
        tokio::join!(running, passing).1
    }

    /// Checks a request, and makes it one to a server.
    fn prepare(&self, mut request: Request<()>) -> Result<Request<()>, (StatusCode, String)> {
        let bad = |why: &str| (StatusCode::BAD_REQUEST, why.to_owned());
        let uri = request.uri();
        if uri.scheme_str() != Some("http") {
            return Err(bad(
                "only http:// is asked; https:// goes through a tunnel (CONNECT)",
            ));
        }
        let authority = uri
            .authority()
            .ok_or_else(|| bad("the request names no server"))?;
        if authority.as_str().contains('@') {
            return Err(bad("a target must not contain a user"));
        }
        if is_circling(request.headers()) {
            return Err((
                StatusCode::LOOP_DETECTED,
                "the request goes round in a circle".into(),
            ));
        }
        let host = match &self.rule.published {
            Some(published) if is_own(authority.host()) => published.clone(),
            _ => authority.as_str().to_owned(),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let target: Uri = format!("http://{host}{path}")
            .parse()
            .map_err(|_| bad("the target is not valid"))?;
        let host =
            HeaderValue::from_str(&host).map_err(|_| bad("the server's name is not valid"))?;
        *request.uri_mut() = target;
        let headers = request.headers_mut();
        strip(headers);
        headers.insert(header::HOST, host);
        add_via(headers);
        Ok(request)
    }

    async fn tunnel(&self, mut reader: PlaneReader, mut writer: PlaneWriter) -> io::Result<()> {
        let mut target = vec![0; usize::from(reader.read_u8().await?)];
        reader.read_exact(&mut target).await?;
        let target = String::from_utf8_lossy(&target).into_owned();
        let connected = async {
            let (host, port) = split(&target, 443)?;
            self.rule.connect(&host, port).await
        };
        let mut server = match connected.await {
            Ok(server) => server,
            Err(error) => {
                let (status, why) = (status_of(&error), error.to_string());
                tracing::debug!(%target, %error, "no tunnel");
                writer.queue(encode_tunnel_answer(status, &why));
                writer.send().await?;
                writer.finish();
                return drained(&mut reader).await;
            }
        };
        writer.queue(encode_tunnel_answer(StatusCode::OK, ""));
        writer.send().await?;
        let mut stream = tokio::io::join(reader, writer);
        tokio::io::copy_bidirectional_with_sizes(&mut stream, &mut server, 64 << 10, 64 << 10)
            .await
            .map(drop)
    }
}

/// Reads to the end, so that the stream ends as both sides want.
async fn drained(reader: &mut PlaneReader) -> io::Result<()> {
    while !reader.read_bytes(usize::MAX).await?.is_empty() {}
    Ok(())
}

/// Answers in the server's stead.
async fn refuse(writer: &mut PlaneWriter, status: StatusCode, why: &str) -> io::Result<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let text = format!("{why}\n");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CONTENT_LENGTH, text.len().into());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    writer.queue(encode_response(&response).map_err(invalid)?);
    let body = Full::new(Bytes::from(text));
    send_last(writer, body.map_err(|never| match never {})).await
}

fn status_of(error: &UnreachedServer) -> StatusCode {
    match error {
        UnreachedServer::Forbidden(_) => StatusCode::FORBIDDEN,
        UnreachedServer::NoAddress(_) | UnreachedServer::NotReached(..) => StatusCode::BAD_GATEWAY,
        UnreachedServer::NoServer => StatusCode::BAD_REQUEST,
    }
}

/// Returns the status and the text for a server that has not answered.
fn explain(error: &hyper_util::client::legacy::Error) -> (StatusCode, String) {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut text = error.to_string();
    while let Some(one) = cause {
        if let Some(origin) = one.downcast_ref::<UnreachedServer>() {
            return (status_of(origin), origin.to_string());
        }
        if let Some(error) = one.downcast_ref::<io::Error>()
            && error.kind() == io::ErrorKind::TimedOut
        {
            let why = "the server has said nothing for too long";
            return (StatusCode::GATEWAY_TIMEOUT, why.to_owned());
        }
        text = one.to_string();
        cause = one.source();
    }
    (
        StatusCode::BAD_GATEWAY,
        format!("the server gave no valid answer: {text}"),
    )
}
