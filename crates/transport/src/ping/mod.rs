//! Round trips to a name prefix, measured as by `ndnping` and `ndnpingserver`.
//!
//! Facts: ndn-tools `tools/ping`: Interests for `/prefix/ping[/identifier]/NUMBER`, the number in
//! decimal digits, counting up from a random 64-bit number unless one is given; every second;
//! MustBeFresh unless cached Data is allowed; lifetime 4 s. The server answers every Interest under
//! `/prefix/ping` with its payload.

mod server;

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{Deadline, SeededRng, Time};
use whimbrel_ndn_packet::{Interest, LpPacket, NackReason, Name, NameRef};

pub use server::{PingResponder, PingServer, PingServerEvent, PingServerOptions};

use crate::application::{Application, Arrival, FaceNumber, Outgoing, due};
use crate::ledger::{Ledger, OrderedLedger, Sent};
use crate::path::PathId;
use crate::rtt::RttSummary;

/// Maximum of unanswered pings; beyond it, the oldest one counts as lost.
const MAX_OUTSTANDING: usize = 65_536;

/// Options of a [`Ping`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingOptions {
    /// The server's prefix, without `ping`.
    pub prefix: Name,
    /// Interval of Interests; at least 1 ms.
    pub interval: Duration,
    /// Lifetime of each Interest.
    pub timeout: Duration,
    /// The number of pings; `None` for no limit.
    pub count: Option<u64>,
    /// First number; `None` for a random one.
    pub start: Option<u64>,
    /// A component before the number, to distinguish clients of one server; letters and digits.
    pub identifier: Option<String>,
    /// Routers may answer with stale Data from their content store.
    pub allow_stale: bool,
}

impl PingOptions {
    /// `ndnping`'s defaults.
    pub const fn new(prefix: Name) -> PingOptions {
        PingOptions {
            prefix,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(4),
            count: None,
            start: None,
            identifier: None,
            allow_stale: false,
        }
    }
}

/// An event of a [`Ping`].
#[derive(Clone, Debug, PartialEq)]
pub enum PingEvent {
    /// An answer.
    Reply {
        /// Number in the name.
        number: u64,
        /// Round trip.
        rtt: Duration,
    },
    /// A Nack.
    Nack {
        /// Number in the name.
        number: u64,
        /// The reason.
        reason: NackReason,
        /// Round trip.
        rtt: Duration,
    },
    /// No answer in time.
    Timeout {
        /// Number in the name.
        number: u64,
    },
    /// All pings are finished, or [`Ping::stop`] was called.
    Finished(PingStats),
}

/// The summary of a ping.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PingStats {
    /// Interests sent.
    pub sent: u64,
    /// Answers.
    pub received: u64,
    /// Nacks.
    pub nacks: u64,
    /// Timed out.
    pub timeouts: u64,
    /// Round trips of the answers.
    pub rtt: RttSummary,
}

impl PingStats {
    /// Returns the share of finished pings that timed out (0 to 1).
    pub fn loss(&self) -> f64 {
        let over = self.received + self.nacks + self.timeouts;
        if over == 0 {
            0.0
        } else {
            self.timeouts as f64 / over as f64
        }
    }
}

/// Sends pings and measures. Holds at most 65,536 unanswered ones.
pub struct Ping {
    options: PingOptions,
    base: Name,
    rng: SeededRng,
    next_number: u64,
    next_at: Option<Time>,
    pending: OrderedLedger<u64, ()>,
    stats: PingStats,
    events: VecDeque<PingEvent>,
    seen: Time,
    up: bool,
    over: bool,
}

