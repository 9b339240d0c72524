//! Ports for faces: requested, refused, requested again.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{Deadline, Endpoint, PortRequest, PortToken, Time, TimerQueue};
use whimbrel_forwarder::FaceId;
use whimbrel_forwarder::mgmt::RequestId;

use crate::faces::FaceSettings;

/// Pause before a lost permanent face is reopened; doubles up to [`MAX_REOPEN`].
const REOPEN: Duration = Duration::from_secs(1);
const MAX_REOPEN: Duration = Duration::from_secs(60);
/// Pause before a configured face that never came up is requested again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// A requested face, until its port is up.
pub(crate) struct Asked {
    pub(crate) settings: FaceSettings,
    pub(crate) endpoint: Endpoint,
    /// The request of management, if there is one.
    pub(crate) request: Option<RequestId>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    Reopen(FaceId),
    AskAgain,
}

/// Pending and future requests for faces, and the requests to the driver.
#[derive(Default)]
pub(crate) struct Opening {
    asked: BTreeMap<PortToken, Asked>,
    next_token: u64,
    /// Configured faces that could not be opened.
    refused: Vec<Asked>,
    /// Lost faces, with the pause after their next failure.
    pauses: BTreeMap<FaceId, Duration>,
    timers: TimerQueue<Due>,
    requests: VecDeque<PortRequest>,
}

impl Opening {
    /// Expects a port that comes up with the returned token, without a request to the driver.
    pub(crate) fn expect(&mut self, asked: Asked) -> PortToken {
        let token = PortToken(self.next_token);
        self.next_token += 1;
        self.asked.insert(token, asked);
        token
    }

    pub(crate) fn ask(&mut self, asked: Asked) {
        let endpoint = asked.endpoint.clone();
        let token = self.expect(asked);
        self.requests.push_back(PortRequest::Open {
            token,
            label: format!("face to {endpoint}"),
            endpoint,
        });
    }

    /// Removes and returns the answered request.
    pub(crate) fn answered(&mut self, token: PortToken) -> Option<Asked> {
        self.asked.remove(&token)
    }

    /// Requests a configured face again after a pause.
    pub(crate) fn ask_later(&mut self, now: Time, asked: Asked) {
        self.refused.push(asked);
        self.timers.set_earlier(Due::AskAgain, now + ASK_AGAIN);
    }

    /// Schedules the reopening of a permanent face that has no port, or could not get one.
    pub(crate) fn reopen_later(&mut self, now: Time, face: FaceId) {
        let pause = self.pauses.entry(face).or_insert(REOPEN);
        self.timers.set(Due::Reopen(face), now + *pause);
        *pause = (*pause * 2).min(MAX_REOPEN);
    }

    /// Forgets a face that has its port back, or needs none any more.
    pub(crate) fn forget(&mut self, face: FaceId) {
        self.pauses.remove(&face);
        self.timers.cancel(&Due::Reopen(face));
    }

    /// Requests the configured faces that are due; returns the lost faces that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Vec<FaceId> {
        let mut lost = Vec::new();
        while let Some((_, due)) = self.timers.pop_due(now) {
            match due {
                Due::Reopen(face) => lost.push(face),
                Due::AskAgain => {
                    for asked in core::mem::take(&mut self.refused) {
                        self.ask(asked);
                    }
                }
            }
        }
        lost
    }

    pub(crate) fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next().map(|(at, due)| {
            let reason = match due {
                Due::Reopen(_) => "a face is reopened",
                Due::AskAgain => "a configured face is requested again",
            };
            Deadline::new(at, reason)
        })
    }

    /// Adds another request about ports, in order with the requests to open.
    pub(crate) fn request(&mut self, request: PortRequest) {
        self.requests.push_back(request);
    }

    pub(crate) fn poll_request(&mut self) -> Option<PortRequest> {
        self.requests.pop_front()
    }
}
