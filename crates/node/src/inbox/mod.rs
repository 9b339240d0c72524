//! The receiving side of a push: offers are judged by a rule, and what is accepted is fetched to a folder,
//! as `get` would fetch it.
//!
//! | module | holds |
//! |---|---|
//! | `rule` | who may send, how much, and what becomes of a file whose name is taken |
//! | `record` | the accepted and received offers, over restarts |
//! | `taking` | one content on its way to the folder |

mod record;
mod rule;
mod taking;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use whimbrel_core::{Guid, KeyPair};
use whimbrel_gnrs::GroupAdmission;
use whimbrel_mobilityfirst::local::{
    ContentOffer, MembershipChange, OfferId, OfferVerdict, ServiceKey,
};
use whimbrel_mobilityfirst::wire::ControlCode;

use crate::fetch::{FetchError, Fetched, Progress};
use crate::wait::{Subject, Wait, Watch};
use record::InboxRecord;
pub use rule::{Existing, InboxRule, RefusedOffer};
use taking::{TakenContent, TakingEvent, TakingManner};
use whimbrel_client::session::{Answer, OfferRule, ProgramSession, Question};
use whimbrel_client::{AttachedSession, Attachment, LocalError, SessionStep};

/// Interval at which the stop flag is checked.
const LOOK: Duration = Duration::from_millis(100);
/// Contents that are received at the same time; further ones wait. Chunks of those come as well, if their
/// sender has sent several contents at once, so that few of them should wait.
const MAX_AT_ONCE: usize = 64;
/// Where others wait, a content of which nothing comes for this long gives its place to them.
const STALLED: Duration = Duration::from_secs(20);
/// Offers that wait for their turn; further ones are refused.
const MAX_QUEUED: usize = 1024;
/// One sender has at most this part of the places that are left.
const PART_OF_SENDER: usize = 4;
/// The folder's size is measured again after this long.
const MEASURE: Duration = Duration::from_secs(5);
/// A content for which the disk has no room is tried again after this long.
const AGAIN: Duration = Duration::from_secs(30);
/// A sender hears what became of its content this long after it was said.
const LAST_WORD: Duration = Duration::from_millis(500);

/// An event of an inbox.
#[derive(Debug)]
pub enum InboxEvent {
    /// The host takes offers now, under this name.
    Ready(Guid),
    /// Each second: why nothing can come, if so.
    Host(Option<Wait>),
    /// The name service's word on the membership in a group, when it changes.
    Membership(Guid, ControlCode),
    /// An offer is accepted.
    Accepted(ContentOffer),
    /// An offer is refused.
    Refused(ContentOffer, RefusedOffer),
    /// A content is on its way.
    Progress(ContentOffer, Progress),
    /// A content is in the folder.
    Received(ContentOffer, Fetched),
    /// A message has come.
    Note(ContentOffer, String),
    /// A content that the sender has sent before; it is here already.
    Again(ContentOffer),
    /// A content cannot be received for now, and is tried again.
    Failed(ContentOffer, FetchError),
    /// The daemon has gone; it is called until it is back.
    DaemonGone,
}

/// The reason why an inbox ends.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The host cannot be reached.
    #[error(transparent)]
    Host(#[from] LocalError),
    /// Another inbox uses the folder.
    #[error("another inbox puts what it receives into {}: end it, or name another folder", .0.display())]
    InUse(PathBuf),
    /// The folder or its record cannot be used.
    #[error("cannot use {} as an inbox: {source}", path.display())]
    Folder {
        /// The folder, or its record.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The names by which an inbox is reached besides that of its host.
#[derive(Clone, Copy, Debug, Default)]
pub struct InboxNames<'a> {
    /// Services: the host is attached by their names as long as the inbox is there.
    pub services: &'a [KeyPair],
    /// Groups: the host joins them, and stays a member.
    pub groups: &'a [GroupAdmission],
}

/// Takes what others push into `folder` until `stop` is set, or `count` contents and messages have come.
/// `attach` returns a further connection to the host, which has `names` besides its own.
pub fn take_offers(
    attach: &mut dyn FnMut() -> Attachment,
    folder: &Path,
    rule: &InboxRule,
    names: InboxNames<'_>,
    count: Option<u64>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(InboxEvent),
) -> Result<(), InboxError> {
    let failed = |source| InboxError::Folder {
        path: folder.to_owned(),
        source,
    };
    let lock = File::create(folder.join(".whimbrel-inbox.lock")).map_err(failed)?;
    if let Err(TryLockError::WouldBlock) = lock.try_lock() {
        return Err(InboxError::InUse(folder.to_owned()));
    }
    let record = InboxRecord::read(folder).map_err(failed)?;
    let (tell, told) = mpsc::channel();
    let mut inbox = InboxRun {
        folder,
        rule,
        names,
        record,
        queue: VecDeque::new(),
        later: Vec::new(),
        running: BTreeMap::new(),
        tell,
        measured: None,
        left: count,
        settled_at: None,
    };
    let mut attachment = attach();
    let mut host = AttachedSession::new(&mut attachment);
    // What an earlier run has begun.
    inbox.queue.extend(inbox.record.accepted());
    host.connect()?;
    let outcome = inbox.run(&mut host, &told, attach, stop, observe);
    // A host in this process ends with it, and the last word to a sender is to leave before.
    let spoken = inbox
        .settled_at
        .map(|at| LAST_WORD.saturating_sub(at.elapsed()));
    for taking in inbox.running.into_values() {
        taking.end();
    }
    std::thread::sleep(spoken.unwrap_or_default());
    Ok(outcome?)
}

/// An inbox at work.
struct InboxRun<'a> {
    folder: &'a Path,
    rule: &'a InboxRule,
    names: InboxNames<'a>,
    record: InboxRecord,
    queue: VecDeque<ContentOffer>,
    /// Contents that are tried again.
    later: Vec<(Instant, ContentOffer)>,
    running: BTreeMap<OfferId, TakenContent>,
    tell: mpsc::Sender<TakingEvent>,
    /// The folder's size in bytes, and when it was measured.
    measured: Option<(Instant, u64)>,
    /// What is to come before the end.
    left: Option<u64>,
    /// When a sender was last told what became of its content.
    settled_at: Option<Instant>,
}

