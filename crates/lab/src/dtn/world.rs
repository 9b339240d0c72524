//! The model of nodes and transfers.

use core::time::Duration;
use std::collections::BTreeMap;

use super::{ContactTerms, CopyOrMove, DeliveryLog, DtnProtocol, HeldMessage, Pairs};

/// A protocol with a time of its own is asked once in this time.
const STEP: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
struct ContactTransfer {
    number: usize,
    pass: CopyOrMove,
    done: Duration,
}

/// The messages of a node, by number, with the time when each came.
type MessageBuffer = BTreeMap<usize, Duration>;

pub(super) struct ContactWorld<'a> {
    terms: &'a ContactTerms,
    buffers: Vec<MessageBuffer>,
    up: Pairs,
    // By sender and receiver.
    transfers: BTreeMap<(usize, usize), ContactTransfer>,
    delivered: DeliveryLog,
}

impl ContactWorld<'_> {
    pub(super) fn new(terms: &ContactTerms) -> ContactWorld<'_> {
        ContactWorld {
            terms,
            buffers: vec![MessageBuffer::new(); terms.nodes],
            up: Pairs::new(),
            transfers: BTreeMap::new(),
            delivered: DeliveryLog {
                delays: vec![None; terms.messages.len()],
                ..DeliveryLog::default()
            },
        }
    }

    pub(super) fn run(mut self, protocol: &mut dyn DtnProtocol) -> DeliveryLog {
        let contacts = &self.terms.contacts;
        let starts = contacts.iter().map(|it| (it.start, true, it.ends));
        let ends = contacts.iter().map(|it| (it.end, false, it.ends));
        // At one moment, an end before a start.
        let mut changes: Vec<(Duration, bool, (usize, usize))> = starts.chain(ends).collect();
        changes.sort_unstable();
        let limit = changes.last().map_or(Duration::ZERO, |it| it.0);
        let mut changes = changes.into_iter().peekable();
        let messages = &self.terms.messages;
        let mut born = messages.iter().enumerate().peekable();
        let mut tick = STEP;
        loop {
            let done = self.transfers.values().map(|it| it.done).min();
            let next = [
                changes.peek().map(|it| it.0),
                born.peek().map(|it| it.1.born),
                done,
                Some(tick),
            ];
            let Some(now) = next.into_iter().flatten().min().filter(|at| *at <= limit) else {
                return self.delivered;
            };
            while let Some((_, is_start, (a, b))) = changes.next_if(|it| it.0 <= now) {
                match is_start {
                    true => {
                        self.up.insert((a, b));
                        protocol.meet(now, a, b);
                    }
                    false => {
                        self.up.remove(&(a, b));
                        self.transfers.remove(&(a, b));
                        self.transfers.remove(&(b, a));
                        protocol.part(now, a, b);
                    }
                }
            }
            while let Some((number, message)) = born.next_if(|it| it.1.born <= now) {
                protocol.send(number, message);
                self.store(now, message.from, number);
            }
            self.finish(now, protocol);
            if tick <= now {
                tick += STEP;
                self.expire(now);
                protocol.advance(now);
            }
            self.begin(now, protocol);
        }
    }

    fn finish(&mut self, now: Duration, protocol: &mut dyn DtnProtocol) {
        let done = self.transfers.extract_if(.., |_, it| it.done <= now);
        for ((from, to), transfer) in done.collect::<Vec<_>>() {
            let number = transfer.number;
            // It may have expired, or have been dropped.
            if !self.buffers[from].contains_key(&number) {
                continue;
            }
            self.delivered.passed += 1;
            let message = self.terms.messages[number];
            if message.to == to {
                self.buffers[from].remove(&number);
                let delay = now.saturating_sub(message.born);
                self.delivered.delays[number].get_or_insert(delay);
                continue;
            }
            protocol.passed(number, from, to);
            if transfer.pass == CopyOrMove::Move {
                self.buffers[from].remove(&number);
            }
            self.store(now, to, number);
        }
    }

    fn begin(&mut self, now: Duration, protocol: &mut dyn DtnProtocol) {
        let takes = Duration::from_secs_f64(self.terms.size as f64 / self.terms.rate.max(1) as f64);
        for (a, b) in self.up.clone() {
            for (from, to) in [(a, b), (b, a)] {
                if self.transfers.contains_key(&(from, to)) {
                    continue;
                }
                if let Some((number, pass)) = self.choose(now, from, to, protocol) {
                    let done = now + takes;
                    let transfer = ContactTransfer { number, pass, done };
                    self.transfers.insert((from, to), transfer);
                }
            }
        }
    }

    /// Returns the next message from a node to another: those for that node first, the oldest first.
    fn choose(
        &self,
        now: Duration,
        from: usize,
        to: usize,
        protocol: &mut dyn DtnProtocol,
    ) -> Option<(usize, CopyOrMove)> {
        let messages = &self.terms.messages;
        let held = &self.buffers[from];
        let is_arrived = |number: usize| self.delivered.delays[number].is_some();
        let mut own = held.keys().filter(|it| messages[**it].to == to);
        // The receiver says what it has.
        if let Some(number) = own.find(|it| !is_arrived(**it)) {
            return Some((*number, CopyOrMove::Move));
        }
        let is_under_way = |number: usize| {
            let towards = self.transfers.iter().filter(|(ends, _)| ends.1 == to);
            towards.into_iter().any(|(_, it)| it.number == number)
        };
        let leaves = |number: usize| {
            let by = self.transfers.iter().filter(|(ends, _)| ends.0 == from);
            by.into_iter()
                .any(|(_, it)| it.number == number && it.pass == CopyOrMove::Move)
        };
        held.iter().find_map(|(number, since)| {
            let message = &messages[*number];
            if message.to == to || self.buffers[to].contains_key(number) {
                return None;
            }
            if is_under_way(*number) || leaves(*number) {
                return None;
            }
            let held = HeldMessage {
                number: *number,
                to: message.to,
                since: *since,
            };
            let pass = protocol.choose(now, from, to, &held)?;
            Some((*number, pass))
        })
    }

    fn store(&mut self, now: Duration, node: usize, number: usize) {
        let buffer = &mut self.buffers[node];
        buffer.insert(number, now);
        let most = (self.terms.buffer / self.terms.size.max(1)).max(1) as usize;
        while buffer.len() > most {
            let oldest = buffer.iter().min_by_key(|it| (*it.1, *it.0));
            let Some(oldest) = oldest.map(|it| *it.0) else {
                return;
            };
            buffer.remove(&oldest);
            self.delivered.dropped += 1;
        }
    }

    fn expire(&mut self, now: Duration) {
        let (messages, lifetime) = (&self.terms.messages, self.terms.lifetime);
        for buffer in &mut self.buffers {
            buffer.retain(|number, _| now < messages[*number].born + lifetime);
        }
    }
}
