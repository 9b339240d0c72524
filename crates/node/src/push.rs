//! Sending contents to a receiver that has not requested them, from the first chunk until the network, or
//! the receiver, has everything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use whimbrel_core::Guid;
use whimbrel_gnrs::Record;
use whimbrel_mobilityfirst::host::GroupStatus;
use whimbrel_mobilityfirst::local::{LocalEvent, SendState, Service, TransferOptions};
use whimbrel_mobilityfirst::wire::OfferUse;

use crate::shelf::Shelf;
use crate::wait::{Subject, Wait, Watch};
use whimbrel_client::{
    Answer, AttachedSession, Attachment, LocalError, ProgramError, Question, SendOptions,
    SessionStep,
};

/// Interval at which the stop flag is checked.
const LOOK: Duration = Duration::from_millis(200);

/// A daemon that knows how to send says within this time how far a content is.
const KNOWS: Duration = Duration::from_secs(30);
/// At its end a push to a group waits this long for the host's word on the members.
const LAST_LOOK: Duration = Duration::from_millis(500);

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
    /// What the user has chosen.
    pub transfer: TransferOptions,
    /// Ask the access router to keep a copy of every chunk, and to answer for them.
    pub delegate: bool,
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
    /// Which members of its group have a content, when that has changed.
    Members(Guid, GroupStatus),
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
    #[error("not everything {} within {} s", if *.until_delivered { "was delivered" } else { "has left" }, .within.as_secs_f64())]
    TimedOut {
        /// The time that the user allowed.
        within: Duration,
        /// The push was to wait for the receiver.
        until_delivered: bool,
    },
}

/// The part of a host's report about what it sends.
#[derive(Debug, Deserialize)]
struct SendingReport {
    #[serde(default)]
    sending: Vec<SentReport>,
}

#[derive(Debug, Deserialize)]
struct SentReport {
    content: Guid,
    to: Guid,
    group: Option<GroupStatus>,
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
    let mut pushing = Pushing::new(attachment, shelf, items, *options);
    pushing.host.connect()?;
    pushing.run(stop, observe)?;
    Ok(pushing.outcome())
}

/// A content under way.
struct PushedItem {
    /// Its number in the session.
    number: u32,
    progress: PushProgress,
    /// It can no longer be read.
    is_lost: bool,
    /// The members of its group, at the last report.
    members: Option<GroupStatus>,
}

/// A push under way.
struct Pushing<'a> {
    shelf: &'a Shelf,
    options: PushOptions,
    host: AttachedSession<'a>,
    items: Vec<PushedItem>,
    begun: Instant,
}

