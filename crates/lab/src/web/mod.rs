//! The web of a laboratory: pages drawn from a model, a server of them, and a browser emulator as [MFTP §5.3] has it.
//!
//! | module | |
//! |---|---|
//! | [`pages`] | sizes and dependencies of a page's objects |
//! | `object` | what the paths of objects say |
//! | `site` | the same pages as documents, scripts and pictures, for a real browser |
//! | [`server`] | HTTP/1.1 and HTTP/2 over the kernel's TCP, HTTP/3 |
//! | [`emulator`] | requests a page's objects as a browser does, and takes its load time |

pub mod emulator;
mod object;
pub mod pages;
#[cfg(feature = "peers")]
mod quic;
#[cfg(not(feature = "peers"))]
#[path = "no_quic.rs"]
mod quic;
pub mod server;
mod site;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;

use crate::{CongestionControl, LabError};

pub use emulator::{PageRoute, WebEmulator};
pub use object::LARGEST;
pub use pages::WebPage;
pub use server::{WebServer, WebServerPlan};
pub use site::document_path;

/// The port of a page's server.
pub const WEB_PORT: u16 = 8080;
/// The port of a proxy for programs.
pub const PROXY_PORT: u16 = 3128;

/// What a server of HTTP/3 is.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "peers"), allow(dead_code, reason = "nothing serves it"))]
struct QuicPlan<'a> {
    address: SocketAddr,
    congestion: CongestionControl,
    /// Where it leaves its certificate.
    certificate: &'a Path,
}

fn failed(what: &str, reason: impl Display) -> LabError {
    LabError::TransferFailed {
        transfer: what.to_owned(),
        reason: reason.to_string(),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, LabError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let built = builder.enable_all().build();
    built.map_err(LabError::system("start a runtime"))
}
