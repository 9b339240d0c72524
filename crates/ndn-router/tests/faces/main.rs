//! Faces of a whole router: creation, loss and reopening.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

mod driver;
mod expiry;
mod management;
mod model;
mod path_mtu;
mod reopening;
mod slow_readers;
