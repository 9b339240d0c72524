//! Which announcers have served what they announced. Announcing is no proof of serving: where many
//! hosts announce one content, those that have sent a true chunk of it come first.

use whimbrel_core::{Distrust, Guid, PortId, SeededRng, SharedRecent, Source, Time};

use super::store::copies::is_proven;
use crate::wire::Data;

/// Maximum of contents and hosts that are remembered; of the network with the most pairs, the one that
/// has served last the longest ago is forgotten.
const MAX_SERVED: usize = 4096;

/// The pairs of contents and hosts.
#[derive(Debug)]
pub(super) struct Served {
    pairs: SharedRecent<Source, (Guid, Guid)>,
    // Checking a chunk is work: a neighbour that sends false ones has little of it.
    distrust: Distrust<PortId>,
}

impl Served {
    pub(super) fn new(rng: &mut SeededRng) -> Served {
        Served {
            pairs: SharedRecent::new(MAX_SERVED, rng),
            distrust: Distrust::default(),
        }
    }

    pub(super) fn has(&self, content: &Guid, host: &Guid) -> bool {
        self.pairs.contains(&(*content, *host))
    }

    /// Notes a chunk that has come from a host by a port. It is looked at unless that is known of the
    /// host already.
    pub(super) fn note(&mut self, now: Time, host: Guid, from: PortId, at: Source, data: &Data) {
        let pair = (data.content, host);
        if self.pairs.touch(&pair).is_some() || !self.distrust.may_check(now, from) {
            return;
        }
        if !is_proven(data) {
            return self.distrust.note_bad(now, from);
        }
        self.pairs.insert(at, pair, ());
    }

    /// A host says that it does not serve a content.
    pub(super) fn forget(&mut self, content: Guid, host: Guid) {
        self.pairs.remove(&(content, host));
    }
}
