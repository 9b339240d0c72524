//! Hop: the reliable transfer of whole chunks to one neighbour [MFTP §3.2.1 and 3.4.1].
//!
//! The wire format, the rules and the timers are in `docs/protocols/hop.md`. The one invariant: **a
//! chunk that is reported [`HopEvent::Delivered`] was passed to the owner at the other end, intact
//! and once in the session** (a session ends when either neighbour restarts).
//!
//! An owner works in rounds, as a driver does with a [`Machine`](whimbrel_core::Machine): inputs
//! first ([`Hop::send`], [`Hop::handle_frame`], [`Hop::handle_timeout`]), then
//! [`Hop::poll_transmit`] and [`Hop::poll_event`] until they return `None`, then
//! [`Hop::poll_timeout`]. As in a machine, every input has the time, even where it is not needed
//! today.

mod bitmap;
mod budget;
mod config;
mod congestion;
mod ecn;
mod event;
mod feedback;
mod finished;
#[cfg(test)]
mod hostile;
mod lanes;
mod liveness;
mod notices;
mod outbound;
mod pacing;
mod receiver;
mod secure;
mod sender;
mod session;
mod shapes;
mod stats;
#[cfg(test)]
mod vectors;
mod wire;

use core::time::Duration;

use bytes::Bytes;
use std::collections::VecDeque;
use whimbrel_core::{Deadline, Ecn, SeededRng, Time};

pub use budget::{PacketBudget, Share};
pub use config::{HopConfig, MAX_CHUNK, MAX_MTU, MIN_MTU, Pacing};
pub use event::HopEvent;
pub use lanes::Lane;
pub use secure::{
    CallerLists, CallerPolicy, Callers, Gate, Keeping, MAX_LISTED, PostQuantum, Reception,
    ReceptionCounters, RefusedCaller, Unwilling,
};
pub use stats::{HopDrops, HopStats};

use crate::path_mtu;
use feedback::Disbelief;
use liveness::{Due, Liveness, Sending};
use outbound::Parcel;
use receiver::Receiver;
use secure::{SealedSession, Standing};
use sender::Sender;
use session::{Greeting, Peer, Session};
use wire::{
    Content, DecodeError, Envelope, Frame, Hello, Opened, decode, decode_opened, encode_hello,
};

/// An unwilling neighbour is reported this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The session with the neighbour, by the mode of the hop.
enum Sessions {
    Plain(Box<Session>),
    Sealed(Box<SealedSession>),
}

impl Sessions {
    fn peer(&self) -> Option<&Peer> {
        match self {
            Sessions::Plain(session) => session.peer(),
            Sessions::Sealed(session) => session.peer(),
        }
    }

    fn announce(&mut self) {
        match self {
            Sessions::Plain(session) => session.announce(),
            Sessions::Sealed(session) => session.announce(),
        }
    }

    fn call_now(&mut self, now: Time) {
        match self {
            Sessions::Plain(session) => session.call_now(now),
            Sessions::Sealed(session) => session.call_now(now),
        }
    }

    fn take_rtt(&mut self) -> Option<Duration> {
        match self {
            Sessions::Plain(session) => session.take_rtt(),
            Sessions::Sealed(session) => session.take_rtt(),
        }
    }

