//! A way between a program and its host.

use std::fmt;
use std::time::Duration;

use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

use crate::error::LocalError;

/// A way by which requests and events pass between a program and its host.
pub trait HostWay: fmt::Debug + Send {
    /// Sends requests, in one step where the way has one.
    fn send_all(&mut self, requests: Vec<LocalRequest>) -> Result<(), LocalError>;

    /// Returns the next event, or `None` if none has come within `patience`.
    fn receive(&mut self, patience: Duration) -> Result<Option<LocalEvent>, LocalError>;
}
