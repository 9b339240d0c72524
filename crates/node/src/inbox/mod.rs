//! The receiving side of a push: offers are judged by a rule.
//!
//! | module | holds |
//! |---|---|
//! | `rule` | who may send, how much, and what becomes of a file whose name is taken |
//! | `record` | the accepted and received offers, over restarts |
#![allow(dead_code, reason = "the inbox itself follows")]

mod record;
mod rule;

pub use rule::{Existing, InboxRule, RefusedOffer};
