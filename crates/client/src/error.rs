//! Why a daemon cannot be used, and why a call has no result.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use whimbrel_core::Guid;
use whimbrel_keychain::ownership::ForeignPath;
use whimbrel_mobilityfirst::local::{FailReason, MissingParts, SendState, VersionMismatch};
use whimbrel_mobilityfirst::wire::ControlCode;

use crate::source::ContentSourceError;

/// The reason why a daemon cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// No socket, or no program that listens on it.
    #[error("no daemon answers on {}", .0.display())]
    Nobody(PathBuf),
    /// The file permissions forbid it.
    #[error(
        "no permission to use the socket {}: its owner may, and the group that the daemon's `socket_group` names",
        .0.display()
    )]
    NotPermitted(PathBuf),
    /// Another user could listen there in place of the daemon.
    #[error("the socket is not used: {0}")]
    Foreign(#[from] ForeignPath),
    /// The daemon has ended, or has closed the connection.
    #[error("the daemon has closed the connection")]
    Closed,
    /// A frame is not one that a daemon sends.
    #[error("the daemon sent a frame that this program does not understand: {0}")]
    Protocol(String),
    /// The daemon speaks another version of the protocol.
    #[error("the daemon cannot be used: {0}")]
    Version(VersionMismatch),
    /// Any other failure.
    #[error("the connection to the daemon failed: {0}")]
    Io(io::Error),
}

impl LocalError {
    /// Returns the same error once more, for each of the calls that it ends.
    pub(crate) fn again(&self) -> LocalError {
        match self {
            LocalError::Nobody(path) => LocalError::Nobody(path.clone()),
            LocalError::NotPermitted(path) => LocalError::NotPermitted(path.clone()),
            LocalError::Foreign(foreign) => LocalError::Foreign(foreign.clone()),
            LocalError::Closed => LocalError::Closed,
            LocalError::Protocol(text) => LocalError::Protocol(text.clone()),
            LocalError::Version(mismatch) => LocalError::Version(*mismatch),
            LocalError::Io(error) => LocalError::Io(io::Error::other(error.to_string())),
        }
    }
}

/// The error of a call. Its text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The host cannot be reached, or does not speak this protocol.
    #[error(transparent)]
    Host(#[from] LocalError),
    /// The host was away for longer than [`AttachOptions::reconnect_for`](crate::AttachOptions::reconnect_for).
    #[error("the host daemon has gone and has not returned within {} s: start it, then attach and call again", .0.as_secs_f64())]
    HostGone(Duration),
    /// The host or a router has ended the transfer.
    #[error("{content}: {}", explain(*reason))]
    Failed {
        /// The content.
        content: Guid,
        /// The reason.
        reason: FailReason,
    },
    /// Parts of a content are missing and are not retransmitted, as its source or the program has chosen (`don't
    /// care`).
    #[error(
        "{content}: parts of it are missing, and \"don't care\" does not request them again: fetch it with the reliability NACK"
    )]
    Incomplete {
        /// The content.
        content: Guid,
        /// What is missing.
        missing: MissingParts,
    },
    /// The receiver has refused a sent content.
    #[error("{content} was refused: {}", explain_refusal(*state))]
    Refused {
        /// The content.
        content: Guid,
        /// The receiver's reason.
        state: SendState,
    },
    /// An additional name of the host, of a service or group, was refused.
    #[error("the host is not attached by {name}: {}", explain_code(*code))]
    NotNamed {
        /// The name of a service or group.
        name: Guid,
        /// The answer of the host, a router or the name service.
        code: ControlCode,
    },
    /// The content exceeds the program's limit.
    #[error(
        "the content is {length} bytes long and the limit is {limit} bytes: raise the limit to fetch it"
    )]
    TooLong {
        /// Its length in bytes, as its source states it.
        length: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A content that was to be published or sent cannot be read.
    #[error(transparent)]
    Source(#[from] ContentSourceError),
    /// A content that is being sent can no longer be read.
    #[error("the content could not be sent completely: {0}; send it again")]
    Unreadable(String),
    /// A file for a fetched content cannot be written.
    #[error("cannot write {}: {source}; free some room or choose another place, then call again", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The call has timed out.
    #[error("no result within {} s: allow more time, or ask the host why it waits (`whimbrel status`)", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The transfer has been cancelled, or its result has been taken.
    #[error("the transfer is over: it was cancelled, or its result has been taken already")]
    Over,
    /// The program has detached.
    #[error("the program has detached from its host: attach again")]
    Detached,
    /// The connection was made before a fork.
    #[error(
        "the connection belongs to the process that this one was forked from: attach in this process"
    )]
    Forked,
    /// An argument is out of bounds.
    #[error("{0}")]
    Argument(String),
}

/// Returns why a request has failed, and what to do.
pub fn explain(reason: FailReason) -> &'static str {
    match reason {
        FailReason::NoSuchName => {
            "the name service knows no holder of it; check the name, and whether it is still served"
        }
        FailReason::NoNameService => {
            "the router uses no name service, and none of its hosts serves it; check the name, and that the sender is attached to \
             that router, or give it name_servers"
        }
        FailReason::NotServed => "the hosts that announced it no longer serve it",
        FailReason::TooLarge => "even the smallest chunks are too large for a hop on the way",
        FailReason::Busy => {
            "the host has as many transfers as its configuration allows (max_transfers)"
        }
        FailReason::Invalid => {
            "the host does not understand the request; it may be of another version"
        }
    }
}

/// Returns why a name was refused, and what to do.
fn explain_code(code: ControlCode) -> &'static str {
    match code {
        ControlCode::Invalid => "the key or admission is not for this host, or it has ended",
        ControlCode::Full => "the host, the router or the name service has no room",
        ControlCode::Clock => "the clock of this machine is wrong, or the admission has ended",
        _ => "the name service has not answered yet",
    }
}

/// Returns why a receiver has refused a content, and what to do.
fn explain_refusal(state: SendState) -> &'static str {
    match state {
        SendState::NotAccepted => {
            "the receiver accepts nothing from this sender, or nothing at all"
        }
        SendState::TooLong => "it is longer than the receiver accepts; send less",
        SendState::InboxFull => "the receiver's inbox is full; send it later",
        SendState::Unusable => "the receiver cannot use it; send it under another name",
        SendState::Lost => {
            "a router could not forward parts of it, and its sender does not repeat them; send it again, or with NACK"
        }
        SendState::Replaced => {
            "another send of this host has the same content for the same receiver; wait for that one"
        }
        SendState::Leaving
        | SendState::Taken
        | SendState::Kept
        | SendState::Delivered
        | SendState::DeliveredToSome => "it is not refused",
    }
}
