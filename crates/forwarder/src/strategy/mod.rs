//! Forwarding strategies: which of a prefix's next hops an Interest takes, and when.
//!
//! | module | holds |
//! |---|---|
//! | [`choice`] | which prefix has which strategy |
//! | [`context`] | what a strategy sees and may do |
//! | `parameters` | parameters in the names of strategies |
//! | `suppression` | which retransmissions are not forwarded |
//! | `best_route` | `/localhost/nfd/strategy/best-route/v=5`: the cheapest next hop, another one for a retransmission |
//! | `multicast` | `/localhost/nfd/strategy/multicast/v=4`: all next hops |
//! | `asf` | `/localhost/nfd/strategy/asf/v=5`: the fastest next hop, others are probed now and then |
//! | `random` | `/localhost/nfd/strategy/random/v=1`: any next hop |
//! | `weighted` | `/localhost/nfd/strategy/weighted/v=1`: next hops by their shares |

mod asf;
mod best_route;
pub mod choice;
pub mod context;
mod multicast;
mod parameters;
mod random;
mod suppression;
mod weighted;

use whimbrel_ndn_packet::{LpHeader, NackReason};

use crate::face::FaceId;

pub use choice::{StrategyChoice, StrategyError};
pub use context::{Context, IncomingData};

/// What decides where Interests go. One instance serves one prefix of the strategy choice table.
///
/// Of every trigger:
/// * the entry that [`Context`] speaks of exists, and is not touched by anything else until the
///   trigger returns;
/// * the strategy sends only to faces that [`Context::is_eligible`] approves of;
/// * it bounds what it keeps, and needs no trigger to come: an entry may end without one (evicted,
///   its face removed).
pub trait Strategy: Send {
    /// An Interest came that neither the content store nor its nonce has settled.
    ///
    /// May assume: [`Context::downstream`] is its face and has an in-record; the entry may be new,
    /// or have other downstreams and upstreams already; its timer to end is set. Must: send the
    /// Interest to one or more next hops, or suppress it because it was forwarded shortly before,
    /// or, if there is no next hop that it could take, answer with a Nack and [`Context::reject`]
    /// the entry. What does none of these stays until it expires.
    fn after_receive_interest(&mut self, context: &mut Context<'_>);

    /// A Data came that satisfies the entry, which still is as it was before. The Data goes to all
    /// downstreams afterwards, with the link header fields that are returned (NFD:
    /// afterReceiveData and beforeSatisfyInterest in one). A Data that satisfies several entries
    /// triggers once for each; unsolicited Data and Data from the content store trigger nothing.
    ///
    /// May assume: the in-records (of downstreams whose faces are not gone) and the out-record of
    /// [`IncomingData::from`], if there was one, are still there; the Data fits the entry and its
    /// scope; the entry ends after this trigger.
    /// May: read the Data and its header, learn from them, and let the entry stay a while for
    /// slower upstreams by [`Context::set_expiry`]; return fields to send with the Data, of which
    /// those that are the forwarder's own (PitToken, Nack, IncomingFaceId, NextHopFaceId) or that
    /// Data cannot have are left out, while of two congestion marks the higher one counts.
    /// Must not: send anything, or keep the Data; whether it goes to a downstream is not up to the
    /// strategy.
    fn after_receive_data(
        &mut self,
        _context: &mut Context<'_>,
        _data: &IncomingData<'_>,
    ) -> Option<Box<LpHeader>> {
        None
    }

    /// An upstream answered the last Interest sent to it with a Nack.
    ///
    /// May assume: `from` has one peer and an out-record, in which the Nack is written down; if no
    /// upstream is left that might answer, the entry ends after this trigger. May: send the
    /// Interest elsewhere (and then let the entry stay by [`Context::set_expiry`]), or pass Nacks
    /// on.
    fn after_receive_nack(
        &mut self,
        context: &mut Context<'_>,
        _from: FaceId,
        _reason: NackReason,
    ) {
        context.pass_nacks_on();
    }

    /// The link to `to` gave up on the Interest after its retransmissions.
    ///
    /// May assume: `to` has an out-record. The Interest may have arrived all the same.
    /// May: send the Interest elsewhere.
    fn after_dropped(&mut self, _context: &mut Context<'_>, _to: FaceId) {}

    /// The timer that the strategy set with [`Context::set_timer`] has run out.
    ///
    /// May assume: the entry has not expired; it may have been satisfied since.
    /// May: send the Interest elsewhere, set the timer again.
    fn on_timer(&mut self, _context: &mut Context<'_>) {}

    /// The entry expires without a Data.
    ///
    /// May: learn from it.
    /// Must not: send anything, or keep the entry.
    fn before_expire(&mut self, _context: &mut Context<'_>) {}

    /// A face is gone: whatever is known of it can be forgotten.
    fn forget_face(&mut self, _face: FaceId) {}

    /// How many measurements it keeps.
    fn measurements(&self) -> usize {
        0
    }
}
