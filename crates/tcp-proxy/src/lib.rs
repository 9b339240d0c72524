//! TCP over NDN: proxies that carry the segments of unmodified TCP programs in Interests and Data
//! [TCP/ICN].
//!
//! A proxy changes nothing of a segment but an MSS option that is too large: it neither
//! acknowledges nor retransmits for an end, and the TTL stays. It is a state machine between a
//! network device and NDN faces.
//!
//! | module | holds | follows |
//! |---|---|---|
//! | [`proxy`] | [`Proxy`]: the table of connections, what happens to each segment, Interest and Data | [TCP/ICN §3] |
//! | [`gateway`] | [`Gateway`]: a proxy with its network device as one machine | |
//! | [`basic`] | basic fetching: announced, then fetched | [TCP/ICN §3.3] |
//! | [`reliable`] | reliable prefetching: a window of Interests | [TCP/ICN §3.4] |
//! | [`unreliable`] | unreliable prefetching: acknowledgements fetch | [TCP/ICN §3.5] |
//! | [`phase`] | set-up and tear-down as seen on the path | [TCP/ICN §3.3.2], Figs 2 and 3 |
//! | [`segment`] | checked views of packets; the MSS | RFC 9293, RFC 791, RFC 8200 |
//! | [`message`], [`naming`] | what is in Interests and Data, and their names | [TCP/ICN §3.3.1, §3.4.1] |
//! | [`seal`] | authentication, encryption, replays | RFC 5869, RFC 8439, RFC 6479 |
//! | [`policy`] | who may use it; which proxy is responsible for an address | [TCP/ICN §3.2.2] |
//! | `paths` | several paths to a peer: found, shared by connections, left when they fail | [PTP §3] |
//! | [`icmp`] | errors to programs | RFC 792, RFC 4443 |
#![forbid(unsafe_code)]

mod admission;
pub mod basic;
mod checksum;
pub mod connection;
pub mod counters;
pub mod gateway;
pub mod icmp;
pub mod message;
pub mod naming;
pub mod options;
mod pack;
mod paths;
pub mod phase;
pub mod policy;
pub mod proxy;
mod refusals;
pub mod reliable;
pub mod seal;
pub mod segment;
mod silence;
mod table;
pub mod unreliable;

pub use connection::{ConnectionCounters, ConnectionStatus};
pub use counters::Counters;
pub use gateway::{Gateway, GatewayEvent, HoldsProxy};
pub use message::{Protocol, Refusal};
pub use options::{Limits, Options, OptionsError};
pub use paths::PathStatus;
pub use phase::Phase;
pub use policy::{Permission, Policy, Route, Target};
pub use proxy::{Proxy, ProxyEvent};
pub use refusals::Refused;
pub use seal::{Protection, SealOptions};
pub use segment::Ends;
pub use unreliable::{DuplexPolicy, NotAPolicy};
