//! Several paths to a peer, beyond [TCP/ICN]: which way the Interests of a connection take.
//!
//! Routers that know path tags record the way of a probe, and an Interest with the tag takes it
//! again ([PTP §3]); its Data comes back the same way. A connection keeps to one path, so that its
//! segments stay in order; several connections share what all paths carry. A path is left when a
//! router says that it is gone, or when three checks in a row stay unanswered.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{RttEstimator, Time, TimerQueue};
use whimbrel_ndn_packet::{LpHeader, Name};
use whimbrel_transport::PathTag;
use whimbrel_transport::path::PathId;

/// Peers to which paths are looked for. Further ones take the places of idle ones without connections;
/// while there are none, Interests go by name.
const MAX_PEERS: usize = 1024;
/// Known paths to a peer.
const MAX_KNOWN: usize = 64;
/// The first probes follow each other soon. Routers admit 100 at once from a face.
const EAGER_PROBES: u32 = 20;
const EAGER: Duration = Duration::from_millis(10);
/// Between two later probes.
const PROBING: Duration = Duration::from_millis(500);
/// Probes that have found one path at most, after which there is one each [`SELDOM`]: a network with
/// one path, or whose routers know no tags.
const ENOUGH_PROBES: u32 = 30;
const SELDOM: Duration = Duration::from_secs(2);
/// Between two checks of a path in use.
const CHECKING: Duration = Duration::from_millis(250);
/// Bounds of the wait for the answer of a check.
const CHECK_TIMEOUT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));
/// Lifetime of a probe: the slowest path may be the one that it takes.
const PROBE_LIFETIME: Duration = Duration::from_secs(1);
/// Unanswered checks in a row after which a path has failed. At a loss of 5 % each way a path that
/// works is left once in some hours.
const FAILED: u32 = 3;
/// A peer to which nothing was said for so long is not probed.
const IDLE: Duration = Duration::from_secs(5);
/// Interests by name.
pub(crate) const BY_NAME: PathId = PathId::FIRST;

/// A peer's place in [`Paths`].
pub(crate) type PeerIndex = u32;

/// A path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) peer: PeerIndex,
    pub(crate) path: PathId,
}

/// A probe to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) prefix: Name,
    /// The path that it checks, or [`BY_NAME`] if it is to find one.
    pub(crate) way: Way,
    pub(crate) lifetime: Duration,
    pub(crate) header: LpHeader,
}

/// A path to a peer, for tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// The peer's prefix.
    pub peer: Name,
    /// Its tag.
    pub tag: PathTag,
    /// Smoothed round trip of probes.
    pub round_trip: Option<Duration>,
    /// Connections that use it.
    pub connections: u32,
    /// New connections may use it.
    pub is_used: bool,
    /// It has failed, and no probe has come back over it since.
    pub has_failed: bool,
}

struct Known {
    tag: PathTag,
    rtt: RttEstimator,
    /// When the latest probe or check that came back over it was sent.
    probed: Time,
    /// When that came back.
    answered: Time,
    failed_at: Option<Time>,
    /// Checks without an answer in a row.
    unanswered: u32,
    next_check: Time,
    /// New connections may use it.
    is_used: bool,
    connections: u32,
}

struct Peer {
    prefix: Name,
    known: Vec<Known>,
    /// When something was last said to it.
    spoken: Time,
    probes: u32,
    next_probe: Time,
    armed: bool,
}

/// The paths to all peers.
pub(crate) struct Paths {
    /// Paths to each peer that connections use, at most; below 2, none are looked for.
    most: usize,
    peers: Vec<Peer>,
    by_prefix: BTreeMap<Name, PeerIndex>,
    timers: TimerQueue<PeerIndex>,
}

impl Paths {
    pub(crate) fn new(most: usize) -> Paths {
        Paths {
            most,
            peers: Vec::new(),
            by_prefix: BTreeMap::new(),
            timers: TimerQueue::new(),
        }
    }

    pub(crate) const fn are_wanted(&self) -> bool {
        self.most > 1
    }

    /// Something is said to this peer: while that goes on, its paths are probed.
    pub(crate) fn spoke(&mut self, now: Time, prefix: &Name) {
        let known = self.by_prefix.get(prefix).copied();
        let Some(index) = known.or_else(|| self.add(now, prefix)) else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(index as usize) {
            peer.spoken = now;
            if !peer.armed {
                peer.armed = true;
                peer.resume(now);
                self.timers.set(index, now);
            }
        }
    }

