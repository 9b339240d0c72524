//! Outages: peers that do not answer, and what is sent again when they do.
//!
//! After an outage the ends of a connection wait for TCP's next retransmission, whose distance has
//! grown with the outage. The proxies find the end of the outage sooner: while something was said to
//! a peer and nothing comes back, they probe it. When it answers again, each connection that waits
//! for it passes on its newest segment of each kind once more: an end that lost an acknowledgement
//! or a window update gets it, an end that lost a segment acknowledges what it has, and TCP goes on.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Time, TimerQueue};
use whimbrel_ndn_packet::Name;

use crate::table::Slot;

/// A peer that has not answered for so long is probed. Longer than most round trips, shorter than
/// TCP's first retransmissions take together.
const PATIENCE: Duration = Duration::from_secs(1);
/// Probes without an answer after which the path counts as interrupted.
const INTERRUPTED: u32 = 2;
/// Peers that are remembered; the state of further ones is not kept.
const MAX_PEERS: usize = 4096;
/// A peer to which nothing was said for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug)]
struct Peer {
    /// When the last message or Data came from it.
    heard: Time,
    /// When something was first said to it since then, and the last connection that did.
    spoken: Option<Time>,
    slot: Slot,
    /// Probes since then.
    probes: u32,
    /// The timer is set to when a probe may be due. It is not moved with each answer.
    armed: bool,
}

/// The peers of a proxy.
#[derive(Default)]
pub(crate) struct Peers {
    by_prefix: BTreeMap<Name, Peer>,
    timers: TimerQueue<Name>,
}

impl Peers {
    /// A connection with this peer says something. What ends the silence is an answer.
    pub(crate) fn spoke(&mut self, now: Time, prefix: &Name, slot: Slot) {
        if let Some(peer) = self.by_prefix.get_mut(prefix) {
            peer.slot = slot;
            peer.spoken.get_or_insert(now);
            if !peer.armed {
                peer.armed = true;
                self.timers.set(prefix.clone(), now + PATIENCE);
            }
        } else if self.by_prefix.len() < MAX_PEERS {
            let peer = Peer {
                heard: now,
                spoken: Some(now),
                slot,
                probes: 0,
                armed: true,
            };
            self.by_prefix.insert(prefix.clone(), peer);
            self.timers.set(prefix.clone(), now + PATIENCE);
        }
    }

    /// Something authentic comes from this peer. Returns when it was last heard, if the path to it
    /// was interrupted since.
    pub(crate) fn heard(&mut self, now: Time, prefix: &Name) -> Option<Time> {
        let peer = self.by_prefix.get_mut(prefix)?;
        let before = core::mem::replace(&mut peer.heard, now);
        peer.spoken = None;
        (core::mem::take(&mut peer.probes) >= INTERRUPTED).then_some(before)
    }

    /// Peers that must be probed now, each by a connection.
    pub(crate) fn due(&mut self, now: Time, repeat: Duration) -> Vec<(Name, Slot)> {
        let mut probed = Vec::new();
        let mut pass = self.timers.pass(now);
        while let Some((_, prefix)) = pass.next(&mut self.timers) {
            let Some(peer) = self.by_prefix.get_mut(&prefix) else {
                continue;
            };
            let Some(spoken) = peer.spoken else {
                peer.armed = false;
                if now.since(peer.heard) >= FORGOTTEN {
                    self.by_prefix.remove(&prefix);
                } else {
                    self.timers.set(prefix, peer.heard + FORGOTTEN);
                }
                continue;
            };
            if now < spoken + PATIENCE {
                self.timers.set(prefix, spoken + PATIENCE);
                continue;
            }
            peer.probes += 1;
            probed.push((prefix.clone(), peer.slot));
            self.timers.set(prefix, now + repeat);
        }
        probed
    }

    /// The connection that probed this peer is gone: nobody waits for it.
    pub(crate) fn abandon(&mut self, prefix: &Name) {
        if let Some(peer) = self.by_prefix.get_mut(prefix) {
            peer.spoken = None;
            peer.probes = 0;
        }
    }

    /// When to call [`Peers::due`].
    pub(crate) fn next(&self) -> Option<Time> {
        self.timers.next().map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_probed_and_its_return_is_told() {
        let (mut peers, prefix) = (Peers::default(), "/b".parse::<Name>().unwrap());
        let repeat = Duration::from_millis(200);
        peers.spoke(Time::ZERO, &prefix, 7);
        assert_eq!(peers.heard(Time::from_millis(20), &prefix), None);
        peers.spoke(Time::from_millis(30), &prefix, 7);
        let mut probed = Vec::new();
        while probed.len() < 3 {
            let at = peers.next().unwrap();
            let due = peers.due(at, repeat);
            probed.extend(
                due.into_iter()
                    .map(|(_, slot)| (at.as_micros() / 1000, slot)),
            );
        }
        assert_eq!(probed, [(1030, 7), (1230, 7), (1430, 7)]);
        let back = peers.heard(Time::from_millis(1500), &prefix);
        assert_eq!(back, Some(Time::from_millis(20)));
        assert_eq!(peers.heard(Time::from_millis(1501), &prefix), None);
    }

    #[test]
    fn nobody_is_probed_to_whom_nothing_is_said() {
        let (mut peers, prefix) = (Peers::default(), "/b".parse::<Name>().unwrap());
        peers.spoke(Time::ZERO, &prefix, 7);
        peers.heard(Time::from_millis(20), &prefix);
        let late = Time::from_secs(100);
        assert_eq!(peers.due(late, Duration::from_millis(200)), []);
    }
}
