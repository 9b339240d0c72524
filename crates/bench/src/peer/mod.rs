//! Whimbrel beside quinn: the same file, from a process in one namespace to a process in another,
//! over a veth pair, from file to file, in turns.
//! The clock runs from the start of the fetching process to its end. Files are in memory if there
//! is /dev/shm, so that no disk is measured. Whimbrel's one-time preparation of a file (hashing and
//! announcing) is measured separately.

mod contest;
mod places;
#[cfg(feature = "peers")]
mod quic;
mod tcp;

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub(crate) use contest::run;

/// The transport of a peer's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerCarrier {
    /// QUIC by quinn.
    Quic,
    /// The kernel's TCP.
    Tcp,
}

impl PeerCarrier {
    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            PeerCarrier::Quic => "quic",
            PeerCarrier::Tcp => "tcp",
        }
    }
}

/// One end of a peer's transfer.
#[derive(Clone, Debug)]
pub struct PeerEnd {
    /// The transport.
    pub carrier: PeerCarrier,
    /// The server's address.
    pub address: SocketAddr,
    /// The file to send, or the one to write.
    pub file: PathBuf,
    /// The file for the server's certificate (DER), which the client reads; for QUIC only.
    pub certificate: PathBuf,
    /// The largest IP packet of the link in bytes.
    pub mtu: u16,
    /// Threads of quinn's runtime.
    pub threads: usize,
}

/// Why an end failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// quinn, or the certificate.
    #[error("QUIC: {0}")]
    Quic(String),
    /// A file.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A socket or the runtime.
    #[error("cannot {action}: {source}")]
    System {
        /// The failed action.
        action: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The program was built without quinn.
    #[error("this program was built without quinn; build it with `--features peers`")]
    NoQuinn,
}

impl PeerError {
    #[cfg(feature = "peers")]
    fn quic(error: impl Display) -> PeerError {
        PeerError::Quic(error.to_string())
    }

    fn file(path: &Path) -> impl FnOnce(io::Error) -> PeerError {
        let path = path.to_owned();
        move |source| PeerError::File { path, source }
    }

    fn system(action: impl Display) -> impl FnOnce(io::Error) -> PeerError {
        let action = action.to_string();
        move |source| PeerError::System { action, source }
    }
}

/// Sends the file to the first client that connects, and ends when that one has it. Calls `ready`
/// when it listens.
pub fn serve(end: &PeerEnd, ready: impl FnOnce()) -> Result<(), PeerError> {
    match end.carrier {
        PeerCarrier::Tcp => tcp::serve(end.address, &end.file, ready),
        #[cfg(feature = "peers")]
        PeerCarrier::Quic => quic::serve(end, ready),
        #[cfg(not(feature = "peers"))]
        PeerCarrier::Quic => Err(PeerError::NoQuinn),
    }
}

/// Connects, and writes the received bytes to the file.
pub fn fetch(end: &PeerEnd) -> Result<(), PeerError> {
    match end.carrier {
        PeerCarrier::Tcp => tcp::fetch(end.address, &end.file),
        #[cfg(feature = "peers")]
        PeerCarrier::Quic => quic::fetch(end),
        #[cfg(not(feature = "peers"))]
        PeerCarrier::Quic => Err(PeerError::NoQuinn),
    }
}