    /// Makes room for a peer: at the end, or in place of a deserted one.
    fn add(&mut self, now: Time, prefix: &Name) -> Option<PeerIndex> {
        let peer = Peer::new(now, prefix.clone());
        let at = if self.peers.len() < MAX_PEERS {
            self.peers.push(peer);
            self.peers.len() - 1
        } else {
            let at = self.peers.iter().position(|it| it.is_deserted(now))?;
            let place = self.peers.get_mut(at)?;
            self.by_prefix.remove(&place.prefix);
            *place = peer;
            at
        };
        let index = at as PeerIndex;
        self.by_prefix.insert(prefix.clone(), index);
        Some(index)
    }

    /// Returns the path for a connection with this peer, which counts as one more of its
    /// connections: of those in use the one with the fewest, then the shortest round trip. `None` if
    /// only one is known: it is the name's, which routers may lead elsewhere when it fails.
    pub(crate) fn choose(&mut self, prefix: &Name) -> Option<Way> {
        let index = *self.by_prefix.get(prefix)?;
        let peer = self.peers.get_mut(index as usize)?;
        if peer.known.len() < 2 {
            return None;
        }
        let used = peer.known.iter_mut().enumerate();
        let used = used.filter(|(_, known)| known.is_used);
        let (place, known) =
            used.min_by_key(|(_, known)| (known.connections, known.rtt.smoothed()))?;
        known.connections += 1;
        let path = PathId(place as u16 + 1);
        Some(Way { peer: index, path })
    }

    /// A connection does not use its path any more.
    pub(crate) fn release(&mut self, way: Way) {
        if let Some(known) = self.known_mut(way) {
            known.connections = known.connections.saturating_sub(1);
        }
    }

    /// Returns the tag of a path; `None` by name.
    pub(crate) fn tag(&self, way: Way) -> Option<&PathTag> {
        let peer = self.peers.get(way.peer as usize)?;
        Some(&peer.known.get(place(way.path)?)?.tag)
    }

    /// Header fields of an Interest along a path.
    pub(crate) fn header(&self, way: Way) -> Option<Box<LpHeader>> {
        Some(Box::new(self.tag(way)?.header()))
    }

    /// A probe or check is answered by a Data that has come over the path of `tag`. Returns, as
    /// [`Paths::fail`], whether the checked path has failed: its tag leads another way now.
    pub(crate) fn answered(
        &mut self,
        now: Time,
        way: Way,
        sent_at: Time,
        tag: Option<PathTag>,
    ) -> Option<Time> {
        let peer = self.peers.get_mut(way.peer as usize)?;
        let checked = place(way.path).and_then(|at| peer.known.get_mut(at));
        let leads_elsewhere = match (checked, tag) {
            // A router that has had too many probes treats one as any other Interest.
            (Some(checked), None) => {
                checked.unanswered = 0;
                false
            }
            (checked, Some(tag)) => {
                let other = checked.is_some_and(|checked| checked.tag != tag);
                peer.learn(now, sent_at, tag);
                peer.choose_used(self.most);
                other
            }
            (None, None) => false,
        };
        leads_elsewhere.then(|| self.fail(now, way)).flatten()
    }

    /// A probe or check was not answered in time. Returns, as [`Paths::fail`], whether the path has
    /// failed.
    pub(crate) fn expired(&mut self, now: Time, way: Way) -> Option<Time> {
        let known = self.known_mut(way)?;
        known.unanswered += 1;
        let has_failed = known.unanswered >= FAILED;
        has_failed.then(|| self.fail(now, way)).flatten()
    }

    /// The path does not work. Returns when it last did; `None` if that is known, or the way is by
    /// name.
    pub(crate) fn fail(&mut self, now: Time, way: Way) -> Option<Time> {
        let known = self.known_mut(way)?;
        if known.failed_at.replace(now).is_some() {
            return None;
        }
        known.unanswered = 0;
        let since = known.answered;
        if let Some(peer) = self.peers.get_mut(way.peer as usize) {
            peer.choose_used(self.most);
        }
        Some(since)
    }

    /// The next probe that is due.
    pub(crate) fn due(&mut self, now: Time) -> Option<Probe> {
        while let Some((at, index)) = self.timers.next().map(|(at, index)| (at, *index)) {
            if at > now {
                return None;
            }
            let Some(peer) = self.peers.get_mut(index as usize) else {
                self.timers.cancel(&index);
                continue;
            };
            if now >= peer.spoken + IDLE {
                peer.armed = false;
                self.timers.cancel(&index);
                continue;
            }
            let probe = peer.probe(now, index);
            self.timers.set(index, peer.next());
            if probe.is_some() {
                return probe;
            }
        }
        None
    }

