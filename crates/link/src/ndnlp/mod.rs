//! The link service of one NDN face: NDNLPv2 and best-effort hop-by-hop reliability (BELRP).
//!
//! [`LinkService`] stands between a forwarder, which knows whole Interests and Data, and a driver, which knows frames.
//! It queues, cuts to the MTU, marks congestion, and recovers lost frames as its [`Reliability`] says. The wire formats
//! and the reasons for them are in `docs/protocols/belrp.md`.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | what the owner of a face decides |
//! | [`stats`] | what a face counts |
//! | `service` | [`LinkService`]: puts the parts together |
//! | `queue` | packets that wait to be sent, bounded |
//! | `marking` | when to mark a packet because of congestion |
//! | `pacer` | frames at the rate of a modelled device |
//! | `reassembly` | packets of which some fragments are missing, bounded |

pub mod config;
mod marking;
mod pacer;
mod queue;
mod reassembly;
mod service;
pub mod stats;

pub use config::{FrameKind, LinkServiceConfig, Reliability};
pub use service::{LinkEvent, LinkService, Written};
pub use stats::{LinkDrops, LinkStats};