    fn handle_timeout(&mut self, now: Time, config: &HopConfig, waiting: bool) {
        match self {
            Sessions::Plain(session) => session.handle_timeout(now, config, waiting),
            Sessions::Sealed(session) => session.handle_timeout(now, config, waiting),
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        match self {
            Sessions::Plain(session) => session.poll_timeout(),
            Sessions::Sealed(session) => session.poll_timeout(),
        }
    }

    /// Returns the envelope of the next frames; `None` if there is no session.
    fn envelope(&self) -> Option<Envelope> {
        match self {
            Sessions::Plain(session) => session.outgoing_tag().map(Envelope::Plain),
            Sessions::Sealed(session) => session.may_send().then_some(Envelope::Sealed),
        }
    }
}

/// The transfer of chunks to and from one neighbour on one port.
pub struct Hop {
    config: HopConfig,
    session: Sessions,
    // What a sealed frame held: kept for the next one's sake.
    opened: Vec<u8>,
    report_at: Time,
    unwilling: Option<Unwilling>,
    sender: Sender,
    receiver: Receiver,
    liveness: Liveness,
    events: VecDeque<HopEvent>,
    stats: HopStats,
}

impl Hop {
    /// Returns a hop that starts to greet its neighbour at once. Settings are limited to their
    /// bounds.
    pub fn new(config: HopConfig, mut rng: SeededRng, now: Time) -> Hop {
        let config = config.bounded();
        let first_id = rng.next_word() as u32;
        Hop {
            sender: Sender::new(&config, first_id, now),
            receiver: Receiver::new(&config),
            liveness: Liveness::new(now),
            session: match config.plain {
                true => Sessions::Plain(Box::new(Session::new(&config, rng, now))),
                false => Sessions::Sealed(Box::new(SealedSession::new(&config, now))),
            },
            opened: Vec::new(),
            report_at: now,
            unwilling: None,
            events: VecDeque::new(),
            stats: HopStats::default(),
            config,
        }
    }

    /// Sets the driver's maximum of bytes in a frame. If it is no less than before, the path has
    /// changed. Chunks whose packets no longer fit are split anew, and the neighbour is told, which
    /// also gives it this end's present address.
    pub fn set_mtu(&mut self, now: Time, mtu: usize) {
        let lowered = mtu < self.config.mtu;
        self.config.mtu = mtu.clamp(MIN_MTU, MAX_MTU);
        let peer = self.session.peer().map_or(MAX_MTU, |peer| peer.mtu);
        let limit = self.config.mtu.min(peer);
        if lowered {
            self.sender.set_limit(now, limit);
        } else {
            self.sender.change_path(now, limit);
        }
        self.session.announce();
    }

    /// The driver says whether what carries the frames works. If not, the neighbour is unresponsive
    /// at once; if it does again, the neighbour is asked at once, rather than after a pause that
    /// had grown. Should the driver be wrong, frames of the neighbour tell otherwise.
    pub fn set_carrier(&mut self, now: Time, works: bool) {
        if !works {
            let expecting = self.receiver.arriving() > 0;
            if self.liveness.lose(now, &self.config, expecting) && self.session.peer().is_some() {
                self.stats.outages += 1;
                self.events.push_back(HopEvent::Unresponsive);
                self.sender.suspend();
            }
            return;
        }
        self.liveness.regain(now, &self.config);
        match self.session.peer() {
            Some(_) => self.sender.probe(),
            None => self.session.call_now(now),
        }
    }

    /// Queues a chunk, `head` followed by `body`; neither is copied until it is written into
    /// packets.
    ///
    /// `tag` returns in [`HopEvent::Delivered`]; the owner chooses it, unique among its chunks
    /// here. An empty chunk has nothing to deliver, so it counts as delivered at once.
    pub fn send(&mut self, now: Time, tag: u64, head: Bytes, body: Bytes) {
        self.send_in(now, Lane::DEFAULT, tag, head, body);
    }

    /// Queues a chunk of one of several lanes that share this hop.
    pub fn send_in(&mut self, _now: Time, lane: Lane, tag: u64, head: Bytes, body: Bytes) {
        if head.is_empty() && body.is_empty() {
            self.events.push_back(HopEvent::Delivered { tag });
            return;
        }
        self.sender.queue(Parcel {
            tag,
            lane,
            head,
            body,
        });
    }

    /// Withdraws a chunk that is not yet acknowledged: to bind it anew, or to store it [MFTP §3.3].
    /// Returns `None` if it is not here. The neighbour may nevertheless have received it.
    pub fn withdraw(&mut self, _now: Time, tag: u64) -> Option<(Bytes, Bytes)> {
        self.sender.withdraw(tag)
    }

