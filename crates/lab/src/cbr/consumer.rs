//! Interests at a rate, each retransmitted until it is answered.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use whimbrel_core::{Deadline, RttEstimator, RttOptions, SeededRng, Time};
use whimbrel_ndn_packet::{LpPacket, Name, types};

use whimbrel_transport::application::{Application, Arrival, FaceNumber, Outgoing, due};
use whimbrel_transport::ledger::{Entry, Ledger, OrderedLedger, Sent};
use whimbrel_transport::path::PathId;
use whimbrel_transport::rtt::RttSummary;
use whimbrel_transport::template::InterestTemplate;
use whimbrel_transport::traffic::Gaps;

use super::timeout::BELRP;

/// Maximum of unanswered numbers; new ones wait beyond that.
const MAX_OUTSTANDING: usize = 1 << 20;
/// Maximum delay behind the schedule that is made up for, so that a blocked port sees no long
/// burst.
const MAX_BEHIND: Duration = Duration::from_millis(100);

/// The configuration of a [`CbrConsumer`].
#[derive(Clone, Debug, PartialEq)]
pub struct CbrConfig {
    /// The prefix of the sequence numbers. With a prefix of one component of 8 octets and a
    /// lifetime of 256 ms to 65 s, Interests for the numbers 256 to 65,535 have the paper's 28
    /// octets (those below 256 have 27).
    pub prefix: Name,
    /// Numbers 0 to this, exclusive.
    pub count: u64,
    /// Interests per second, including retransmissions.
    pub rate: f64,
    /// The distribution of the gaps between them.
    pub gaps: Gaps,
    /// InterestLifetime.
    pub lifetime: Duration,
    /// Interval of the checks for timeouts.
    pub check: Duration,
    /// The retransmission timeout.
    pub timeout: RttOptions,
    /// Minimum delay of an answer, from whatever content store: see
    /// [`CbrStats::spurious_at_least`].
    pub nearest_answer: Duration,
}

impl CbrConfig {
    /// Returns the paper's linear scenario: 20,000 Interests at 900 per second with exponential
    /// gaps, a lifetime of 600 ms, and the timeout as far as it is known (see [`crate::cbr`]).
    pub const fn belrp(prefix: Name) -> CbrConfig {
        CbrConfig {
            prefix,
            count: 20_000,
            rate: 900.0,
            gaps: Gaps::Exponential,
            lifetime: Duration::from_millis(600),
            check: Duration::from_millis(5),
            timeout: BELRP,
            nearest_answer: Duration::ZERO,
        }
    }
}

/// An answered number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// Number.
    pub number: u64,
    /// When it was requested first.
    pub first_sent: Time,
    /// When it was requested last.
    pub last_sent: Time,
    /// When the Data arrived; `answered - first_sent` is the paper's data retrieval time.
    pub answered: Time,
    /// The number of its Interests.
    pub transmissions: u32,
    /// See [`CbrStats::spurious_at_most`].
    pub spurious_at_most: u32,
    /// See [`CbrStats::spurious_at_least`].
    pub spurious_at_least: u32,
}

/// An event of a [`CbrConsumer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CbrEvent {
    /// A number was answered.
    Exchanged(Exchanged),
    /// All numbers are answered.
    Finished(CbrStats),
}

/// Counters of a [`CbrConsumer`].
///
/// **Spurious retransmissions.** A retransmission is spurious if Data would have arrived without
/// it: if the Data that answered the number was caused by an earlier transmission. Data does not
/// tell which transmission caused it, so the consumer infers it from time: an answer that follows a
/// transmission sooner than any answer can was not caused by it. Of `n` transmissions at `t0 < t1 <
/// ...`, with Data at `t` and the shortest possible wait `w`, the cause is the latest `ti` with `t
/// - ti >= w` (or `t0`), and all retransmissions after it are spurious. The two counters differ in
/// `w`, because a content store on the path may answer a retransmission sooner than the producer.
///
/// The paper's figures 2c and 2d count otherwise, with knowledge of the network: retransmissions
/// less the exchanges that were lost and not recovered by the link layer, divided by
/// retransmissions (sources of the figures in the scenario repository). A study has that knowledge:
/// it counts the packets that links abandoned and uses [`CbrStats::retransmissions`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CbrStats {
    /// Numbers requested.
    pub requested: u64,
    /// Numbers answered.
    pub answered: u64,
    /// Retransmitted Interests.
    pub retransmissions: u64,
    /// Numbers not answered in time.
    pub timeouts: u64,
    /// Retransmissions that were spurious if no answer is faster than the shortest round trip
    /// measured so far.
    pub spurious_at_most: u64,
    /// Retransmissions that were spurious even if a content store may answer after
    /// [`CbrConfig::nearest_answer`].
    pub spurious_at_least: u64,
    /// Data for numbers that were answered before, or never requested.
    pub duplicates: u64,
    /// Nacks; the timeout handles them, as in ndnSIM 2.
    pub nacks: u64,
    /// From the first transmission to the Data.
    pub delay: RttSummary,
}

/// The state of an unanswered number.
#[derive(Default)]
struct History {
    /// The times of all transmissions after the first.
    again: Vec<Time>,
    /// It has timed out: its round trip is not sampled, even before it is retransmitted.
    timed_out: bool,
}

impl History {
    /// Returns the number of transmissions later than the one that caused an answer at `now`.
    fn after_cause(&self, now: Time, wait: Duration) -> u32 {
        self.again
            .iter()
            .rev()
            .take_while(|sent| now.since(**sent) < wait)
            .count() as u32
    }
}

