//! A program without quinn.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::{QuicPlan, failed};
use crate::{LabError, Namespace};

/// Says what is missing.
pub(super) fn serve(
    _: &Namespace,
    _: QuicPlan<'_>,
    _: Runtime,
    _: Arc<Notify>,
) -> Result<JoinHandle<()>, LabError> {
    let reason = "this program was built without quinn; build it with `--features peers`";
    Err(failed("HTTP/3", reason))
}
