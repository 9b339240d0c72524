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
mod config;
mod congestion;
mod ecn;
mod event;
mod feedback;
mod finished;
mod lanes;
mod liveness;
mod outbound;
mod pacing;
mod receiver;
mod secure;
mod sender;
mod shapes;
mod stats;
#[cfg(test)]
mod vectors;
mod wire;

use core::time::Duration;

use bytes::Bytes;
use std::collections::VecDeque;
use whimbrel_core::{Deadline, Ecn, Guid, SeededRng, Time};

use crate::account::Buffer;

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
use secure::{Greeting, Session, Standing};
use sender::Sender;
use wire::{Content, Opened, decode_opened};

/// An unwilling neighbour is reported this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The transfer of chunks to and from one neighbour on one port.
pub struct Hop {
    config: HopConfig,
    session: Session,
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
    /// Returns a hop that starts to call its neighbour at once. Settings are limited to their
    /// bounds.
    pub fn new(config: HopConfig, mut rng: SeededRng, now: Time) -> Hop {
        let config = config.bounded();
        let first_id = rng.next_word() as u32;
        Hop {
            sender: Sender::new(&config, first_id, now),
            receiver: Receiver::new(&config),
            liveness: Liveness::new(now),
            session: Session::new(&config, now),
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
        self.sender.transfers_mut().queue(Parcel {
            tag,
            lane,
            head,
            body,
        });
    }

    /// Withdraws a chunk that is not yet acknowledged: to bind it anew, or to store it [MFTP §3.3].
    /// Returns `None` if it is not here. The neighbour may nevertheless have received it.
    pub fn withdraw(&mut self, _now: Time, tag: u64) -> Option<(Bytes, Bytes)> {
        self.sender.transfers_mut().withdraw(tag)
    }

    /// Withdraws the chunks of a lane of which nothing has been sent. Returns their tags, in their
    /// order.
    pub fn withdraw_unbegun(&mut self, _now: Time, lane: Lane) -> Vec<u64> {
        self.sender.transfers_mut().withdraw_unbegun(lane)
    }

    /// Withdraws all chunks that are not yet acknowledged, those of each lane in the order of
    /// sending.
    pub fn withdraw_all(&mut self, _now: Time) -> Vec<(u64, Bytes, Bytes)> {
        self.sender.transfers_mut().withdraw_all()
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
        self.sender.transfers().backlog()
    }

    /// Returns the bytes per second that the path delivers, as far as that is known.
    pub fn delivery_rate(&self) -> Option<u64> {
        Some(self.sender.control().rate()).filter(|rate| *rate > 0)
    }

    /// Has the rate of the path measured, unless chunks cross it: what was known of a path that carries little becomes
    /// wrong without a sign. Takes some round trips, and up to 80 frames of 1,200 bytes on a fast path, 4 on a slow one.
    pub fn measure_idle(&mut self) {
        if self.is_up() {
            self.sender.measure_idle();
        }
    }

    /// Returns true while it is being found out whether a new path is slow, which takes a round trip,
    /// or two if it is.
    pub fn is_measuring(&self) -> bool {
        self.sender.control().is_measuring()
    }

    /// Returns the round trip of the path without a queue, as far as that is known.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.sender.control().min_rtt()
    }

    /// Returns the silence after which a neighbour that has something to answer is suspect, as far
    /// as a round trip is known: 1.25 smoothed round trips and four times their variation.
    pub fn suspicion(&self) -> Option<Duration> {
        self.sender.control().suspicion()
    }

