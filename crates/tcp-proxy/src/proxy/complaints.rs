//! What the program around a proxy is told, each once.

use std::collections::VecDeque;

use super::ProxyEvent;
use crate::refusals::{Refusals, Refused};

/// Events to report.
#[derive(Default)]
pub(super) struct Complaints {
    pub(super) refusals: Refusals,
    events: VecDeque<ProxyEvent>,
    /// A complaint was reported, and no message accepted since.
    complained: bool,
}

impl Complaints {
    pub(super) fn push(&mut self, event: ProxyEvent) {
        self.events.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<ProxyEvent> {
        self.events.pop_front()
    }

    /// Tells the user of a connection that is not carried.
    pub(super) fn note_refused(&mut self, refused: Refused) {
        if self.refusals.note_new(&refused) {
            self.push(ProxyEvent::Refused(refused));
        }
    }

    /// Reports a message that is not accepted.
    pub(super) fn complain(&mut self, event: ProxyEvent) {
        if !self.complained {
            self.complained = true;
            self.push(event);
        }
    }

    /// A message was accepted: the next complaint is reported again.
    pub(super) fn note_accepted(&mut self) {
        self.complained = false;
    }
}
