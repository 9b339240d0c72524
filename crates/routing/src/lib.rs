//! Link-state routing between routers that know each other [MF-5G §IV-A].
//!
//! Each router announces its links: signed, numbered, with the measured cost of each
//! ([`Announcement`]). Announcements are flooded from neighbour to neighbour, and the digests of the
//! neighbours' databases tell what a lost one left out. A link counts if both of its ends announce it.
//!
//! Shortest paths of the database say how good a next hop is. Whether it may be used, the neighbours'
//! own words say: each tells its distances, and a router uses a neighbour towards a destination only
//! while that neighbour's distance is below every distance that the router's own neighbours may hold
//! of it. Along such next hops this bound falls strictly, so that chunks do not loop, however much the
//! databases of the routers differ (\[LFI\], and the feasibility condition of Babel, RFC 8966 §3.5.1).
//!
//! The parts, each with its own state:
//!
//! | part | owns |
//! |---|---|
//! | `Database` | the announcements of all routers, their leases and bounds |
//! | `LinkGraph` | the links that both ends announce; shortest paths |
//! | `Neighbour` | what one neighbour told and what it may hold of this router's distances |
//! | `LinkCost` | the cost of one link: smoothed, with hysteresis; its flaps; its share of time up |
//! | [`ContactPlan`] | known contacts, and the earliest way over them |
//! | [`Routing`] | connects them |
//!
//! No decision reads a wall clock, but for those about known contacts: leases and timers are durations, and sequence numbers order the
//! announcements of a router.

#![forbid(unsafe_code)]

mod announcement;
mod contacts;
mod cost;
mod database;
mod graph;
mod known_contacts;
mod message;
mod neighbour;
mod next_hops;
mod reader;
mod routing;

pub use announcement::{Announcement, Edition, Link, MAX_LINKS};
pub use contacts::{ContactPlan, ContactPlanError, Earliest, MAX_PLAN};
pub use cost::{Cost, LinkSample};
pub use database::MAX_ROUTERS;
pub use message::{Distances, Message, State};
pub use next_hops::Way;
pub use reader::MessageError;
pub use routing::{Dropped, KnownRouter, LinkMetric, Routing, RoutingCounters, WayStatus};
