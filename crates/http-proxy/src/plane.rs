//! Streams to other programs, as tokio reads and writes them.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use whimbrel_client::session::{ChunkStep, ProgramSession};
use whimbrel_client::{Attachment, ContentSource, GetOptions, LocalError, ProgramError};
use whimbrel_core::{Guid, SeededRng, Time};
use whimbrel_mobilityfirst::local::{Delivery, LocalEvent, LocalRequest, TransferOptions};
use whimbrel_stream::endpoint::StreamRead;
use whimbrel_stream::{
    CutOff, OpenStreamError, StreamEndpoint, StreamEndpointOptions, StreamEvent, StreamKey,
};

use crate::host::HostLine;

/// Pause between two attempts to attach to a host that has gone.
const CALL_INTERVAL: Duration = Duration::from_millis(300);
/// Events of the host that are handled before anything is sent.
const BATCH: usize = 128;

/// Constants of a plane.
#[derive(Clone, Debug)]
pub struct PlaneOptions {
    /// The channel of the messages.
    pub channel: u32,
    /// True if others may open streams.
    pub accepts: bool,
    /// Bound of the streams at a time.
    pub max_streams: usize,
    /// A stream whose other side says nothing for this long is over.
    pub patience: Duration,
    /// Random bytes, of each start others.
    pub secret: [u8; 32],
}

/// Opens streams.
#[derive(Clone, Debug)]
pub struct StreamPlane(Arc<PlaneShared>);

#[derive(Debug)]
struct PlaneShared {
    inner: Mutex<PlaneState>,
    /// There may be something to send.
    changed: Notify,
    start: Instant,
}

#[derive(Debug)]
struct PlaneState {
    endpoint: StreamEndpoint,
    slots: BTreeMap<StreamKey, StreamSlot>,
    /// Contents that are published and fetched.
    session: ProgramSession,
    sources: BTreeMap<Guid, Arc<ContentSource>>,
    /// What waits for the session, by the number of a transfer or the name of a content.
    fetching: BTreeMap<u32, Waker>,
    publishing: BTreeMap<Guid, Waker>,
    /// The host has gone.
    is_over: bool,
}

/// What a stream's handle waits for, and how the stream ended.
#[derive(Debug, Default)]
struct StreamSlot {
    reader: Option<Waker>,
    writer: Option<Waker>,
    cut: Option<CutOff>,
}

impl StreamSlot {
    fn wake(&mut self) {
        let waiting = [self.reader.take(), self.writer.take()];
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

impl PlaneShared {
    fn lock(&self) -> MutexGuard<'_, PlaneState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.start.elapsed().as_nanos() as u64)
    }
}

/// A stream that a caller has opened.
pub type Accepted = mpsc::UnboundedReceiver<PlaneStream>;

impl StreamPlane {
    /// Returns the plane, the streams that others open, and the future that runs both until the host has gone for
    /// good. A daemon that is started again is attached to again; streams continue.
    pub fn new(
        attachment: Attachment,
        line: HostLine,
        options: PlaneOptions,
    ) -> (
        StreamPlane,
        Accepted,
        impl Future<Output = LocalError> + Send,
    ) {
        let mut seed = [0; 8];
        seed.copy_from_slice(&options.secret[..8]);
        let endpoint = StreamEndpointOptions {
            accepts: options.accepts,
            max_streams: options.max_streams,
            patience: options.patience,
            secret: options.secret,
        };
        let rng = SeededRng::stream(u64::from_le_bytes(seed), "streams");
        let shared = Arc::new(PlaneShared {
            inner: Mutex::new(PlaneState {
                endpoint: StreamEndpoint::new(endpoint, rng),
                slots: BTreeMap::new(),
                session: ProgramSession::default(),
                sources: BTreeMap::new(),
                fetching: BTreeMap::new(),
                publishing: BTreeMap::new(),
                is_over: false,
            }),
            changed: Notify::new(),
            start: Instant::now(),
        });
        let (accepted, streams) = mpsc::unbounded_channel();
        let driver = Driver {
            shared: Arc::clone(&shared),
            attachment,
            line,
            channel: options.channel,
            accepted,
        };
        (StreamPlane(shared), streams, driver.run())
    }

