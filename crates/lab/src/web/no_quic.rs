//! A program without quinn.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::failed;
use super::server::WebServerPlan;
use crate::{LabError, Namespace};

/// Says what is missing.
pub(super) fn serve(
    _: &Namespace,
    _: SocketAddr,
    _: &WebServerPlan,
    _: Runtime,
    _: Arc<Notify>,
) -> Result<JoinHandle<()>, LabError> {
    let reason = "this program was built without quinn; build it with `--features peers`";
    Err(failed("HTTP/3", reason))
}