    /// Withdraws the chunks of a lane of which nothing has been sent. Returns their tags, in their
    /// order.
    pub fn withdraw_unbegun(&mut self, _now: Time, lane: Lane) -> Vec<u64> {
        self.sender.withdraw_unbegun(lane)
    }

    /// Withdraws all chunks that are not yet acknowledged, those of each lane in the order of
    /// sending.
    pub fn withdraw_all(&mut self, _now: Time) -> Vec<(u64, Bytes, Bytes)> {
        self.sender.withdraw_all()
    }

    /// Returns the further bytes of chunks that the owner should queue here now: enough to keep the
    /// hop busy, few enough that chunks wait where they can still be routed elsewhere. Returns 0
    /// before the neighbour is up, while it is unresponsive, and while its window is closed.
    pub fn ready_for(&self) -> usize {
        if self.is_up() {
            self.sender.ready_for(self.config.queue_target)
        } else {
            0
        }
    }

    /// Returns true if a chunk of `lane` should be queued here now. An urgent one always should
    /// while the neighbour answers. Every other lane may have one chunk here, however much waits
    /// already, so that a lane with little to send does not wait for those with much.
    pub fn takes(&self, lane: Lane) -> bool {
        self.is_up() && (lane == Lane::Urgent || self.ready_for() > 0 || self.sender.has_turn(lane))
    }

    /// Returns the bytes of chunks that have not been sent.
    pub fn unsent_bytes(&self) -> usize {
        self.sender.backlog()
    }

    /// Returns the bytes per second that the path delivers, as far as that is known.
    pub fn delivery_rate(&self) -> Option<u64> {
        Some(self.sender.rate()).filter(|rate| *rate > 0)
    }

    /// Returns true while it is being found out whether a new path is slow, which takes a round trip,
    /// or two if it is.
    pub fn is_measuring(&self) -> bool {
        self.sender.is_measuring()
    }

    /// Returns the round trip of the path without a queue, as far as that is known.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.sender.min_rtt()
    }

    /// Returns the silence after which a neighbour that has something to answer is suspect, as far
    /// as a round trip is known: 1.25 smoothed round trips and four times their variation.
    pub fn suspicion(&self) -> Option<Duration> {
        self.sender.suspicion()
    }

    /// One frame arrived from the neighbour. Bad frames are counted in [`HopStats::drops`].
    pub fn handle_frame(&mut self, now: Time, frame: &[u8], budget: &mut PacketBudget) {
        self.receiver.look_at(budget);
        match self.session {
            Sessions::Plain(_) => self.handle_plain(now, frame, budget),
            Sessions::Sealed(_) => self.handle_sealed(now, frame, budget),
        }
        self.receiver.look_at(budget);
    }

    fn handle_plain(&mut self, now: Time, frame: &[u8], budget: &mut PacketBudget) {
        let Sessions::Plain(session) = &mut self.session else {
            return;
        };
        let (tag, content) = match decode(frame) {
            Err(DecodeError::Crc) => {
                self.stats.drops.corrupt += 1;
                return;
            }
            Err(DecodeError::Version(wire::HANDSHAKE)) => {
                self.handle_notice(now, frame);
                return;
            }
            Err(_) => {
                self.stats.drops.malformed += 1;
                return;
            }
            Ok(Frame::Hello(hello)) => {
                self.count_received(frame.len());
                self.handle_hello(now, &hello, budget);
                return;
            }
            Ok(Frame::Data { session, data }) => (session, Content::Data(data)),
            Ok(Frame::Csyn { session, csyn }) => (session, Content::Csyn(csyn)),
            Ok(Frame::Cack { session, cack }) => (session, Content::Cack(cack)),
        };
        if !session.is_current(tag) {
            self.stats.drops.wrong_session += 1;
            let answered = session.handle_stranger(now, frame);
            self.stats.drops.hello_limited += u64::from(!answered);
            return;
        }
        self.handle_content(now, content, frame.len(), budget);
    }

