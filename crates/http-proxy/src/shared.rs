//! Bodies that are contents of their own names, so that routers keep copies of them: several client sides behind one
//! thin link fetch one.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use tokio::time::{Instant, timeout, timeout_at};
use whimbrel_client::ContentSource;
use whimbrel_core::Guid;

use crate::body::{BodyError, invalid, send_last, stated_length};
use crate::cache::policy;
use crate::plane::{PlaneWriter, StreamPlane};
use crate::wire::BodyFrame;

/// Shorter bodies are not worth the round trips of a content, in bytes.
const MIN_LENGTH: u64 = 64 << 10;
/// Longer bodies are not held in memory, in bytes.
const MAX_LENGTH: u64 = 32 << 20;
/// Bodies that are published at a time, in bytes; the oldest gives way.
const MAX_PUBLISHED: u64 = 128 << 20;
/// After a body whose name nobody could find, as without a name service, others are not published for this long.
const PAUSE: Duration = Duration::from_secs(60);
/// A body that is not whole, or whose name nobody can find, after this long is passed on as it comes.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same for a name while no other was found: there may be no name service.
const FIRST_PATIENCE: Duration = Duration::from_millis(200);

/// Returns the length of a body that anybody may have as a content; `None` for others.
pub fn shared_length(request: &Request<()>, answer: &Parts) -> Option<u64> {
    let is_whole = request.method() == Method::GET && answer.status == StatusCode::OK;
    let length = stated_length(&answer.headers)?;
    let is_worth_it = is_whole && (MIN_LENGTH..=MAX_LENGTH).contains(&length);
    let policy = policy(request, answer).filter(|_| is_worth_it)?;
    // What must be confirmed each time is not asked for by many.
    let is_fresh = !policy.time_to_live(SystemTime::now()).is_zero();
    is_fresh.then_some(length)
}

/// The bodies that a server side publishes.
#[derive(Debug)]
pub struct SharedBodies {
    plane: StreamPlane,
    published: Arc<Mutex<PublishedBodies>>,
}

#[derive(Debug, Default)]
struct PublishedBodies {
    by_age: VecDeque<(Guid, u64)>,
    bytes: u64,
    /// The last name could be found.
    is_findable: bool,
    /// Until when nothing is published.
    paused_until: Option<Instant>,
}

impl PublishedBodies {
    /// Notes a body, and returns those that give way to it.
    fn note(&mut self, name: Guid, length: u64) -> Vec<Guid> {
        if let Some(at) = self.by_age.iter().position(|(known, _)| *known == name) {
            let known = self.by_age.remove(at);
            self.by_age.extend(known);
            return Vec::new();
        }
        self.by_age.push_back((name, length));
        self.bytes += length;
        let mut old = Vec::new();
        while self.bytes > MAX_PUBLISHED
            && let Some((name, length)) = self.by_age.pop_front()
        {
            self.bytes -= length;
            old.push(name);
        }
        old
    }
}

/// A body of which the first bytes are here.
struct BegunBody<B> {
    first: Bytes,
    rest: RestOfBody<B>,
}

/// How a body continues.
enum RestOfBody<B> {
    Nothing,
    More(B),
    Failed(Option<BodyError>),
}

impl<B> Body for BegunBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.first.is_empty() {
            let first = core::mem::take(&mut self.first);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match &mut self.rest {
            RestOfBody::Nothing => Poll::Ready(None),
            RestOfBody::More(body) => {
                let next = Pin::new(body).poll_frame(context);
                next.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            RestOfBody::Failed(error) => Poll::Ready(error.take().map(Err)),
        }
    }
}

/// Collects a body of this length until it is whole, or for long enough.
async fn collect<B>(mut body: B, length: u64) -> BegunBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    let (mut first, until) = (BytesMut::new(), Instant::now() + PATIENCE);
    let rest = loop {
        match timeout_at(until, body.frame()).await {
            Err(_) => break RestOfBody::More(body),
            Ok(None) => break RestOfBody::Nothing,
            Ok(Some(Err(error))) => break RestOfBody::Failed(Some(error.into())),
            Ok(Some(Ok(frame))) => {
                first.extend_from_slice(frame.data_ref().map_or(&[][..], |data| &data[..]));
                if first.len() as u64 > length {
                    break RestOfBody::More(body);
                }
            }
        }
    };
    BegunBody {
        first: first.freeze(),
        rest,
    }
}

impl SharedBodies {
    /// Returns none yet.
    pub fn new(plane: StreamPlane) -> SharedBodies {
        SharedBodies {
            plane,
            published: Arc::default(),
        }
    }

    /// Passes a body on as a content, or as it comes if it comes slowly. Returns the bytes of a content.
    pub async fn pass_on<B>(
        &self,
        writer: &mut PlaneWriter,
        body: B,
        length: u64,
    ) -> io::Result<Option<Bytes>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BodyError>,
    {
        // The answer's head goes ahead.
        writer.send().await?;
        if self.is_paused() {
            return send_last(writer, body).await.map(|()| None);
        }
        let begun = collect(body, length).await;
        let is_whole = begun.first.len() as u64 == length;
        if is_whole
            && matches!(begun.rest, RestOfBody::Nothing)
            && let Some(name) = self.publish(begun.first.clone()).await
        {
            let frame = BodyFrame::Content { name, length };
            writer.queue(frame.encode().map_err(invalid)?);
            writer.send().await?;
            return Ok(Some(begun.first));
        }
        send_last(writer, begun).await?;
        Ok(None)
    }

    fn lock(&self) -> MutexGuard<'_, PublishedBodies> {
        self.published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_paused(&self) -> bool {
        let until = self.lock().paused_until;
        until.is_some_and(|at| Instant::now() < at)
    }

    fn make_room(&self, name: Guid, length: u64) {
        let old = self.lock().note(name, length);
        old.into_iter().for_each(|old| self.plane.withdraw(old));
    }

    /// Publishes a body, and returns its name once others can find it.
    async fn publish(&self, bytes: Bytes) -> Option<Guid> {
        let length = bytes.len() as u64;
        let hashed = tokio::task::spawn_blocking(move || ContentSource::of_bytes(bytes, ""));
        let source = hashed.await.ok()?;
        let name = source.content();
        self.make_room(name, length);
        let patience = match self.lock().is_findable {
            true => PATIENCE,
            false => FIRST_PATIENCE,
        };
        let (plane, published) = (self.plane.clone(), Arc::clone(&self.published));
        let announcing = tokio::spawn(async move {
            let announced = timeout(PATIENCE, plane.publish(source)).await;
            let is_findable = matches!(announced, Ok(Ok(())));
            let mut published = published.lock().unwrap_or_else(PoisonError::into_inner);
            published.is_findable = is_findable;
            if !is_findable {
                published.paused_until = Some(Instant::now() + PAUSE);
            }
            is_findable
        });
        let announced = timeout(patience, announcing).await;
        matches!(announced, Ok(Ok(true))).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_published_bodies_give_way() {
        let mut published = PublishedBodies::default();
        let name = |byte: u8| Guid([byte; 32]);
        for byte in 0..4 {
            assert_eq!(published.note(name(byte), MAX_PUBLISHED / 4), []);
        }
        // One that is asked for again is the newest.
        assert_eq!(published.note(name(0), MAX_PUBLISHED / 4), []);
        assert_eq!(
            published.note(name(9), MAX_PUBLISHED / 2),
            [name(1), name(2)]
        );
        assert_eq!(published.bytes, MAX_PUBLISHED);
    }
}