impl Ping {
    /// Returns a ping that starts as soon as the face is up.
    pub fn new(options: PingOptions, mut rng: SeededRng) -> Ping {
        let mut base = options.prefix.child_generic(b"ping");
        if let Some(identifier) = &options.identifier {
            base = base.child_generic(identifier.as_bytes());
        }
        // 52 bits: programs that read JSON as floating-point numbers keep it as it is.
        let next_number = options.start.unwrap_or_else(|| rng.next_word() >> 12);
        let interval = options.interval.max(Duration::from_millis(1));
        Ping {
            options: PingOptions {
                interval,
                ..options
            },
            base,
            rng,
            next_number,
            next_at: None,
            pending: Ledger::ordered(MAX_OUTSTANDING),
            stats: PingStats::default(),
            events: VecDeque::new(),
            seen: Time::ZERO,
            up: false,
            over: false,
        }
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &PingStats {
        &self.stats
    }

    /// Stops: unanswered pings count as neither answered nor lost.
    pub fn stop(&mut self) {
        if !self.over {
            self.over = true;
            self.events.push_back(PingEvent::Finished(self.stats));
        }
    }

    fn all_sent(&self) -> bool {
        self.options
            .count
            .is_some_and(|count| self.stats.sent >= count)
    }

    /// Returns the number in the name of one of these pings.
    fn number(&self, name: NameRef<'_>) -> Option<u64> {
        let rest = name.value().strip_prefix(self.base.as_ref().value())?;
        let rest = NameRef::from_value(rest).ok()?;
        let digits = rest.get(0).filter(|_| rest.len() == 1)?;
        core::str::from_utf8(digits.value()).ok()?.parse().ok()
    }

    fn finish_if_done(&mut self) {
        if self.all_sent() && self.pending.is_empty() {
            self.stop();
        }
    }

    fn lose(&mut self, number: u64) {
        if self.pending.take(&number).is_some() {
            self.stats.timeouts += 1;
            self.events.push_back(PingEvent::Timeout { number });
        }
    }
}

impl Application for Ping {
    type Event = PingEvent;

    fn handle_face(&mut self, now: Time, _face: FaceNumber, up: bool) {
        self.up = up;
        if up {
            self.next_at = Some(now);
        }
    }

    fn handle_packet(&mut self, now: Time, _face: FaceNumber, packet: &LpPacket<'_>) {
        if self.over {
            return;
        }
        match Arrival::decode(packet) {
            Ok(Arrival::Data(data)) => {
                let Some(number) = self.number(data.name) else {
                    return;
                };
                let Some(entry) = self.pending.take(&number) else {
                    return;
                };
                let rtt = now.since(entry.sent.at);
                self.stats.received += 1;
                self.stats.rtt.add(rtt);
                self.events.push_back(PingEvent::Reply { number, rtt });
            }
            Ok(Arrival::Nack(reason, interest)) => {
                let Some(number) = self.number(interest.name) else {
                    return;
                };
                let Some(entry) = self.pending.take(&number) else {
                    return;
                };
                self.stats.nacks += 1;
                self.events.push_back(PingEvent::Nack {
                    number,
                    reason,
                    rtt: now.since(entry.sent.at),
                });
            }
            _ => {}
        }
        self.finish_if_done();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.seen = now;
        while !self.over
            && let Some(number) = self.pending.overdue(now).map(|(number, _)| *number)
        {
            self.lose(number);
        }
        self.finish_if_done();
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        if !self.up || self.over || self.all_sent() || self.next_at.is_none_or(|at| at > now) {
            return None;
        }
        if self.pending.is_full()
            && let Some(oldest) = self
                .pending
                .oldest(PathId::FIRST)
                .map(|(number, _)| *number)
        {
            self.lose(oldest);
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        let nonce = self.rng.next_word() as u32;
        let interest = Interest {
            must_be_fresh: !self.options.allow_stale,
            nonce: Some(nonce.to_be_bytes()),
            lifetime: Some(self.options.timeout),
            ..Interest::new(self.base.child_generic(number.to_string().as_bytes()))
        };
        let deadline = Some(now + self.options.timeout);
        let sent = Sent::first(now, PathId::FIRST, nonce, deadline);
        self.pending.send(number, sent, ());
        self.stats.sent += 1;
        self.next_at = Some(now + self.options.interval);
        Some((interest.encode().into(), None))
    }

    fn poll_event(&mut self) -> Option<PingEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        if self.over {
            return None;
        }
        let next = self.next_at.filter(|_| self.up && !self.all_sent());
        let next = next.and_then(|at| due(at, self.seen, "a ping is due"));
        let lost = self.pending.next_deadline();
        let lost = lost.map(|at| Deadline::new(at, "a ping has timed out"));
        Deadline::earlier(next, lost)
    }
}
