//! The interface for programs in Python: what `python/whimbrel` stands on.
//!
//! Each call has one implementation: for a blocking host it waits without the interpreter's lock and looks for signals,
//! for another it returns an awaitable, which runs on the one tokio runtime of the process. An awaitable that is
//! cancelled drops its call, and so its transfer.
//!
//! No thread that holds the driver's lock waits for the interpreter's: methods release that one first, and buffers are
//! given back in later calls.

mod buffer;
mod call;
mod host;
mod transfer;

use pyo3::prelude::*;

use call::{FailedError, HostError, OverError, RefusedError, TooLongError, WhimbrelError};

#[pymodule]
fn _native(py: Python<'_>, module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("WhimbrelError", py.get_type::<WhimbrelError>())?;
    module.add("HostError", py.get_type::<HostError>())?;
    module.add("FailedError", py.get_type::<FailedError>())?;
    module.add("RefusedError", py.get_type::<RefusedError>())?;
    module.add("TooLongError", py.get_type::<TooLongError>())?;
    module.add("OverError", py.get_type::<OverError>())?;
    module.add_class::<host::NativeHost>()?;
    module.add_class::<transfer::NativeDownload>()?;
    module.add_class::<transfer::NativeUpload>()?;
    module.add_class::<transfer::NativePublication>()?;
    module.add_class::<transfer::NativeInbox>()?;
    module.add_class::<transfer::NativeOffer>()?;
    module.add_class::<transfer::NativeChannel>()?;
    Ok(())
}
