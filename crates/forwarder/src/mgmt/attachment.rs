//! Management as a part of the forwarder: the interface for the program around.

use whimbrel_core::{Deadline, Time};

use super::authority::CommandVerifier;
use super::face_requests::{FaceFailure, RequestId};
use super::host::FaceHost;
use super::management::Management;
use super::{ManagementConfig, ManagementCounters};
use crate::face::FaceId;
use crate::forwarder::Forwarder;

impl Forwarder {
    /// Answers the queued management Interests and publishes face events.
    pub fn run_management(&mut self, now: Time, host: &mut dyn FaceHost) {
        self.with_management(|management, forwarder| management.run(now, forwarder, host));
    }

    /// Reports the outcome of a requested face: its requesters get their answers.
    pub fn face_created(
        &mut self,
        now: Time,
        request: RequestId,
        outcome: &Result<FaceId, FaceFailure>,
    ) {
        self.with_management(|management, forwarder| {
            management.face_created(now, forwarder, request, outcome);
        });
    }

    /// Sets the FaceUris of the program's listeners: the dataset `faces/channels`.
    pub fn set_channels(&mut self, local_uris: Vec<String>) {
        if let Some(management) = &mut self.mgmt {
            management.channels = local_uris;
        }
    }

    /// Sets the verifier of signatures by keys; without one, every command that must be signed is
    /// refused.
    pub fn set_command_verifier(&mut self, verifier: Box<dyn CommandVerifier>) {
        if let Some(management) = &mut self.mgmt {
            management.authority.verifier = verifier;
        }
    }

    /// Returns the counters of management.
    pub fn management_counters(&self) -> ManagementCounters {
        self.mgmt
            .as_ref()
            .map(|management| management.counters)
            .unwrap_or_default()
    }

    /// Registers management's prefixes.
    pub(crate) fn attach_management(&mut self, config: ManagementConfig) {
        let management = Management::new(config);
        for prefix in &management.own_prefixes {
            // The prefixes are two and three components long.
            let _ = self
                .engine
                .fib
                .add_next_hop(prefix.as_ref(), FaceId::INTERNAL, 0);
        }
        self.mgmt = Some(Box::new(management));
    }

    pub(crate) fn management_timeout(&mut self, now: Time) {
        self.rib.handle_timeout(now);
        self.follow_rib();
        self.with_management(|management, forwarder| management.handle_timeout(now, forwarder));
    }

    pub(crate) fn management_deadline(&self) -> Option<Deadline> {
        let creations = self
            .mgmt
            .as_ref()
            .and_then(|management| management.creations.poll_timeout());
        Deadline::earlier(self.rib.poll_timeout(), creations)
    }

    /// Takes management out of the forwarder while it works, because it works on the forwarder.
    fn with_management(&mut self, work: impl FnOnce(&mut Management, &mut Forwarder)) {
        if let Some(mut management) = self.mgmt.take() {
            work(&mut management, self);
            self.mgmt = Some(management);
        }
    }
}
