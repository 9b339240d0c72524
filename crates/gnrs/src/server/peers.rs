//! Other name servers: each record has copies at some of them, which repair each other.
//!
//! After DMap [DMap], the servers of a name follow from hashes, so that nobody has to know who keeps it:
//! the `copies` servers whose own name gives the least hash together with it. As long as there are no
//! more servers than copies, each has all records. A server passes on what it stores, asks the others
//! for what it lacks, the nearest first, and shows a peer that comes back all that is the peer's to keep.
//! A name that it is often asked for, it follows: it watches it at a peer that has it, and answers from
//! what that peer tells, as long as the watch lasts.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{Deadline, Guid, PortEvent, PortId, PortOrigin, Time, Transmit, WallClock};

use crate::client::{Answer, Failure, Lookup, Rejection, Resolver, ResolverEvent};
use crate::demand::NameDemand;
use crate::record::{Record, RecordKey};
use crate::wire::Code;

/// Records that are shown to a peer at once, and the time between two such parts: a server checks a
/// signature in a tenth of a millisecond.
const PART: usize = 64;
const PART_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which the peers are looked at: whether one has come back.
const LOOK: Duration = Duration::from_secs(2);
/// Interval at which the round trips to the peers are measured: the nearest is asked first.
const MEASURE: Duration = Duration::from_secs(60);
/// A peer that has not answered for so long is passed over, in milliseconds: clients wait for 10 s.
const GIVE_UP_MS: u64 = 2000;
/// Interval of probes to a silent peer, in milliseconds: it may be behind a thin link.
const PROBE_MS: u64 = 10_000;
/// The same of a peer at which names are followed: what it does not tell of is out of date.
const FOLLOWED_PROBE_MS: u64 = 2000;
/// Lookups under way at peers.
const MAX_ASKED: usize = 4096;
/// Names of other servers that are followed because they are often asked for.
const MAX_FOLLOWED: usize = 4096;

const CONTEXT: &str = "whimbrel 2026 gnrs place of a copy";

/// Which servers have copies of a record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// The name of this server, as its peers write it; without one, it keeps all records.
    pub own: Option<String>,
    /// Copies of a record.
    pub copies: usize,
}

/// Another name server.
#[derive(Debug)]
struct PeerServer {
    /// Its name, as all servers write it.
    name: String,
    /// The number of its link.
    link: u32,
    port: Option<PortId>,
    resolver: Resolver,
    answers: bool,
    /// When the round trip to it was measured last.
    measured_at: Time,
    /// True if it has not taken a record since its last repair.
    has_missed: bool,
    repair: Option<Repair>,
}

/// Another name server as this one sees it, for reports.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct PeerStatus {
    /// Its name, as configured.
    pub peer: String,
    /// True if it has answered, its answers have not been missing for 5 s, and they were not false.
    pub answers: bool,
    /// The smoothed round trip to it, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
    /// True while it is shown the records that are its to keep.
    pub is_repaired: bool,
    /// Names that are followed there, because this server is often asked for them.
    pub followed: usize,
}

/// What servers with peers have done for each other, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct PeerCounters {
    /// Records that were passed on, repairs included: one for each peer.
    pub passed_on: u64,
    /// Repairs of peers that began.
    pub repairs: u64,
    /// Lookups for which peers were asked.
    pub lookups: u64,
    /// Of them: answered at once, because the name is followed or was asked for a moment ago.
    pub lookups_at_hand: u64,
    /// Of them: no peer had a record, or none answered.
    pub lookups_in_vain: u64,
    /// Names that were followed because they were often asked for.
    pub followed: u64,
}

/// Records that a peer is shown: those after this one are left.
#[derive(Debug)]
struct Repair {
    after: Option<RecordKey>,
}

/// When a peer is asked, the least first: the one at which the name is followed, then the nearest that
/// answer, those that have not been heard yet, those that are lost.
fn turn(is_followed: bool, answers: bool, round_trip: Option<Duration>) -> (bool, bool, Duration) {
    let is_lost = !answers && round_trip.is_some();
    let distance = round_trip.unwrap_or(Duration::MAX);
    (!(is_followed && answers), is_lost, distance)
}

/// What has come of a question to the peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PeerAnswer {
    pub(super) name: Guid,
    /// Empty if no peer knows the name.
    pub(super) records: Vec<Record>,
}

/// The other name servers.
#[derive(Debug)]
pub(super) struct PeerServers {
    peers: Vec<PeerServer>,
    placement: Placement,
    /// Names that peers are asked for, and those that are asked next.
    asked: BTreeMap<Guid, VecDeque<usize>>,
    told: VecDeque<PeerAnswer>,
    demand: NameDemand,
    /// Followed names, each with the peer that it is watched at.
    followed: BTreeMap<Guid, usize>,
    counters: PeerCounters,
    due: Option<Time>,
}

