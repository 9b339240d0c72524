//! The consumer: keeps a window of Interests pending, or sends them at a rate, and counts the
//! answers.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use whimbrel_core::{Deadline, Time};
use whimbrel_io::Clock;
use whimbrel_ndn_packet::interest::DEFAULT_LIFETIME;
use whimbrel_ndn_packet::{LpPacket, Name, types};
use whimbrel_node::ndn::client::{Client, End, Told, Uplink};
use whimbrel_transport::application::{Arrival, Outgoing};
use whimbrel_transport::ledger::{DenseLedger, Ledger, Sent};
use whimbrel_transport::template::InterestTemplate;
use whimbrel_transport::{Application, FaceNumber, PathId};

use super::PREFIX;
use crate::BenchError;

/// Interval of deadline checks; with a rate, also of transmissions.
const TICK: Duration = Duration::from_millis(20);
const RATE_TICK: Duration = Duration::from_millis(1);
/// The first number is the time in Unix milliseconds times this: all have eight octets, and no two
/// consumers of one router request the same.
const NUMBERS_PER_MILLISECOND: u64 = 1 << 20;

/// Options of the consumer.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// The socket of the router or the relay.
    pub socket: PathBuf,
    /// Maximum of pending Interests.
    pub window: usize,
    /// Interests per second; without it, limited only by the window.
    pub rate: Option<u32>,
    /// The time before counting starts.
    pub warm_up: Duration,
    /// The time of counting.
    pub duration: Duration,
}

/// The results.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Consumed {
    /// Exchanges that ended in the counted time.
    pub exchanges: u64,
    /// The counted time.
    pub seconds: f64,
    /// Processor time of the consumer in the counted time.
    pub cpu_seconds: f64,
    /// Interests sent, from the beginning to the end.
    pub sent: u64,
    /// Interests that timed out after their lifetime of 4 s.
    pub lost: u64,
    /// Interests answered with a Nack.
    pub nacks: u64,
    /// Unexpected Data, and packets that cannot be decoded.
    pub unexpected: u64,
}

impl Consumed {
    /// Exchanges per second.
    pub fn rate(&self) -> f64 {
        self.exchanges as f64 / self.seconds
    }
}

/// Progress of the consumer.
enum Step {
    Counting,
    Counted,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Down,
    WarmUp {
        until: Time,
    },
    Counting {
        from: Time,
        until: Time,
    },
    /// Sends no new Interests.
    Ending,
    Done,
}

struct Consumer {
    rate: Option<u32>,
    warm_up: Duration,
    duration: Duration,
    template: InterestTemplate,
    phase: Phase,
    up_since: Time,
    tick: Time,
    pending: DenseLedger<()>,
    next: u64,
    consumed: Consumed,
    steps: VecDeque<Step>,
}

impl Consumer {
    fn new(options: &ConsumerOptions, first: u64) -> Consumer {
        let prefix: Name = PREFIX.parse().unwrap_or_default();
        Consumer {
            rate: options.rate,
            warm_up: options.warm_up,
            duration: options.duration,
            template: InterestTemplate::new(
                &prefix,
                types::SEQUENCE_NUM,
                false,
                DEFAULT_LIFETIME,
                &[],
            ),
            phase: Phase::Down,
            up_since: Time::ZERO,
            tick: Time::ZERO,
            pending: Ledger::dense(options.window),
            next: first,
            consumed: Consumed::default(),
            steps: VecDeque::new(),
        }
    }

    /// Moves to the phase of `now`.
    fn advance(&mut self, now: Time) {
        match self.phase {
            Phase::WarmUp { until } if until <= now => {
                self.phase = Phase::Counting {
                    from: now,
                    until: now + self.duration,
                };
                self.steps.push_back(Step::Counting);
            }
            Phase::Counting { from, until } if until <= now => {
                self.consumed.seconds = now.since(from).as_secs_f64();
                self.phase = Phase::Ending;
                self.steps.push_back(Step::Counted);
            }
            _ => {}
        }
        if self.phase == Phase::Ending && self.pending.is_empty() {
            self.phase = Phase::Done;
            self.steps.push_back(Step::Done);
        }
    }

    /// Returns the number of Interests that may have been sent by now.
    fn allowed(&self, now: Time) -> u64 {
        match self.rate {
            None => u64::MAX,
            Some(rate) => (now.since(self.up_since).as_secs_f64() * f64::from(rate)) as u64,
        }
    }
}

impl Application for Consumer {
    type Event = Step;

    fn handle_face(&mut self, now: Time, _face: FaceNumber, up: bool) {
        if up && self.phase == Phase::Down {
            self.phase = Phase::WarmUp {
                until: now + self.warm_up,
            };
            self.up_since = now;
            self.tick = now;
        }
    }

