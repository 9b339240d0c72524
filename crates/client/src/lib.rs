//! The interface for programs: publish, get, send and receive contents and messages through the host on this machine
//! (`docs/protocols/local.md`).
//!
//! | module | holds |
//! |---|---|
//! | [`frames`] | requests and events as bytes, without a socket |
//! | [`session`] | what a program has asked for, as a state machine: asks again after its host has restarted |
//! | [`stated`] | options and keys as texts and numbers |
//! | [`source`] | contents that are published or sent: bytes in memory, files |
//! | `attached` | a session on a blocking connection, in the loop of its program |
//! | [`driver`] | a session behind a socket, with one file descriptor to watch |
//! | `call`, `client`, `transfer` | calls that a thread waits for or a task awaits, and what they return |
//! | [`connection`], `socket`, `way` | a blocking connection that passes requests and events one by one |
//! | [`place`] | the default places of sockets and files, and whether another user could have prepared them |
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "code that drives a machine over a real socket owns a clock"
)]

mod attached;
mod call;
mod client;
pub mod connection;
pub mod driver;
mod error;
pub mod frames;
pub mod place;
pub mod session;
mod socket;
pub mod source;
pub mod stated;
mod transfer;
mod way;

pub use attached::{AttachedSession, SessionStep};
pub use call::Call;
pub use client::{Client, ProgramTransfer};
pub use connection::{Attachment, LocalClient};
pub use driver::{AttachOptions, HostDriver};
pub use error::{LocalError, ProgramError, explain};
pub use session::{
    Answer, ChannelMessage, ContentPiece, FetchedSoFar, GetOptions, OfferRule, PublishOptions,
    Question, SendOptions, SendProgress,
};
pub use socket::{WRITE_PATIENCE, connect_socket};
pub use source::{ContentSource, ContentSourceError};
pub use transfer::{ChannelReader, Download, IncomingOffer, OfferInbox, Publication, Upload};
pub use way::{HostWay, RequestWay};
pub use whimbrel_core::Guid;
pub use whimbrel_gnrs::GroupAdmission;
pub use whimbrel_mobilityfirst::local::{
    ContentOffer, Delivery, FailReason, MembershipChange, MissingParts, OfferVerdict, SendState,
    Service, ServiceKey, Storage, TransferOptions, TransferState,
};
pub use whimbrel_mobilityfirst::wire::{ControlCode, OfferUse, Reliability};