    fn handle_sealed(&mut self, now: Time, frame: &[u8], budget: &mut PacketBudget) {
        let standing = self.standing();
        let Sessions::Sealed(session) = &mut self.session else {
            return;
        };
        let mut opened = core::mem::take(&mut self.opened);
        let about = (&self.config, standing);
        let drops = &mut self.stats.drops;
        let received = session.receive(now, frame, &mut opened, about, drops);
        let had_peer = session.peer().is_some();
        if let Some(greeting) = received.greeting {
            self.apply(now, greeting, budget);
        }
        if received.unwilling == Some(Unwilling::NotAdmitted)
            && self.liveness.give_up(now, &self.config, false)
        {
            self.events.push_back(HopEvent::Unresponsive);
            self.sender.suspend();
        }
        self.note_unwilling(now, received.unwilling);
        if received.impostor && !had_peer {
            self.events.push_back(HopEvent::Impostor);
        }
        if received.opened {
            match decode_opened(frame[0], &opened) {
                Ok(Opened::Content(content)) => {
                    self.handle_content(now, content, frame.len(), budget);
                }
                Ok(Opened::Parameters(bytes)) => self.handle_parameters(now, bytes, frame.len()),
                Err(_) => self.stats.drops.malformed += 1,
            }
        }
        self.opened = opened;
    }

    fn handle_parameters(&mut self, now: Time, bytes: &[u8], len: usize) {
        let Sessions::Sealed(session) = &mut self.session else {
            return;
        };
        if !session.note_parameters(bytes) {
            self.stats.drops.malformed += 1;
            return;
        }
        self.count_received(len);
        self.follow_limit(now);
        self.heard(now);
    }

    /// What this end has to say of itself now.
    fn standing(&self) -> Standing {
        Standing {
            window: self.receiver.window(),
            first_hop_id: self.sender.first_wire_ids().1,
        }
    }

    fn handle_content(
        &mut self,
        now: Time,
        content: Content<'_>,
        len: usize,
        budget: &mut PacketBudget,
    ) {
        self.count_received(len);
        self.unwilling = None;
        match content {
            Content::Data(data) => {
                self.heard(now);
                self.liveness.note_data(now, self.receiver.arriving() > 0);
                let whole = self
                    .receiver
                    .handle_data(now, &data, len, budget, &mut self.stats);
                if let Some(whole) = whole {
                    self.stats.chunks_received += 1;
                    self.stats.chunk_bytes_received += whole.chunk.len() as u64;
                    self.events.push_back(HopEvent::Received {
                        chunk: whole.chunk,
                        packets: whole.packets,
                    });
                }
                if let Some(low) = data.question {
                    self.receiver
                        .handle_question(now, &data, low, budget, &mut self.stats);
                }
            }
            Content::Csyn(csyn) => {
                self.heard(now);
                self.receiver
                    .handle_csyn(now, &csyn, budget, &mut self.stats);
            }
            Content::Cack(cack) => {
                // This must precede `heard`: the answer to a probe that ends an outage tells which
                // packets were lost.
                match self
                    .sender
                    .handle_cack(now, &cack, &mut self.stats, &mut self.events)
                {
                    Ok(()) => {}
                    Err(Disbelief::False) => self.stats.drops.false_ack += 1,
                    Err(Disbelief::Late) => self.stats.drops.late_ack += 1,
                }
                self.heard(now);
            }
        }
    }

    /// Handles a report of the driver: `frames` frames that are handled next carry this codepoint.
    pub fn handle_ecn(&mut self, _now: Time, codepoint: Ecn, frames: u32) {
        self.receiver.note_ecn(codepoint, frames);
        if codepoint == Ecn::Marked {
            self.stats.marks_received += u64::from(frames);
        }
    }

