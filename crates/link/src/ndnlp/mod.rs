//! The link service of one NDN face: NDNLPv2 and best-effort hop-by-hop reliability (BELRP).
//!
//! [`LinkService`] stands between a forwarder, which knows whole Interests and Data, and a driver,
//! which knows frames. It queues, cuts to the MTU, marks congestion, and recovers lost frames as
//! its [`Reliability`] says. The wire formats and the reasons for them are in
//! `docs/protocols/belrp.md`.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | what the owner of a face decides |
//! | [`stats`] | what a face counts |
//! | `service` | [`LinkService`]: puts the parts together |
//! | `recovery` | what a profile of reliability is to the service, and how to add one |
//! | `plain` | the profile without reliability |
//! | `paper` | the profile that is BELRP as the paper has it |
//! | `ndnlpv2` | the profile that is reliability as NFD has it |
//! | `adaptive` | the profile between two Whimbrel routers |
//! | `framing` | sizes of NDNLPv2 frames |
//! | `compact` | frames without the outermost type and length of their packet |
//! | `queue`, `piece`, `outstanding` | what waits to be sent, what one frame carries, what was sent and not acknowledged |
//! | `number_set`, `recent` | which numbers came |
//! | `marking` | when to mark a packet because of congestion |
//! | `delivery` | how fast the peer acknowledges |
//! | `pacer` | frames at the rate of a modelled device |
//! | `reassembly` | packets of which some fragments are missing, bounded |

mod adaptive;
mod compact;
pub mod config;
mod delivery;
mod framing;
mod marking;
mod ndnlpv2;
mod number_set;
mod outstanding;
mod pacer;
mod paper;
mod piece;
mod plain;
mod queue;
mod reassembly;
mod recent;
mod recovery;
mod service;
pub mod stats;
#[cfg(test)]
mod vectors;

pub use config::{FrameKind, LinkServiceConfig, Reliability};
pub use service::{LinkEvent, LinkService, Written};
pub use stats::{Delays, LinkDrops, LinkStats, Mode};