impl InboxRun<'_> {
    fn run(
        &mut self,
        host: &mut AttachedSession<'_>,
        told: &mpsc::Receiver<TakingEvent>,
        attach: &mut dyn FnMut() -> Attachment,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(InboxEvent),
    ) -> Result<(), LocalError> {
        let session = host.session();
        for admission in self.names.groups {
            session.set_membership(*admission, MembershipChange::Join);
        }
        for service in self.names.services {
            session.attach_service(ServiceKey(service.secret()));
        }
        session.take_offers(OfferRule::default());
        let mut name = session.ask(Question::Status);
        let mut watch = Watch::new(Subject::Host);
        let (mut is_ready, mut memberships) = (false, BTreeMap::new());
        while !stop.load(Ordering::Relaxed) && self.left != Some(0) {
            self.start_next(attach, observe);
            host.ask_aside(watch.question());
            let step = host.step(LOOK)?;
            let session = host.session();
            match step {
                SessionStep::Idle => {}
                SessionStep::Handled => {
                    if let Some(Answer::Status(json)) = session.take_answer(name) {
                        observe(InboxEvent::Ready(name_in(&json)));
                        is_ready = true;
                    }
                    while let Some(offer) = session.take_offer() {
                        self.judge(session, offer, observe);
                    }
                    if is_ready {
                        self.tell_memberships(session, &mut memberships, observe);
                    }
                }
                SessionStep::Aside(event) => {
                    if watch.note(&event, &|_| false) {
                        observe(InboxEvent::Host(watch.wait().cloned()));
                    }
                }
                SessionStep::HostGone => observe(InboxEvent::DaemonGone),
                SessionStep::HostBack => {
                    watch = Watch::new(Subject::Host);
                    name = session.ask(Question::Status);
                }
            }
            for told in told.try_iter() {
                self.note(session, told, observe);
            }
        }
        host.flush()
    }

    /// Tells what the name service says of each group, if that is news.
    fn tell_memberships(
        &self,
        session: &ProgramSession,
        told: &mut BTreeMap<Guid, ControlCode>,
        observe: &mut dyn FnMut(InboxEvent),
    ) {
        for group in self.names.groups.iter().map(GroupAdmission::group_name) {
            // A router that attaches the host has not asked the name service yet.
            let code = session.name_code(group);
            if let Some(code) = code.filter(|code| *code != ControlCode::Attached)
                && told.insert(group, code) != Some(code)
            {
                observe(InboxEvent::Membership(group, code));
            }
        }
    }

    /// Returns the bytes in the folder, with all that is accepted.
    fn held(&mut self) -> u64 {
        if self.rule.total.is_none() {
            return 0;
        }
        let fresh = self.measured.filter(|(at, _)| at.elapsed() < MEASURE);
        let measured = fresh.unwrap_or_else(|| (Instant::now(), rule::bytes_in(self.folder)));
        self.measured = Some(measured);
        let later = self.later.iter().map(|(_, offer)| offer);
        let running = self.running.values().map(TakenContent::offer);
        let accepted = self.queue.iter().chain(later).chain(running);
        let accepted: u64 = accepted.map(|offer| offer.content.content_len).sum();
        measured.1.saturating_add(accepted)
    }

    fn is_crowded(&self, sender: &Guid) -> bool {
        let of_sender = self.queue.iter().filter(|it| it.id.sender == *sender);
        let left = MAX_QUEUED.saturating_sub(self.queue.len());
        of_sender.count() >= left / PART_OF_SENDER
    }

    /// Decides about an offer.
    fn judge(
        &mut self,
        session: &mut ProgramSession,
        offer: ContentOffer,
        observe: &mut dyn FnMut(InboxEvent),
    ) {
        if self.record.has(&offer) {
            self.settle(session, &offer, OfferVerdict::Received);
            observe(InboxEvent::Again(offer));
            return;
        }
        let is_same = |it: &ContentOffer| {
            it.id.sender == offer.id.sender && it.content.content == offer.content.content
        };
        // Its sender has started again: the rest comes under the new number.
        let earlier = self.running.values_mut().find(|it| is_same(it.offer()));
        if let Some(earlier) = earlier {
            if earlier.offer().id != offer.id {
                earlier.follow(offer);
            }
            return;
        }
        let waiting = self.queue.iter_mut().find(|it| is_same(it));
        if let Some(waiting) = waiting {
            self.record.refuse(&waiting.id);
            self.record.accept(&offer);
            *waiting = offer;
            return;
        }
        let held = self.held();
        let judged = self.rule.judge(&offer, self.folder, held);
        let judged = judged.and_then(|()| match self.is_crowded(&offer.id.sender) {
            true => Err(RefusedOffer {
                verdict: OfferVerdict::InboxFull,
                why: "too many offers of this sender wait for their turn".to_owned(),
            }),
            false => Ok(()),
        });
        match judged {
            Ok(()) => {
                self.record.accept(&offer);
                self.queue.push_back(offer.clone());
                observe(InboxEvent::Accepted(offer));
            }
            Err(refused) => {
                self.settle(session, &offer, refused.verdict);
                observe(InboxEvent::Refused(offer, refused));
            }
        }
    }

    /// Starts what there is a place for.
    fn start_next(
        &mut self,
        attach: &mut dyn FnMut() -> Attachment,
        observe: &mut dyn FnMut(InboxEvent),
    ) {
        let now = Instant::now();
        let due = self.later.extract_if(.., |(at, _)| *at <= now);
        self.queue.extend(due.map(|(_, offer)| offer));
        if self.running.len() >= MAX_AT_ONCE && !self.queue.is_empty() {
            let mut running = self.running.iter();
            let stalled = running.find(|(_, taking)| taking.is_stalled(STALLED));
            if let Some(id) = stalled.map(|(id, _)| *id)
                && let Some(taking) = self.running.remove(&id)
            {
                self.queue.push_back(taking.offer().clone());
                taking.end();
            }
        }
        while self.running.len() < MAX_AT_ONCE
            && let Some(offer) = self.queue.pop_front()
        {
            let tell = self.tell.clone();
            let manner = TakingManner {
                existing: self.rule.existing,
                limit: self.rule.max_size.or(self.rule.total),
            };
            match TakenContent::start(&offer, self.folder, manner, attach(), tell) {
                Ok(taking) => {
                    self.running.insert(offer.id, taking);
                }
                Err(error) => {
                    self.later.push((now + AGAIN, offer.clone()));
                    observe(InboxEvent::Failed(offer, error));
                }
            }
        }
    }

    fn settle(
        &mut self,
        session: &mut ProgramSession,
        offer: &ContentOffer,
        verdict: OfferVerdict,
    ) {
        self.settled_at = Some(Instant::now());
        session.settle(offer, verdict);
    }

    /// Handles what a content's thread says.
    fn note(
        &mut self,
        session: &mut ProgramSession,
        told: TakingEvent,
        observe: &mut dyn FnMut(InboxEvent),
    ) {
        let (id, outcome) = match told {
            TakingEvent::Progress(id, progress) => {
                if let Some(taking) = self.running.get_mut(&id) {
                    taking.note_progress(&progress);
                    observe(InboxEvent::Progress(taking.offer().clone(), progress));
                }
                return;
            }
            TakingEvent::Ended(id, outcome) => (id, outcome),
        };
        let Some(taking) = self.running.remove(&id) else {
            return;
        };
        let (offer, next) = taking.join();
        self.measured = None;
        match outcome {
            Ok((fetched, note)) => {
                let path = fetched.path.clone();
                self.record.receive(&offer, path);
                self.settle(session, &offer, OfferVerdict::Received);
                if let Some(next) = &next {
                    self.settle(session, next, OfferVerdict::Received);
                }
                self.left = self.left.map(|left| left.saturating_sub(1));
                match note {
                    Some(text) => observe(InboxEvent::Note(offer, text)),
                    None => observe(InboxEvent::Received(offer, fetched)),
                }
            }
            Err(error) => match (next, error) {
                (Some(next), _) => {
                    self.record.refuse(&offer.id);
                    self.record.accept(&next);
                    self.queue.push_front(next);
                }
                (None, FetchError::Interrupted) => {}
                (None, error) if error.may_pass() => {
                    self.later.push((Instant::now() + AGAIN, offer.clone()));
                    observe(InboxEvent::Failed(offer, error));
                }
                (None, error) => {
                    self.record.refuse(&offer.id);
                    self.settle(session, &offer, OfferVerdict::Unusable);
                    let refused = RefusedOffer {
                        verdict: OfferVerdict::Unusable,
                        why: error.to_string(),
                    };
                    observe(InboxEvent::Refused(offer, refused));
                }
            },
        }
    }
}

/// Returns the name in a host's report.
fn name_in(report: &str) -> Guid {
    let report: serde_json::Value = serde_json::from_str(report).unwrap_or_default();
    let name = report["guid"].as_str().and_then(|name| name.parse().ok());
    name.unwrap_or(Guid::NONE)
}
