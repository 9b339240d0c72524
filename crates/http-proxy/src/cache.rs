//! Answers that are kept, as RFC 9111 has it for a cache that several people share.
//!
//! `http-cache-semantics` decides what may be stored and for how long it is fresh. In addition, an answer with
//! `Set-Cookie` and an answer to a request with `Authorization` are stored only if they say `public`: a stale answer,
//! too, must not carry one person's cookie to another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_cache_semantics::{AfterResponse, BeforeRequest, CacheOptions, CachePolicy};
use hyper::body::Frame;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::body::{PipedBody, PipedSender, piped};

/// Answers to one URL that differ by fields that `Vary` names.
const MAX_VARIANTS: usize = 8;
/// Bytes that an answer counts for besides its body and its fields.
const OVERHEAD: u64 = 1024;
/// A body of unknown length continues for this long without its reader.
const UNREAD: Duration = Duration::from_secs(5 * 60);
/// What is left of the cache's bound for one answer.
const SHARE: u64 = 8;

/// How an answer relates to the cache (RFC 9211).
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
const WARNING: HeaderName = header::WARNING;

/// A body that arrives while others read it.
#[derive(Debug)]
pub struct GrowingBody {
    pieces: Mutex<Vec<Bytes>>,
    /// Pieces that have arrived, and whether it is whole.
    progress: watch::Sender<(usize, Option<bool>)>,
}

impl GrowingBody {
    fn new() -> GrowingBody {
        GrowingBody {
            pieces: Mutex::default(),
            progress: watch::Sender::new((0, None)),
        }
    }

