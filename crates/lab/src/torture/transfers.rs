//! The programs of a world's hosts, and the model of their events.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_content::RangeSet;
use whimbrel_core::{Guid, Time};
use whimbrel_gnrs::{GroupAdmission, KeyPair};
use whimbrel_mobilityfirst::local::{
    AcceptOffer, ContentOffer, Delivery, Get, LocalChunk, LocalEvent, LocalRequest,
    MembershipChange, OfferId, OfferVerdict, Publish, ReadChunk, SendContent, SendState, Service,
    TransferOptions,
};
use whimbrel_mobilityfirst::wire::{ContentKind, OfferUse};

use super::{Breach, library};

/// Chunks that a program takes before it has used the first.
const CREDIT: u16 = 4;
/// The smallest chunk, so that small contents have several.
const CHUNK_LOG2: u8 = 16;
/// The first number of requests for offered contents, above those of the world.
const OFFERED: u32 = 1 << 30;

/// The parts of a content that were handed over.
#[derive(Debug, Default)]
pub(super) struct Parts {
    ranges: RangeSet,
    /// The only part of an empty content was.
    empty: bool,
}

impl Parts {
    /// Returns the bytes handed over.
    pub(super) fn got(&self) -> u64 {
        self.ranges.total()
    }

    /// Notes a part. Returns false if nothing of it is new. Some of it may be known: a chunk that was sent
    /// before its source went on in smaller ones may come after some of them.
    pub(super) fn add(&mut self, start: u64, end: u64) -> bool {
        if start == end {
            return !core::mem::replace(&mut self.empty, true);
        }
        let before = self.got();
        self.ranges.insert(start..end);
        self.got() > before
    }
}

/// One request of a program.
#[derive(Debug)]
pub(super) struct Download {
    pub(super) content: usize,
    /// The number of vain attempts before.
    pub(super) repeated: u64,
    parts: Parts,
    // True while its program takes nothing of it.
    stalled: bool,
    // Chunks that its program has not used yet.
    unused: usize,
    // The offer of a content that its program has not asked for.
    offer: Option<OfferId>,
}

impl Download {
    fn new(content: usize, repeated: u64) -> Download {
        Download {
            offer: None,
            content,
            repeated,
            parts: Parts::default(),
            stalled: false,
            unused: 0,
        }
    }
}

/// The receiver of what is sent without a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum PushTarget {
    Host(Guid),
    /// The group of all hosts.
    Group,
}

/// The keys of the group that all hosts join.
fn group_keys() -> KeyPair {
    KeyPair::from_secret(&[200; 32])
}

/// The consequence of an event for the world.
#[derive(Debug, PartialEq)]
pub(super) enum Consequence {
    /// Pass this request to the host.
    Request(LocalRequest),
    /// A request has completed.
    Completed,
    /// A content that was offered by this host is here whole. Pass the request to the host.
    Received {
        from: Guid,
        content: usize,
        request: LocalRequest,
    },
    /// A sent content has reached this state.
    Sent { request: u32, state: SendState },
    /// A request was refused; repeat it later.
    AskAgain { content: usize, repeated: u64 },
}

/// The one program of a host: it serves its share of the library and fetches on request.
#[derive(Debug)]
pub(super) struct Program {
    host: usize,
    hosts: usize,
    paused: bool,
    // Requests that it makes when it is no longer paused.
    held: Vec<LocalRequest>,
    pub(super) downloads: BTreeMap<u32, Download>,
    // Offers whose contents are here, as its disk knows.
    received: BTreeSet<OfferId>,
    offers: u32,
}

impl Program {
    pub(super) fn new(host: usize, hosts: usize) -> Program {
        Program {
            host,
            hosts,
            paused: false,
            held: Vec::new(),
            downloads: BTreeMap::new(),
            received: BTreeSet::new(),
            offers: 0,
        }
    }

    /// Returns it as it starts again after a crash, with what its disk has.
    pub(super) fn again(&self) -> Program {
        Program {
            received: self.received.clone(),
            offers: self.offers,
            ..Program::new(self.host, self.hosts)
        }
    }

    /// Returns its requests when its host starts.
    pub(super) fn greetings(&self) -> Vec<LocalRequest> {
        let mine = library::contents().iter().enumerate();
        let mine = mine.filter(|(number, _)| number % self.hosts == self.host);
        let publish = mine.map(|(number, _)| {
            LocalRequest::Publish(described(number), TransferOptions::default())
        });
        let join = LocalRequest::Join {
            admission: GroupAdmission::sign(&group_keys(), None, u64::MAX),
            change: MembershipChange::Join,
        };
        [LocalRequest::TakeOffers, join]
            .into_iter()
            .chain(publish)
            .collect()
    }