    /// When [`Paths::due`] has something to send.
    pub(crate) fn next(&self) -> Option<Time> {
        self.timers.next().map(|(at, _)| at)
    }

    /// Returns all known paths.
    pub(crate) fn status(&self) -> Vec<PathStatus> {
        let of_peer = |peer: &'_ Peer| -> Vec<PathStatus> {
            let status = |known: &Known| PathStatus {
                peer: peer.prefix.clone(),
                tag: known.tag.clone(),
                round_trip: known.rtt.smoothed(),
                connections: known.connections,
                is_used: known.is_used,
                has_failed: known.failed_at.is_some(),
            };
            peer.known.iter().map(status).collect()
        };
        self.peers.iter().flat_map(of_peer).collect()
    }

    fn known_mut(&mut self, way: Way) -> Option<&mut Known> {
        let peer = self.peers.get_mut(way.peer as usize)?;
        peer.known.get_mut(place(way.path)?)
    }
}

/// Returns the place of a path among those known; `None` by name.
fn place(path: PathId) -> Option<usize> {
    usize::from(path.0).checked_sub(1)
}

impl Peer {
    fn new(now: Time, prefix: Name) -> Peer {
        Peer {
            prefix,
            known: Vec::new(),
            spoken: now,
            probes: 0,
            next_probe: now,
            armed: false,
        }
    }

    /// Returns true if nobody uses it and none of its probes can be answered any more.
    fn is_deserted(&self, now: Time) -> bool {
        let is_silent = !self.armed && now >= self.spoken + IDLE + PROBE_LIFETIME;
        is_silent && self.known.iter().all(|known| known.connections == 0)
    }

    /// Begins to probe again after a silence: what was known may have changed.
    fn resume(&mut self, now: Time) {
        self.probes = 0;
        self.next_probe = now;
        for known in &mut self.known {
            known.unanswered = 0;
            known.next_check = now + CHECKING;
        }
    }

    /// A probe sent at `sent_at` has come back over this path.
    fn learn(&mut self, now: Time, sent_at: Time, tag: PathTag) {
        let found = self.known.iter().position(|known| known.tag == tag);
        let Some(at) = found.or_else(|| self.add(now, tag)) else {
            return;
        };
        if let Some(known) = self.known.get_mut(at) {
            known.rtt.sample(now.since(sent_at));
            known.probed = known.probed.max(sent_at);
            known.answered = now;
            known.unanswered = 0;
            // One that was on its way when the path failed says nothing of it.
            if known.failed_at.is_some_and(|failed| sent_at > failed) {
                known.failed_at = None;
            }
        }
    }

    /// Makes room for a path: at the end, or in place of the unused one not probed for longest.
    /// Labels change when routers restart.
    fn add(&mut self, now: Time, tag: PathTag) -> Option<usize> {
        let (min, max) = CHECK_TIMEOUT;
        let known = Known {
            tag,
            rtt: RttEstimator::new(max, min, max),
            probed: Time::ZERO,
            answered: now,
            failed_at: None,
            unanswered: 0,
            next_check: now + CHECKING,
            is_used: false,
            connections: 0,
        };
        if self.known.len() < MAX_KNOWN {
            self.known.push(known);
            return Some(self.known.len() - 1);
        }
        let places = self.known.iter().enumerate();
        let unused = places.filter(|(_, it)| !it.is_used && it.connections == 0);
        let at = unused.min_by_key(|(_, it)| it.probed).map(|(at, _)| at)?;
        if let Some(place) = self.known.get_mut(at) {
            *place = known;
        }
        Some(at)
    }

    /// Chooses the paths for new connections: the shortest one, then those with a link that no
    /// chosen one has, short ones first. A path over the links of others adds nothing.
    fn choose_used(&mut self, most: usize) {
        let mut order: Vec<usize> = (0..self.known.len()).collect();
        order.retain(|at| self.known[*at].failed_at.is_none());
        order.sort_by_key(|at| (self.known[*at].tag.hops(), self.known[*at].rtt.smoothed()));
        self.known.iter_mut().for_each(|it| it.is_used = false);
        let mut links = BTreeSet::new();
        let mut left = most;
        for at in order {
            let known = &mut self.known[at];
            let adds = known.tag.labels().any(|link| !links.contains(&link));
            if adds && left > 0 {
                links.extend(known.tag.labels());
                known.is_used = true;
                left -= 1;
            }
        }
    }

