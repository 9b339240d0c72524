//! Responses whose server closes the connection in the middle: the rest is requested.

use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::body::{BodyError, PipedSender, stated_length};
use crate::origin::{OriginClient, no_body};

/// Maximum number of requests for the rest.
const MAX_ATTEMPTS: u32 = 8;
/// Pause before the first of these requests; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LAST_PAUSE: Duration = Duration::from_secs(30);

/// The condition of a request for the rest of a response.
#[derive(Debug)]
pub struct Resumption {
    client: OriginClient,
    request: Parts,
    /// The response's tag, or its date.
    validator: HeaderValue,
    length: u64,
}

impl Resumption {
    /// Returns it if the rest of this response can be requested.
    pub fn of(
        client: &OriginClient,
        request: &Request<()>,
        status: StatusCode,
        answer: &HeaderMap,
    ) -> Option<Resumption> {
        let is_whole = status == StatusCode::OK && request.method() == Method::GET;
        if !is_whole || request.headers().contains_key(header::RANGE) {
            return None;
        }
        let tag = answer.get(header::ETAG);
        let tag = tag.filter(|tag| !tag.as_bytes().starts_with(b"W/"));
        let validator = tag.or_else(|| answer.get(header::LAST_MODIFIED))?.clone();
        let mut copy = Request::new(());
        *copy.method_mut() = Method::GET;
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        Some(Resumption {
            client: client.clone(),
            request: copy.into_parts().0,
            validator,
            length: stated_length(answer)?,
        })
    }

    /// Forwards the body, and requests the rest each time the server closes the connection too early.
    pub async fn run(self, mut body: Incoming, sender: PipedSender) {
        let mut passed = 0;
        let mut attempts = 0;
        loop {
            let error: BodyError = loop {
                match body.frame().await {
                    None => return,
                    Some(Ok(frame)) => {
                        passed += frame.data_ref().map_or(0, |data| data.len() as u64);
                        if sender.send(Ok(frame)).await.is_err() {
                            return;
                        }
                    }
                    Some(Err(error)) => break error.into(),
                }
            };
            body = loop {
                if attempts == MAX_ATTEMPTS {
                    let _ = sender.send(Err(error)).await;
                    return;
                }
                let pause = FIRST_PAUSE * (1 << attempts.min(5));
                attempts += 1;
                tokio::select! {
                    () = tokio::time::sleep(pause.min(LAST_PAUSE)) => {}
                    () = sender.closed() => return,
                }
                match self.rest(passed).await {
                    Ok(body) => break body,
                    Err(true) => {}
                    Err(false) => {
                        let _ = sender.send(Err(error)).await;
                        return;
                    }
                }
            };
        }
    }

    /// Requests the bytes from `from` on. Fails with true if it is worth another attempt.
    async fn rest(&self, from: u64) -> Result<Incoming, bool> {
        let mut request = Request::new(no_body());
        *request.uri_mut() = self.request.uri.clone();
        *request.headers_mut() = self.request.headers.clone();
        let range = HeaderValue::from_str(&format!("bytes={from}-")).map_err(|_| false)?;
        request.headers_mut().insert(header::RANGE, range);
        let validator = self.validator.clone();
        request.headers_mut().insert(header::IF_RANGE, validator);
        let response = self.client.request(request).await.map_err(|_| true)?;
        let wanted = format!("bytes {from}-{}/{}", self.length - 1, self.length);
        let range = response.headers().get(header::CONTENT_RANGE);
        let is_rest = range.is_some_and(|range| range.as_bytes() == wanted.as_bytes());
        match response.status() {
            StatusCode::PARTIAL_CONTENT if is_rest => Ok(response.into_body()),
            status if status.is_server_error() => Err(true),
            // It has changed, or its server gives no parts.
            _ => Err(false),
        }
    }
}
