//! The interface for programs in C (`include/whimbrel.h`). All `unsafe` code is here.
//!
//! A handle is a number, so that one that is closed, or was never made, is recognised. Each call catches a panic,
//! checks its pointers for NULL and leaves a text for `whimbrel_error` if it fails.
//!
//! | module | holds |
//! |---|---|
//! | `code` | the codes of results and the text of the last failure |
//! | `program` | handles, and what is kept for each |
//! | `argument` | pointers as references and texts |
//! | `transfer` | calls for contents: publish, get, send, inbox |
//! | `message` | calls for messages and questions |
// A wrong pointer cannot be recognised, as in every C interface: the documentation of each call names what it reads and writes.
#![allow(
    clippy::missing_safety_doc,
    reason = "whimbrel.h says what each call reads and writes"
)]

mod argument;
mod attach;
mod code;
mod message;
mod program;
mod transfer;

pub use attach::*;
pub use code::{whimbrel_code, whimbrel_error};
pub use message::*;
pub use program::whimbrel;
pub use transfer::*;