    /// Sends a content to a host, or a group of them, that has not asked for it.
    pub(super) fn send(
        &self,
        request: u32,
        content: usize,
        to: PushTarget,
        delegated: bool,
    ) -> Vec<LocalRequest> {
        let (destination, service) = match to {
            PushTarget::Host(host) => (host, Service::Default),
            PushTarget::Group => (group_keys().guid(), Service::Multicast),
        };
        let send = LocalRequest::Send(SendContent {
            request,
            destination,
            options: TransferOptions {
                chunk_log2: CHUNK_LOG2,
                delivery: Delivery {
                    service,
                    ..Delivery::default()
                },
                ..TransferOptions::default()
            },
            proposed: OfferUse::File,
            content: described(content),
        });
        let delegate = LocalRequest::Delegate {
            content: library::contents()[content].name(),
            is_on: true,
        };
        match delegated {
            true => vec![delegate, send],
            false => vec![send],
        }
    }

    /// Requests a content under a fresh number.
    pub(super) fn get(&mut self, request: u32, content: usize, repeated: u64) -> LocalRequest {
        self.downloads
            .insert(request, Download::new(content, repeated));
        LocalRequest::Get(self.request(request, content))
    }

    fn request(&self, request: u32, content: usize) -> Get {
        Get {
            request,
            content: library::contents()[content].name(),
            options: TransferOptions {
                chunk_log2: CHUNK_LOG2,
                ..TransferOptions::default()
            },
            in_order: request.is_multiple_of(2),
            credit: CREDIT,
            resume: Bytes::new(),
        }
    }

    /// Cancels the oldest request.
    pub(super) fn cancel(&mut self) -> Option<LocalRequest> {
        let mut own = self.downloads.iter().filter(|(_, it)| it.offer.is_none());
        let request = own.next().map(|(request, _)| *request)?;
        self.downloads.remove(&request);
        Some(LocalRequest::Cancel { request })
    }

    /// Takes every offer, once.
    fn take(&mut self, offer: &ContentOffer) -> Option<LocalRequest> {
        let name = offer.content.content;
        if self.received.contains(&offer.id) {
            return Some(settled(offer.id, name));
        }
        let is_taken = |it: &Download| it.offer == Some(offer.id);
        if self.downloads.values().any(is_taken) {
            return None;
        }
        let content = library::contents()
            .iter()
            .position(|it| it.name() == name)?;
        let request = OFFERED + self.offers;
        self.offers += 1;
        let download = Download {
            offer: Some(offer.id),
            ..Download::new(content, 0)
        };
        self.downloads.insert(request, download);
        let get = self.request(request, content);
        Some(LocalRequest::Accept(AcceptOffer { id: offer.id, get }))
    }

    /// Stops answering its host, or resumes and returns all that it owes.
    pub(super) fn pause(&mut self, paused: bool) -> Vec<LocalRequest> {
        self.paused = paused;
        if paused {
            Vec::new()
        } else {
            core::mem::take(&mut self.held)
        }
    }

    /// Stops or resumes one of its downloads.
    pub(super) fn stall(&mut self, which: usize) -> Vec<LocalRequest> {
        let Some(which) = which.checked_rem(self.downloads.len()) else {
            return Vec::new();
        };
        let chosen = self.downloads.iter_mut().nth(which);
        let mut said = Vec::new();
        if let Some((request, download)) = chosen {
            download.stalled = !download.stalled;
            if !download.stalled {
                said = consumed(*request, download);
            }
        }
        said.into_iter().filter_map(|it| self.say(it)).collect()
    }

    /// Resumes all its downloads.
    pub(super) fn hurry(&mut self) -> Vec<LocalRequest> {
        let mut said = Vec::new();
        for (request, download) in &mut self.downloads {
            download.stalled = false;
            said.extend(consumed(*request, download));
        }
        said.into_iter().filter_map(|it| self.say(it)).collect()
    }

    /// Returns true if it has downloads; stalled ones do not count if `only_fast`.
    pub(super) fn is_busy(&self, only_fast: bool) -> bool {
        // An offer may have lost its sender.
        let mut asked = self.downloads.values().filter(|it| it.offer.is_none());
        asked.any(|it| !(only_fast && it.stalled))
    }