    /// Opens a stream. Nothing is sent before something is written.
    pub fn open(&self, peer: Guid) -> Result<PlaneStream, OpenStreamError> {
        let mut inner = self.0.lock();
        let key = inner.endpoint.open(self.0.now(), peer)?;
        inner.slots.insert(key, StreamSlot::default());
        Ok(PlaneStream {
            shared: Arc::clone(&self.0),
            key,
        })
    }

    /// Publishes a content, and returns once others can find it. It is served until [`StreamPlane::withdraw`].
    pub async fn publish(&self, source: ContentSource) -> Result<(), ProgramError> {
        let content = source.content();
        self.begin_publishing(source);
        poll_fn(|context| {
            let mut inner = self.0.lock();
            match inner.session.is_announced(content) {
                Ok(false) => {
                    inner.publishing.insert(content, context.waker().clone());
                    Poll::Pending
                }
                announced => Poll::Ready(announced.map(drop)),
            }
        })
        .await
    }

    fn begin_publishing(&self, source: ContentSource) {
        let publish = source.publish();
        let mut inner = self.0.lock();
        if !inner.session.is_announced(publish.content).unwrap_or(false) {
            inner.sources.insert(publish.content, Arc::new(source));
            (inner.session).publish(publish, TransferOptions::default(), false);
            drop(inner);
            self.0.changed.notify_one();
        }
    }

    /// Ends a publication.
    pub fn withdraw(&self, content: Guid) {
        let mut inner = self.0.lock();
        inner.session.withdraw(content);
        inner.sources.remove(&content);
        drop(inner);
        self.0.changed.notify_one();
    }

    /// Fetches a content of this length.
    pub fn fetch(&self, content: Guid, length: u64) -> PlaneFetch {
        let options = GetOptions {
            limit: Some(length),
            ..GetOptions::default()
        };
        let number = self.0.lock().session.get(content, options);
        self.0.changed.notify_one();
        PlaneFetch {
            shared: Arc::clone(&self.0),
            number,
        }
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.0.lock().endpoint.len()
    }
}

/// A content that is fetched. Dropping it ends the transfer.
#[derive(Debug)]
pub struct PlaneFetch {
    shared: Arc<PlaneShared>,
    number: u32,
}

impl PlaneFetch {
    /// Returns the next bytes, verified and in order; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ProgramError> {
        poll_fn(|context| {
            let mut inner = self.shared.lock();
            let step = match inner.session.take_piece(self.number) {
                Ok(ChunkStep::Waiting) if inner.is_over => Err(LocalError::Closed.into()),
                Ok(ChunkStep::Waiting) => {
                    inner.fetching.insert(self.number, context.waker().clone());
                    return Poll::Pending;
                }
                Ok(ChunkStep::Piece(piece)) => Ok(Some(piece.data)),
                Ok(ChunkStep::Complete(_)) => Ok(None),
                Err(error) => Err(error),
            };
            drop(inner);
            // The host hands over another chunk.
            self.shared.changed.notify_one();
            Poll::Ready(step)
        })
        .await
    }
}

impl Drop for PlaneFetch {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.fetching.remove(&self.number);
        inner.session.cancel(self.number);
        drop(inner);
        self.shared.changed.notify_one();
    }
}

/// Moves messages between the host and the endpoint.
struct Driver {
    shared: Arc<PlaneShared>,
    attachment: Attachment,
    line: HostLine,
    channel: u32,
    accepted: mpsc::UnboundedSender<PlaneStream>,
}

/// Returns true if a host that has failed so may return.
fn may_pass(error: &LocalError) -> bool {
    matches!(
        error,
        LocalError::Nobody(_) | LocalError::Closed | LocalError::Io(_)
    )
}

