//! Sending contents to a receiver that has not requested them, from the first chunk until the network, or
//! the receiver, has everything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use whimbrel_content::ChunkSize;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::chunk_size::asked;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest, SendContent, SendState};
use whimbrel_mobilityfirst::wire::OfferUse;

use crate::shelf::Shelf;
use crate::wait::{Subject, Wait, Watch};
use whimbrel_client::{Attachment, LocalClient, LocalError, requested_size};

/// Interval at which the stop flag is checked, and a daemon that has gone is called.
const LOOK: Duration = Duration::from_millis(200);

/// A daemon that knows how to send says within this time how far a content is.
const KNOWS: Duration = Duration::from_secs(30);

/// A content of the shelf that is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct PushItem {
    /// Its name.
    pub content: Guid,
    /// The use that the receiver is told.
    pub proposed: OfferUse,
}

/// To whom, and how.
#[derive(Clone, Copy, Debug)]
pub struct PushOptions {
    /// The receiver.
    pub destination: Guid,
    /// How long a router may store a chunk; `None` for as long as it does.
    pub lifetime: Option<Duration>,
    /// The size of chunks; `None` for such as the path affords.
    pub chunk_size: Option<ChunkSize>,
    /// Wait until the receiver has everything, and not only the network.
    pub until_delivered: bool,
    /// Give up after this long.
    pub timeout: Option<Duration>,
}

/// How far a content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PushProgress {
    /// The content.
    pub content: Guid,
    /// Its state.
    pub state: SendState,
    /// Bytes that the first router has taken.
    pub taken: u64,
    /// Of these, bytes that routers store because the receiver is away.
    pub stored: u64,
}

/// An event of a push.
#[derive(Debug)]
pub enum PushEvent {
    /// A content is further than before.
    Progress(PushProgress),
    /// Each second: why nothing leaves, if so.
    Host(Option<Wait>),
    /// A content cannot be read any more.
    Unreadable(Guid, crate::shelf::ReadError),
    /// The daemon has gone; it is called until it is back, and everything is sent again.
    DaemonGone,
}

/// The reason why a push ends before everything is where it should be.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The host cannot be reached.
    #[error(transparent)]
    Host(#[from] LocalError),
    /// The host daemon says nothing about it.
    #[error(
        "the host daemon does not say what becomes of a push, as one of an older release would not: restart it"
    )]
    OldDaemon,
    /// The user has interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// The time that the user allowed is over.
    #[error("not everything has left within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

/// Sends contents. Returns the last state of each, in the order of `items`; one that has become unreadable
/// has the state [`SendState::Leaving`].
pub fn push(
    attachment: &mut Attachment,
    shelf: &Shelf,
    items: &[PushItem],
    options: &PushOptions,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(PushEvent),
) -> Result<Vec<PushProgress>, PushError> {
    let mut client = attachment.connect()?;
    let mut pushing = Pushing::new(shelf, items, *options);
    loop {
        match pushing.run(&mut client, stop, observe) {
            Ok(()) => return Ok(pushing.outcome()),
            Err(PushError::Host(LocalError::Closed | LocalError::Io(_)))
                if attachment.can_return() => {}
            Err(error) => return Err(error),
        }
        observe(PushEvent::DaemonGone);
        client = loop {
            pushing.check(stop)?;
            std::thread::sleep(LOOK);
            if let Ok(client) = attachment.connect() {
                break client;
            }
        };
    }
}

/// A push under way.
struct Pushing<'a> {
    shelf: &'a Shelf,
    items: &'a [PushItem],
    options: PushOptions,
    /// By the number of the request, which is the item's place.
    states: BTreeMap<u32, PushProgress>,
    /// Contents that became unreadable.
    lost: Vec<Guid>,
    begun: Instant,
}

impl<'a> Pushing<'a> {
    fn new(shelf: &'a Shelf, items: &'a [PushItem], options: PushOptions) -> Pushing<'a> {
        let first = |(number, item): (usize, &PushItem)| {
            let progress = PushProgress {
                content: item.content,
                state: SendState::Leaving,
                taken: 0,
                stored: 0,
            };
            (number as u32, progress)
        };
        Pushing {
            shelf,
            items,
            options,
            states: items.iter().enumerate().map(first).collect(),
            lost: Vec::new(),
            begun: Instant::now(),
        }
    }

    fn outcome(&self) -> Vec<PushProgress> {
        self.states.values().copied().collect()
    }

    fn check(&self, stop: &AtomicBool) -> Result<(), PushError> {
        if stop.load(Ordering::Relaxed) {
            return Err(PushError::Interrupted);
        }
        match self.options.timeout {
            Some(timeout) if self.begun.elapsed() >= timeout => Err(PushError::TimedOut(timeout)),
            _ => Ok(()),
        }
    }

    fn is_over(&self, progress: &PushProgress) -> bool {
        let taken = progress.state == SendState::Taken && !self.options.until_delivered;
        taken || progress.state.is_final() || self.lost.contains(&progress.content)
    }

    fn run(
        &mut self,
        client: &mut LocalClient,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(PushEvent),
    ) -> Result<(), PushError> {
        self.send_all(client)?;
        let mut watch = Watch::new(Subject::Host);
        let (sent_at, mut is_known) = (Instant::now(), false);
        while !self.states.values().all(|progress| self.is_over(progress)) {
            self.check(stop)?;
            if !is_known && sent_at.elapsed() >= KNOWS {
                return Err(PushError::OldDaemon);
            }
            if let Some(question) = watch.question() {
                client.send(&question)?;
            }
            match client.receive(LOOK)? {
                Some(event) if watch.note(&event, &|_| false) => {
                    observe(PushEvent::Host(watch.wait().cloned()));
                }
                Some(LocalEvent::Sending {
                    request,
                    state,
                    taken,
                    stored,
                }) => {
                    is_known = true;
                    if let Some(progress) = self.states.get_mut(&request) {
                        (progress.state, progress.taken, progress.stored) = (state, taken, stored);
                        observe(PushEvent::Progress(*progress));
                    }
                }
                Some(LocalEvent::Read {
                    read,
                    content,
                    index,
                    chunk_log2,
                }) => {
                    let chunk_size = requested_size(chunk_log2)?;
                    let chunk = match self.shelf.read(content, index, chunk_size) {
                        Ok(chunk) => Some(chunk),
                        Err(why) => {
                            self.lost.push(content);
                            observe(PushEvent::Unreadable(content, why));
                            None
                        }
                    };
                    client.send(&LocalRequest::ReadDone { read, chunk })?;
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Sends what is not over yet: at first everything.
    fn send_all(&self, client: &mut LocalClient) -> Result<(), LocalError> {
        for (number, progress) in &self.states {
            let item = self.items.get(*number as usize);
            let content = self.shelf.publish(&progress.content);
            let (Some(item), Some(content), false) = (item, content, self.is_over(progress)) else {
                continue;
            };
            let lifetime = self.options.lifetime.unwrap_or_default().as_millis();
            client.send(&LocalRequest::Send(SendContent {
                request: *number,
                destination: self.options.destination,
                lifetime_ms: lifetime.min(u32::MAX.into()) as u32,
                chunk_log2: asked(self.options.chunk_size),
                proposed: item.proposed,
                content,
            }))?;
        }
        Ok(())
    }
}
