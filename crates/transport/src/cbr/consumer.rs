//! Interests at a rate, each asked for again until it is answered.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use whimbrel_core::{Deadline, RttEstimator, RttOptions, SeededRng, Time};
use whimbrel_ndn_packet::{LpPacket, Name, types};

use super::timeout::{BELRP, NDNSIM};
use crate::application::{Application, Arrival, FaceNumber, Outgoing, due};
use crate::ledger::{Entry, Ledger, OrderedLedger, Sent};
use crate::path::PathId;
use crate::rtt::RttSummary;
use crate::template::InterestTemplate;

/// Numbers that may be unanswered at once; new ones wait beyond.
const MOST_OUTSTANDING: usize = 1 << 20;
/// How far sending may be behind its schedule and still catch up, so that a port that was blocked
/// sees no long burst.
const MOST_BEHIND: Duration = Duration::from_millis(100);

/// The time between two Interests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// Always the same (ndnSIM: none).
    Constant,
    /// Uniform between zero and twice the mean.
    Uniform,
    /// Exponential, bounded at 50 times the mean: a Poisson process.
    Exponential,
}

impl Gaps {
    /// One gap.
    pub(crate) fn draw(self, mean: Duration, rng: &mut SeededRng) -> Duration {
        match self {
            Gaps::Constant => mean,
            Gaps::Uniform => mean.mul_f64(2.0 * rng.unit()),
            Gaps::Exponential => loop {
                let means = -(1.0 - rng.unit()).ln();
                if means <= 50.0 {
                    return mean.mul_f64(means);
                }
            },
        }
    }
}

/// What to ask for and how.
#[derive(Clone, Debug, PartialEq)]
pub struct CbrConfig {
    /// A sequence number follows it. With a prefix of one component of 8 octets and a lifetime of
    /// 256 ms to 65 s, Interests for the numbers 256 to 65,535 have the paper's 28 octets (those
    /// below 256 have 27).
    pub prefix: Name,
    /// Numbers 0 to this, exclusive.
    pub count: u64,
    /// Interests per second, first ones and repeated ones together.
    pub rate: f64,
    /// How the time between two of them varies.
    pub gaps: Gaps,
    /// InterestLifetime.
    pub lifetime: Duration,
    /// How often the time-out is looked at.
    pub check: Duration,
    /// The time-out.
    pub timeout: RttOptions,
    /// No answer to an Interest can come sooner than this, from whatever content store: see
    /// [`CbrStats::spurious_at_least`].
    pub nearest_answer: Duration,
}

impl CbrConfig {
    /// The paper's linear scenario: 20,000 Interests at 900 a second with exponential gaps, living
    /// 600 ms, with the time-out as far as it can be told (see [`crate::cbr`]).
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

    /// ndnSIM's `ConsumerCbr` as it is installed, at `rate`.
    pub const fn ndnsim(prefix: Name, count: u64, rate: f64) -> CbrConfig {
        CbrConfig {
            prefix,
            count,
            rate,
            gaps: Gaps::Constant,
            lifetime: Duration::from_secs(2),
            check: Duration::from_millis(50),
            timeout: NDNSIM,
            nearest_answer: Duration::ZERO,
        }
    }
}

/// A number that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// Number.
    pub number: u64,
    /// When it was asked for first.
    pub first_sent: Time,
    /// When it was asked for last.
    pub last_sent: Time,
    /// When the Data came; `answered - first_sent` is the paper's data retrieval time.
    pub answered: Time,
    /// How often it was asked for.
    pub transmissions: u32,
    /// See [`CbrStats::spurious_at_most`].
    pub spurious_at_most: u32,
    /// See [`CbrStats::spurious_at_least`].
    pub spurious_at_least: u32,
}

/// What a [`CbrConsumer`] tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CbrEvent {
    /// A number was answered.
    Exchanged(Exchanged),
    /// All are.
    Finished(CbrStats),
}

/// Counters of a [`CbrConsumer`].
///
/// **Spurious retransmissions.** A retransmission is spurious if Data would have come without it:
/// if the Data that answered the number was caused by an earlier transmission. Data does not say
/// which transmission caused it, so the consumer infers it from time: an answer that comes sooner
/// after a transmission than any answer can come was not caused by it. Of `n` transmissions at `t0
/// < t1 < ...`, with Data at `t` and the shortest possible wait `w`, the cause is the latest `ti`
/// with `t - ti >= w` (or `t0`), and all retransmissions after it are spurious. The two counters
/// differ in `w`, because a content store on the way may answer a retransmission sooner than the
/// producer.
///
/// The paper's figures 2c and 2d count otherwise, with knowledge of the network: retransmissions
/// less the exchanges that were lost and not recovered by the link layer, divided by
/// retransmissions (sources of the figures in the scenario repository). A study has that knowledge:
/// it counts what links gave up and takes [`CbrStats::retransmissions`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CbrStats {
    /// Numbers asked for.
    pub requested: u64,
    /// Numbers answered.
    pub answered: u64,
    /// Interests sent again.
    pub retransmissions: u64,
    /// Numbers not answered in time.
    pub timeouts: u64,
    /// Retransmissions that were spurious if nothing answers sooner than the shortest round trip
    /// measured so far.
    pub spurious_at_most: u64,
    /// Retransmissions that were spurious even if a content store may answer after
    /// [`CbrConfig::nearest_answer`].
    pub spurious_at_least: u64,
    /// Data for numbers that were answered already, or that were never asked for.
    pub duplicates: u64,
    /// Nacks; the time-out will tell, as in ndnSIM 2.
    pub nacks: u64,
    /// From the first transmission to the Data.
    pub delay: RttSummary,
}

/// What is kept with a number that is not answered.
#[derive(Default)]
struct History {
    /// Of all transmissions after the first.
    again: Vec<Time>,
    /// It was once not answered in time: its round trip counts no more, even before it is asked for
    /// again.
    timed_out: bool,
}

impl History {
    /// How many transmissions are later than the one that caused an answer at `now`.
    fn after_cause(&self, now: Time, wait: Duration) -> u32 {
        self.again
            .iter()
            .rev()
            .take_while(|sent| now.since(**sent) < wait)
            .count() as u32
    }
}

/// Asks for numbers at a rate: an [`Application`]. Holds what is unanswered, at most 2^20 numbers.
pub struct CbrConsumer {
    config: CbrConfig,
    template: InterestTemplate,
    rng: SeededRng,
    timeout: RttEstimator,
    next: u64,
    pending: OrderedLedger<u64, History>,
    /// Lost numbers, of which the lowest goes again first.
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
            pending: Ledger::ordered(MOST_OUTSTANDING),
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

    /// Counters so far.
    pub const fn stats(&self) -> &CbrStats {
        &self.stats
    }

    /// The time-out now.
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
        self.schedule(scheduled.max(now - MOST_BEHIND));
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
            .map(|at| Deadline::new(at, "the time-out is to be looked at"));
        Deadline::earlier(send, check)
    }
}