impl Driver {
    async fn run(mut self) -> LocalError {
        let mut error = self.carry().await;
        while self.attachment.can_return() && may_pass(&error) {
            tracing::info!(%error, "the host has gone; it is called until it returns");
            tokio::time::sleep(CALL_INTERVAL).await;
            self.shared.lock().session.handle_disconnected();
            error = match HostLine::attach(&mut self.attachment) {
                Ok(line) => {
                    self.line = line;
                    self.carry().await
                }
                Err(error) => error,
            };
        }
        let mut inner = self.shared.lock();
        inner.is_over = true;
        inner.slots.values_mut().for_each(StreamSlot::wake);
        let fetching = core::mem::take(&mut inner.fetching);
        fetching.into_values().for_each(Waker::wake);
        drop(inner);
        error
    }

    async fn carry(&mut self) -> LocalError {
        let channel = self.channel;
        let listen = LocalRequest::Listen { channel };
        if self.line.requests.send(listen).await.is_err() {
            return LocalError::Closed;
        }
        self.shared.lock().session.handle_connected();
        let (mut due, host) = (VecDeque::new(), self.line.requests.clone());
        loop {
            if due.is_empty() {
                due.extend(self.step());
            }
            let is_idle = due.is_empty();
            let deadline = self.shared.lock().endpoint.poll_timeout();
            let until = deadline.map(|at| self.shared.start + Duration::from_nanos(at.as_nanos()));
            tokio::select! {
                // A host that is busy with events for this side takes no requests before they are read.
                permit = host.reserve(), if !is_idle => {
                    let mut permit = permit.ok();
                    if permit.is_none() {
                        return LocalError::Closed;
                    }
                    while let Some(room) = permit
                        && let Some(request) = due.pop_front()
                    {
                        room.send(request);
                        permit = host.try_reserve().ok();
                    }
                }
                event = self.line.events.recv() => {
                    if let Err(error) = self.take(event) {
                        return error;
                    }
                }
                () = self.shared.changed.notified(), if is_idle => {}
                () = async {
                    match until {
                        Some(until) => tokio::time::sleep_until(until).await,
                        None => std::future::pending().await,
                    }
                }, if is_idle => {}
            }
        }
    }

