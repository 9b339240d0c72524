//! MobilityFirst: hosts and routers that move named chunks [MFTP §1].
//!
//! The one invariant: **a chunk belongs to exactly one part of a node at a time**: a hop that
//! carries it, the chunks that wait for the name service, the proxy's storage, or a local program's
//! queue; each part has a bound. A multicast chunk is one such chunk on each branch, and the copies
//! share the payload's memory and its room.
//!
//! A router and a host consist of parts that own their state. A part pushes anything beyond its
//! state as an action (`router/effects.rs`, `host/effects.rs`), which the machine carries out.
//!
//! | module | holds | text that it follows |
//! |---|---|---|
//! | [`wire`] | headers, extensions, messages | `docs/protocols/mobilityfirst.md` |
//! | [`chunk`] | a chunk between arrival and departure | [MFTP §3.1] |
//! | [`mod@chunk_size`] | the size of chunks: as large as their path affords | [MFTP §3.1] |
//! | [`next_hops`] | sets of next hops, and the selection among them | [MFTP §3.5], [MF-5G §III] |
//! | [`links`] | all hops of a node and the back-pressure buffer that they share | [MFTP §3.4.1] |
//! | [`split`] | bifurcation: which branch takes the next chunk of a divided flow | [MF-5G §III] |
//! | `outbox` | what waits for one neighbour, by flow | [MFTP §3.4.1] |
//! | [`handed`] | chunks that a neighbour accepted and may lose | [MFTP §3.2.1 and 3.2.2] |
//! | [`router`] | late binding, forwarding, attachments, the in-network proxy | [MFTP §3.3] |
//! | [`host`] | the host stack: fetching, publishing, attaching | [MFTP §3.1, 3.2.2 and 4] |
//! | [`local`] | the protocol of local programs and the host stack | [MFTP §4], "Host Stack and API" |
#![forbid(unsafe_code)]

pub mod chunk;
pub mod chunk_size;
pub mod handed;
pub mod host;
pub mod links;
pub mod local;
pub mod next_hops;
mod outbox;
mod outgoing;
pub mod router;
pub mod split;
mod taken;
pub mod wire;
