//! Models of TCP senders that always have something to send: CUBIC (RFC 9438) and BBR (version 1),
//! with selective acknowledgements. Packets are numbered in the order in which they are sent.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Cubic,
    Bbr,
}

#[derive(Clone, Copy)]
struct Sent {
    number: u64,
    at: Time,
    delivered: u64,
    delivered_at: Time,
}

pub struct Tcp {
    kind: Kind,
    next: u64,
    flight: VecDeque<Sent>,
    delivered: u64,
    delivered_at: Time,
    window: f64,
    threshold: f64,
    top: f64,
    epoch: Option<Time>,
    reno: f64,
    recovered: u64,
    base: Duration,
    base_at: Time,
    heard: Time,
    // BBR.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    round_ends: u64,
    full: (f64, u32),
    phase: Phase,
    paid: Time,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    StartUp,
    Drain,
    Cycle(usize, Time),
    ProbeRtt(Time),
}

const GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

impl Tcp {
    pub fn new(kind: Kind) -> Tcp {
        Tcp {
            kind,
            next: 0,
            flight: VecDeque::new(),
            delivered: 0,
            delivered_at: Time::ZERO,
            window: 10.0,
            threshold: f64::MAX,
            top: 0.0,
            epoch: None,
            reno: 0.0,
            recovered: 0,
            base: Duration::MAX,
            base_at: Time::ZERO,
            heard: Time::ZERO,
            rates: VecDeque::new(),
            round: 0,
            round_ends: 0,
            full: (0.0, 0),
            phase: Phase::StartUp,
            paid: Time::ZERO,
        }
    }

    fn bandwidth(&self) -> f64 {
        self.rates
            .iter()
            .fold(0.0, |most, (_, rate)| rate.max(most))
    }

    fn product(&self) -> f64 {
        let base = if self.base == Duration::MAX {
            0.1
        } else {
            self.base.as_secs_f64()
        };
        self.bandwidth() * base
    }

    fn limit(&self) -> f64 {
        match (self.kind, self.phase) {
            (Kind::Cubic, _) => self.window,
            (_, Phase::ProbeRtt(_)) => 4.0,
            (_, Phase::StartUp | Phase::Drain) => (2.89 * self.product()).max(10.0),
            _ => (2.0 * self.product()).max(4.0),
        }
    }

    fn pace(&self) -> f64 {
        let gain = match self.phase {
            Phase::StartUp => 2.89,
            Phase::Drain => 0.35,
            Phase::Cycle(at, _) => GAINS[at],
            Phase::ProbeRtt(_) => 1.0,
        };
        match self.kind {
            Kind::Cubic => 1e9,
            Kind::Bbr if self.bandwidth() == 0.0 => 2.89 * 10.0 / 0.1,
            Kind::Bbr => gain * self.bandwidth(),
        }
    }

    pub fn next_time(&self) -> Time {
        let timeout = self.heard + Duration::from_secs(1);
        if (self.flight.len() as f64) < self.limit() {
            timeout.min(self.paid)
        } else {
            timeout
        }
    }

    pub fn handle_timeout(&mut self, now: Time) {
        if now >= self.heard + Duration::from_secs(1) {
            self.heard = now;
            if !self.flight.is_empty() {
                self.flight.clear();
                self.threshold = (self.window * 0.7).max(2.0);
                self.window = 10.0;
                self.epoch = None;
            }
        }
    }

    pub fn write(&mut self, now: Time, end: Time, buffer: &mut Vec<u8>) -> bool {
        if now >= end {
            // It is not asked again.
            (self.paid, self.heard) = (end, end);
            return false;
        }
        if self.flight.len() as f64 >= self.limit() || now < self.paid {
            return false;
        }
        if self.flight.is_empty() {
            self.heard = now;
            self.delivered_at = now;
        }
        buffer.extend_from_slice(&self.next.to_be_bytes());
        buffer.resize(buffer.len() + 1_463, 0);
        self.flight.push_back(Sent {
            number: self.next,
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
        });
        self.next += 1;
        let gap = Duration::from_secs_f64(1.0 / self.pace());
        self.paid = self.paid.max(now - Duration::from_millis(1)) + gap;
        true
    }