impl PeerServers {
    pub(super) fn none() -> PeerServers {
        PeerServers {
            peers: Vec::new(),
            placement: Placement::default(),
            asked: BTreeMap::new(),
            told: VecDeque::new(),
            demand: NameDemand::new(MAX_FOLLOWED),
            followed: BTreeMap::new(),
            counters: PeerCounters::default(),
            due: None,
        }
    }

    pub(super) fn set_placement(&mut self, placement: Placement) {
        self.placement = placement;
    }

    pub(super) fn add(&mut self, name: String, link: u32, mut resolver: Resolver) {
        resolver.ask_as_peer(GIVE_UP_MS, PROBE_MS);
        self.peers.push(PeerServer {
            name,
            link,
            port: None,
            resolver,
            answers: false,
            measured_at: Time::ZERO,
            has_missed: false,
            repair: None,
        });
        self.due = Some(Time::ZERO);
    }

    pub(super) fn set_wall_clock(&mut self, clock: WallClock) {
        let all = self.peers.iter_mut();
        all.for_each(|peer| peer.resolver.set_wall_clock(clock));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    pub(super) fn owns(&self, port: PortId) -> bool {
        self.peers.iter().any(|peer| peer.port == Some(port))
    }

    pub(super) fn status(&self) -> Vec<PeerStatus> {
        let status = |(index, peer): (usize, &PeerServer)| PeerStatus {
            peer: peer.name.clone(),
            answers: peer.answers,
            round_trip_ms: peer.resolver.round_trip().map(|it| it.as_secs_f64() * 1e3),
            is_repaired: peer.repair.is_some(),
            followed: self.followed.values().filter(|it| **it == index).count(),
        };
        self.peers.iter().enumerate().map(status).collect()
    }

    pub(super) fn counters(&self) -> PeerCounters {
        self.counters
    }

    /// Returns the peers that have copies of the records of a name, and whether this server has.
    fn holders(&self, subject: &Guid) -> (Vec<usize>, bool) {
        let all = || (0..self.peers.len()).collect();
        let Some(own) = &self.placement.own else {
            return (all(), true);
        };
        if self.peers.len() < self.placement.copies {
            return (all(), true);
        }
        let place = |name: &str| {
            let text = [name.as_bytes(), subject.as_bytes()].concat();
            blake3::derive_key(CONTEXT, &text)
        };
        let peers = self.peers.iter().enumerate();
        let peers = peers.map(|(index, peer)| (place(&peer.name), Some(index)));
        let mut places: Vec<_> = peers.chain([(place(own), None)]).collect();
        places.sort_unstable();
        places.truncate(self.placement.copies.max(1));
        let own = places.iter().any(|(_, index)| index.is_none());
        (
            places.into_iter().filter_map(|(_, index)| index).collect(),
            own,
        )
    }

    /// Returns true if this server is one of those that have copies of the records of a name.
    pub(super) fn is_holder(&self, subject: &Guid) -> bool {
        self.holders(subject).1
    }

    /// Passes on a record that was stored here.
    pub(super) fn spread(&mut self, now: Time, record: &Record) {
        for index in self.holders(&record.subject()).0 {
            self.counters.passed_on += 1;
            self.peers[index].resolver.insert(now, record.clone());
        }
    }

    /// Asks the holders of a name, one after the other until one has records: first the one at which it is
    /// followed, then the nearest that answer, those that are not known yet, those that are lost. Returns false if there are too many questions:
    /// then nothing is asked.
    pub(super) fn ask(&mut self, now: Time, name: Guid) -> bool {
        if self.asked.contains_key(&name) {
            return true;
        }
        if self.asked.len() >= MAX_ASKED {
            return false;
        }
        let mut holders = self.holders(&name).0;
        let followed_at = self.followed.get(&name).copied();
        holders.sort_by_key(|index| {
            let peer = &self.peers[*index];
            let is_followed = followed_at == Some(*index);
            turn(is_followed, peer.answers, peer.resolver.round_trip())
        });
        self.asked.insert(name, holders.into());
        self.ask_next(now, name);
        true
    }

    /// Counts a client's lookup for which peers are asked: a name with many is followed.
    pub(super) fn note_demand(&mut self, now: Time, name: Guid) {
        self.counters.lookups += 1;
        if self.is_holder(&name) {
            return;
        }
        let change = self.demand.note(now, name);
        if let Some(left) = change.left {
            self.unfollow(now, left);
        }
    }

    fn ask_next(&mut self, now: Time, name: Guid) {
        while let Some(left) = self.asked.get_mut(&name) {
            let Some(index) = left.pop_front() else {
                break;
            };
            match self.peers[index].resolver.lookup(now, name) {
                Lookup::Pending => return,
                Lookup::Resolved(answer) => {
                    self.counters.lookups_at_hand += 1;
                    return self.tell(now, name, answer, Some(index));
                }
                Lookup::NotFound | Lookup::Busy => {}
            }
        }
        self.tell(now, name, Answer::default(), None);
    }

    /// Tells what a peer has answered, and follows the name there if it is asked for often enough.
    fn tell(&mut self, now: Time, name: Guid, answer: Answer, by: Option<usize>) {
        if self.asked.remove(&name).is_none() {
            return;
        }
        match by {
            Some(index) if self.demand.is_followed(&name) => self.follow(now, name, index),
            Some(_) => {}
            None => {
                self.counters.lookups_in_vain += 1;
                self.unfollow(now, name);
            }
        }
        let records = answer.binding.into_iter().chain(answer.providers);
        let records = records.collect();
        self.told.push_back(PeerAnswer { name, records });
    }

    fn follow(&mut self, now: Time, name: Guid, index: usize) {
        if self.followed.get(&name) == Some(&index) {
            return;
        }
        self.leave(now, name);
        let resolver = &mut self.peers[index].resolver;
        resolver.ask_as_peer(GIVE_UP_MS, FOLLOWED_PROBE_MS);
        if resolver.watch(now, name) {
            self.counters.followed += 1;
            self.followed.insert(name, index);
        } else {
            self.demand.forget(&name);
        }
    }

    fn unfollow(&mut self, now: Time, name: Guid) {
        self.demand.forget(&name);
        self.leave(now, name);
    }

    /// Ends the watch of a followed name.
    fn leave(&mut self, now: Time, name: Guid) {
        let Some(index) = self.followed.remove(&name) else {
            return;
        };
        let resolver = &mut self.peers[index].resolver;
        resolver.unwatch(now, name);
        if !self.followed.values().any(|it| *it == index) {
            resolver.ask_as_peer(GIVE_UP_MS, PROBE_MS);
        }
    }

    /// Returns what peers have answered.
    pub(super) fn poll(&mut self) -> Option<PeerAnswer> {
        self.told.pop_front()
    }

    /// Handles an event of a port if it leads to a peer.
    pub(super) fn handle_port(&mut self, now: Time, port: PortId, event: &PortEvent) -> bool {
        if let PortEvent::Up(info) = event
            && let PortOrigin::Configured(link) = info.origin
            && let Some(peer) = self.peers.iter_mut().find(|peer| peer.link == link)
        {
            peer.port = Some(port);
            peer.resolver.add_server(port);
            peer.measured_at = now;
            peer.repair = Some(Repair { after: None });
            self.due = Some(now);
        }
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.port == Some(port)) else {
            return false;
        };
        peer.resolver.handle_port(now, port, event.clone());
        if matches!(event, PortEvent::Up(_)) {
            peer.resolver.measure(now);
        }
        true
    }

