//! Connections that are not carried: whoever asked for them is told, and so is this proxy's user.

use std::collections::BTreeSet;

use whimbrel_core::{Meter, Time};
use whimbrel_ndn_packet::Name;

use crate::icmp::ANSWERS;
use crate::message::Refusal;
use crate::segment::Ends;

/// Refusals that the user was told of; a scan of ports must not grow memory.
const MOST_TOLD: usize = 256;

/// A connection that is not carried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// This proxy does not carry it for a program on its side.
    Program(Ends),
    /// This proxy does not carry it for the peer with this prefix.
    Peer(Name, Ends, Refusal),
    /// The peer with this prefix does not carry it.
    ByPeer(Name, Ends, Refusal),
}

impl Refused {
    /// Returns it without the port of the end that connects, which is another one at each attempt.
    fn without_port(&self) -> Refused {
        let mut same = self.clone();
        match &mut same {
            Refused::Program(ends) | Refused::ByPeer(_, ends, _) => ends.local.set_port(0),
            Refused::Peer(_, ends, _) => ends.remote.set_port(0),
        }
        same
    }
}

/// Which refusals were told.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    told: BTreeSet<Refused>,
    answers: Meter,
}

impl Refusals {
    /// Notes a refusal; returns true if the user does not know of it yet.
    pub(crate) fn note_new(&mut self, refused: &Refused) -> bool {
        self.told.len() < MOST_TOLD && self.told.insert(refused.without_port())
    }

    /// Counts an answer to a peer; returns false if there were too many.
    pub(crate) fn admit_answer(&mut self, now: Time) -> bool {
        self.answers.admits(now, ANSWERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_destination_is_told_once_and_a_scan_is_bounded() {
        let mut refusals = Refusals::default();
        let ends = |client: u16, server: u16| Ends {
            local: ([10, 1, 0, 1], client).into(),
            remote: ([10, 2, 0, 1], server).into(),
        };
        let refused = |client, server| {
            let peer = "/b".parse().unwrap();
            Refused::ByPeer(peer, ends(client, server), Refusal::Destination)
        };
        assert!(refusals.note_new(&refused(40_000, 22)));
        assert!(!refusals.note_new(&refused(40_001, 22)));
        assert!(refusals.note_new(&refused(40_001, 23)));
        let scan = (1..60_000).filter(|port| refusals.note_new(&refused(40_000, *port)));
        assert_eq!(scan.count(), MOST_TOLD - 2);
    }
}
