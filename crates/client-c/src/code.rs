//! Codes of results, and the text of the last failure of a thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use whimbrel_client::{LocalError, ProgramError};

/// The result of a call. Failures are negative.
#[repr(C)]
#[allow(non_camel_case_types, reason = "a name of the C interface")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum whimbrel_code {
    /// Done.
    WHIMBREL_OK = 0,
    /// All bytes of the content have been read.
    WHIMBREL_END = 1,
    /// Not ready yet: call whimbrel_wait, then try again.
    WHIMBREL_AGAIN = -1,
    /// An argument is NULL, too long or invalid.
    WHIMBREL_ARGUMENT = -2,
    /// The handle is closed, or was never opened.
    WHIMBREL_CLOSED = -3,
    /// The handle belongs to the parent process, from which this one was forked.
    WHIMBREL_FORKED = -4,
    /// No host daemon responds, or it has been away for longer than `reconnect_ms`.
    WHIMBREL_NO_HOST = -5,
    /// The host or a router has ended the transfer.
    WHIMBREL_FAILED = -6,
    /// The receiver has refused the content.
    WHIMBREL_REFUSED = -7,
    /// The content is longer than the program's limit.
    WHIMBREL_TOO_LONG = -8,
    /// A file cannot be read.
    WHIMBREL_FILE = -9,
    /// Nothing happened within the timeout of whimbrel_wait.
    WHIMBREL_TIMED_OUT = -10,
    /// A signal interrupted whimbrel_wait.
    WHIMBREL_INTERRUPTED = -11,
    /// There is no such transfer or question, or it is over.
    WHIMBREL_OVER = -12,
    /// The buffer is too small; `length` has the required size.
    WHIMBREL_SMALL = -13,
    /// An internal error of this library.
    WHIMBREL_FAULT = -14,
}

use whimbrel_code::*;

/// Why a call fails.
pub(crate) struct Fault {
    pub(crate) code: whimbrel_code,
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(code: whimbrel_code, text: impl Into<String>) -> Fault {
        let text = text.into();
        Fault { code, text }
    }

    pub(crate) fn argument(text: &str) -> Fault {
        Fault::new(WHIMBREL_ARGUMENT, text)
    }
}

impl From<ProgramError> for Fault {
    fn from(error: ProgramError) -> Fault {
        let code = match &error {
            ProgramError::Host(_) | ProgramError::HostGone(_) => WHIMBREL_NO_HOST,
            ProgramError::Failed { .. }
            | ProgramError::Incomplete { .. }
            | ProgramError::NotNamed { .. } => WHIMBREL_FAILED,
            ProgramError::Refused { .. } => WHIMBREL_REFUSED,
            ProgramError::TooLong { .. } => WHIMBREL_TOO_LONG,
            ProgramError::Source(_) | ProgramError::Unreadable(_) | ProgramError::Write { .. } => {
                WHIMBREL_FILE
            }
            ProgramError::TimedOut(_) => WHIMBREL_TIMED_OUT,
            ProgramError::Over => WHIMBREL_OVER,
            ProgramError::Detached => WHIMBREL_CLOSED,
            ProgramError::Forked => WHIMBREL_FORKED,
            ProgramError::Argument(_) => WHIMBREL_ARGUMENT,
        };
        Fault::new(code, error.to_string())
    }
}

impl From<LocalError> for Fault {
    fn from(error: LocalError) -> Fault {
        ProgramError::from(error).into()
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

fn keep_text(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has no next call.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Runs a call: a failure becomes a code and a text, and no panic leaves this library.
pub(crate) fn guarded(call: impl FnOnce() -> Result<whimbrel_code, Fault>) -> c_int {
    numbered(|| call().map(|code| code as c_int))
}

/// The same for a call whose result is a number.
pub(crate) fn numbered(call: impl FnOnce() -> Result<c_int, Fault>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        let text = "a fault in libwhimbrel: please report what the program did";
        Err(Fault::new(WHIMBREL_FAULT, text))
    });
    outcome.unwrap_or_else(|fault| {
        keep_text(&fault.text);
        fault.code as c_int
    })
}

/// Returns the error text of this thread's last failed call, in UTF-8. It is valid until this thread's next failed
/// call.
#[unsafe(no_mangle)]
pub extern "C" fn whimbrel_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}
