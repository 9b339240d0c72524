//! The foundation of every Whimbrel protocol: time, the machine contract, identifiers, timers,
//! estimators and seeded randomness.
//!
//! The one invariant of this workspace: **a protocol is a [`Machine`]**. It holds no socket,
//! thread, clock or global randomness; time comes in as an argument, randomness from a
//! [`SeededRng`] given at construction. The same machine therefore runs in the simulator (virtual
//! time) and behind real sockets.
//!
//! | module | holds |
//! |---|---|
//! | [`time`] | [`Time`], nanoseconds since the run's origin; [`WallClock`], its relation to Unix time |
//! | [`machine`] | [`Machine`], the contract between a protocol and its driver |
//! | [`port`] | the adjacencies of a machine: how ports are opened, and requests about them |
//! | [`shape`] | [`FrameShape`], by which frames are told from noise |
//! | [`disk`] | [`Disk`]: entries on a disk, asked for by actions and answered by events |
//! | [`id`] | [`Guid`] and [`PortId`] |
//! | [`identity`] | Ed25519 keys and the names that they prove |
//! | [`link_state`] | [`LinkState`]: rate, queue, loss and round trip of a link, for decisions among links |
//! | [`meter`] | [`Meter`], a limit of events per second, and [`Meters`] of keys; [`Distrust`], of sources that send bad signatures |
//! | [`timer`] | [`TimerQueue`], many deadlines in one deterministic order |
//! | [`estimator`] | round-trip time after RFC 6298, windowed minimum and maximum |
//! | [`recent`] | [`Recent`], a bounded map of which the oldest entry gives way; [`SharedRecent`], of which the owner with the most does |
//! | [`random`] | [`SeededRng`] and independent streams from one seed |
//! | [`mod@keyed_map`] | a hash map for keys an attacker may choose |
//! | [`units`] | durations, sizes, rates and probabilities as people type them |
//! | [`suggest`] | "did you mean" |
#![forbid(unsafe_code)]

pub mod disk;
pub mod estimator;
pub mod id;
pub mod identity;
pub mod keyed_map;
pub mod link_state;
pub mod machine;
pub mod meter;
pub mod port;
pub mod random;
pub mod recent;
pub mod shape;
pub mod suggest;
pub mod time;
pub mod timer;
pub mod units;

pub use disk::{Copies, Disk, DiskAction, DiskCopy, DiskEntry, DiskEvent, DiskKey, DiskStatus};
pub use estimator::{Gains, RttEstimator, RttOptions, WindowedMax, WindowedMin};
pub use id::{Guid, GuidPrefix, ParseGuidError, PortId};
pub use identity::{KeyPair, PublicKey};
pub use keyed_map::{KeyedMap, KeyedState, keyed_map};
pub use link_state::LinkState;
pub use machine::{Deadline, Machine, Transmit};
pub use meter::{Distrust, Limit, Meter, Meters, Shares, Source, network_of};
pub use port::{
    Admission, CallerGate, Ecn, Endpoint, Family, LookUpFailure, Medium, OpenRefusal, Peer,
    PortEvent, PortInfo, PortOrigin, PortRequest, PortToken, address_of_station,
};
pub use random::SeededRng;
pub use recent::{Recent, SharedRecent};
pub use shape::FrameShape;
pub use time::{Time, WallClock};
pub use timer::TimerQueue;