    /// Handles a deadline of [`Hop::poll_timeout`]. Early or repeated calls do no harm.
    pub fn handle_timeout(&mut self, now: Time, budget: &mut PacketBudget) {
        let waiting = self.sender.has_work();
        if let Sessions::Sealed(session) = &mut self.session {
            session.set_patience(self.sender.suspicion());
        }
        self.session.handle_timeout(now, &self.config, waiting);
        self.receiver.handle_timeout(now, budget);
        self.receiver.look_at(budget);
        if self.session.peer().is_none() {
            return;
        }
        self.sender
            .handle_timeout(now, &mut self.stats, &mut self.events);
        let sending = Sending {
            attempts: self.sender.attempts(),
            rtt: self.sender.smoothed_rtt(),
            rarest: self.sender.question_interval(),
            waiting: self.sender.has_work(),
            acknowledged: self.sender.is_acknowledged(),
        };
        let expecting = self.receiver.arriving() > 0;
        match self
            .liveness
            .handle_timeout(now, &self.config, &sending, expecting)
        {
            Some(Due::Lost) => {
                self.stats.outages += 1;
                self.events.push_back(HopEvent::Unresponsive);
                self.sender.suspend();
                self.sender.probe();
            }
            Some(Due::Probe) => self.sender.probe(),
            None => {}
        }
    }

    /// Returns true if the neighbour waits for room here: [`Hop::budget_released`] has something to
    /// tell it.
    pub fn is_waited_for(&self) -> bool {
        self.receiver.is_waited_for()
    }

    /// Handles released room in `budget`: refused chunks are granted now, and a closed window
    /// opens.
    pub fn budget_released(&mut self, now: Time, budget: &mut PacketBudget) {
        self.receiver.budget_released(now, budget);
    }

    /// Ends the hop, because its port is down: releases all that it holds of `budget` and returns
    /// the chunks that are not yet acknowledged, in the order of sending.
    pub fn close(mut self, _now: Time, budget: &mut PacketBudget) -> Vec<(u64, Bytes, Bytes)> {
        self.receiver.clear(budget);
        self.sender.withdraw_all()
    }