impl<'a> Pushing<'a> {
    fn new(
        attachment: &'a mut Attachment,
        shelf: &'a Shelf,
        items: &[PushItem],
        options: PushOptions,
    ) -> Pushing<'a> {
        let mut host = AttachedSession::new(attachment);
        let session = host.session();
        let items = items.iter().map(|item| {
            let of_item = SendOptions {
                proposed: item.proposed,
                transfer: options.transfer,
                delegate: options.delegate,
                until_delivered: options.until_delivered,
            };
            let content = shelf.publish(&item.content);
            PushedItem {
                number: content.map_or(0, |it| session.send(options.destination, it, of_item)),
                progress: PushProgress {
                    content: item.content,
                    state: SendState::Leaving,
                    taken: 0,
                    stored: 0,
                },
                is_lost: false,
                members: None,
            }
        });
        Pushing {
            shelf,
            options,
            items: items.collect(),
            host,
            begun: Instant::now(),
        }
    }

    fn outcome(&self) -> Vec<PushProgress> {
        self.items.iter().map(|item| item.progress).collect()
    }

    fn check(&self, stop: &AtomicBool) -> Result<(), PushError> {
        if stop.load(Ordering::Relaxed) {
            return Err(PushError::Interrupted);
        }
        match self.options.timeout {
            Some(within) if self.begun.elapsed() >= within => Err(PushError::TimedOut {
                within,
                until_delivered: self.options.until_delivered,
            }),
            _ => Ok(()),
        }
    }

    fn is_over(&self, item: &PushedItem) -> bool {
        let state = item.progress.state;
        let is_taken = matches!(state, SendState::Taken | SendState::Kept);
        (is_taken && !self.options.until_delivered) || state.is_final() || item.is_lost
    }

    fn run(
        &mut self,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(PushEvent),
    ) -> Result<(), PushError> {
        let mut watch = Watch::new(Subject::Host);
        let (mut sent_at, mut is_known) = (Some(Instant::now()), false);
        while !self.items.iter().all(|item| self.is_over(item)) {
            self.check(stop)?;
            if !is_known && sent_at.is_some_and(|at| at.elapsed() >= KNOWS) {
                return Err(PushError::OldDaemon);
            }
            self.host.ask_aside(watch.question());
            match self.host.step(LOOK)? {
                SessionStep::Idle => {}
                SessionStep::Handled => {
                    is_known |= self.note_progress(observe);
                    self.read_chunks(observe);
                }
                SessionStep::Aside(event) => {
                    if watch.note(&event, &|_| false) {
                        observe(PushEvent::Host(watch.wait().cloned()));
                    }
                    if let LocalEvent::Status { json, .. } = &event {
                        self.note_members(json, observe);
                    }
                }
                SessionStep::HostGone => {
                    sent_at = None;
                    observe(PushEvent::DaemonGone);
                }
                SessionStep::HostBack => {
                    watch = Watch::new(Subject::Host);
                    (sent_at, is_known) = (Some(Instant::now()), false);
                }
            }
        }
        let is_for_group = self.options.transfer.delivery.service == Service::Multicast;
        let is_open = |item: &PushedItem| !item.progress.state.is_final();
        if is_for_group
            && self.items.iter().any(is_open)
            && let Ok(Some(Answer::Status(json))) = self.host.ask(Question::Status, LAST_LOOK)
        {
            self.note_members(&json, observe);
        }
        Ok(())
    }

    /// Tells which members of a group have what is sent to it.
    fn note_members(&mut self, json: &str, observe: &mut dyn FnMut(PushEvent)) {
        let Ok(SendingReport { sending }) = serde_json::from_str(json) else {
            return;
        };
        let to = Record::group_of(&self.options.destination);
        for sent in sending.into_iter().filter(|it| it.to == to) {
            let of_it = |item: &&mut PushedItem| item.progress.content == sent.content;
            let item = self.items.iter_mut().find(of_it);
            if let (Some(item), Some(group)) = (item, sent.group)
                && item.members.as_ref() != Some(&group)
            {
                item.members = Some(group.clone());
                observe(PushEvent::Members(sent.content, group));
            }
        }
    }

    /// Tells how far contents are. Returns true if the host has said anything about one.
    fn note_progress(&mut self, observe: &mut dyn FnMut(PushEvent)) -> bool {
        let mut has_news = false;
        let session = self.host.session();
        while let Some(number) = session.poll_changed() {
            has_news = true;
            let now = session.send_progress(number);
            let mut items = self.items.iter_mut();
            let item = items.find(|item| item.number == number && !item.is_lost);
            if let (Some(now), Some(item)) = (now, item) {
                item.progress.state = now.state;
                item.progress.taken = now.taken;
                item.progress.stored = now.stored;
                observe(PushEvent::Progress(item.progress));
            }
        }
        has_news
    }

    /// Answers the host's requests for chunks.
    fn read_chunks(&mut self, observe: &mut dyn FnMut(PushEvent)) {
        let session = self.host.session();
        while let Some(wanted) = session.poll_read() {
            let content = wanted.content;
            let chunk = self.shelf.read(content, wanted.index, wanted.chunk_size);
            let chunk = chunk.map_err(|why| {
                let of_it = |item: &&mut PushedItem| item.progress.content == content;
                for item in self.items.iter_mut().filter(of_it) {
                    item.is_lost = true;
                }
                session.note_unreadable(content, || ProgramError::Over);
                observe(PushEvent::Unreadable(content, why));
            });
            session.answer_read(wanted.read, chunk.ok());
        }
    }
}
