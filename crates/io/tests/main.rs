//! The crate's tests as one program: each program of its own would link everything anew.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod carriers;
mod control;
mod lanes;
mod local;
mod namespace;
#[path = "support/namespaces.rs"]
mod namespaces;
mod opening;
mod shared_media;
mod stream;
mod support;
mod udp;
mod websocket;