    fn probe(&mut self, now: Time, index: PeerIndex) -> Option<Probe> {
        let prefix = self.prefix.clone();
        if self.next_probe <= now {
            self.probes = self.probes.saturating_add(1);
            self.next_probe = now
                + match self.probes {
                    sent if sent < EAGER_PROBES => EAGER,
                    sent if sent >= ENOUGH_PROBES && self.known.len() < 2 => SELDOM,
                    _ => PROBING,
                };
            return Some(Probe {
                prefix,
                way: Way {
                    peer: index,
                    path: BY_NAME,
                },
                lifetime: PROBE_LIFETIME,
                header: discovery(LpHeader::default()),
            });
        }
        let places = self.known.iter_mut().enumerate();
        let mut checked = places.filter(|(_, it)| it.is_checked());
        let (at, known) = checked.find(|(_, it)| it.next_check <= now)?;
        known.next_check = now + CHECKING;
        Some(Probe {
            prefix,
            way: Way {
                peer: index,
                path: PathId(at as u16 + 1),
            },
            lifetime: known.rtt.timeout(),
            header: discovery(known.tag.header()),
        })
    }

    /// When a probe or check is due.
    fn next(&self) -> Time {
        let checked = self.known.iter().filter(|it| it.is_checked());
        let check = checked.map(|it| it.next_check).min();
        check.map_or(self.next_probe, |at| at.min(self.next_probe))
    }
}

impl Known {
    /// Only what connections depend on is checked; probes find whether others work.
    fn is_checked(&self) -> bool {
        self.connections > 0 && self.failed_at.is_none()
    }
}

