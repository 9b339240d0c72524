//! NDN consumers and producers: segment fetching, congestion windows, serving, and the tools'
//! protocols.
//!
//! An [`Application`] speaks NDN packets; [`AppFace`] makes it a [`whimbrel_core::Machine`] whose
//! ports lead to forwarders, so that the same program runs behind Unix sockets, over UDP or in the
//! simulator.
//!
//! | module | holds |
//! |---|---|
//! | [`application`] | [`Application`], the contract, and [`AppFace`], which puts one behind its ports |
//! | [`ledger`] | [`Ledger`]: pending Interests, by key, path and deadline |
//! | [`path`] | [`Path`]: window, timeout, Interests in flight and recovery point of one path to the content; [`Paths`], those of a connection |
//! | [`congestion`] | [`CongestionControl`], the contract of a congestion law; fixed, AIMD and CUBIC windows, and the end of slow start |
//! | [`rtt`] | `ndnget`'s timeout; summaries of round trips |
//! | [`fetch`] | [`Fetcher`]: version discovery, segments in order over one path or several, retransmission |
//! | [`finder`] | [`PathFinder`]: the paths to a name, found by probes |
//! | [`serve`] | [`Service`], the common part of all producers; [`Producer`] of versioned, segmented content |
//! | [`register`] | prefix registration with NFD's management protocol |
//! | [`peek`](mod@peek) | [`Peek`] and [`Poke`]: one Interest, one Data |
//! | [`ping`] | [`Ping`] and [`PingServer`] |
//! | [`traffic`] | [`TrafficClient`] and [`TrafficServer`]: many names in proportions, at a rate |
//! | [`exchange`] | one Interest with its retries; matching of Data with Interests |
//! | [`session`] | [`NdnSession`]: several operations of one program on one face |
//! | [`template`] | Interests for consecutive segments without encoding the name again |
//!
//! Time is an argument, randomness a [`whimbrel_core::SeededRng`] given at construction. The memory
//! that a peer can occupy is bounded; each type states its bound.
#![forbid(unsafe_code)]

pub mod application;
pub mod congestion;
pub mod exchange;
pub mod fetch;
pub mod finder;
pub mod ledger;
mod no_route;
pub mod path;
pub mod peek;
pub mod ping;
pub mod register;
pub mod rtt;
pub mod serve;
pub mod session;
pub mod template;
pub mod traffic;

pub use application::{AppFace, AppFaceCounters, Application, FaceNumber, Outgoing};
pub use congestion::{
    CongestionControl, Coupling, ModelOptions, MpccpOptions, WindowKind, WindowOptions,
};
pub use fetch::{
    Delivery, Discovery, FetchError, FetchEvent, FetchOptions, FetchStats, Fetcher, Multipath,
    PathLeft, Selection, Verifier, Verify,
};
pub use finder::{FoundPath, PathFinder, PathFinderEvent, PathFinderOptions, PathFinderStats};
pub use ledger::Ledger;
pub use path::{Path, PathId, PathOptions, PathState, PathStats, PathTag, Paths};
pub use peek::{Peek, PeekEvent, PeekOptions, Poke, PokeEvent, PokeOptions};
pub use ping::{Ping, PingEvent, PingOptions, PingServer, PingServerOptions, PingStats};
pub use register::{RegisterFailure, RegisterOptions, RegistrationEvent};
pub use rtt::RttSummary;
pub use serve::{
    Answer, BytesSource, Echo, EchoProducer, Producer, ProducerEvent, ProducerOptions, Responder,
    SegmentSource, Service, ServiceEvent, SharedSigner,
};
pub use session::{NdnSession, OperationEvent, OperationNumber, TooManyOperations};
pub use traffic::{Gaps, TrafficClient, TrafficEvent, TrafficOptions, TrafficServer};
