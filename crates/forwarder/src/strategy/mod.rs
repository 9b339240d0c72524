//! Forwarding strategies: they select the next hops of an Interest.
//!
//! | module | holds |
//! |---|---|
//! | [`choice`] | the strategies by prefix |
//! | [`context`] | a strategy's view and actions |
//! | [`kind`] | the strategies that have a name |
//! | `parameters` | parameters in the names of strategies |
//! | `suppression` | suppression of retransmissions |
//! | `best_route` | `/localhost/nfd/strategy/best-route/v=5`: the cheapest next hop, another one for a retransmission |
//! | `multicast` | `/localhost/nfd/strategy/multicast/v=4`: all next hops |
//! | `asf` | `/localhost/nfd/strategy/asf/v=5`: the fastest next hop, others are probed now and then |
//! | `random` | `/localhost/nfd/strategy/random/v=1`: any next hop |
//! | `weighted` | `/localhost/nfd/strategy/weighted/v=1`: next hops by their weights |
//! | `repeat` | `/localhost/nfd/strategy/repeat/v=1`: as best-route; Interests that later ones have overtaken are sent again |
//! | [`pending`] | the pending Interests of a face, counted |

mod asf;
mod best_route;
pub mod choice;
pub mod context;
pub mod kind;
mod multicast;
mod parameters;
pub mod pending;
mod random;
mod repeat;
mod suppression;
mod weighted;

use whimbrel_ndn_packet::{LpHeader, NackReason};

use crate::face::FaceId;

pub use best_route::retransmission_face;
pub use choice::{StrategyChoice, StrategyError};
pub use context::{Context, IncomingData};
pub use kind::{Memory, StrategyKind, StrategyKinds};
pub use parameters::Parameters;
pub use suppression::{Suppression, Verdict};

pub use crate::tables::measurements;

/// A forwarding strategy. One instance serves one prefix of the strategy choice table.
///
/// For every trigger:
/// * the entry in [`Context`] exists, and is not changed by anything else until the trigger
///   returns;
/// * the strategy sends only to faces for which [`Context::is_eligible`] is true;
/// * it bounds its memory, and does not rely on a trigger: an entry may end without one (evicted,
///   its face removed).
pub trait Strategy: Send {
    /// An Interest arrived that is not a loop and that the content store cannot answer.
    ///
    /// May assume: [`Context::downstream`] is its face and has an in-record; the entry may be new,
    /// or have other downstreams and upstreams already; its expiry timer is set. Must: send the
    /// Interest to one or more next hops, or suppress it because it was forwarded shortly before,
    /// or, if it has no usable next hop, answer with a Nack and [`Context::reject`] the entry.
    /// Otherwise the entry stays until it expires.
    fn after_receive_interest(&mut self, context: &mut Context<'_>);

    /// An Interest arrived that asks for a path to its name ([PTP §1]): returns the face to forward it
    /// to, one of [`Context::eligible`]; `None` if there is none, which is answered with a Nack.
    ///
    /// May assume: as for [`Strategy::after_receive_interest`], which is not called for it. Must:
    /// give every path a chance, "an equal-weight strategy, which distributes packets to different
    /// interfaces evenly" ([PTP §4-A]). Must not: send packets.
    fn choose_probed(&mut self, context: &mut Context<'_>) -> Option<FaceId> {
        context.even_hop()
    }

    /// A Data arrived that satisfies the entry, which is still unchanged. Afterwards the Data is
    /// sent to all downstreams with the returned link header fields (NFD: afterReceiveData and
    /// beforeSatisfyInterest in one). A Data that satisfies several entries triggers once for each;
    /// unsolicited Data and Data from the content store do not trigger.
    ///
    /// May assume: the in-records (of downstreams whose faces exist) and the out-record of
    /// [`IncomingData::from`], if there was one, are still present; the Data matches the entry and
    /// its scope; the entry ends after this trigger.
    /// May: read the Data and its header, learn from them, and keep the entry for slower upstreams
    /// by [`Context::set_expiry`]; return fields to send with the Data. The forwarder's own fields
    /// (PitToken, Nack, IncomingFaceId, NextHopFaceId, PathTag, Intermediate) and those that Data
    /// cannot have are omitted; of two congestion marks the higher one is used.
    /// Must not: send packets, or keep the Data; the strategy does not decide whether a downstream
    /// gets it.
    fn after_receive_data(
        &mut self,
        _context: &mut Context<'_>,
        _data: &IncomingData<'_>,
    ) -> Option<Box<LpHeader>> {
        None
    }

    /// An upstream answered its latest Interest with a Nack.
    ///
    /// May assume: `from` has one peer and an out-record, in which the Nack is recorded; if no
    /// upstream is left that might answer, the entry ends after this trigger. May: send the
    /// Interest elsewhere (and then keep the entry by [`Context::set_expiry`]), or forward Nacks.
    fn after_receive_nack(
        &mut self,
        context: &mut Context<'_>,
        _from: FaceId,
        _reason: NackReason,
    ) {
        context.pass_nacks_on();
    }

    /// The link to `to` abandoned the Interest after its retransmissions.
    ///
    /// May assume: `to` has an out-record. The Interest may have arrived nevertheless.
    /// May: send the Interest elsewhere.
    fn after_dropped(&mut self, _context: &mut Context<'_>, _to: FaceId) {}

    /// The timer set with [`Context::set_timer`] has expired.
    ///
    /// May assume: the entry has not expired; it may have been satisfied since.
    /// May: send the Interest elsewhere, set the timer again.
    fn on_timer(&mut self, _context: &mut Context<'_>) {}

    /// The entry expires without a Data.
    ///
    /// May: learn from it.
    /// Must not: send packets, or keep the entry.
    fn before_expire(&mut self, _context: &mut Context<'_>) {}

    /// A face was removed: its state can be forgotten.
    fn forget_face(&mut self, _face: FaceId) {}

    /// Returns the number of its measurements.
    fn measurements(&self) -> usize {
        0
    }
}