/// Requests numbers at a rate: an [`Application`]. Holds unanswered numbers, at most 2^20.
pub struct CbrConsumer {
    config: CbrConfig,
    template: InterestTemplate,
    rng: SeededRng,
    timeout: RttEstimator,
    next: u64,
    pending: OrderedLedger<u64, History>,
    /// Lost numbers, retransmitted in ascending order.
    again: BTreeSet<u64>,
    send_at: Option<Time>,
    check_at: Option<Time>,
    events: VecDeque<CbrEvent>,
    stats: CbrStats,
    seen: Time,
    up: bool,
    over: bool,
}

impl CbrConsumer {
    /// Sends the first Interest as soon as the face is up.
    pub fn new(config: CbrConfig, rng: SeededRng) -> CbrConsumer {
        CbrConsumer {
            template: InterestTemplate::new(
                &config.prefix,
                types::SEQUENCE_NUM,
                false,
                config.lifetime,
                &[],
            ),
            timeout: RttEstimator::with_options(config.timeout),
            config,
            rng,
            next: 0,
            pending: Ledger::ordered(MAX_OUTSTANDING),
            again: BTreeSet::new(),
            send_at: None,
            check_at: None,
            events: VecDeque::new(),
            stats: CbrStats::default(),
            seen: Time::ZERO,
            up: false,
            over: false,
        }
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &CbrStats {
        &self.stats
    }

    /// Returns the current timeout.
    pub fn timeout(&self) -> Duration {
        self.timeout.timeout()
    }

    fn schedule(&mut self, from: Time) {
        if self.send_at.is_none() {
            let mean = Duration::try_from_secs_f64(1.0 / self.config.rate)
                .unwrap_or(Duration::from_secs(3600));
            self.send_at = Some(from + self.config.gaps.draw(mean, &mut self.rng));
        }
    }

    fn check(&mut self, now: Time) {
        let timeout = self.timeout.timeout();
        while let Some((number, sent)) = self.pending.oldest(PathId::FIRST) {
            if sent.at + timeout > now {
                break;
            }
            let number = *number;
            self.pending.lose(&number, true);
            self.again.insert(number);
            self.timeout.back_off();
            self.stats.timeouts += 1;
            if let Some(history) = self.pending.data_mut(&number) {
                history.timed_out = true;
            }
            self.schedule(now);
        }
    }

    fn answered(&mut self, now: Time, number: u64) {
        let Some(Entry { sent, data, .. }) = self.pending.take(&number) else {
            self.stats.duplicates += 1;
            return;
        };
        self.again.remove(&number);
        let delay = now.since(sent.first_at);
        let shortest = self.timeout.least().unwrap_or(Duration::ZERO);
        if !data.timed_out {
            self.timeout.sample(delay);
        }
        let exchanged = Exchanged {
            number,
            first_sent: sent.first_at,
            last_sent: sent.at,
            answered: now,
            transmissions: sent.transmissions,
            spurious_at_most: data.after_cause(now, shortest),
            spurious_at_least: data.after_cause(now, self.config.nearest_answer),
        };
        self.stats.answered += 1;
        self.stats.spurious_at_most += u64::from(exchanged.spurious_at_most);
        self.stats.spurious_at_least += u64::from(exchanged.spurious_at_least);
        self.stats.delay.add(delay);
        self.events.push_back(CbrEvent::Exchanged(exchanged));
        if self.stats.answered >= self.config.count && !self.over {
            self.over = true;
            self.events.push_back(CbrEvent::Finished(self.stats));
        }
    }
}

impl Application for CbrConsumer {
    type Event = CbrEvent;

    fn handle_face(&mut self, now: Time, _face: FaceNumber, up: bool) {
        self.up = up;
        if up && self.check_at.is_none() {
            self.send_at = Some(now);
            self.check_at = Some(now + self.config.check);
        }
    }

    fn handle_packet(&mut self, now: Time, _face: FaceNumber, packet: &LpPacket<'_>) {
        match Arrival::decode(packet) {
            Ok(Arrival::Data(data)) => {
                if let Some(number) = self.template.number_in(data.name, types::SEQUENCE_NUM) {
                    self.answered(now, number);
                }
            }
            Ok(Arrival::Nack(..)) => self.stats.nacks += 1,
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.seen = now;
        if self.check_at.is_some_and(|at| at <= now) {
            self.check(now);
            self.check_at = Some(now + self.config.check);
        }
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        let scheduled = self
            .send_at
            .filter(|at| *at <= now && self.up && !self.over)?;
        self.send_at = None;
        let nonce = self.rng.next_word() as u32;
        let number = if let Some(number) = self.again.pop_first() {
            self.stats.retransmissions += 1;
            self.pending
                .send_again(&number, now, PathId::FIRST, nonce, None);
            if let Some(history) = self.pending.data_mut(&number) {
                history.again.push(now);
            }
            number
        } else if self.next < self.config.count {
            if self.pending.is_full() {
                self.schedule(now);
                return None;
            }
            let number = self.next;
            self.next += 1;
            self.stats.requested += 1;
            let sent = Sent::first(now, PathId::FIRST, nonce, None);
            self.pending.send(number, sent, History::default());
            number
        } else {
            return None;
        };
        self.schedule(scheduled.max(now - MAX_BEHIND));
        Some((self.template.interest(number, nonce), None))
    }

    fn poll_event(&mut self) -> Option<CbrEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        if self.over || !self.up {
            return None;
        }
        let send = self
            .send_at
            .and_then(|at| due(at, self.seen, "an Interest is due"));
        let check = self
            .check_at
            .map(|at| Deadline::new(at, "timeouts are checked"));
        Deadline::earlier(send, check)
    }
}
