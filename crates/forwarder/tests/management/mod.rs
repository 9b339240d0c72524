//! Management as programs see it: Interests from a local face, Data to it.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

mod announcements;
mod authority;
mod commands;
mod datasets;
mod events;
mod face_creation;
mod hostile;
mod pages;
mod router;
mod signed;