    pub fn handle_ack(&mut self, now: Time, frame: &[u8]) {
        let number = u64::from_be_bytes(frame[..8].try_into().unwrap());
        self.heard = now;
        let mut lost = 0;
        let mut newest_lost = 0;
        while let Some(front) = self
            .flight
            .front()
            .copied()
            .filter(|sent| sent.number < number)
        {
            self.flight.pop_front();
            lost += 1;
            newest_lost = front.number;
        }
        let Some(sent) = self
            .flight
            .front()
            .copied()
            .filter(|it| it.number == number)
        else {
            return;
        };
        self.flight.pop_front();
        self.delivered += 1;
        self.delivered_at = now;
        let rtt = now.since(sent.at);
        match self.kind {
            Kind::Cubic => {
                // A mark counts as the loss of its packet (RFC 3168 §6.1.2).
                let marked = frame[8] != 0;
                let newest = if lost > 0 { newest_lost } else { number };
                self.cubic(now, rtt, lost + u64::from(marked), newest);
            }
            Kind::Bbr => self.bbr(now, rtt, &sent),
        }
    }

    fn cubic(&mut self, now: Time, rtt: Duration, lost: u64, newest_lost: u64) {
        self.base = self.base.min(rtt);
        if lost > 0 {
            if newest_lost < self.recovered {
                return;
            }
            self.recovered = self.next;
            self.top = if self.window < self.top {
                self.window * 0.85
            } else {
                self.window
            };
            self.window = (self.window * 0.7).max(2.0);
            (self.threshold, self.reno) = (self.window, self.window);
            self.epoch = Some(now);
            return;
        }
        if self.window < self.threshold {
            self.window += 1.0;
            let late = self.base / 8;
            let late = late.clamp(Duration::from_millis(4), Duration::from_millis(16));
            if self.window > 16.0 && rtt > self.base + late {
                self.threshold = self.window;
                self.top = self.window;
            }
            return;
        }
        let epoch = *self.epoch.get_or_insert(now);
        if self.reno == 0.0 {
            self.reno = self.window;
        }
        let rise = (self.top.max(self.window * 0.0) - 0.7 * self.top).max(0.0) / 0.4;
        let ahead = (now.since(epoch) + rtt).as_secs_f64() - rise.cbrt();
        let cubic = self.top + 0.4 * ahead.powi(3);
        self.reno += 0.53 / self.window;
        let target = cubic.max(self.reno).clamp(self.window, 1.5 * self.window);
        self.window += (target - self.window) / self.window;
    }

    fn bbr(&mut self, now: Time, rtt: Duration, sent: &Sent) {
        let expired = now.since(self.base_at) > Duration::from_secs(10);
        if rtt <= self.base || (expired && matches!(self.phase, Phase::ProbeRtt(_))) {
            self.base = rtt;
            self.base_at = now;
        }
        let span = now.since(sent.delivered_at).as_secs_f64().max(1e-4);
        let rate = (self.delivered - sent.delivered) as f64 / span;
        let over = sent.delivered >= self.round_ends;
        if over {
            self.round += 1;
            self.round_ends = self.delivered;
        }
        while self
            .rates
            .front()
            .is_some_and(|(round, _)| self.round - round > 10)
        {
            self.rates.pop_front();
        }
        if rate >= self.bandwidth() {
            self.rates.clear();
        }
        self.rates.push_back((self.round, rate));
        if self.rates.len() > 4_000 {
            self.rates.pop_front();
        }
        let flight = self.flight.len() as f64;
        self.phase = match self.phase {
            Phase::StartUp if over => {
                if self.bandwidth() >= self.full.0 * 1.25 {
                    self.full = (self.bandwidth(), 0);
                } else {
                    self.full.1 += 1;
                }
                if self.full.1 >= 3 {
                    Phase::Drain
                } else {
                    Phase::StartUp
                }
            }
            Phase::Drain if flight <= self.product() => Phase::Cycle(2, now),
            Phase::Cycle(..) if expired => Phase::ProbeRtt(now + Duration::from_millis(250)),
            Phase::Cycle(at, since) => {
                let lasted = now.since(since) > self.base;
                let done = match at {
                    0 => lasted && flight >= 1.25 * self.product() * 0.99,
                    1 => lasted || flight <= self.product(),
                    _ => lasted,
                };
                if done || now.since(since) > self.base * 4 {
                    Phase::Cycle((at + 1) % 8, now)
                } else {
                    Phase::Cycle(at, since)
                }
            }
            Phase::ProbeRtt(until) if now >= until => {
                self.base_at = now;
                Phase::Cycle(2, now)
            }
            phase => phase,
        };
    }
}

/// Acknowledges each packet.
#[derive(Default)]
pub struct Sink {
    due: VecDeque<[u8; 9]>,
}

impl Sink {
    pub fn handle(&mut self, frame: &[u8], marked: bool) {
        let mut echo = [u8::from(marked); 9];
        echo[..8].copy_from_slice(&frame[..8]);
        self.due.push_back(echo);
    }

    pub fn write(&mut self, buffer: &mut Vec<u8>) -> bool {
        match self.due.pop_front() {
            Some(number) => {
                buffer.extend_from_slice(&number);
                true
            }
            None => false,
        }
    }
}