    pub(super) fn handle_frame(&mut self, now: Time, port: PortId, frame: &[u8]) {
        let peer = self.peers.iter_mut().find(|peer| peer.port == Some(port));
        if let Some(peer) = peer {
            peer.resolver.handle_frame(now, port, frame);
        }
        self.take_events(now);
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        for peer in &mut self.peers {
            peer.resolver.handle_timeout(now);
        }
        self.take_events(now);
    }

    fn take_events(&mut self, now: Time) {
        for index in 0..self.peers.len() {
            while let Some(event) = self.peers[index].resolver.poll_event() {
                match event {
                    ResolverEvent::Resolved { guid, answer } => {
                        self.tell(now, guid, answer, Some(index));
                    }
                    // News of a followed name, for those that watch it here.
                    ResolverEvent::Changed { guid, answer } => {
                        let records = answer.binding.into_iter().chain(answer.providers);
                        let records = records.collect();
                        self.told.push_back(PeerAnswer {
                            name: guid,
                            records,
                        });
                    }
                    ResolverEvent::NotWatched { guid } => self.unfollow(now, guid),
                    ResolverEvent::Unresolvable { guid, why } => {
                        if why == Failure::Unreachable {
                            tracing::debug!(peer = %self.peers[index].name, "a name server does not answer");
                        }
                        self.ask_next(now, guid);
                    }
                    ResolverEvent::Forgot => self.begin_repair(now, index),
                    ResolverEvent::Refused {
                        code: Rejection::Unreachable | Rejection::Busy,
                        ..
                    } => self.peers[index].has_missed = true,
                    // It has a newer one, or a revocation.
                    ResolverEvent::Refused {
                        guid,
                        code:
                            Rejection::Server {
                                code: Code::Stale | Code::Revoked,
                                ..
                            },
                    } => drop(self.ask(now, guid)),
                    ResolverEvent::Registered { .. } | ResolverEvent::Refused { .. } => {}
                }
            }
            let status = self.peers[index].resolver.server_status();
            let answers = status.iter().any(|it| it.answers);
            let peer = &self.peers[index];
            let has_missed = peer.has_missed && peer.repair.is_none();
            if answers && (has_missed || !peer.answers) {
                self.begin_repair(now, index);
            }
            self.peers[index].answers = answers;
        }
    }

