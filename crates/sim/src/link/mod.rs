//! The link model. The simulator runs it in virtual time, the emulator in real time.
//!
//! A [`LinkSpec`] describes one direction of a link; a [`LinkDirection`] implements it. A frame
//! passes these stages, in this order:
//!
//! 1. **Offer.** A frame offered while the link is out (see [`Outage`]) is lost at once: it takes
//!    neither queue nor time, which is what netem's `loss 100%` does.
//! 2. **Queue.** While the transmitter is busy, frames wait in a drop-tail queue. The frame being
//!    transmitted is not in the queue and does not count towards [`QueueLimit`].
//! 3. **Transmission** at [`Rate`]: (length + overhead) x 8 bits. Whole nanoseconds are kept and
//!    the fraction is carried to the next frame of the same busy period, so that n frames back to
//!    back take exactly floor(sum of bits x 10^9 / rate) nanoseconds. With [`LinkSpec::burst`] they
//!    leave earlier, by as much as the bucket holds.
//! 4. **Loss.** A frame is lost if the link was out at any time of its transmission, or else with
//!    the probability that [`Loss`] gives. Either way it has taken its transmission time, as on a
//!    radio. (netem draws its losses before its queue, so there a lost frame takes no time; at 1 %
//!    loss that makes 1 % of the rate.) A frame that has left the transmitter is delivered even if
//!    an outage begins while it propagates.
//! 5. **Propagation**: the one-way delay, plus jitter uniform within +-`jitter` (never below zero).
//!    Jitter alone does not reorder: a frame never arrives before one that was sent earlier, unless
//!    [`Reorder`] picks it.
//! 6. **Duplication** (a second copy arrives right behind the first) and **corruption** (one random
//!    bit of the frame flips, drawn for each copy on its own).
//!
//! Every random feature draws from a generator of its own, in transmission order: the same seed
//! loses the same frames with and without jitter, and regardless of how often the link is polled.

mod codel;
mod delivery_trace;
mod direction;
mod ecn;
mod loss;
mod outage;
pub mod presets;
mod spec;
mod stats;

pub use delivery_trace::{DeliveryTrace, TraceError};
pub use direction::LinkDirection;
pub use ecn::{Markable, mark_ip};
pub use loss::{GilbertElliott, Loss};
pub use outage::Outage;
pub use spec::{Change, LinkSpec, LinkSpecError, QueueLimit, Rate, Reorder};
pub use stats::{DropReason, LinkStats};
