//! The interface for programs: everything that a program can ask of the host on its machine
//! (`docs/protocols/local.md`).
//!
//! | module | holds |
//! |---|---|
//! | [`frames`] | requests and events as bytes, without a socket |
//! | [`connection`], `socket` | a blocking connection that passes requests and events one by one |
//! | [`place`] | the default places of sockets and files, and whether another user could have prepared them |
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "code that drives a machine over a real socket owns a clock"
)]

mod client;
pub mod connection;
pub mod driver;
mod error;
pub mod frames;
pub mod place;
pub mod session;
mod socket;
pub mod source;
mod transfer;

pub use client::{Call, Client, TransferReport};
pub use connection::{Attachment, HostWay, LocalClient};
pub use driver::{AttachOptions, HostDriver};
pub use error::{LocalError, ProgramError, explain};
pub use session::{
    ChannelMessage, ContentPiece, FetchedSoFar, GetOptions, OfferRule, PublishOptions, SendOptions,
    SendProgress,
};
pub use socket::{WRITE_PATIENCE, connect_socket};
pub use source::{ContentSource, SourceError};
pub use transfer::{ChannelReader, Download, IncomingOffer, OfferInbox, Publication, Upload};
pub use whimbrel_core::Guid;
pub use whimbrel_mobilityfirst::local::{
    ContentOffer, Delivery, FailReason, MissingParts, OfferVerdict, SendState, Service, Storage,
    TransferOptions, TransferState,
};
pub use whimbrel_mobilityfirst::wire::{OfferUse, Reliability};
