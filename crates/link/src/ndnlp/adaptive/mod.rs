//! The adaptive profile between two Whimbrel routers: the paper's protocol with what its section V
//! proposes, and further.
//!
//! * An Interest or Data travels without its outermost type and length, which pays for a number of
//!   one octet.
//! * The receiver reports ranges, and reports what is missing. A lost report therefore delays; it
//!   causes no retransmission, and most frames go without one.
//! * A gap is reported at once. The sender resends when a frame sent later by the reordering window
//!   arrived; the window is zero until a retransmission proves spurious.
//! * The last frames of a burst are probed for.
//! * A frame is sent again only while its packet can still be of use.

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
use wire::{AdaptiveFrame, MOST_REPORT_LEN, Resent, ShortNumber};

/// A session with nobody heard in it for so long ends when a frame comes that is not of it.
const STRANGER_AFTER: Duration = Duration::from_secs(1);
/// Numbers of the peer are 64 bits wide here and begin above this.
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
    // Of the frame that is being written.
    width: u8,
    hello: [u8; HELLO_LEN],
    report: Vec<u8>,
}

/// Which packet a compact frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The first frame that carried it had this number; it did not come before.
    New(u64),
    /// It came before.
    Twice,
    /// There is no agreement on numbers.
    Unknown,
}

impl Adaptive {
    pub(crate) fn new(config: &LinkServiceConfig, rng: &mut SeededRng) -> Adaptive {
        let mut rng = SeededRng::new(rng.next_word());
        Adaptive {
            handshake: Handshake::new(&mut rng),
            sender: Sender::new(rng.next_word() as u32, config.most_outstanding),
            receiver: None,
            report_delay: config.report_delay,
            max_retransmissions: config.max_retransmissions,
            data_patience: config.data_patience,
            last_heard: Time::ZERO,
            rng,
            width: 1,
            hello: [0; HELLO_LEN],
            report: Vec::with_capacity(MOST_REPORT_LEN),
        }
    }

    /// Begins with this number.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, first: u32, most_outstanding: usize) {
        self.sender = Sender::new(first, most_outstanding);
    }

    /// True if packets go in compact frames now.
    fn is_agreed(&self) -> bool {
        self.handshake.is_agreed()
    }

    /// Makes the announcement, which is sent now.
    fn announce(&mut self, now: Time, stats: &mut LinkStats) {
        stats.hellos_sent += 1;
        let first_number = self.sender.next_number() as u32;
        let hello = self
            .handshake
            .announce(now, self.report_delay, first_number);
        self.hello = hello.encode();
    }

    /// The peer announced itself. True if its numbers mean something else from now on.
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

    /// A frame came that is not of this profile and does not announce it: if nothing else came for
    /// long, the peer has become somebody else.
    fn handle_foreign(&mut self, now: Time, stats: &mut LinkStats) {
        if self.is_agreed() && now.since(self.last_heard) > STRANGER_AFTER {
            self.end(now, stats);
        }
    }

    fn end(&mut self, now: Time, stats: &mut LinkStats) {
        stats.abandoned += self.sender.abandon() as u64;
        self.handshake.start_over(now, &mut self.rng);
    }

    /// Takes what a compact frame says of itself and of others.
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
            // It understands this end, but has not told so: the announcement that did was lost.
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

    /// Appends what comes before the packet, with a report if one is wanted and there are `room`
    /// octets for it; returns the octets that the number took. `back` is how many numbers before
    /// this one the packet was first sent.
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
        let with_report = room >= MOST_REPORT_LEN
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