    fn begin_repair(&mut self, now: Time, index: usize) {
        let peer = &mut self.peers[index];
        peer.repair = Some(Repair { after: None });
        peer.has_missed = false;
        self.counters.repairs += 1;
        self.due = Some(now);
    }

    /// Shows peers the next part of what is theirs to keep, once that is due. `following` returns the
    /// records after one.
    pub(super) fn repair(
        &mut self,
        now: Time,
        now_ms: u64,
        following: impl Fn(Option<RecordKey>, usize) -> Vec<Record>,
    ) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = Some(now + LOOK);
        while let Some(name) = self.demand.fallen(now) {
            self.unfollow(now, name);
        }
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if now >= peer.measured_at + MEASURE {
                peer.measured_at = now;
                peer.resolver.measure(now);
            }
            let Some(repair) = &peer.repair else {
                continue;
            };
            let part = following(repair.after, PART);
            let last = part.last().map(Record::filed_under);
            self.peers[index].repair = last.map(|key| Repair { after: Some(key) });
            if last.is_some() {
                self.due = Some(now + PART_INTERVAL);
            }
            for record in part {
                let is_its = self.holders(&record.subject()).0.contains(&index);
                if is_its && !record.is_expired(now_ms) {
                    self.counters.passed_on += 1;
                    self.peers[index].resolver.insert(now, record);
                }
            }
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let mut all = self.peers.iter_mut();
        all.find_map(|peer| peer.resolver.poll_transmit(now, buffer))
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        let due = self
            .due
            .map(|at| Deadline::new(at, "gnrs: peers are looked at"));
        let of_peers = self.peers.iter();
        let of_peers = of_peers.filter_map(|peer| peer.resolver.poll_timeout());
        of_peers.chain(due).min_by_key(|deadline| deadline.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ResolverConfig;
    use whimbrel_core::SeededRng;

    fn peers(names: &[&str], own: Option<&str>, copies: usize) -> PeerServers {
        let mut peers = PeerServers::none();
        let own = own.map(str::to_owned);
        peers.set_placement(Placement { own, copies });
        for (link, name) in (0..).zip(names) {
            let clock = WallClock::new(0);
            let resolver = Resolver::new(ResolverConfig::default(), clock, SeededRng::new(1));
            peers.add((*name).to_owned(), link, resolver);
        }
        peers
    }

    #[test]
    fn all_servers_agree_on_the_holders_of_a_name_and_share_the_names() {
        let names = ["a:1", "b:1", "c:1", "d:1", "e:1"];
        let mut held = [0; 5];
        for number in 0..=255 {
            let subject = Guid([number; 32]);
            let holder_by = |own: usize| {
                let others: Vec<&str> =
                    (0..5).filter(|it| *it != own).map(|it| names[it]).collect();
                let all = peers(&others, Some(names[own]), 3);
                let (found, is_own) = all.holders(&subject);
                let mut found: Vec<&str> = found.iter().map(|it| others[*it]).collect();
                found.extend(is_own.then_some(names[own]));
                found.sort_unstable();
                found
            };
            let first = holder_by(0);
            assert_eq!(first.len(), 3);
            (1..5).for_each(|own| assert_eq!(holder_by(own), first));
            (0..5).for_each(|it| held[it] += usize::from(first.contains(&names[it])));
        }
        // 256 names, three copies each, on five servers: 154 each.
        assert!(
            held.iter().all(|count| (110..200).contains(count)),
            "{held:?}"
        );
    }

    #[test]
    fn the_nearest_peer_that_answers_is_asked_first() {
        let ms = |it| Some(Duration::from_millis(it));
        let in_turn = [
            turn(true, true, ms(90)),
            turn(false, true, ms(5)),
            turn(false, true, ms(60)),
            turn(false, false, None),
            turn(true, false, ms(1)),
        ];
        assert!(in_turn.is_sorted_by(|a, b| a < b), "{in_turn:?}");
    }

    #[test]
    fn without_a_name_of_its_own_or_with_few_peers_a_server_holds_all() {
        for (own, copies) in [(None, 1), (Some("c:1"), 3)] {
            let all = peers(&["a:1", "b:1"], own, copies);
            assert_eq!(all.holders(&Guid([1; 32])), (vec![0, 1], true));
        }
    }
}
