//! Machines under the control of a test, and bounded waits.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the driver have threads and clocks"
)]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortInfo, PortRequest, PortToken, Time,
    TimerQueue, Transmit,
};
use whimbrel_io::{Clock, EventLoop};

/// Time limit of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Sends as told, and records all calls.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Transmits to make: port and frames, all of one size but the last.
    pub(crate) outbox: VecDeque<(PortId, Vec<Vec<u8>>)>,
    pub(crate) inbox: Vec<(PortId, Vec<u8>)>,
    pub(crate) ports: BTreeMap<PortId, PortInfo>,
    pub(crate) reports: Vec<(PortId, PortEvent)>,
    pub(crate) blocked: BTreeSet<PortId>,
    /// Sends even if a port is blocked.
    pub(crate) ignores_blocking: bool,
    /// Answers each frame with the same frame.
    pub(crate) echo: bool,
    pub(crate) requests: VecDeque<PortRequest>,
    pub(crate) refusals: Vec<(PortToken, OpenRefusal)>,
    pub(crate) timers: TimerQueue<u32>,
    pub(crate) fired: Vec<u32>,
    /// Never removes a deadline from its list.
    pub(crate) ignores_deadlines: bool,
    pub(crate) events: VecDeque<u32>,
}

impl Script {
    pub(crate) fn send(&mut self, port: PortId, frames: Vec<Vec<u8>>) {
        self.outbox.push_back((port, frames));
    }

    pub(crate) fn frames_from(&self, port: PortId) -> Vec<Vec<u8>> {
        self.inbox
            .iter()
            .filter(|(from, _)| *from == port)
            .map(|(_, frame)| frame.clone())
            .collect()
    }

    pub(crate) fn down(&self, port: PortId) -> bool {
        self.reports.contains(&(port, PortEvent::Down))
    }
}

impl Machine for Script {
    type Event = u32;

    fn handle_port(&mut self, _: Time, port: PortId, event: PortEvent) {
        match &event {
            PortEvent::Up(info) => {
                assert!(
                    self.ports.insert(port, info.clone()).is_none(),
                    "{port} is up twice"
                );
            }
            PortEvent::Down => {
                assert!(
                    self.ports.remove(&port).is_some(),
                    "{port} goes down without being up"
                );
                self.blocked.remove(&port);
            }
            PortEvent::Mtu(mtu) => self.ports.get_mut(&port).unwrap().mtu = *mtu,
            PortEvent::Blocked => assert!(self.blocked.insert(port), "{port} is blocked twice"),
            PortEvent::Writable => assert!(self.blocked.remove(&port), "{port} was not blocked"),
            PortEvent::Refused | PortEvent::Carrier(_) | PortEvent::Ecn { .. } => {}
        }
        self.reports.push((port, event));
    }

    fn handle_refusal(&mut self, _: Time, token: PortToken, refusal: OpenRefusal) {
        self.refusals.push((token, refusal));
    }

    fn handle_frames(&mut self, _: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            assert!(
                self.ports.contains_key(&port),
                "a frame from {port}, which is not up"
            );
            self.inbox.push((port, frame.to_vec()));
            if self.echo {
                self.send(port, vec![frame.to_vec()]);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if !self.ignores_deadlines {
            while let Some((_, timer)) = self.timers.pop_due(now) {
                self.fired.push(timer);
            }
        }
    }

    fn poll_transmit(
        &mut self,
        _: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let free = |(port, _): &(PortId, _)| self.ignores_blocking || !self.blocked.contains(port);
        let index = self.outbox.iter().position(free)?;
        let (port, frames) = &mut self.outbox[index];
        let port = *port;
        let taken: Vec<Vec<u8>> = frames.drain(..frames.len().min(max_segments)).collect();
        if frames.is_empty() {
            self.outbox.remove(index);
        }
        let before = buffer.len();
        taken
            .iter()
            .for_each(|frame| buffer.extend_from_slice(frame));
        let segment_size = (taken.len() > 1).then(|| taken[0].len());
        Some(Transmit {
            port,
            size: buffer.len() - before,
            segment_size,
        })
    }

    fn poll_event(&mut self) -> Option<u32> {
        self.events.pop_front()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.requests.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers
            .next()
            .map(|(at, _)| Deadline::new(at, "test timer"))
    }
}

pub(crate) fn script_loop() -> EventLoop<Script> {
    EventLoop::new(Clock::start(), Script::default()).unwrap()
}

/// Runs rounds of one loop until `done`.
pub(crate) fn until<M: Machine + 'static>(
    a: &mut EventLoop<M>,
    what: &str,
    mut done: impl FnMut(&mut EventLoop<M>) -> bool,
) {
    let start = Instant::now();
    while !done(a) {
        assert!(start.elapsed() < PATIENCE, "timed out waiting for: {what}");
        a.step(Duration::from_millis(1), |_, _, _| {}).unwrap();
    }
}

/// Runs rounds of two loops until `done`.
pub(crate) fn until_both<A: Machine + 'static, B: Machine + 'static>(
    a: &mut EventLoop<A>,
    b: &mut EventLoop<B>,
    what: &str,
    mut done: impl FnMut(&mut EventLoop<A>, &mut EventLoop<B>) -> bool,
) {
    let start = Instant::now();
    while !done(a, b) {
        assert!(start.elapsed() < PATIENCE, "timed out waiting for: {what}");
        a.step(Duration::from_millis(1), |_, _, _| {}).unwrap();
        b.step(Duration::from_millis(1), |_, _, _| {}).unwrap();
    }
}

/// Runs a few rounds, for tests that something does NOT happen.
pub(crate) fn idle_rounds<M: Machine + 'static>(a: &mut EventLoop<M>) {
    for _ in 0..20 {
        a.step(Duration::from_millis(1), |_, _, _| {}).unwrap();
    }
}

/// Returns bytes that differ from frame to frame and within a frame.
pub(crate) fn pattern(length: usize, number: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ number.wrapping_mul(97)) as u8)
        .collect()
}

/// Returns a type-length-value block in the shortest form.
pub(crate) fn block(kind: u64, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [kind, value.len() as u64] {
        match number {
            0..=252 => bytes.push(number as u8),
            253..=0xffff => bytes.extend([&[253][..], &(number as u16).to_be_bytes()].concat()),
            _ => bytes.extend([&[254][..], &(number as u32).to_be_bytes()].concat()),
        }
    }
    bytes.extend_from_slice(value);
    bytes
}
