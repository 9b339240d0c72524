//! Delay-tolerant routing over contacts: one model of nodes, buffers and transfers for several protocols.
//!
//! Nodes exchange whole messages while they are in contact, one at a time in each direction. A message that does
//! not pass before its contact ends stays where it was. A full node drops its oldest message, and every message
//! ends after its lifetime. What a protocol says to its peers takes no time and no octets here.

mod epidemic;
mod gstar;
mod prophet;
mod spray;
mod world;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::SeededRng;

use crate::mobility::Encounter;
pub use epidemic::{Direct, Epidemic};
pub use gstar::Gstar;
pub use prophet::Prophet;
pub use spray::SprayAndWait;

/// A message of one node for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DtnMessage {
    /// Its sender.
    pub from: usize,
    /// Its receiver.
    pub to: usize,
    /// When it is sent.
    pub born: Duration,
}

/// What is the same for all protocols.
#[derive(Clone, Debug, PartialEq)]
pub struct ContactTerms {
    /// The number of nodes.
    pub nodes: usize,
    /// When two of them can talk, in the order of the starts.
    pub contacts: Vec<Encounter>,
    /// What is sent, in the order of time.
    pub messages: Vec<DtnMessage>,
    /// Octets of a message.
    pub size: u64,
    /// Octets per second of a contact, each way.
    pub rate: u64,
    /// Octets that a node stores.
    pub buffer: u64,
    /// How long a message lives.
    pub lifetime: Duration,
}

impl ContactTerms {
    /// Returns `count` messages between random nodes, at random moments before `until`.
    pub fn messages(nodes: usize, count: usize, until: Duration, seed: u64) -> Vec<DtnMessage> {
        let mut rng = SeededRng::stream(seed, "messages");
        let nodes = nodes as u64;
        let mut draw = || {
            let from = rng.below(nodes);
            DtnMessage {
                from: from as usize,
                to: ((from + 1 + rng.below(nodes - 1)) % nodes) as usize,
                born: until.mul_f64(rng.unit()),
            }
        };
        let mut all: Vec<DtnMessage> = (0..count).map(|_| draw()).collect();
        all.sort_by_key(|it| it.born);
        all
    }

    /// Returns the delay with which each message could arrive at best, if contacts carried everything at once and
    /// everybody knew them all.
    pub fn possible(&self) -> Vec<Option<Duration>> {
        let earliest = |message: &DtnMessage| {
            let mut at: BTreeMap<usize, Duration> = BTreeMap::from([(message.from, message.born)]);
            // A contact can be used more than once by the order of the starts: until nothing changes.
            loop {
                let mut is_better = false;
                for contact in &self.contacts {
                    let (a, b) = contact.ends;
                    for (from, to) in [(a, b), (b, a)] {
                        let Some(there) = at.get(&from).copied() else {
                            continue;
                        };
                        let passes = there.max(contact.start);
                        if passes < contact.end && at.get(&to).is_none_or(|known| passes < *known) {
                            at.insert(to, passes);
                            is_better = true;
                        }
                    }
                }
                if !is_better {
                    break;
                }
            }
            let delay = at.get(&message.to)?.saturating_sub(message.born);
            (delay <= self.lifetime).then_some(delay)
        };
        self.messages.iter().map(earliest).collect()
    }
}

/// What happens to a message that is passed to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOrMove {
    /// Both have it.
    Copy,
    /// The peer has it.
    Move,
}

/// A message at a node, as its protocol sees it.
#[derive(Clone, Copy, Debug)]
pub struct HeldMessage {
    /// Its number.
    pub number: usize,
    /// Its receiver.
    pub to: usize,
    /// When it came.
    pub since: Duration,
}

/// A protocol: one value for all nodes, each of which knows only what it has been told.
pub trait DtnProtocol {
    /// A contact begins.
    fn meet(&mut self, now: Duration, a: usize, b: usize);

    /// A contact ends.
    fn part(&mut self, now: Duration, a: usize, b: usize);

    /// A message is sent at its source.
    fn send(&mut self, number: usize, message: &DtnMessage);

    /// Returns whether a message of `from` is passed to `to`, which does not have it and is not its receiver.
    fn choose(
        &mut self,
        now: Duration,
        from: usize,
        to: usize,
        held: &HeldMessage,
    ) -> Option<CopyOrMove>;