    /// Appends the next frames to `buffer`: `(bytes appended, segment size)` as in
    /// [`Transmit`](whimbrel_core::Transmit), or `None` if nothing may be sent now.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<(usize, Option<usize>)> {
        let start = buffer.len();
        let written = if self.write_greeting(now, buffer) {
            (buffer.len() - start, None)
        } else {
            let envelope = self.session.envelope()?;
            // A larger answer might be lost by its size each time that it is repeated.
            let largest = self.config.mtu.min(path_mtu::BASE);
            let peer = self.session.peer();
            let tells_marks = self.config.ecn && peer.is_some_and(|peer| peer.reports_marks);
            let written = if (self.receiver).poll_answer(envelope, largest, tells_marks, buffer) {
                (buffer.len() - start, None)
            } else {
                self.sender.poll_transmit(
                    now,
                    envelope,
                    max_segments,
                    buffer,
                    &mut self.stats,
                    &mut self.events,
                )?
            };
            if let Sessions::Sealed(session) = &mut self.session {
                let segment = written.1.unwrap_or(written.0);
                if !session.seal(now, &mut buffer[start..], segment) {
                    buffer.truncate(start);
                    return None;
                }
            }
            written
        };
        let frames = written.1.map_or(1, |segment| written.0.div_ceil(segment));
        self.stats.frames_sent += frames as u64;
        self.stats.bytes_sent += written.0 as u64;
        Some(written)
    }

    /// Returns the next event for the owner.
    pub fn poll_event(&mut self) -> Option<HopEvent> {
        self.events.pop_front()
    }

    /// Returns the time of the next call to [`Hop::handle_timeout`], and the reason.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let next = Deadline::earlier(self.session.poll_timeout(), self.receiver.poll_timeout());
        if self.session.peer().is_none() {
            return next;
        }
        let of_liveness = self.liveness.poll_timeout(
            &self.config,
            self.sender.question_interval(),
            self.receiver.arriving() > 0,
        );
        let next = Deadline::earlier(next, of_liveness);
        Deadline::earlier(next, self.sender.poll_timeout())
    }

    /// Returns true between [`HopEvent::Up`] and the end of the hop, except while the neighbour is
    /// unresponsive.
    pub fn is_up(&self) -> bool {
        self.session.peer().is_some() && self.liveness.is_responsive()
    }

    /// Returns the time of the neighbour's last frame; before the first one, of the hop's creation.
    pub fn heard_at(&self) -> Time {
        self.liveness.heard_at()
    }

    /// Returns the memory of incomplete chunks, in bytes.
    pub fn arriving_bytes(&self) -> usize {
        self.receiver.arriving_bytes()
    }

    /// Returns the frames that have been sent and received, and their bytes.
    pub fn traffic(&self) -> (u64, u64) {
        (
            self.stats.frames_sent + self.stats.frames_received,
            self.stats.bytes_sent + self.stats.bytes_received,
        )
    }

    /// Returns the counters and estimates.
    pub fn stats(&self) -> HopStats {
        let mut stats = self.stats.clone();
        self.sender.describe(&mut stats);
        stats.chunks_arriving = self.receiver.arriving();
        stats.hybrid = match &self.session {
            Sessions::Plain(_) => false,
            Sessions::Sealed(session) => session.is_hybrid(),
        };
        stats
    }

    /// Writes a message about the session, if one is due.
    fn write_greeting(&mut self, now: Time, buffer: &mut Vec<u8>) -> bool {
        let standing = self.standing();
        let first = self.sender.first_wire_ids().0;
        let waiting = self.sender.has_work();
        match &mut self.session {
            Sessions::Plain(session) => {
                let ids = (first, standing.first_hop_id);
                let hello = session.poll_hello(now, &self.config, standing.window, ids, waiting);
                match hello {
                    Some(hello) => encode_hello(&hello, buffer),
                    None => return session.poll_notice(buffer),
                }
                true
            }
            Sessions::Sealed(session) => {
                session.poll_message(now, (&self.config, standing), waiting, buffer)
            }
        }
    }

    fn handle_hello(&mut self, now: Time, hello: &Hello, budget: &mut PacketBudget) {
        let Sessions::Plain(session) = &mut self.session else {
            return;
        };
        let greeting = session.handle_hello(now, hello, &mut self.stats.drops.hello_limited);
        self.apply(now, greeting, budget);
    }

    /// Follows the limits that the neighbour states.
    fn follow_limit(&mut self, now: Time) {
        let mtu = self.session.peer().map_or(MAX_MTU, |peer| peer.mtu);
        self.sender.set_limit(now, self.config.mtu.min(mtu));
    }

    fn apply(&mut self, now: Time, greeting: Greeting, budget: &mut PacketBudget) {
        match greeting {
            Greeting::Unproven => return,
            Greeting::Known => self.follow_limit(now),
            Greeting::New {
                restarted,
                first_hop_id,
                window,
                own_first_id,
            } => {
                let Some(peer) = self.session.peer() else {
                    return;
                };
                self.stats.sessions += 1;
                self.receiver.restart(first_hop_id, budget);
                let start = (window, own_first_id);
                self.sender.restart(now, peer, start, &self.config);
                // The round trip of a path that carries nothing yet: what start-up judges queues
                // by.
                self.sender.probe();
                let (neighbour, incarnation) = (peer.guid, peer.incarnation);
                self.events.push_back(HopEvent::Up {
                    neighbour,
                    incarnation,
                    restarted,
                });
                self.sender.follow_marks(&mut self.events);
                if let Some(rtt) = self.session.take_rtt() {
                    self.sender.measured(now, rtt);
                }
            }
        }
        self.heard(now);
    }

    fn heard(&mut self, now: Time) {
        if self.liveness.heard(now) {
            self.events.push_back(HopEvent::Responsive);
            self.sender.resume(now);
        }
    }

    fn count_received(&mut self, len: usize) {
        self.stats.frames_received += 1;
        self.stats.bytes_received += len as u64;
    }
}
