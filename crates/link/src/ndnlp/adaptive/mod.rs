//! The adaptive profile between two Whimbrel routers: the paper's protocol with the proposals of
//! its section V, and further ones.
//!
//! * An Interest or Data travels without its outermost type and length, which pays for a number of
//!   one octet.
//! * The receiver reports ranges, including missing frames. A lost report therefore delays; it
//!   causes no retransmission, and most frames carry no report.
//! * A gap is reported at once. The sender retransmits a frame when one sent later by the
//!   reordering window arrived; the window is zero until a retransmission proves spurious.
//! * Probes cover the last frames of a burst.
//! * A frame is retransmitted only while its packet is still useful.

mod hello;
mod receiver;
mod recovery;
mod sender;
pub(crate) mod wire;

use core::time::Duration;

use whimbrel_core::{SeededRng, Time};

use super::compact::Kind;
use super::config::LinkServiceConfig;
use super::recovery::Turn;
use super::stats::LinkStats;
pub(crate) use hello::Hello;
use hello::{HELLO_LEN, Handshake};
use receiver::Receiver;
pub(crate) use recovery::open_without_agreement;
use sender::Sender;
use wire::{AdaptiveFrame, MAX_REPORT_LEN, Resent, ShortNumber};

/// A session without a frame for this long ends when a frame of another kind arrives.
const STRANGER_AFTER: Duration = Duration::from_secs(1);
/// The peer's numbers are extended to 64 bits and begin above this.
const PEER_FIRST: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct Adaptive {
    handshake: Handshake,
    sender: Sender,
    receiver: Option<Receiver>,
    report_delay: Duration,
    max_retransmissions: u8,
    data_patience: Duration,
    last_heard: Time,
    rng: SeededRng,
    // Octets of the number of the frame that is being written.
    width: u8,
    hello: [u8; HELLO_LEN],
    report: Vec<u8>,
}

/// The packet of a compact frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// New; the first frame that carried it had this number.
    New(u64),
    /// The packet is a duplicate.
    Twice,
    /// There is no agreement on numbers.
    Unknown,
}

impl Adaptive {
    pub(crate) fn new(config: &LinkServiceConfig, rng: &mut SeededRng) -> Adaptive {
        let mut rng = SeededRng::new(rng.next_word());
        Adaptive {
            handshake: Handshake::new(&mut rng),
            sender: Sender::new(rng.next_word() as u32, config.max_outstanding),
            receiver: None,
            report_delay: config.report_delay,
            max_retransmissions: config.max_retransmissions,
            data_patience: config.data_patience,
            last_heard: Time::ZERO,
            rng,
            width: 1,
            hello: [0; HELLO_LEN],
            report: Vec::with_capacity(MAX_REPORT_LEN),
        }
    }

    /// Returns a profile with this first number.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, first: u32, max_outstanding: usize) {
        self.sender = Sender::new(first, max_outstanding);
    }

    /// Returns true if packets are sent in compact frames.
    fn is_agreed(&self) -> bool {
        self.handshake.is_agreed()
    }

    /// Builds the announcement, to be sent now.
    fn announce(&mut self, now: Time, stats: &mut LinkStats) {
        stats.hellos_sent += 1;
        let first_number = self.sender.next_number() as u32;
        let hello = self
            .handshake
            .announce(now, self.report_delay, first_number);
        self.hello = hello.encode();
    }

    /// Handles the peer's announcement. Returns true if its numbers have a new meaning from now on.
    fn handle_hello(&mut self, now: Time, hello: Hello, stats: &mut LinkStats) -> bool {
        let change = self.handshake.handle(now, hello);
        self.last_heard = now;
        if change.new_peer {
            stats.abandoned += self.sender.abandon() as u64;
            self.sender
                .set_report_delay(Duration::from_millis(u64::from(hello.report_delay_ms)));
            let first = PEER_FIRST + u64::from(hello.first_number);
            self.receiver = Some(Receiver::new(first, self.report_delay));
        }
        stats.sessions += u64::from(change.agreed);
        change.new_peer
    }

    /// Handles a frame without this profile's format or announcement: if no other frames arrived
    /// for long, the peer was replaced.
    fn handle_foreign(&mut self, now: Time, stats: &mut LinkStats) {
        if self.is_agreed() && now.since(self.last_heard) > STRANGER_AFTER {
            self.end(now, stats);
        }
    }

    fn end(&mut self, now: Time, stats: &mut LinkStats) {
        stats.abandoned += self.sender.abandon() as u64;
        self.handshake.start_over(now, &mut self.rng);
    }

    /// Handles the numbers and the report of a compact frame.
    fn handle_frame(
        &mut self,
        frame: &AdaptiveFrame<'_>,
        size: usize,
        turn: &mut Turn<'_>,
    ) -> Origin {
        let now = turn.now;
        let Some(receiver) = &mut self.receiver else {
            self.handshake.handle_stranger(now);
            return Origin::Unknown;
        };
        self.last_heard = now;
        if !self.handshake.is_agreed() {
            // The peer supports this profile, but its announcement was lost.
            self.handshake.handle_stranger(now);
        }
        let (report, ask) = match frame {
            AdaptiveFrame::Packet { report, .. } => (report, None),
            AdaptiveFrame::Control { report, ask } => (report, *ask),
        };
        if let Some(report) = report {
            self.sender
                .handle_report(now, report, turn.stats, turn.lost);
        }
        if let Some(lowest) = ask {
            receiver.handle_ask(lowest);
        }
        let AdaptiveFrame::Packet { number, resent, .. } = frame else {
            return Origin::Unknown;
        };
        match receiver.handle(now, *number, *resent, size, self.sender.loss()) {
            Some(identity) if identity.twice => {
                turn.stats.duplicates += 1;
                Origin::Twice
            }
            Some(identity) => Origin::New(identity.first),
            None => Origin::Unknown,
        }
    }

    /// Appends the octets before the packet, with a report if one is wanted and fits in `room`
    /// octets; returns the octets of the number. `back` is the distance in numbers to the packet's
    /// first transmission.
    fn write_start(
        &mut self,
        now: Time,
        kind: Kind,
        back: Option<u64>,
        room: usize,
        stats: &mut LinkStats,
        out: &mut Vec<u8>,
    ) -> u8 {
        let width = self.sender.next_width(now);
        let number = ShortNumber::new(self.sender.next_number(), width);
        let resent = back.map(|back| Resent {
            back,
            ask: core::mem::take(&mut self.sender.resend_asks),
        });
        let with_report = room >= MAX_REPORT_LEN
            && self
                .receiver
                .as_ref()
                .is_some_and(|receiver| receiver.wants_to_travel(now))
            && self.prepare_report(now);
        wire::write_packet_start(out, kind, number, resent, with_report);
        if with_report {
            out.extend_from_slice(&self.report);
            stats.acks_carried += 1;
        }
        width
    }

    fn prepare_report(&mut self, now: Time) -> bool {
        self.report.clear();
        let loss = self.sender.loss();
        let receiver = self.receiver.as_mut();
        receiver
            .and_then(|receiver| receiver.write_report(now, loss, &mut self.report))
            .is_some()
    }

    fn report_due(&self, now: Time) -> bool {
        self.receiver
            .as_ref()
            .and_then(Receiver::due)
            .is_some_and(|due| due <= now)
    }
}