/// Asks for the tag of the way that the Interest takes.
fn discovery(header: LpHeader) -> LpHeader {
    LpHeader {
        path_discovery: true,
        ..header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A tag of labels of one octet.
    fn tag(labels: &[u8]) -> PathTag {
        PathTag::new(labels.to_vec()).unwrap()
    }

    fn prefix() -> Name {
        "/b".parse().unwrap()
    }

    const fn way(path: u16) -> Way {
        Way {
            peer: 0,
            path: PathId(path),
        }
    }

    /// Paths to `/b` over these tags, each found by a probe that took 20 ms.
    fn found(most: usize, tags: &[PathTag]) -> Paths {
        let mut paths = Paths::new(most);
        paths.spoke(Time::ZERO, &prefix());
        let now = Time::from_millis(20);
        for tag in tags {
            paths.answered(now, way(0), Time::ZERO, Some(tag.clone()));
        }
        paths
    }

    #[test]
    fn connections_are_spread_over_paths_that_differ_in_a_link() {
        let tags = [tag(&[1, 2]), tag(&[3, 4]), tag(&[1, 4, 2])];
        let mut paths = found(10, &tags);
        let chosen = [(); 4].map(|()| paths.choose(&prefix()).unwrap().path.0);
        assert_eq!(chosen, [1, 2, 1, 2], "the third one has no link of its own");
        paths.release(way(2));
        assert_eq!(paths.choose(&prefix()), Some(way(2)));
    }

    #[test]
    fn the_only_path_is_the_names() {
        let mut paths = found(10, &[tag(&[1, 2])]);
        assert_eq!(paths.choose(&prefix()), None);
    }

    #[test]
    fn a_path_fails_after_three_checks_and_returns_with_a_later_probe() {
        let mut paths = found(2, &[tag(&[1]), tag(&[2])]);
        assert_eq!(paths.choose(&prefix()), Some(way(1)));
        let at = Time::from_secs(1);
        assert_eq!([0, 1].map(|_| paths.expired(at, way(1))), [None; 2]);
        let since = paths.expired(at, way(1));
        assert_eq!(since, Some(Time::from_millis(20)), "the latest answer");
        assert_eq!(paths.expired(at, way(1)), None, "said once");
        assert_eq!(paths.choose(&prefix()), Some(way(2)));
        // The first probe was sent before it failed.
        let later = Time::from_secs(2);
        paths.answered(later, way(0), Time::from_millis(900), Some(tag(&[1])));
        assert!(paths.status()[0].has_failed);
        paths.answered(later, way(0), Time::from_millis(1100), Some(tag(&[1])));
        assert!(!paths.status()[0].has_failed && paths.status()[0].is_used);
    }

    #[test]
    fn a_tag_that_leads_elsewhere_has_failed() {
        let mut paths = found(2, &[tag(&[1]), tag(&[2])]);
        let (sent, now) = (Time::from_millis(500), Time::from_millis(520));
        assert_eq!(paths.answered(now, way(1), sent, None), None, "unlabelled");
        assert_eq!(paths.answered(now, way(1), sent, Some(tag(&[1]))), None);
        let since = paths.answered(now, way(1), sent, Some(tag(&[3])));
        assert_eq!(since, Some(now));
        let tags: Vec<_> = paths.status().into_iter().map(|it| it.tag).collect();
        assert_eq!(tags, [tag(&[1]), tag(&[2]), tag(&[3])]);
    }

    #[test]
    fn nobody_is_probed_when_nothing_is_said() {
        let mut paths = Paths::new(2);
        paths.spoke(Time::ZERO, &prefix());
        let mut sent = 0;
        while let Some(at) = paths.next() {
            while paths.due(at).is_some() {
                sent += 1;
            }
        }
        // 20 soon, ten half a second apart, then every two seconds, for five seconds.
        assert_eq!(sent, 19 + 10);
        paths.spoke(Time::from_secs(60), &prefix());
        assert_eq!(paths.next(), Some(Time::from_secs(60)));
    }

    /// With mapped prefixes, a program that calls many addresses makes as many peers.
    #[test]
    fn idle_peers_make_room_for_others() {
        let peer = |number: usize| format!("/p/{number}").parse::<Name>().unwrap();
        let mut paths = Paths::new(2);
        for number in 0..=MAX_PEERS {
            paths.spoke(Time::ZERO, &peer(number));
        }
        assert_eq!(paths.peers.len(), MAX_PEERS);
        assert!(
            !paths.by_prefix.contains_key(&peer(MAX_PEERS)),
            "all are in use"
        );
        // One has a connection, and stays.
        for tag in [tag(&[1]), tag(&[2])] {
            paths.answered(Time::from_millis(20), way(0), Time::ZERO, Some(tag));
        }
        assert!(paths.choose(&peer(0)).is_some());
        while let Some(at) = paths.next() {
            while paths.due(at).is_some() {}
        }
        let later = Time::from_secs(60);
        for number in MAX_PEERS..2 * MAX_PEERS {
            paths.spoke(later, &peer(number));
        }
        assert_eq!(
            (paths.peers.len(), paths.by_prefix.len()),
            (MAX_PEERS, MAX_PEERS)
        );
        assert!(paths.by_prefix.contains_key(&peer(0)));
        assert!(paths.by_prefix.contains_key(&peer(2 * MAX_PEERS - 2)));
        assert!(
            !paths.by_prefix.contains_key(&peer(2 * MAX_PEERS - 1)),
            "no place is left"
        );
    }

    proptest! {
        /// Beside a list of what is known: who uses which path, and which has failed.
        #[test]
        fn only_paths_that_work_are_chosen(
            steps in prop::collection::vec((0u8..6, 0u16..6, 0u64..400), 0..200),
        ) {
            let tags: Vec<_> = (0..6u8).map(|n| tag(&[n % 3, 10 + n / 2, 20 + n])).collect();
            let mut paths = found(3, &tags);
            let mut chosen: Vec<Way> = Vec::new();
            let mut failed = [None; 6];
            let mut now = Time::from_millis(20);
            for (step, path, wait) in steps {
                now += Duration::from_millis(wait);
                let at = usize::from(path);
                match step {
                    0 => {
                        if let Some(way) = paths.choose(&prefix()) {
                            prop_assert_eq!(failed[usize::from(way.path.0) - 1], None);
                            chosen.push(way);
                        } else {
                            prop_assert!(failed.iter().all(Option::is_some));
                        }
                    }
                    1 if !chosen.is_empty() => paths.release(chosen.remove(at % chosen.len())),
                    2 => {
                        let is_new = paths.fail(now, way(path + 1)).is_some();
                        prop_assert_eq!(is_new, failed[at].is_none());
                        failed[at] = Some(now);
                    }
                    3 => {
                        let sent = now - Duration::from_millis(5);
                        paths.answered(now, way(0), sent, Some(tags[at].clone()));
                        failed[at] = failed[at].filter(|failed| sent <= *failed);
                    }
                    4 => paths.spoke(now, &prefix()),
                    _ => {
                        while let Some(probe) = paths.due(now) {
                            if let Some(at) = place(probe.way.path) {
                                prop_assert_eq!(failed[at], None);
                                prop_assert!(chosen.contains(&probe.way));
                            }
                        }
                        prop_assert!(paths.next().is_none_or(|at| at > now));
                    }
                }
                let status = paths.status();
                prop_assert!(status.iter().filter(|it| it.is_used).count() <= 3);
                for (at, it) in status.iter().enumerate() {
                    let users = chosen.iter().filter(|way| place(way.path) == Some(at));
                    prop_assert_eq!(it.connections as usize, users.count());
                    prop_assert_eq!(it.has_failed, failed[at].is_some());
                    prop_assert!(!(it.is_used && it.has_failed));
                }
            }
        }
    }
}
