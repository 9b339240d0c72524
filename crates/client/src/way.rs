//! A way between a program and its host.

use std::fmt;
use std::time::Duration;

use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

use crate::error::LocalError;

/// A way by which requests pass from a program to its host.
pub trait RequestWay: fmt::Debug + Send {
    /// Sends requests, in one step where the way has one.
    fn send_all(&mut self, requests: Vec<LocalRequest>) -> Result<(), LocalError>;
}

/// A way by which requests and events pass between a program and its host.
pub trait HostWay: RequestWay {
    /// Returns a second way for requests, so that one thread sends while another receives; `None` if there is none.
    fn second(&self) -> Option<Box<dyn RequestWay>> {
        None
    }

    /// Returns the next event, or `None` if none has come within `patience`.
    fn receive(&mut self, patience: Duration) -> Result<Option<LocalEvent>, LocalError>;
}
