//! Results of calls: awaited, or waited for; and their errors.

use std::time::Duration;

use bytes::Bytes;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use whimbrel_client::{Call, Guid, ProgramError};

create_exception!(
    whimbrel,
    WhimbrelError,
    PyException,
    "Why a call has no result."
);
create_exception!(
    whimbrel,
    HostError,
    WhimbrelError,
    "The host cannot be reached."
);
create_exception!(
    whimbrel,
    FailedError,
    WhimbrelError,
    "The network has given a transfer up."
);
create_exception!(
    whimbrel,
    RefusedError,
    WhimbrelError,
    "The receiver has refused a content."
);
create_exception!(
    whimbrel,
    TooLongError,
    WhimbrelError,
    "A content exceeds the limit."
);
create_exception!(whimbrel, OverError, WhimbrelError, "The transfer is over.");

/// Interval at which a blocking call looks for signals.
const LOOK: Duration = Duration::from_millis(100);

/// Returns the exception for an error.
pub(crate) fn exception(error: ProgramError) -> PyErr {
    let text = error.to_string();
    match error {
        ProgramError::Host(_) | ProgramError::HostGone(_) => HostError::new_err(text),
        ProgramError::Failed { .. }
        | ProgramError::Incomplete { .. }
        | ProgramError::NotNamed { .. } => FailedError::new_err(text),
        ProgramError::Refused { .. } => RefusedError::new_err(text),
        ProgramError::TooLong { .. } => TooLongError::new_err(text),
        ProgramError::Over | ProgramError::Detached | ProgramError::Forked => {
            OverError::new_err(text)
        }
        ProgramError::TimedOut(_) => PyTimeoutError::new_err(text),
        ProgramError::Source(_) | ProgramError::Unreadable(_) | ProgramError::Write { .. } => {
            PyOSError::new_err(text)
        }
        ProgramError::Argument(_) => PyValueError::new_err(text),
    }
}

/// Returns the name that 64 hexadecimal digits are.
pub(crate) fn name_of(digits: &str) -> PyResult<Guid> {
    digits
        .parse()
        .map_err(|_| PyValueError::new_err("a name has 64 hexadecimal digits"))
}

/// What makes an object, once the interpreter's lock is held.
pub(crate) type MadeObject = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// A result for Python.
pub(crate) enum Outcome {
    Nothing,
    Number(u64),
    Text(String),
    Data(Bytes),
    Piece(Option<(u64, Bytes)>),
    Message(String, Bytes),
    /// An object of this module.
    Object(MadeObject),
}

impl Outcome {
    fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let bytes = |bytes: &Bytes| PyBytes::new(py, bytes).into_any();
        Ok(match self {
            Outcome::Nothing | Outcome::Piece(None) => py.None(),
            Outcome::Number(number) => number.into_pyobject(py)?.into_any().unbind(),
            Outcome::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
            Outcome::Data(data) => bytes(&data).unbind(),
            Outcome::Piece(Some((offset, data))) => (offset, bytes(&data))
                .into_pyobject(py)?
                .into_any()
                .unbind(),
            Outcome::Message(from, data) => {
                (from, bytes(&data)).into_pyobject(py)?.into_any().unbind()
            }
            Outcome::Object(make) => make(py)?,
        })
    }
}

/// Waits for a call, or returns an awaitable for it.
pub(crate) fn deliver<T: Send + 'static>(
    py: Python<'_>,
    is_blocking: bool,
    mut call: Call<T>,
    outcome: impl FnOnce(T) -> Outcome + Send + 'static,
) -> PyResult<Py<PyAny>> {
    if !is_blocking {
        let awaitable = pyo3_async_runtimes::tokio::future_into_py(py, async move {
            let result = call.await.map_err(exception)?;
            Python::attach(|py| outcome(result).into_object(py))
        });
        return awaitable.map(Bound::unbind);
    }
    loop {
        let waited = py.detach(|| call.wait_a_while(LOOK));
        if let Some(result) = waited.map_err(exception)? {
            return outcome(result).into_object(py);
        }
        // Ctrl-C ends the call, and so its transfer.
        py.check_signals()?;
    }
}