    /// Takes what the host has said.
    fn take(&mut self, first: Option<Result<LocalEvent, LocalError>>) -> Result<(), LocalError> {
        let mut event = first.unwrap_or(Err(LocalError::Closed));
        let now = self.shared.now();
        let mut inner = self.shared.lock();
        for _ in 0..BATCH {
            match event? {
                LocalEvent::Message { from, payload, .. } => {
                    inner.endpoint.handle_message(now, from, &payload);
                }
                other => inner.session.handle_event(other),
            }
            match self.line.events.try_recv() {
                Ok(next) => event = next,
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Does what is due; returns what is to be sent.
    fn step(&self) -> Vec<LocalRequest> {
        let now = self.shared.now();
        let mut inner = self.shared.lock();
        inner.endpoint.handle_timeout(now);
        while let Some(event) = inner.endpoint.poll_event() {
            match event {
                StreamEvent::Accepted(key) => {
                    inner.slots.insert(key, StreamSlot::default());
                    let stream = PlaneStream {
                        shared: Arc::clone(&self.shared),
                        key,
                    };
                    // Without a taker it would release itself in this lock.
                    if let Err(unwanted) = self.accepted.send(stream) {
                        inner.slots.remove(&key);
                        inner.endpoint.cut(key, CutOff::NotPermitted);
                        core::mem::forget(unwanted);
                    }
                }
                StreamEvent::Readable(key) => {
                    let slot = inner.slots.get_mut(&key);
                    if let Some(reader) = slot.and_then(|slot| slot.reader.take()) {
                        reader.wake();
                    }
                }
                StreamEvent::Writable(key) => {
                    let slot = inner.slots.get_mut(&key);
                    if let Some(writer) = slot.and_then(|slot| slot.writer.take()) {
                        writer.wake();
                    }
                }
                StreamEvent::Cut(key, why) => {
                    if let Some(slot) = inner.slots.get_mut(&key) {
                        slot.cut = Some(why);
                        slot.wake();
                    }
                }
            }
        }
        let mut requests = inner.step_contents();
        while requests.len() < BATCH
            && let Some((destination, payload)) = inner.endpoint.poll_transmit(now)
        {
            requests.push(LocalRequest::Message {
                channel: self.channel,
                destination,
                delivery: Delivery::default(),
                payload,
            });
        }
        if requests.len() >= BATCH {
            self.shared.changed.notify_one();
        }
        requests
    }
}

impl PlaneState {
    /// Answers the host's requests for chunks, and wakes what waits. Returns what is asked of the host.
    fn step_contents(&mut self) -> Vec<LocalRequest> {
        while let Some(wanted) = self.session.poll_read() {
            let source = self.sources.get(&wanted.content);
            let chunk = source.and_then(|it| it.read(wanted.index, wanted.chunk_size).ok());
            self.session.answer_read(wanted.read, chunk);
        }
        while let Some(number) = self.session.poll_changed() {
            self.fetching
                .remove(&number)
                .into_iter()
                .for_each(Waker::wake);
        }
        while let Some((content, _)) = self.session.poll_announced() {
            self.publishing
                .remove(&content)
                .into_iter()
                .for_each(Waker::wake);
        }
        let requests = std::iter::from_fn(|| self.session.poll_request());
        requests.take(BATCH).collect()
    }
}

/// One stream. Dropping it cuts it off, unless both sides have finished.
#[derive(Debug)]
pub struct PlaneStream {
    shared: Arc<PlaneShared>,
    key: StreamKey,
}

impl PlaneStream {
    /// Returns the name of the other side; it is proven.
    pub fn peer(&self) -> Guid {
        self.key.peer
    }

    /// Ends the stream, and tells the other side why.
    pub fn cut(&self, why: CutOff) {
        self.shared.lock().endpoint.cut(self.key, why);
        self.shared.changed.notify_one();
    }

    /// Waits until the stream is cut off. Nothing may be read meanwhile.
    pub async fn until_cut(&self) {
        poll_fn(|context| {
            let mut inner = self.shared.lock();
            let is_over = inner.is_over;
            match inner.slots.get_mut(&self.key) {
                Some(slot) if slot.cut.is_none() && !is_over => {
                    slot.reader = Some(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
        .await;
    }

    /// Returns both directions. The stream ends with the second of them.
    pub fn split(self) -> (PlaneReader, PlaneWriter) {
        let stream = Arc::new(self);
        let writer = PlaneWriter {
            stream: Arc::clone(&stream),
            waiting: VecDeque::new(),
            is_last: false,
        };
        (PlaneReader { stream }, writer)
    }

    fn poll_bytes(&self, context: &mut Context<'_>, max: usize) -> Poll<io::Result<Bytes>> {
        let mut inner = self.shared.lock();
        match inner.endpoint.read(self.key, max) {
            StreamRead::Bytes(bytes) => {
                drop(inner);
                self.shared.changed.notify_one();
                Poll::Ready(Ok(bytes))
            }
            StreamRead::End => Poll::Ready(Ok(Bytes::new())),
            StreamRead::Gone => Poll::Ready(Err(gone(&inner, self.key))),
            StreamRead::Later if inner.is_over => Poll::Ready(Err(gone(&inner, self.key))),
            StreamRead::Later => {
                if let Some(slot) = inner.slots.get_mut(&self.key) {
                    slot.reader = Some(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// Writes the bytes that wait, as far as there is room, and then the end. Ready once all are taken.
    fn poll_drain(
        &self,
        context: &mut Context<'_>,
        waiting: &mut VecDeque<Bytes>,
        is_last: bool,
    ) -> Poll<io::Result<()>> {
        let now = self.shared.now();
        let mut inner = self.shared.lock();
        let mut has_written = false;
        let outcome = loop {
            let Some(first) = waiting.front_mut() else {
                if is_last {
                    inner.endpoint.finish(self.key);
                    has_written = true;
                }
                break Poll::Ready(Ok(()));
            };
            if inner.is_over || inner.endpoint.room(self.key).is_none() {
                break Poll::Ready(Err(gone(&inner, self.key)));
            }
            let taken = inner.endpoint.write(now, self.key, first);
            has_written |= taken > 0;
            let _ = first.split_to(taken);
            if first.is_empty() {
                waiting.pop_front();
            } else {
                if let Some(slot) = inner.slots.get_mut(&self.key) {
                    slot.writer = Some(context.waker().clone());
                }
                break Poll::Pending;
            }
        };
        drop(inner);
        if has_written {
            self.shared.changed.notify_one();
        }
        outcome
    }

    fn poll_acknowledged(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.shared.lock();
        match inner.endpoint.is_acknowledged(self.key) {
            _ if inner.is_over => Poll::Ready(Err(gone(&inner, self.key))),
            None => Poll::Ready(Err(gone(&inner, self.key))),
            Some(true) => Poll::Ready(Ok(())),
            Some(false) => {
                if let Some(slot) = inner.slots.get_mut(&self.key) {
                    slot.writer = Some(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

/// The direction from the other side.
#[derive(Debug)]
pub struct PlaneReader {
    stream: Arc<PlaneStream>,
}

impl PlaneReader {
    /// Returns the stream.
    pub fn stream(&self) -> &PlaneStream {
        &self.stream
    }

    /// Reads bytes as they came, at most `max`; nothing at the end.
    pub async fn read_bytes(&mut self, max: usize) -> io::Result<Bytes> {
        poll_fn(|context| self.stream.poll_bytes(context, max)).await
    }
}

/// The direction to the other side.
#[derive(Debug)]
pub struct PlaneWriter {
    stream: Arc<PlaneStream>,
    waiting: VecDeque<Bytes>,
    /// The direction ends with what waits.
    is_last: bool,
}

impl PlaneWriter {
    /// Returns the stream.
    pub fn stream(&self) -> &PlaneStream {
        &self.stream
    }

    /// Adds bytes that leave with the next [`PlaneWriter::send`], in as few messages as possible.
    pub fn queue(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.waiting.push_back(data);
        }
    }

    /// Sends what was queued; waits until the stream has taken it.
    pub async fn send(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_drain(context)).await
    }

    /// Sends what was queued and ends the direction, in as few messages as possible.
    pub async fn send_last(&mut self) -> io::Result<()> {
        self.is_last = true;
        self.send().await
    }

    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (stream, waiting) = (&self.stream, &mut self.waiting);
        stream.poll_drain(context, waiting, self.is_last)
    }

    /// Waits until the other side has acknowledged what was sent.
    pub async fn acknowledged(&mut self) -> io::Result<()> {
        let stream = &self.stream;
        poll_fn(|context| stream.poll_acknowledged(context)).await
    }

    /// Ends the direction, once what was sent has left.
    pub fn finish(&mut self) {
        let shared = &self.stream.shared;
        shared.lock().endpoint.finish(self.stream.key);
        shared.changed.notify_one();
    }
}

fn gone(inner: &PlaneState, key: StreamKey) -> io::Error {
    let cut = inner.slots.get(&key).and_then(|slot| slot.cut);
    match cut {
        Some(why) => io::Error::new(io::ErrorKind::ConnectionAborted, why),
        None => io::Error::new(io::ErrorKind::NotConnected, "the host has gone"),
    }
}

/// Returns the reason if an error is that of a stream that was cut off.
pub fn reason(error: &io::Error) -> Option<CutOff> {
    error.get_ref()?.downcast_ref::<CutOff>().copied()
}

impl Drop for PlaneStream {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.slots.remove(&self.key);
        inner.endpoint.release(self.key);
        drop(inner);
        self.shared.changed.notify_one();
    }
}

impl AsyncRead for PlaneReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.stream.poll_bytes(context, buffer.remaining());
        read.map_ok(|bytes| buffer.put_slice(&bytes))
    }
}

impl AsyncWrite for PlaneWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let writer = &mut *self;
        // What a former call has left comes first.
        match writer.poll_drain(context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
        writer.waiting.push_back(Bytes::copy_from_slice(data));
        match writer.poll_drain(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(data.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_drain(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_last = true;
        self.poll_drain(context)
    }
}
