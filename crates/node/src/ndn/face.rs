//! NDN for programs: express Interests, serve a prefix, fetch and publish objects.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use whimbrel_node::ndn::face::{NdnFace, NdnFaceError};
//! # use whimbrel_transport::FetchOptions;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let face = NdnFace::attach(None)?;
//! let film = face.fetch("/example/film".parse()?, FetchOptions::default())?;
//! std::fs::write("film", film.wait()?)?;
//! # Ok(()) }
//! ```
//!
//! A thread of the face runs [`NdnSession`]. Each call returns an [`NdnCall`], which a thread waits for or a task of any
//! runtime awaits; dropping it ends the operation.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use whimbrel_io::Clock;
use whimbrel_ndn_packet::{Data, DataRef, DigestSigner, InterestRef, NackReason, Name};
use whimbrel_transport::session::Answering;
use whimbrel_transport::{
    Answer, BytesSource, FetchError, FetchEvent, FetchOptions, NdnSession, OperationEvent,
    OperationNumber, PeekEvent, PeekOptions, ProducerOptions, RegisterOptions, RegistrationEvent,
    SegmentSource, SharedSigner, TooManyOperations,
};

use super::client::{Client, ClientError, Poster, Told, Uplink, UplinkError, seeded};
use crate::run::StartError;