    /// One frame arrived from the neighbour. Bad frames are counted in [`HopStats::drops`].
    pub fn handle_frame(&mut self, now: Time, frame: &[u8], buffer: &mut Buffer) {
        self.sender.note_turn();
        self.receiver.look_at(buffer);
        let mut opened = core::mem::take(&mut self.opened);
        let about = (&self.config, self.standing());
        let drops = &mut self.stats.drops;
        let had_peer = self.session.peer().is_some();
        let received = (self.session).receive(now, frame, &mut opened, about, drops);
        if let Some(greeting) = received.greeting {
            self.apply(now, greeting);
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
        if let Some(content) = received.opened {
            match decode_opened(frame[0], content) {
                Ok(Opened::Content(content)) => {
                    self.handle_content(now, content, frame.len(), buffer);
                }
                Ok(Opened::Parameters(bytes)) => self.handle_parameters(now, bytes, frame.len()),
                Err(_) => self.stats.drops.malformed += 1,
            }
        }
        self.opened = opened;
        self.receiver.look_at(buffer);
    }

    fn handle_parameters(&mut self, now: Time, bytes: &[u8], len: usize) {
        if !self.session.note_parameters(bytes) {
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
            first_hop_id: self.sender.transfers().first_wire_ids().1,
        }
    }

    fn handle_content(&mut self, now: Time, content: Content<'_>, len: usize, buffer: &mut Buffer) {
        self.count_received(len);
        self.unwilling = None;
        match content {
            Content::Data(data) => {
                self.heard(now);
                self.liveness.note_data(now, self.receiver.arriving() > 0);
                let whole = self
                    .receiver
                    .handle_data(now, &data, len, buffer, &mut self.stats);
                if let Some(whole) = whole {
                    self.stats.chunks_received += 1;
                    self.stats.chunk_bytes_received += whole.chunk.len() as u64;
                    self.events.push_back(HopEvent::Received {
                        chunk: whole.chunk,
                        room: whole.room,
                    });
                }
                if let Some(low) = data.question {
                    self.receiver
                        .handle_question(now, &data, low, buffer, &mut self.stats);
                }
            }
            Content::Csyn(csyn) => {
                self.heard(now);
                self.receiver
                    .handle_csyn(now, &csyn, buffer, &mut self.stats);
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
    pub fn handle_timeout(&mut self, now: Time, buffer: &mut Buffer) {
        self.sender.note_turn();
        let waiting = self.sender.transfers().has_work();
        self.session.set_patience(self.sender.control().suspicion());
        self.session.handle_timeout(now, &self.config, waiting);
        self.receiver.handle_timeout(now);
        self.receiver.look_at(buffer);
        if self.session.peer().is_none() {
            return;
        }
        self.sender
            .handle_timeout(now, &mut self.stats, &mut self.events);
        let sending = Sending {
            attempts: self.sender.attempts(),
            rtt: self.sender.control().rtt.smoothed(),
            rarest: self.sender.control().question_interval(),
            waiting: self.sender.transfers().has_work(),
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

    /// Returns true if the neighbour waits for room here: [`Hop::room_released`] has something to
    /// tell it.
    pub fn is_waited_for(&self) -> bool {
        self.receiver.is_waited_for()
    }

    /// Handles released room in `buffer`: refused chunks are granted now, and a closed window
    /// opens.
    pub fn room_released(&mut self, now: Time, buffer: &mut Buffer) {
        self.receiver.room_released(now, buffer);
    }

    /// Ends the hop, because its port is down: drops what is arriving and returns the chunks that are
    /// not yet acknowledged, in the order of sending.
    pub fn close(mut self, _now: Time) -> Vec<(u64, Bytes, Bytes)> {
        self.sender.transfers_mut().withdraw_all()
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
        let waiting = self.sender.transfers().has_work();
        let about = (&self.config, self.standing());
        let written = if (self.session).poll_message(now, about, waiting, buffer) {
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
            let segment = written.1.unwrap_or(written.0);
            if !self.session.seal(now, &mut buffer[start..], segment) {
                buffer.truncate(start);
                return None;
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
            self.sender.control().question_interval(),
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
        stats.hybrid = self.session.is_hybrid();
        stats
    }

    /// Returns why the neighbour does not talk with this end, as an unproven notice has said since
    /// it last did.
    pub fn unwilling(&self) -> Option<Unwilling> {
        self.unwilling
    }

    /// From now on a session is accepted only from this name. A present session continues.
    pub fn expect_neighbour(&mut self, name: Guid) {
        self.session.expect(name);
    }

    fn note_unwilling(&mut self, now: Time, why: Option<Unwilling>) {
        self.unwilling = why.or(self.unwilling);
        if let Some(why) = why.filter(|_| now >= self.report_at) {
            self.report_at = now + REPORT_INTERVAL;
            self.events.push_back(HopEvent::Unwilling(why));
        }
    }

    /// Follows the limits that the neighbour states.
    fn follow_limit(&mut self, now: Time) {
        let mtu = self.session.peer().map_or(MAX_MTU, |peer| peer.mtu);
        self.sender.set_limit(now, self.config.mtu.min(mtu));
    }

    fn apply(&mut self, now: Time, greeting: Greeting) {
        match greeting {
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
                self.receiver.restart(first_hop_id);
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
