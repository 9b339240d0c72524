//! The link service of one NDN face: NDNLPv2 and best-effort hop-by-hop reliability (BELRP).
//!
//! [`LinkService`] is between a forwarder, which handles whole Interests and Data, and a driver,
//! which handles frames. It queues, fragments to the MTU, marks congestion, and recovers lost
//! frames as its [`Reliability`] says. The wire formats and their rationale are in
//! `docs/protocols/belrp.md`.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the configuration of a face's link service |
//! | [`stats`] | the counters and estimates of a face |
//! | `service` | [`LinkService`]: combines the parts |
//! | `recovery` | the contract of a profile of reliability, and how to add one |
//! | `plain` | the profile without reliability |
//! | `paper` | the profile that is BELRP as in the paper |
//! | `ndnlpv2` | the profile that is reliability as in NFD |
//! | `adaptive` | the profile between two Whimbrel routers |
//! | `framing` | sizes of NDNLPv2 frames |
//! | `compact` | frames without the outermost type and length of their packet |
//! | `queue`, `piece`, `outstanding` | packets to send, the payload of one frame, unacknowledged frames |
//! | `number_set`, `recent` | numbers that have arrived |
//! | `marking` | marking of packets for congestion |
//! | `delivery` | the rate at which the peer acknowledges |
//! | `pacer` | frames at the rate of a modelled device |
//! | `path` | questions and probes for the path MTU |
//! | `evidence` | what the peer's counts of bytes say about large frames |
//! | `repeats` | Data that are sent again, as evidence about the path MTU |
//! | `reassembly` | incomplete packets, bounded |

mod adaptive;
mod compact;
pub mod config;
mod delivery;
mod evidence;
mod framing;
mod marking;
mod ndnlpv2;
mod number_set;
mod outstanding;
mod pacer;
mod paper;
mod path;
mod piece;
mod plain;
mod queue;
mod reassembly;
mod recent;
mod recovery;
mod repeats;
mod resent;
mod service;
pub mod stats;
#[cfg(test)]
mod vectors;

pub use config::{FrameKind, LinkServiceConfig, MIN_MTU, PaperOptions, Reliability};
pub use service::{LinkEvent, LinkService, Written};
pub use stats::{Delays, LinkDrops, LinkStats, Mode};