    /// A message has been passed as it was chosen.
    fn passed(&mut self, number: usize, from: usize, to: usize);

    /// Advances time, if the protocol has a time of its own. Returns true if a choice may be another one now.
    fn advance(&mut self, now: Duration) -> bool;
}

/// What a protocol did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryLog {
    /// The delay of each message, if it arrived.
    pub delays: Vec<Option<Duration>>,
    /// Messages passed from one node to another.
    pub passed: u64,
    /// Copies that full nodes dropped.
    pub dropped: u64,
}

impl DeliveryLog {
    /// Returns the share of messages that arrived.
    pub fn share(&self) -> f64 {
        let arrived = self.delays.iter().flatten().count();
        arrived as f64 / self.delays.len().max(1) as f64
    }

    /// Returns the delay of those that arrived at this part of them, in seconds.
    pub fn percentile(&self, part: f64) -> f64 {
        let mut delays: Vec<f64> = self
            .delays
            .iter()
            .flatten()
            .map(Duration::as_secs_f64)
            .collect();
        delays.sort_by(f64::total_cmp);
        let last = delays.len().saturating_sub(1);
        let at = (part / 100.0 * last as f64).round() as usize;
        delays.get(at).copied().unwrap_or(f64::NAN)
    }
}

/// Runs a protocol to the end of the last message's lifetime, or of the contacts.
pub fn run(terms: &ContactTerms, protocol: &mut dyn DtnProtocol) -> DeliveryLog {
    world::ContactWorld::new(terms).run(protocol)
}

/// Pairs of nodes that are in contact.
type Pairs = BTreeSet<(usize, usize)>;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Node 1 is with node 0 and with node 2 by turns, for ten seconds each.
    fn ferry() -> ContactTerms {
        let contacts = (0..60).map(|turn| Encounter {
            ends: if turn % 2 == 0 { (0, 1) } else { (1, 2) },
            start: SECOND * (20 * turn),
            end: SECOND * (20 * turn + 10),
            nearness: Vec::new(),
        });
        let messages = (0..10).map(|number| DtnMessage {
            from: 0,
            to: 2,
            born: SECOND * (400 + 20 * number),
        });
        ContactTerms {
            nodes: 3,
            contacts: contacts.collect(),
            messages: messages.collect(),
            size: 10_000,
            rate: 100_000,
            buffer: 1_000_000,
            lifetime: SECOND * 600,
        }
    }

    #[test]
    fn a_ferry_carries_what_two_shores_never_could() {
        let terms = ferry();
        let all: [(&str, Box<dyn DtnProtocol>, usize); 5] = [
            ("direct", Box::new(Direct), 0),
            ("epidemic", Box::new(Epidemic), 10),
            ("spray", Box::new(SprayAndWait::new(4)), 10),
            ("prophet", Box::new(Prophet::new(3)), 10),
            ("gstar", Box::new(Gstar::new(3, terms.rate)), 10),
        ];
        let possible = terms.possible();
        for (name, mut protocol, arrive) in all {
            let got = run(&terms, protocol.as_mut());
            assert_eq!(got.delays.iter().flatten().count(), arrive, "{name}");
            for (delay, possible) in got.delays.iter().zip(&possible) {
                assert!(delay.is_none_or(|it| Some(it) >= *possible), "{name}");
            }
            // Two steps for each message are the least.
            assert!(got.passed as usize >= 2 * arrive, "{name}");
        }
    }

    #[test]
    fn a_full_node_drops_its_oldest_message() {
        let terms = ContactTerms {
            buffer: 30_000,
            ..ferry()
        };
        let got = run(&terms, &mut Direct);
        assert_eq!((got.dropped, got.delays.iter().flatten().count()), (7, 0));
    }

    #[test]
    fn a_message_that_does_not_pass_before_its_contact_ends_stays() {
        // Ten seconds carry 1,000,000 octets.
        let terms = ContactTerms {
            size: 1_100_000,
            buffer: 100_000_000,
            ..ferry()
        };
        assert_eq!(run(&terms, &mut Epidemic).passed, 0);
    }
}