    /// Handles an event of its host.
    pub(super) fn handle(&mut self, event: LocalEvent) -> Result<Option<Consequence>, Breach> {
        match event {
            LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            } => {
                let known = library::contents()
                    .iter()
                    .find(|known| known.name() == content);
                let chunk: Option<ReadChunk> =
                    known.and_then(|content| content.read(index, chunk_log2));
                let done = LocalRequest::ReadDone { read, chunk };
                Ok(self.say(done).map(Consequence::Request))
            }
            LocalEvent::Chunk(chunk) => {
                self.check(&chunk)?;
                let request = chunk.request;
                if let Some(slow) = self.downloads.get_mut(&request).filter(|it| it.stalled) {
                    slow.unused += 1;
                    return Ok(None);
                }
                let consumed = LocalRequest::Consumed { request };
                Ok(self.say(consumed).map(Consequence::Request))
            }
            LocalEvent::Complete {
                request,
                content_len,
            } => self.complete(request, content_len),
            LocalEvent::Failed { request, .. } | LocalEvent::Incomplete { request, .. } => {
                let Some(download) = self.downloads.remove(&request) else {
                    return Ok(None);
                };
                if download.offer.is_some() {
                    // Its sender offers it again.
                    return Ok(None);
                }
                Ok(Some(Consequence::AskAgain {
                    content: download.content,
                    repeated: download.repeated + 1,
                }))
            }
            LocalEvent::Offered(offer) => {
                let answer = self.take(&offer);
                Ok(answer.and_then(|it| self.say(it)).map(Consequence::Request))
            }
            LocalEvent::Sending { request, state, .. } => {
                Ok(Some(Consequence::Sent { request, state }))
            }
            LocalEvent::State { .. }
            | LocalEvent::Published { .. }
            | LocalEvent::Pong { .. }
            | LocalEvent::Message { .. }
            | LocalEvent::Status { .. }
            | LocalEvent::Names { .. } => Ok(None),
        }
    }

    fn say(&mut self, request: LocalRequest) -> Option<LocalRequest> {
        if self.paused {
            self.held.push(request);
            return None;
        }
        Some(request)
    }

    fn check(&mut self, chunk: &LocalChunk) -> Result<(), Breach> {
        let Some(download) = self.downloads.get_mut(&chunk.request) else {
            return Ok(()); // Cancelled; its host may not know yet.
        };
        let (host, content) = (self.host, download.content);
        let known = &library::contents()[content];
        let start = u64::from(chunk.index) << chunk.chunk_log2;
        let end = start + chunk.data.len() as u64;
        if end > known.len() || known.bytes(start, end) != chunk.data {
            return Err(Breach::WrongBytes { host, content });
        }
        if !download.parts.add(start, end) {
            return Err(Breach::Twice { host, content });
        }
        Ok(())
    }

    fn complete(&mut self, request: u32, content_len: u64) -> Result<Option<Consequence>, Breach> {
        let Some(download) = self.downloads.remove(&request) else {
            return Ok(None);
        };
        let (host, content) = (self.host, download.content);
        let len = library::contents()[content].len();
        let got = download.parts.got();
        if got != len || content_len != len {
            return Err(Breach::Incomplete {
                host,
                content,
                got,
                len,
            });
        }
        let Some(offer) = download.offer else {
            return Ok(Some(Consequence::Completed));
        };
        self.received.insert(offer);
        Ok(Some(Consequence::Received {
            from: offer.sender,
            content,
            request: settled(offer, library::contents()[content].name()),
        }))
    }

    /// Returns the breach that a download still under way means.
    pub(super) fn stuck(&self, ended: Time, now: Time) -> Option<Breach> {
        let mut downloads = self.downloads.values();
        let download = downloads.find(|it| !it.stalled && it.offer.is_none())?;
        Some(Breach::Stuck {
            host: self.host,
            content: download.content,
            got: download.parts.got(),
            len: library::contents()[download.content].len(),
            waited_s: now.since(ended).as_secs(),
            repeated: download.repeated,
        })
    }
}

/// Returns a content of the library as programs describe it.
fn described(content: usize) -> Publish {
    let content = &library::contents()[content];
    Publish {
        content: content.name(),
        content_len: content.len(),
        kind: ContentKind::File,
        file_name: String::from("content"),
    }
}

/// Returns the request by which a program says that it has what was offered.
fn settled(id: OfferId, content: Guid) -> LocalRequest {
    LocalRequest::Settle {
        id,
        content,
        verdict: OfferVerdict::Received,
    }
}

/// Returns the reports for the chunks of a download that its program has used all at once.
fn consumed(request: u32, download: &mut Download) -> Vec<LocalRequest> {
    let unused = core::mem::take(&mut download.unused);
    (0..unused)
        .map(|_| LocalRequest::Consumed { request })
        .collect()
}
