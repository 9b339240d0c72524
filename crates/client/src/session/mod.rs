//! What a program has asked of its host, as a state machine without socket, clock or thread.
//!
//! Requests are made by methods and leave by [`ProgramSession::poll_request`]; what the host says comes in by
//! [`ProgramSession::handle_event`]. After a host has restarted, [`ProgramSession::handle_connected`] asks again for all
//! that is not over: a transfer continues with the chunks that are missing.
//!
//! | module | holds |
//! |---|---|
//! | `requested` | a content that is fetched, by its name or by an offer |
//! | `sent` | a content on its way to one receiver |
//! | `names` | names by which the host is reached beside its own: services, groups |
//! | `offered` | contents that others send, and the rule by which they are refused |
//! | `question` | questions with one answer: status, ping, names |

mod names;
mod offered;
mod question;
mod requested;
mod sent;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_content::{Assembly, ChunkSize};
use whimbrel_core::{Guid, KeyPair};
use whimbrel_gnrs::GroupAdmission;
use whimbrel_mobilityfirst::local::{
    ContentOffer, Delivery, LocalEvent, LocalRequest, MembershipChange, OfferId, OfferVerdict,
    Publish, ReadChunk, ServiceKey, TransferOptions,
};
use whimbrel_mobilityfirst::wire::{ControlCode, MAX_MESSAGE};

use crate::error::ProgramError;
use names::FurtherNames;
pub use offered::OfferRule;
use offered::OpenOffers;
pub use question::{Answer, Question};
pub use requested::{ChunkStep, ContentPiece, FetchedSoFar, GetOptions, RequestedContent};
use sent::OutgoingContent;
pub use sent::{SendOptions, SendProgress};

/// Messages of one channel that wait for the program; the oldest are dropped.
const MAX_MESSAGES: usize = 1024;
/// Numbers above are those of questions that a program asks beside its session.
pub(crate) const MAX_NUMBER: u32 = u32::MAX / 2;

/// A message of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelMessage {
    /// The sender's claim of its name, without proof.
    pub from: Guid,
    /// Its bytes.
    pub payload: Bytes,
}

/// A chunk that the host requests from the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedChunk {
    /// The number for the answer.
    pub read: u64,
    /// The content.
    pub content: Guid,
    /// The chunk's index.
    pub index: u32,
    /// The chunk's size.
    pub chunk_size: ChunkSize,
}

/// How a content is published.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PublishOptions {
    /// Chunk size, reliability, NACK timeout, storage and service.
    pub transfer: TransferOptions,
    /// The access router keeps copies of what it forwards, and answers for them.
    pub delegate: bool,
}

#[derive(Debug)]
struct PublishedContent {
    publish: Publish,
    transfer: TransferOptions,
    delegate: bool,
    /// What the name service said last.
    code: Option<ControlCode>,
}

impl PublishedContent {
    fn requests(&self) -> impl Iterator<Item = LocalRequest> {
        let publish = LocalRequest::Publish(self.publish.clone(), self.transfer);
        let delegation = self.delegate.then(|| delegation(self.publish.content));
        core::iter::once(publish).chain(delegation)
    }
}