    fn handle_packet(&mut self, now: Time, _face: FaceNumber, packet: &LpPacket<'_>) {
        let (name, nack) = match Arrival::decode(packet) {
            Ok(Arrival::Data(data)) => (data.name, false),
            Ok(Arrival::Nack(_, interest)) => (interest.name, true),
            _ => {
                self.consumed.unexpected += 1;
                return;
            }
        };
        self.advance(now);
        let number = self.template.number_in(name, types::SEQUENCE_NUM);
        if number
            .and_then(|number| self.pending.take(&number))
            .is_none()
        {
            self.consumed.unexpected += 1;
        } else if nack {
            self.consumed.nacks += 1;
        } else if matches!(self.phase, Phase::Counting { .. }) {
            self.consumed.exchanges += 1;
        }
        self.advance(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((number, sent)) = self.pending.oldest(PathId::FIRST)
            && sent.at + DEFAULT_LIFETIME <= now
        {
            let number = *number;
            self.pending.take(&number);
            self.consumed.lost += 1;
        }
        self.advance(now);
        self.tick = now + if self.rate.is_some() { RATE_TICK } else { TICK };
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        if !matches!(self.phase, Phase::WarmUp { .. } | Phase::Counting { .. })
            || self.pending.is_full()
            || (self.rate.is_some() && self.consumed.sent >= self.allowed(now))
        {
            return None;
        }
        let (number, nonce) = (self.next, self.next as u32);
        let interest = self.template.interest(number, nonce);
        let sent = Sent::first(now, PathId::FIRST, nonce, None);
        self.pending.send(number, sent, ());
        self.next += 1;
        self.consumed.sent += 1;
        Some((interest, None))
    }

    fn poll_event(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        match self.phase {
            Phase::Down | Phase::Done => None,
            _ => Some(Deadline::new(self.tick, "the consumer's clock ticks")),
        }
    }
}

/// Runs as long as the options say, and until every Interest is answered or lost. Calls `counting`
/// when the counted time begins, `counted` when it ends.
pub fn consume(
    options: &ConsumerOptions,
    counting: impl Fn(),
    counted: impl Fn(),
) -> Result<Consumed, BenchError> {
    let clock = Clock::start();
    let first = clock.wall_clock().unix_millis(clock.now()) * NUMBERS_PER_MILLISECOND;
    let consumer = Consumer::new(options, first);
    let mut client = Client::new(Uplink::Unix(options.socket.clone()), clock, consumer)?;
    let (mut before, mut used) = (0.0, 0.0);
    let end = client.run(|_, _, told| {
        match told {
            Told::Connected => {}
            Told::Event(Step::Counting) => {
                before = process_time();
                counting();
            }
            Told::Event(Step::Counted) => {
                used = process_time() - before;
                counted();
            }
            Told::Event(Step::Done) => return ControlFlow::Break(true),
            Told::Gone | Told::Unreachable(_) => return ControlFlow::Break(false),
        }
        ControlFlow::Continue(())
    })?;
    match end {
        End::Done(true) => Ok(Consumed {
            cpu_seconds: used,
            ..client.application().consumed
        }),
        _ => Err(BenchError::Side {
            what: String::from("the consumer's socket was closed before the end"),
            said: String::new(),
        }),
    }
}

/// Processor time of this process, in seconds.
fn process_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use whimbrel_ndn_packet::{Data, DigestSigner, InterestRef};

    use super::*;

    fn options(window: usize, rate: Option<u32>) -> ConsumerOptions {
        ConsumerOptions {
            socket: PathBuf::new(),
            window,
            rate,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(2),
        }
    }

    fn answer(consumer: &mut Consumer, now: Time, interest: &[u8]) {
        let name = InterestRef::decode(interest).unwrap().name.to_name();
        let wire = Data::new(name, &b"x"[..]).encode(&DigestSigner);
        consumer.handle_packet(
            now,
            FaceNumber::FIRST,
            &LpPacket::decode(&wire, false).unwrap(),
        );
    }

    fn send(consumer: &mut Consumer, now: Time) -> Vec<bytes::Bytes> {
        std::iter::from_fn(|| consumer.poll_packet(now, FaceNumber::FIRST))
            .map(|(packet, _)| packet)
            .collect()
    }

    #[test]
    fn only_answers_within_the_counted_time_count_and_what_never_comes_is_lost() {
        let mut consumer = Consumer::new(&options(3, None), 1 << 40);
        consumer.handle_face(Time::ZERO, FaceNumber::FIRST, true);
        let first = send(&mut consumer, Time::ZERO);
        assert_eq!(first.len(), 3, "the window");
        answer(&mut consumer, Time::from_millis(500), &first[1]);
        answer(&mut consumer, Time::from_millis(500), &first[1]);
        assert_eq!(
            consumer.consumed.unexpected, 1,
            "the second one was not waited for"
        );
        answer(&mut consumer, Time::from_millis(1500), &first[2]);
        let second = send(&mut consumer, Time::from_millis(1500));
        assert_eq!(second.len(), 2);
        answer(&mut consumer, Time::from_millis(1600), &second[0]);
        answer(&mut consumer, Time::from_millis(3500), &second[1]);
        assert!(
            send(&mut consumer, Time::from_millis(3500)).is_empty(),
            "the time is over"
        );
        consumer.handle_timeout(Time::from_secs(4));
        let steps: Vec<Step> = std::iter::from_fn(|| consumer.poll_event()).collect();
        assert!(matches!(
            steps[..],
            [Step::Counting, Step::Counted, Step::Done]
        ));
        assert_eq!(
            (
                consumer.consumed.exchanges,
                consumer.consumed.sent,
                consumer.consumed.lost
            ),
            (2, 5, 1)
        );
        assert_eq!(consumer.consumed.seconds, 2.0);
    }

    #[test]
    fn a_rate_holds_over_time_whatever_the_ticks() {
        let mut consumer = Consumer::new(&options(1000, Some(100)), 1 << 40);
        consumer.handle_face(Time::ZERO, FaceNumber::FIRST, true);
        let mut sent = 0;
        for at in [0, 3, 40, 41, 900] {
            sent += send(&mut consumer, Time::from_millis(at)).len();
        }
        assert_eq!(sent, 90);
    }
}