    fn whole(pieces: Vec<Bytes>) -> GrowingBody {
        let count = pieces.len();
        GrowingBody {
            pieces: Mutex::new(pieces),
            progress: watch::Sender::new((count, Some(true))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Bytes>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what arrives, `length` bytes in all. Returns false if it is another length.
    pub async fn fill(&self, mut body: PipedBody, length: u64) -> bool {
        let mut left = Some(length);
        while let Some(piece) = body.next().await {
            let data = piece.ok().and_then(|frame| frame.into_data().ok());
            let Some(data) = data else {
                left = None;
                break;
            };
            left = left.and_then(|left| left.checked_sub(data.len() as u64));
            if left.is_none() {
                break;
            }
            self.lock().push(data);
            self.progress.send_modify(|progress| progress.0 += 1);
        }
        let is_whole = left == Some(0);
        self.progress
            .send_modify(|progress| progress.1 = Some(is_whole));
        is_whole
    }

    /// Passes it on as it arrives.
    async fn read(self: Arc<Self>, sender: PipedSender) {
        let mut progress = self.progress.subscribe();
        let mut next = 0;
        loop {
            let (count, outcome) = *progress.borrow_and_update();
            while next < count {
                let piece = self.lock().get(next).cloned().unwrap_or_default();
                next += 1;
                if sender.send(Ok(Frame::data(piece))).await.is_err() {
                    return;
                }
            }
            match outcome {
                Some(true) => return,
                Some(false) => {
                    let text = "the answer was cut off on its way";
                    let _ = sender.send(Err(text.into())).await;
                    return;
                }
                None => {}
            }
            if progress.changed().await.is_err() {
                return;
            }
        }
    }
}

/// A body that is here.
#[derive(Debug)]
pub struct CollectedBody {
    pieces: Vec<Bytes>,
    length: u64,
}

/// Passes a body of unknown length on, and returns it if it is whole and at most `max` bytes long. It continues without
/// its reader as long as it may be kept, but not for ever: a radio station does not end.
pub async fn pass_and_collect(
    mut body: PipedBody,
    sender: PipedSender,
    max: u64,
) -> Option<CollectedBody> {
    let (mut pieces, mut length) = (Some(Vec::new()), 0);
    let mut left_at = None;
    loop {
        let piece = match left_at {
            None => body.next().await,
            Some(at) => timeout_at(at + UNREAD, body.next()).await.ok()?,
        };
        let Some(piece) = piece else {
            break;
        };
        if piece.is_err() {
            pieces = None;
        } else if let Ok(frame) = &piece
            && let Some(data) = frame.data_ref()
        {
            length += data.len() as u64;
            pieces = pieces.filter(|_| length <= max);
            if let Some(pieces) = &mut pieces {
                pieces.push(data.clone());
            }
        }
        if left_at.is_none() && sender.send(piece).await.is_err() {
            left_at = Some(Instant::now());
        }
        if left_at.is_some() && pieces.is_none() {
            return None;
        }
    }
    Some(CollectedBody {
        pieces: pieces?,
        length,
    })
}

/// A stored answer.
#[derive(Debug)]
pub struct StoredAnswer {
    policy: CachePolicy,
    status: StatusCode,
    headers: HeaderMap,
    length: u64,
    body: Arc<GrowingBody>,
}

impl StoredAnswer {
    fn cost(&self) -> u64 {
        let fields = self.headers.iter();
        let fields: usize = fields
            .map(|(name, value)| name.as_str().len() + value.len())
            .sum();
        self.length + fields as u64 + OVERHEAD
    }

    /// Returns the answer with these fields, or that the asker has it already.
    fn response(
        &self,
        asked: &HeaderMap,
        mut headers: HeaderMap,
        status: &str,
    ) -> Response<PipedBody> {
        if let Ok(value) = HeaderValue::from_str(&format!("whimbrel; {status}")) {
            headers.append(CACHE_STATUS, value);
        }
        let (sender, body);
        let mut response = if has_it(asked, &headers) && self.status == StatusCode::OK {
            headers.remove(header::CONTENT_LENGTH);
            (_, body) = piped(Some(0));
            let mut response = Response::new(body);
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            (sender, body) = piped(Some(self.length));
            tokio::spawn(Arc::clone(&self.body).read(sender));
            let mut response = Response::new(body);
            *response.status_mut() = self.status;
            response
        };
        *response.headers_mut() = headers;
        response
    }

    /// Returns the answer although it is stale, with its age; `None` if its server forbids that.
    pub fn stale(&self, asked: &HeaderMap) -> Option<Response<PipedBody>> {
        let must_ask = [
            "must-revalidate",
            "proxy-revalidate",
            "no-cache",
            "s-maxage",
        ];
        let control = self.headers.get_all(header::CACHE_CONTROL).iter();
        let text: String = control.filter_map(|value| value.to_str().ok()).collect();
        if must_ask
            .iter()
            .any(|word| text.to_ascii_lowercase().contains(word))
        {
            return None;
        }
        let mut headers = self.headers.clone();
        let age = self.policy.age(SystemTime::now()).as_secs();
        headers.insert(header::AGE, age.into());
        headers.insert(
            WARNING,
            HeaderValue::from_static("111 whimbrel \"Revalidation Failed\""),
        );
        Some(self.response(asked, headers, "hit; detail=stale"))
    }
}

/// Returns true if a request's conditions say that the asker has the answer with these fields (RFC 9110 section 13.1).
fn has_it(asked: &HeaderMap, answer: &HeaderMap) -> bool {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    if asked.contains_key(header::IF_NONE_MATCH) {
        // Tags are compared without regard to `W/`. One with a comma in it is taken for two, and not found.
        let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
        let tag = answer.get(header::ETAG).and_then(text);
        let tag = tag.map(|tag| opaque(&tag));
        let lists = asked.get_all(header::IF_NONE_MATCH).iter();
        let mut known = lists.filter_map(text).flat_map(|list| {
            let tags = list.split(',').map(opaque);
            tags.collect::<Vec<_>>()
        });
        return known.any(|known| known == "*" || Some(known) == tag);
    }
    let date = |value: &HeaderValue| httpdate::parse_http_date(value.to_str().ok()?).ok();
    let since = asked.get(header::IF_MODIFIED_SINCE).and_then(date);
    let modified = answer.get(header::LAST_MODIFIED).and_then(date);
    matches!((since, modified), (Some(since), Some(modified)) if modified <= since)
}

/// What the cache has for a request.
#[derive(Debug)]
pub enum CacheFinding {
    /// The answer.
    Fresh(Response<PipedBody>),
    /// An answer that its server must confirm, and the request for that.
    Stale(Arc<StoredAnswer>, Box<Parts>),
    /// Nothing.
    Nothing,
}

/// Stored answers, in memory. The ones that were not used for longest give way.
#[derive(Debug)]
pub struct AnswerCache {
    max: u64,
    inner: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    by_url: BTreeMap<String, Vec<(u64, Arc<StoredAnswer>)>>,
    /// URLs by the number of the last use of an answer.
    by_use: BTreeMap<u64, String>,
    uses: u64,
    bytes: u64,
    /// URLs that somebody is asking for.
    asking: BTreeMap<String, watch::Receiver<()>>,
}

/// The only request for a URL at the moment. Dropping it lets others ask.
#[derive(Debug)]
pub struct AskingTurn {
    cache: Arc<AnswerCache>,
    url: String,
    _waiters: watch::Sender<()>,
}

impl Drop for AskingTurn {
    fn drop(&mut self) {
        self.cache.lock().asking.remove(&self.url);
    }
}

/// Returns true for a request whose answer a cache may have or keep.
pub fn is_for_cache(request: &Parts) -> bool {
    let headers = &request.headers;
    // Conditions that a server must judge, besides parts and other protocols.
    let passing = [
        header::RANGE,
        header::UPGRADE,
        header::IF_MATCH,
        header::IF_UNMODIFIED_SINCE,
    ];
    request.method == Method::GET && !passing.iter().any(|name| headers.contains_key(name))
}

/// Returns how an answer to this request is stored: `None` if it must not be.
pub fn policy(request: &Request<()>, answer: &http::response::Parts) -> Option<CachePolicy> {
    let control = answer.headers.get_all(header::CACHE_CONTROL).iter();
    let control = control.filter_map(|value| value.to_str().ok());
    let is_public = control.flat_map(|value| value.split(','));
    let is_public = is_public
        .map(str::trim)
        .any(|word| word.eq_ignore_ascii_case("public"));
    let is_personal = answer.headers.contains_key(header::SET_COOKIE)
        || request.headers().contains_key(header::AUTHORIZATION);
    let varies = answer.headers.get_all(header::VARY).iter();
    let mut varies = varies.map(HeaderValue::as_bytes);
    if is_personal && !is_public || varies.any(|value| value.contains(&b'*')) {
        return None;
    }
    let options = CacheOptions::default();
    let policy = CachePolicy::new_options(request, answer, SystemTime::now(), options);
    policy.is_storable().then_some(policy)
}

impl AnswerCache {
    /// Returns a cache of at most `max` bytes.
    pub fn new(max: u64) -> AnswerCache {
        AnswerCache {
            max,
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes that are held.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Looks for an answer.
    pub fn find(&self, request: &Parts) -> CacheFinding {
        let (now, url) = (SystemTime::now(), request.uri.to_string());
        let mut inner = self.lock();
        let mut stale = None;
        for (at, answer) in inner.by_url.get(&url).into_iter().flatten() {
            match answer.policy.before_request(request, now) {
                BeforeRequest::Fresh(parts) => {
                    let (at, answer) = (*at, Arc::clone(answer));
                    inner.note_use(&url, at);
                    drop(inner);
                    return CacheFinding::Fresh(answer.response(
                        &request.headers,
                        parts.headers,
                        "hit",
                    ));
                }
                BeforeRequest::Stale {
                    request: mut asked,
                    matches,
                } if matches => {
                    // The stored tag was added to those of the asker. If they are one, simple servers know only that.
                    let tag = answer.headers.get(header::ETAG);
                    if let Some(tag) =
                        tag.filter(|tag| request.headers.get(header::IF_NONE_MATCH) == Some(tag))
                    {
                        asked.headers.insert(header::IF_NONE_MATCH, tag.clone());
                    }
                    stale = Some(CacheFinding::Stale(Arc::clone(answer), Box::new(asked)));
                }
                BeforeRequest::Stale { .. } => {}
            }
        }
        stale.unwrap_or(CacheFinding::Nothing)
    }

    /// Waits until nobody asks for a URL. Returns the turn to ask for it, or `None` after a wait: then the answer may
    /// be here.
    pub async fn turn(self: &Arc<Self>, url: &str) -> Option<AskingTurn> {
        let mut waited = {
            let mut inner = self.lock();
            match inner.asking.get(url) {
                Some(asking) => asking.clone(),
                None => {
                    let (waiters, asking) = watch::channel(());
                    inner.asking.insert(url.to_owned(), asking);
                    return Some(AskingTurn {
                        cache: Arc::clone(self),
                        url: url.to_owned(),
                        _waiters: waiters,
                    });
                }
            }
        };
        // It ends with an error when the turn is over.
        let _ = waited.changed().await;
        None
    }

    /// The longest body that is stored.
    pub fn max_length(&self) -> u64 {
        self.max / SHARE
    }

    /// Stores an answer whose body is still to arrive; returns it, and the answer for the asker.
    pub fn store(
        &self,
        request: &Request<()>,
        answer: &http::response::Parts,
        policy: CachePolicy,
        length: u64,
    ) -> (Arc<StoredAnswer>, Arc<GrowingBody>, Response<PipedBody>) {
        let body = Arc::new(GrowingBody::new());
        let stored = Arc::new(StoredAnswer {
            policy,
            status: answer.status,
            headers: answer.headers.clone(),
            length,
            body: Arc::clone(&body),
        });
        self.insert(request, Arc::clone(&stored));
        let headers = answer.headers.clone();
        let response = stored.response(&HeaderMap::new(), headers, "fwd=miss; stored");
        (stored, body, response)
    }

    /// Stores an answer whose body is here.
    pub fn store_whole(
        &self,
        request: &Request<()>,
        answer: http::response::Parts,
        policy: CachePolicy,
        body: CollectedBody,
    ) {
        let stored = StoredAnswer {
            policy,
            status: answer.status,
            headers: answer.headers,
            length: body.length,
            body: Arc::new(GrowingBody::whole(body.pieces)),
        };
        self.insert(request, Arc::new(stored));
    }

    fn insert(&self, request: &Request<()>, answer: Arc<StoredAnswer>) {
        let url = request.uri().to_string();
        let mut inner = self.lock();
        // One that this request would have found gives way.
        let now = SystemTime::now();
        let known = inner.by_url.get(&url).into_iter().flatten();
        let replaced = known.filter(|(_, old)| match old.policy.before_request(request, now) {
            BeforeRequest::Fresh(_) => true,
            BeforeRequest::Stale { matches, .. } => matches,
        });
        for at in replaced.map(|(at, _)| *at).collect::<Vec<_>>() {
            inner.remove(&url, at);
        }
        while inner
            .by_url
            .get(&url)
            .is_some_and(|list| list.len() >= MAX_VARIANTS)
        {
            let oldest = inner
                .by_url
                .get(&url)
                .and_then(|list| list.iter().map(|(at, _)| *at).min());
            match oldest {
                Some(at) => inner.remove(&url, at),
                None => break,
            }
        }
        inner.bytes += answer.cost();
        inner.uses += 1;
        let at = inner.uses;
        inner.by_use.insert(at, url.clone());
        inner.by_url.entry(url).or_default().push((at, answer));
        while inner.bytes > self.max
            && let Some((at, url)) = inner.by_use.first_key_value()
        {
            let (at, url) = (*at, url.clone());
            inner.remove(&url, at);
        }
    }

    /// A server has confirmed a stale answer. Returns it, if the confirmation is one of it.
    pub fn confirmed(
        &self,
        stale: &StoredAnswer,
        request: &Request<()>,
        answer: &http::response::Parts,
        asked: &HeaderMap,
    ) -> Option<Response<PipedBody>> {
        let confirmed = stale
            .policy
            .after_response(request, answer, SystemTime::now());
        let AfterResponse::NotModified(policy, parts) = confirmed else {
            return None;
        };
        let renewed = Arc::new(StoredAnswer {
            policy,
            status: stale.status,
            headers: parts.headers.clone(),
            length: stale.length,
            body: Arc::clone(&stale.body),
        });
        self.insert(request, Arc::clone(&renewed));
        Some(renewed.response(asked, parts.headers, "hit; fwd=stale; fwd-status=304"))
    }

    /// Forgets an answer.
    pub fn forget(&self, request: &Request<()>, answer: &Arc<StoredAnswer>) {
        let url = request.uri().to_string();
        let mut inner = self.lock();
        let list = inner.by_url.get(&url).into_iter().flatten();
        let found = list
            .filter(|(_, one)| Arc::ptr_eq(one, answer))
            .map(|(at, _)| *at);
        for at in found.collect::<Vec<_>>() {
            inner.remove(&url, at);
        }
    }

    /// Forgets all answers of a URL that was changed (RFC 9111 section 4.4).
    pub fn invalidate(&self, url: &str) {
        let mut inner = self.lock();
        let list = inner.by_url.get(url).into_iter().flatten();
        for at in list.map(|(at, _)| *at).collect::<Vec<_>>() {
            inner.remove(url, at);
        }
    }
}

impl CacheState {
    fn note_use(&mut self, url: &str, at: u64) {
        self.uses += 1;
        let now = self.uses;
        let list = self.by_url.get_mut(url).into_iter().flatten();
        for (used, _) in list.filter(|(used, _)| *used == at) {
            *used = now;
        }
        self.by_use.remove(&at);
        self.by_use.insert(now, url.to_owned());
    }

    fn remove(&mut self, url: &str, at: u64) {
        self.by_use.remove(&at);
        let Some(list) = self.by_url.get_mut(url) else {
            return;
        };
        let gone = list.iter().filter(|(used, _)| *used == at);
        let gone: u64 = gone.map(|(_, answer)| answer.cost()).sum();
        list.retain(|(used, _)| *used != at);
        self.bytes -= gone;
        if list.is_empty() {
            self.by_url.remove(url);
        }
    }
}