/// Returns the request that copies of a content's chunks are kept.
fn delegation(content: Guid) -> LocalRequest {
    LocalRequest::Delegate {
        content,
        is_on: true,
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct ProgramSession {
    is_connected: bool,
    last_number: u32,
    requested: BTreeMap<u32, RequestedContent>,
    sent: BTreeMap<u32, OutgoingContent>,
    published: BTreeMap<Guid, PublishedContent>,
    names: FurtherNames,
    questions: BTreeMap<u32, Question>,
    answers: BTreeMap<u32, Answer>,
    channels: BTreeMap<u32, VecDeque<ChannelMessage>>,
    offers: OpenOffers,
    requests: VecDeque<LocalRequest>,
    reads: VecDeque<WantedChunk>,
    /// Numbers of transfers that are further than before.
    changed: BTreeSet<u32>,
    /// Contents about which the name service has answered.
    announced: BTreeSet<Guid>,
}

impl ProgramSession {
    /// Returns true while the host is there.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Returns true if nothing is under way: nothing would be lost without a host.
    pub fn is_idle(&self) -> bool {
        self.requested.is_empty()
            && self.sent.is_empty()
            && self.published.is_empty()
            && self.questions.is_empty()
            && self.channels.is_empty()
            && self.names.is_empty()
            && !self.offers.are_wanted()
    }

    /// Returns the next request for the host.
    pub fn poll_request(&mut self) -> Option<LocalRequest> {
        if self.is_connected {
            self.requests.pop_front()
        } else {
            None
        }
    }

    /// Returns the next chunk that the host wants; to be answered with [`ProgramSession::answer_read`].
    pub fn poll_read(&mut self) -> Option<WantedChunk> {
        self.reads.pop_front()
    }

    /// Returns the number of a transfer that is further than when this was called last.
    pub fn poll_changed(&mut self) -> Option<u32> {
        self.changed.pop_first()
    }

    /// Returns a published content about which the name service has answered, and its answer.
    pub fn poll_announced(&mut self) -> Option<(Guid, ControlCode)> {
        let content = self.announced.pop_first()?;
        let code = self.published.get(&content)?.code?;
        Some((content, code))
    }

    /// The host is there, for the first time or again: asks for all that is not over.
    pub fn handle_connected(&mut self) {
        self.is_connected = true;
        // A decision about an offer is told once, so those that have not left stay.
        self.requests
            .retain(|request| matches!(request, LocalRequest::Settle { .. }));
        self.requests.extend(self.names.requests());
        for published in self.published.values() {
            self.requests.extend(published.requests());
        }
        for (number, sent) in &self.sent {
            if sent.is_delegated() {
                self.requests.push_back(delegation(sent.content()));
            }
            self.requests.extend(sent.request(*number));
        }
        for (number, requested) in &mut self.requested {
            self.requests.extend(requested.request(*number));
        }
        for (number, question) in &self.questions {
            self.requests.push_back(question.request(*number));
        }
        for channel in self.channels.keys() {
            let channel = *channel;
            self.requests.push_back(LocalRequest::Listen { channel });
        }
        if self.offers.are_wanted() {
            self.requests.push_back(LocalRequest::TakeOffers);
        }
    }

    /// The host has gone. Nothing is lost: all waits for [`ProgramSession::handle_connected`].
    pub fn handle_disconnected(&mut self) {
        self.is_connected = false;
        self.reads.clear();
        for (number, requested) in &mut self.requested {
            requested.note_host_gone();
            self.changed.insert(*number);
        }
    }

    /// Ends all that is under way with an error.
    pub fn fail_all(&mut self, mut error: impl FnMut() -> ProgramError) {
        for (number, requested) in &mut self.requested {
            requested.fail(error());
            self.changed.insert(*number);
        }
        for (number, sent) in &mut self.sent {
            sent.fail(error());
            self.changed.insert(*number);
        }
        for (number, _) in core::mem::take(&mut self.questions) {
            self.answers.insert(number, Answer::Failed(error()));
        }
    }

    /// Handles what the host says. An event about something else changes nothing.
    pub fn handle_event(&mut self, event: LocalEvent) {
        match event {
            LocalEvent::Chunk(chunk) => {
                let number = chunk.request;
                let Some(requested) = self.requested.get_mut(&number) else {
                    return;
                };
                let consumed = requested.note_chunk(chunk);
                self.changed.insert(number);
                if consumed {
                    let request = number;
                    self.requests.push_back(LocalRequest::Consumed { request });
                }
                if requested.has_refused() {
                    let request = number;
                    self.requests.push_back(LocalRequest::Cancel { request });
                }
            }
            LocalEvent::State { request, state } => {
                if let Some(requested) = self.requested.get_mut(&request) {
                    requested.note_state(state);
                    self.changed.insert(request);
                }
            }
            LocalEvent::Complete {
                request,
                content_len,
            } => {
                if let Some(requested) = self.requested.get_mut(&request) {
                    requested.note_complete(content_len);
                    self.changed.insert(request);
                }
            }
            LocalEvent::Incomplete { request, missing } => {
                if let Some(requested) = self.requested.get_mut(&request) {
                    let content = requested.content();
                    requested.fail(ProgramError::Incomplete { content, missing });
                    self.changed.insert(request);
                }
            }
            LocalEvent::Failed { request, reason } => self.note_failure(request, reason),
            LocalEvent::Sending {
                request,
                state,
                taken,
                stored,
            } => {
                if let Some(sent) = self.sent.get_mut(&request) {
                    sent.note(SendProgress {
                        state,
                        taken,
                        stored,
                    });
                    self.changed.insert(request);
                }
            }
            LocalEvent::Published { content, code } => {
                if let Some(published) = self.published.get_mut(&content) {
                    published.code = Some(code);
                    self.announced.insert(content);
                } else {
                    self.names.note(content, code);
                }
            }
            LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            } => match ChunkSize::from_code(chunk_log2) {
                Some(chunk_size) => self.reads.push_back(WantedChunk {
                    read,
                    content,
                    index,
                    chunk_size,
                }),
                None => self.answer_read(read, None),
            },
            LocalEvent::Message {
                channel,
                from,
                payload,
            } => self.note_message(channel, ChannelMessage { from, payload }),
            LocalEvent::Offered(offer) => self.note_offer(offer),
            LocalEvent::Pong { request, .. }
            | LocalEvent::Status { request, .. }
            | LocalEvent::Names { request, .. } => {
                if let Some(question) = self.questions.get(&request)
                    && let Some(answer) = question.answer(event)
                {
                    self.questions.remove(&request);
                    self.answers.insert(request, answer);
                }
            }
        }
    }

    fn note_failure(&mut self, request: u32, reason: whimbrel_mobilityfirst::local::FailReason) {
        if let Some(requested) = self.requested.get_mut(&request) {
            let content = requested.content();
            requested.fail(ProgramError::Failed { content, reason });
            self.changed.insert(request);
        } else if let Some(sent) = self.sent.get_mut(&request) {
            let content = sent.content();
            sent.fail(ProgramError::Failed { content, reason });
            self.changed.insert(request);
        }
    }

    fn note_message(&mut self, channel: u32, message: ChannelMessage) {
        if let Some(messages) = self.channels.get_mut(&channel) {
            if messages.len() >= MAX_MESSAGES {
                messages.pop_front();
            }
            messages.push_back(message);
        }
    }

    fn note_offer(&mut self, offer: ContentOffer) {
        let mut requested = self.requested.values();
        if requested.any(|it| it.offer() == Some(offer.id)) {
            return;
        }
        if let Some(verdict) = self.offers.note(&offer) {
            self.settle(&offer, verdict);
        }
    }

    fn next_number(&mut self) -> u32 {
        loop {
            self.last_number = (self.last_number + 1) % MAX_NUMBER;
            let number = self.last_number;
            let is_taken = self.requested.contains_key(&number)
                || self.sent.contains_key(&number)
                || self.questions.contains_key(&number)
                || self.answers.contains_key(&number);
            if !is_taken {
                return number;
            }
        }
    }

    fn ask_host(&mut self, request: LocalRequest) {
        // Without a host, all is asked for once it is there.
        if self.is_connected {
            self.requests.push_back(request);
        }
    }

    /// Fetches a content. Returns the transfer's number.
    pub fn get(&mut self, content: Guid, options: GetOptions) -> u32 {
        self.request_content(RequestedContent::new(content, options))
    }

    /// Receives an offered content. Returns the transfer's number. The offer stays open until
    /// [`ProgramSession::settle`].
    pub fn accept(&mut self, offer: &ContentOffer, options: GetOptions) -> u32 {
        let requested = RequestedContent::new(offer.content.content, options);
        self.request_content(requested.of_offer(Some(offer.id)))
    }

    /// Fetches what is missing of a content, by an offer if there is one. Returns the transfer's number. The host is
    /// asked for nothing if the content is whole.
    pub fn resume(
        &mut self,
        assembly: Assembly,
        options: GetOptions,
        offer: Option<OfferId>,
    ) -> u32 {
        self.request_content(RequestedContent::of_assembly(assembly, options).of_offer(offer))
    }

    /// Asks again for a content that the host has given up. A request that is still open stays as it is.
    pub fn ask_again(&mut self, number: u32) {
        if let Some(requested) = self.requested.get_mut(&number).filter(|it| !it.is_open()) {
            requested.revive();
            let request = requested.request(number);
            request.into_iter().for_each(|it| self.ask_host(it));
        }
    }

    /// Returns a content that is fetched.
    pub fn requested(&self, number: u32) -> Option<&RequestedContent> {
        self.requested.get(&number)
    }

    /// Forgets the piece that was taken last: the program could not store it.
    pub fn note_unstored(&mut self, number: u32) {
        if let Some(requested) = self.requested.get_mut(&number) {
            requested.forget_last();
        }
    }

    /// Ends the transfer of a content that is whole, or has failed: the host has nothing to do for it any more.
    /// Returns what the program has taken.
    pub fn take_content(&mut self, number: u32) -> Option<Assembly> {
        self.changed.remove(&number);
        Some(self.requested.remove(&number)?.into_taken())
    }

    fn request_content(&mut self, mut requested: RequestedContent) -> u32 {
        let number = self.next_number();
        let request = requested.request(number);
        self.requested.insert(number, requested);
        if let Some(request) = request {
            self.ask_host(request);
        }
        number
    }

    /// Returns the next piece of a fetched content, or how the transfer has ended.
    pub fn take_piece(&mut self, number: u32) -> Result<ChunkStep, ProgramError> {
        let requested = self.requested.get_mut(&number).ok_or(ProgramError::Over)?;
        let (step, is_consumed) = requested.take_piece()?;
        if is_consumed {
            self.ask_host(LocalRequest::Consumed { request: number });
        }
        Ok(step)
    }

    /// Returns how far a fetched content is.
    pub fn get_progress(&self, number: u32) -> Option<FetchedSoFar> {
        Some(self.requested.get(&number)?.progress())
    }

    /// Ends a transfer, complete or not.
    pub fn cancel(&mut self, number: u32) {
        let is_open = match (self.requested.remove(&number), self.sent.remove(&number)) {
            (Some(requested), _) => requested.is_open(),
            (None, Some(sent)) => sent.is_open(),
            (None, None) => false,
        };
        if is_open {
            self.ask_host(LocalRequest::Cancel { request: number });
        }
        self.questions.remove(&number);
        self.answers.remove(&number);
        self.changed.remove(&number);
    }

    /// Offers a content to the network. With `delegate`, the access router keeps copies of what it forwards and
    /// answers for them.
    pub fn publish(&mut self, publish: Publish, transfer: TransferOptions, delegate: bool) {
        let content = publish.content;
        let published = PublishedContent {
            publish,
            transfer,
            delegate,
            code: None,
        };
        for request in published.requests() {
            self.ask_host(request);
        }
        self.published.insert(content, published);
    }

    /// Returns what the name service said last of a published content; an error if it is not published.
    pub fn announcement(&self, content: Guid) -> Result<Option<ControlCode>, ProgramError> {
        let published = self.published.get(&content);
        published.map(|it| it.code).ok_or(ProgramError::Over)
    }

    /// Returns true once others can find a published content; an error if it is not published.
    pub fn is_announced(&self, content: Guid) -> Result<bool, ProgramError> {
        Ok(self.announcement(content)? == Some(ControlCode::Registered))
    }

    /// Ends a publication.
    pub fn withdraw(&mut self, content: Guid) {
        if self.published.remove(&content).is_some() {
            self.announced.remove(&content);
            self.ask_host(LocalRequest::Withdraw { content });
        }
    }

    /// Ends all publications.
    pub fn withdraw_all(&mut self) {
        let published: Vec<Guid> = self.published.keys().copied().collect();
        for content in published {
            self.withdraw(content);
        }
    }

    /// Answers a [`WantedChunk`]: `None` if it can no longer be read.
    pub fn answer_read(&mut self, read: u64, chunk: Option<ReadChunk>) {
        self.ask_host(LocalRequest::ReadDone { read, chunk });
    }

    /// Notes that a content can no longer be read: its publication ends, and it is not sent.
    pub fn note_unreadable(&mut self, content: Guid, mut error: impl FnMut() -> ProgramError) {
        self.published.remove(&content);
        for (number, sent) in &mut self.sent {
            if sent.content() == content {
                sent.fail(error());
                self.changed.insert(*number);
            }
        }
    }

    /// Sends a content to a receiver. Returns the transfer's number.
    pub fn send(&mut self, destination: Guid, content: Publish, options: SendOptions) -> u32 {
        let number = self.next_number();
        let sent = OutgoingContent::new(destination, content, options);
        let delegated = sent.is_delegated().then(|| delegation(sent.content()));
        let request = sent.request(number);
        self.sent.insert(number, sent);
        for request in delegated.into_iter().chain(request) {
            self.ask_host(request);
        }
        number
    }

    /// Returns how far a sent content is.
    pub fn send_progress(&self, number: u32) -> Option<SendProgress> {
        Some(self.sent.get(&number)?.progress())
    }

    /// Returns the last state of a sent content, once nothing follows that its options wait for.
    pub fn send_outcome(&mut self, number: u32) -> Result<Option<SendProgress>, ProgramError> {
        let sent = self.sent.get_mut(&number).ok_or(ProgramError::Over)?;
        sent.outcome()
    }

    /// Returns true if a content's bytes are needed: it is published or being sent.
    pub fn needs_bytes(&self, content: &Guid) -> bool {
        let is_sent = |sent: &OutgoingContent| sent.content() == *content;
        self.published.contains_key(content) || self.sent.values().any(is_sent)
    }

    /// Sends a few bytes without guarantees.
    pub fn message(
        &mut self,
        destination: Guid,
        channel: u32,
        delivery: Delivery,
        payload: Bytes,
    ) -> Result<(), ProgramError> {
        if payload.len() > MAX_MESSAGE {
            return Err(ProgramError::Argument(format!(
                "a message has at most {MAX_MESSAGE} bytes, this one has {}: send it as a content",
                payload.len()
            )));
        }
        self.ask_host(LocalRequest::Message {
            channel,
            destination,
            delivery,
            payload,
        });
        Ok(())
    }

    /// Receives the messages of a channel from now on.
    pub fn listen(&mut self, channel: u32) {
        if let Entry::Vacant(free) = self.channels.entry(channel) {
            free.insert(VecDeque::new());
            self.ask_host(LocalRequest::Listen { channel });
        }
    }

    /// Returns the next message of a channel; an error if nothing listens to it.
    pub fn take_message(&mut self, channel: u32) -> Result<Option<ChannelMessage>, ProgramError> {
        let messages = self.channels.get_mut(&channel).ok_or(ProgramError::Over)?;
        Ok(messages.pop_front())
    }

    /// Forgets the messages of a channel. The host continues to deliver them until the program detaches.
    pub fn stop_listening(&mut self, channel: u32) {
        self.channels.remove(&channel);
    }

    /// Attaches the host by the name of a key beside its own, while the program is attached. Returns the name.
    pub fn attach_service(&mut self, key: ServiceKey) -> Guid {
        let name = KeyPair::from_secret(&key.0).guid();
        self.take_name(name, LocalRequest::Attach { key })
    }

    /// Joins a group with this host, or leaves it. A membership outlasts the program. Returns the group's name.
    pub fn set_membership(&mut self, admission: GroupAdmission, change: MembershipChange) -> Guid {
        let name = admission.group_name();
        self.take_name(name, LocalRequest::Join { admission, change })
    }

    fn take_name(&mut self, name: Guid, request: LocalRequest) -> Guid {
        self.ask_host(request.clone());
        self.names.insert(name, request);
        name
    }

    /// Returns true once the name service knows of a service or membership; an error if it was refused.
    pub fn is_name_known(&self, name: Guid) -> Result<bool, ProgramError> {
        self.names.is_known(name)
    }

    /// Returns what the name service said last of a service or membership.
    pub fn name_code(&self, name: Guid) -> Option<ControlCode> {
        self.names.code(name)
    }

    /// Receives offers of unrequested contents from now on; those that do not fit the rule are refused.
    pub fn take_offers(&mut self, rule: OfferRule) {
        if self.offers.want(rule) {
            self.ask_host(LocalRequest::TakeOffers);
        }
    }

    /// Returns the next offer.
    pub fn take_offer(&mut self) -> Option<ContentOffer> {
        self.offers.take()
    }

    /// Tells the host, and so the sender, what became of an offer.
    pub fn settle(&mut self, offer: &ContentOffer, verdict: OfferVerdict) {
        self.settle_by(offer.id, offer.content.content, verdict);
    }

    /// The same, by the offer's name.
    pub fn settle_by(&mut self, id: OfferId, content: Guid, verdict: OfferVerdict) {
        // Without a host it is told when the host is there.
        self.requests.push_back(LocalRequest::Settle {
            id,
            content,
            verdict,
        });
    }

    /// Asks the host. Returns the question's number.
    pub fn ask(&mut self, question: Question) -> u32 {
        let number = self.next_number();
        self.ask_host(question.request(number));
        self.questions.insert(number, question);
        number
    }

    /// Returns the answer to a question, once it is there.
    pub fn take_answer(&mut self, number: u32) -> Option<Answer> {
        self.answers.remove(&number)
    }

    /// Returns an answer that is there, and its question's number.
    pub fn poll_answer(&mut self) -> Option<(u32, Answer)> {
        self.answers.pop_first()
    }

    /// Returns true while a question has no answer.
    pub fn is_asked(&self, number: u32) -> bool {
        self.questions.contains_key(&number)
    }

    /// Returns the numbers of the contents that are fetched and sent.
    pub fn transfers(&self) -> (Vec<u32>, Vec<u32>) {
        let requested = self.requested.keys().copied().collect();
        (requested, self.sent.keys().copied().collect())
    }

    /// Returns the content of a transfer.
    pub fn content_of(&self, number: u32) -> Option<Guid> {
        let requested = self.requested.get(&number).map(RequestedContent::content);
        requested.or_else(|| self.sent.get(&number).map(OutgoingContent::content))
    }
}