/// Longest time for which the thread does not look at the stop flag by itself.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of content in a segment of published bytes: those of `ndn serve`.
const SEGMENT: usize = 8_000;
/// Events of a served prefix that wait; the oldest is dropped.
const MAX_TOLD: usize = 16;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum NdnFaceError {
    /// No forwarder is known.
    #[error(transparent)]
    Uplink(#[from] UplinkError),
    /// No forwarder answers.
    #[error(transparent)]
    Forwarder(#[from] ClientError),
    /// The bound of operations is reached.
    #[error(transparent)]
    TooMany(#[from] TooManyOperations),
    /// The network or the producer refuses an Interest.
    #[error("{name} was answered with a Nack ({reason:?})")]
    Nack {
        /// The Interest.
        name: Name,
        /// The reason.
        reason: NackReason,
    },
    /// No answer has come in time.
    #[error("{0} was not answered within its lifetime")]
    TimedOut(Name),
    /// A fetch has failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The forwarder refuses a prefix.
    #[error("the forwarder does not accept the prefix {0}; its operator permits prefixes")]
    Prefix(Name),
    /// The face has closed.
    #[error("the face has closed")]
    Closed,
}

/// What the calls and the thread of a face share.
struct FaceShare {
    poster: Poster<NdnSession>,
    inner: Mutex<FaceState>,
    changed: Condvar,
    stop: AtomicBool,
    clock: Clock,
}

#[derive(Default)]
struct FaceState {
    /// Events that calls have not taken.
    told: BTreeMap<OperationNumber, VecDeque<OperationEvent>>,
    tasks: BTreeMap<OperationNumber, Waker>,
    is_over: bool,
}

impl FaceState {
    fn has_news(&self, number: OperationNumber) -> bool {
        self.is_over || self.told.get(&number).is_some_and(|told| !told.is_empty())
    }
}

impl FaceShare {
    fn new(client: &Client<NdnSession>) -> FaceShare {
        FaceShare {
            poster: client.poster(),
            inner: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            clock: client.clock(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FaceState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, number: OperationNumber, event: OperationEvent) {
        let mut inner = self.lock();
        // Nobody waits for what has no place.
        if let Some(told) = inner.told.get_mut(&number) {
            let is_fetch = matches!(event, OperationEvent::Fetched(_));
            if !is_fetch && told.len() >= MAX_TOLD {
                told.pop_front();
            }
            told.push_back(event);
        }
        let task = inner.tasks.remove(&number);
        drop(inner);
        self.changed.notify_all();
        task.into_iter().for_each(Waker::wake);
    }

    fn end(&self) {
        let mut inner = self.lock();
        inner.is_over = true;
        let tasks = core::mem::take(&mut inner.tasks);
        drop(inner);
        self.changed.notify_all();
        tasks.into_values().for_each(Waker::wake);
    }
}

/// A program's face to its forwarder. It closes with its last clone and all that it has returned.
#[derive(Clone)]
pub struct NdnFace(Arc<FaceOwner>);

struct FaceOwner {
    share: Arc<FaceShare>,
    thread: Option<JoinHandle<()>>,
    signer: SharedSigner,
}

impl Drop for FaceOwner {
    fn drop(&mut self) {
        self.share.stop.store(true, Ordering::Relaxed);
        self.share.poster.post(|_, _| {});
        let current = std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|it| it.thread().id() != current) {
            let _ = thread.join();
        }
    }
}

impl NdnFace {
    /// Attaches to the forwarder at a FaceUri, or to the one that `NDN_CLIENT_TRANSPORT` or `client.conf` names. What is
    /// published and all commands are signed with digests.
    pub fn attach(uri: Option<&str>) -> Result<NdnFace, NdnFaceError> {
        NdnFace::attach_with(Uplink::find(uri)?, Arc::new(DigestSigner))
    }

    /// Attaches to a forwarder. What is published and all commands are signed with `signer`.
    pub fn attach_with(uplink: Uplink, signer: SharedSigner) -> Result<NdnFace, NdnFaceError> {
        let (sender, attached) = std::sync::mpsc::channel();
        let of_thread = Arc::clone(&signer);
        // A loop belongs to its thread.
        let thread = std::thread::Builder::new().name("ndn face".into());
        let thread = thread.spawn(move || match connect(uplink, of_thread) {
            Err(error) => drop(sender.send(Err(error))),
            Ok(client) => {
                let share = Arc::new(FaceShare::new(&client));
                if sender.send(Ok(Arc::clone(&share))).is_ok() {
                    run(client, &share);
                }
            }
        });
        let thread = thread.map_err(|source| StartError::System {
            what: "threads",
            source,
        });
        let thread = thread.map_err(ClientError::System)?;
        let share = attached.recv().map_err(|_| NdnFaceError::Closed)??;
        Ok(NdnFace(Arc::new(FaceOwner {
            share,
            thread: Some(thread),
            signer,
        })))
    }

    /// Starts an operation on the face's thread, and waits until it has a number.
    fn begin<T>(
        &self,
        start: impl FnOnce(
            &mut NdnSession,
            whimbrel_core::Time,
        ) -> Result<OperationNumber, TooManyOperations>
        + Send
        + 'static,
        step: impl FnMut(&Arc<NdnOperation>) -> Result<Option<T>, NdnFaceError> + Send + 'static,
    ) -> Result<NdnCall<T>, NdnFaceError> {
        let (sender, begun) = std::sync::mpsc::channel();
        let share = Arc::clone(&self.0.share);
        let of_thread = Arc::clone(&share);
        share.poster.post(move |session, now| {
            let number = start(session, now);
            if let Ok(number) = number {
                // Before its first event.
                of_thread.lock().told.insert(number, VecDeque::new());
            }
            let _ = sender.send(number);
        });
        let number = begun.recv().map_err(|_| NdnFaceError::Closed)??;
        Ok(NdnCall {
            operation: Arc::new(NdnOperation {
                number,
                face: Arc::clone(&self.0),
            }),
            step: Box::new(step),
        })
    }

    /// Sends an Interest; the result is the Data, as a whole packet that is not verified.
    pub fn express(
        &self,
        name: Name,
        options: PeekOptions,
    ) -> Result<NdnCall<ReceivedData>, NdnFaceError> {
        let asked = name.clone();
        self.begin(
            move |session, now| session.express(now, asked, options),
            move |operation| match operation.take()? {
                None => Ok(None),
                Some(OperationEvent::Expressed(PeekEvent::Data { packet, .. })) => {
                    Ok(Some(ReceivedData(packet)))
                }
                Some(OperationEvent::Expressed(PeekEvent::Nack { reason, .. })) => {
                    let name = name.clone();
                    Err(NdnFaceError::Nack { name, reason })
                }
                Some(_) => Err(NdnFaceError::TimedOut(name.clone())),
            },
        )
    }

    /// Fetches a segmented object; the result is its content. Delivery is in order, whatever the options say.
    pub fn fetch(&self, name: Name, options: FetchOptions) -> Result<NdnCall<Bytes>, NdnFaceError> {
        let mut content = Vec::new();
        let options = FetchOptions {
            delivery: whimbrel_transport::Delivery::InOrder,
            ..options
        };
        self.begin(
            move |session, now| {
                let number = session.fetch(now, name, options)?;
                session.want(number, u64::MAX);
                Ok(number)
            },
            move |operation| {
                while let Some(event) = operation.take()? {
                    match event {
                        OperationEvent::Fetched(FetchEvent::Segment { content: piece, .. }) => {
                            content.extend_from_slice(&piece);
                        }
                        OperationEvent::Fetched(FetchEvent::Done(_)) => {
                            return Ok(Some(core::mem::take(&mut content).into()));
                        }
                        OperationEvent::Fetched(FetchEvent::Failed { error, .. }) => {
                            return Err(error.into());
                        }
                        _ => {}
                    }
                }
                Ok(None)
            },
        )
    }

    /// Fetches a segmented object piece by piece: the network brings further ones as the program takes these.
    pub fn fetch_pieces(
        &self,
        name: Name,
        options: FetchOptions,
    ) -> Result<NdnPieces, NdnFaceError> {
        let call = self.begin(
            move |session, now| session.fetch(now, name, options),
            |operation| {
                while let Some(event) = operation.take()? {
                    match event {
                        OperationEvent::Fetched(FetchEvent::Segment {
                            offset, content, ..
                        }) => return Ok(Some(Some((offset, content)))),
                        OperationEvent::Fetched(FetchEvent::Done(_)) => return Ok(Some(None)),
                        OperationEvent::Fetched(FetchEvent::Failed { error, .. }) => {
                            return Err(error.into());
                        }
                        _ => operation.want_next(),
                    }
                }
                Ok(None)
            },
        )?;
        Ok(NdnPieces {
            call,
            is_over: false,
        })
    }

    /// Registers a prefix, and answers its Interests on the face's thread. The call returns once the forwarder has
    /// accepted it.
    pub fn serve(
        &self,
        prefix: Name,
        answering: impl FnMut(&InterestRef<'_>) -> Answer + Send + 'static,
    ) -> Result<NdnCall<NdnServed>, NdnFaceError> {
        let (answering, name): (Answering, _) = (Box::new(answering), prefix.clone());
        self.begin(
            move |session, now| session.serve(now, prefix, answering),
            move |operation| registered(operation, &name),
        )
    }

    /// Publishes bytes under a name; without a version at its end, the time is its version. The call returns once the
    /// forwarder has accepted the name.
    pub fn publish_bytes(
        &self,
        name: Name,
        content: impl Into<Bytes>,
    ) -> Result<NdnCall<NdnServed>, NdnFaceError> {
        let clock = self.0.share.clock;
        let options = ProducerOptions::new(clock.wall_clock(), clock.now());
        self.publish(name, BytesSource::new(content, SEGMENT), options)
    }

    /// Publishes segments under a name.
    pub fn publish(
        &self,
        name: Name,
        source: impl SegmentSource + Send + 'static,
        options: ProducerOptions,
    ) -> Result<NdnCall<NdnServed>, NdnFaceError> {
        let (signer, prefix) = (Arc::clone(&self.0.signer), name.clone());
        self.begin(
            move |session, now| session.publish(now, name, source, signer, options),
            move |operation| registered(operation, &prefix),
        )
    }

    /// Returns what signs answers. A closure that answers Interests holds this, and not the face, which would then never
    /// close.
    pub fn signer(&self) -> AnswerSigner {
        AnswerSigner(Arc::clone(&self.0.signer))
    }
}

/// Connects a session. A forwarder that is not there is an error; one that goes later is called until it is back.
fn connect(uplink: Uplink, signer: SharedSigner) -> Result<Client<NdnSession>, NdnFaceError> {
    let clock = Clock::start();
    let register = RegisterOptions {
        signer,
        ..RegisterOptions::new(clock.wall_clock())
    };
    let session = NdnSession::new(register, seeded()?);
    let mut client = Client::new(uplink, clock, session)?;
    let (mut is_connected, mut refusal) = (false, None);
    while !is_connected {
        client.step(LOOK, |_, _, told| match told {
            Told::Connected => is_connected = true,
            Told::Unreachable(why) => refusal = Some(why),
            Told::Event(_) | Told::Gone => {}
        })?;
        if let Some(why) = refusal.take() {
            return Err(client.nobody(why).into());
        }
    }
    Ok(client)
}

/// Runs the session until the face is dropped or its loop fails.
fn run(mut client: Client<NdnSession>, share: &FaceShare) {
    while !share.stop.load(Ordering::Relaxed) {
        let stepped = client.step(LOOK, |_, _, told| {
            if let Told::Event((number, event)) = told {
                share.tell(number, event);
            }
        });
        if let Err(error) = stepped {
            tracing::warn!(%error, "the face to the forwarder has closed");
            break;
        }
    }
    share.end();
}

/// A Data that has arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedData(pub Bytes);

impl ReceivedData {
    /// Returns its fields.
    pub fn view(&self) -> Option<DataRef<'_>> {
        // It was decoded when it arrived.
        DataRef::decode(&self.0).ok()
    }

    /// Returns its name.
    pub fn name(&self) -> Name {
        self.view()
            .map(|data| data.name.to_name())
            .unwrap_or_default()
    }

    /// Returns its content.
    pub fn content(&self) -> Bytes {
        let content = self.view().map(|data| self.0.slice_ref(data.content));
        content.unwrap_or_default()
    }
}

/// An operation, which ends when this is dropped.
pub struct NdnOperation {
    number: OperationNumber,
    face: Arc<FaceOwner>,
}

impl NdnOperation {
    fn take(&self) -> Result<Option<OperationEvent>, NdnFaceError> {
        let mut inner = self.face.share.lock();
        let told = inner.told.get_mut(&self.number);
        match told.and_then(VecDeque::pop_front) {
            Some(event) => Ok(Some(event)),
            None if inner.is_over => Err(NdnFaceError::Closed),
            None => Ok(None),
        }
    }

    fn want_next(&self) {
        let number = self.number;
        let poster = &self.face.share.poster;
        poster.post(move |session, _| session.want(number, 1));
    }
}

impl Drop for NdnOperation {
    fn drop(&mut self) {
        let number = self.number;
        let share = &self.face.share;
        let mut inner = share.lock();
        inner.told.remove(&number);
        inner.tasks.remove(&number);
        drop(inner);
        share.poster.post(move |session, _| session.end(number));
    }
}

/// Returns the prefix that is served once the forwarder has accepted it.
fn registered(
    operation: &Arc<NdnOperation>,
    prefix: &Name,
) -> Result<Option<NdnServed>, NdnFaceError> {
    while let Some(event) = operation.take()? {
        match event {
            OperationEvent::Registration(RegistrationEvent::Registered(_)) => {
                return Ok(Some(NdnServed {
                    _operation: Arc::clone(operation),
                }));
            }
            OperationEvent::Registration(RegistrationEvent::Failed { retry_in: None, .. }) => {
                return Err(NdnFaceError::Prefix(prefix.clone()));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// A prefix that is served, until this is dropped.
#[must_use = "dropping it ends the service"]
pub struct NdnServed {
    _operation: Arc<NdnOperation>,
}

/// What makes progress under an [`NdnCall`].
type NdnStep<T> = dyn FnMut(&Arc<NdnOperation>) -> Result<Option<T>, NdnFaceError> + Send;

/// The result of an operation to come: a thread waits for it, or a task awaits it. Dropping it ends the operation.
#[must_use = "a call has no result before it is waited for or awaited"]
pub struct NdnCall<T> {
    operation: Arc<NdnOperation>,
    step: Box<NdnStep<T>>,
}

impl<T> NdnCall<T> {
    /// Blocks this thread until there is a result.
    pub fn wait(mut self) -> Result<T, NdnFaceError> {
        self.wait_for(LOOK * 3600 * 24 * 365)
            .and_then(|result| result.ok_or(NdnFaceError::Closed))
    }

    /// Blocks this thread until there is a result, for at most `patience`. Returns `None` after that; the operation
    /// continues.
    pub fn wait_for(&mut self, patience: Duration) -> Result<Option<T>, NdnFaceError> {
        let until = Instant::now() + patience;
        loop {
            if let Some(result) = (self.step)(&self.operation)? {
                return Ok(Some(result));
            }
            let share = &self.operation.face.share;
            let inner = share.lock();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if inner.has_news(self.operation.number) {
                continue;
            }
            // What happens between the look and the wait is not missed: the lock is held.
            let woken = share.changed.wait_timeout(inner, left);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Polls for the result.
    fn poll_result(&mut self, context: &Context<'_>) -> Poll<Result<T, NdnFaceError>> {
        loop {
            if let Some(result) = (self.step)(&self.operation).transpose() {
                return Poll::Ready(result);
            }
            let mut inner = self.operation.face.share.lock();
            if !inner.has_news(self.operation.number) {
                let task = context.waker().clone();
                inner.tasks.insert(self.operation.number, task);
                return Poll::Pending;
            }
        }
    }
}

impl<T> Future for NdnCall<T> {
    type Output = Result<T, NdnFaceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_result(context)
    }
}

/// The pieces of a fetched object.
pub struct NdnPieces {
    call: NdnCall<Option<NdnPiece>>,
    is_over: bool,
}

/// A piece of content, and its offset.
pub type NdnPiece = (u64, Bytes);

impl NdnPieces {
    /// Blocks this thread until the next piece is here; `None` after the last.
    pub fn next_piece(&mut self) -> Result<Option<NdnPiece>, NdnFaceError> {
        if self.is_over {
            return Ok(None);
        }
        self.call.operation.want_next();
        let piece = self.call.wait_for(LOOK * 3600 * 24 * 365)?.flatten();
        self.is_over = piece.is_none();
        Ok(piece)
    }
}

/// Signs the answers of a served prefix.
#[derive(Clone)]
pub struct AnswerSigner(SharedSigner);

impl AnswerSigner {
    /// Returns the answer that is a Data of this name and content.
    pub fn data(&self, name: Name, content: impl Into<Bytes>, freshness: Duration) -> Answer {
        let data = Data {
            freshness,
            ..Data::new(name, content.into())
        };
        Answer::Data(data.encode(&*self.0).into())
    }
}
