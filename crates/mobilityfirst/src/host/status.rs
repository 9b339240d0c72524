//! A host's report of its state.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use whimbrel_core::{Guid, GuidPrefix, LookUpFailure, Time};
use whimbrel_link::hop::ReceptionCounters;

use super::interfaces::Verdict;
use super::{ClockDifference, Host};
use crate::links::{CallersTotal, DividedStatus, LinkStatus, UnresolvedStatus};
use crate::local::{MAX_NAMES, SendState, TransferState};
use crate::wire::ControlCode;

/// Bound of the sent contents in a report.
const MAX_SENDING: usize = 64;

/// Counts since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostCounters {
    /// Chunks that routers delivered whole.
    pub chunks_received: u64,
    /// Chunks that a router has.
    pub chunks_sent: u64,
    /// Verified chunks handed to local programs.
    pub chunks_handed_over: u64,
    /// Verified chunks that had been received before.
    pub duplicates: u64,
    /// Chunks that did not belong to the content that they claimed.
    pub unproven: u64,
    /// Requests sent, repeated ones included.
    pub requests_sent: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// Messages about the end-to-end window.
    pub windows_sent: u64,
    /// Pushes sent to proxies.
    pub pushes_sent: u64,
    /// Requests of members of groups for chunks that they miss.
    pub group_nacks: u64,
    /// Contents that others have offered without a request.
    pub offers: u64,
    /// Of these, those that were refused.
    pub offers_refused: u64,
    /// Times that work was left over after one input, to stay open to the next. It should be 0.
    pub left_over: u64,
    /// What was dropped, by reason.
    pub drops: BTreeMap<&'static str, u64>,
}

impl HostCounters {
    pub(super) fn drop(&mut self, reason: &'static str) {
        *self.drops.entry(reason).or_default() += 1;
    }
}

/// A request of a local program that is under way.
#[derive(Clone, Debug, Serialize)]
pub struct DownloadStatus {
    /// The content.
    pub content: Guid,
    /// Its state.
    pub state: TransferState,
    /// Seconds since its last chunk arrived, or since it was requested.
    pub idle_s: f64,
    /// The router that keeps the request because it reaches no holder of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<Guid>,
    /// Seconds since the router first said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_s: Option<f64>,
    /// Seconds since the router said that it knows no holder of the content, a part of which has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent_s: Option<f64>,
    /// The node that sends chunks for it that do not fit the content's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_from: Option<Guid>,
    /// Those chunks, since the last one that fits. They were refused.
    #[serde(skip_serializing_if = "is_zero")]
    pub false_chunks: u64,
}

/// A sent content, for reports.
#[derive(Clone, Debug, Serialize)]
pub struct PushStatus {
    /// The content.
    pub content: Guid,
    /// Its receiver.
    pub to: Guid,
    /// Its length in bytes.
    pub length: u64,
    /// How far it is.
    pub state: SendState,
    /// Bytes that the first router has taken.
    pub taken: u64,
    /// Of these, bytes that routers store because the receiver is away.
    pub stored: u64,
    /// If the receiver is a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupStatus>,
}

/// The members of a group that a content is sent to, for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// The known members.
    pub members: usize,
    /// Of these, those that have the content.
    pub delivered: usize,
    /// Of these, those that have refused it.
    pub refused: usize,
    /// Chunks that were sent again to several members at once.
    pub repairs_multicast: u64,
    /// Chunks that were sent again to one member.
    pub repairs_unicast: u64,
    /// The first members that lack something.
    pub lacking: Vec<MemberStatus>,
}

/// A member that has not confirmed a content, for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: Guid,
    /// Chunks that it has asked for again; none if it has said nothing.
    pub missing: Option<u64>,
    /// Whether a router stores chunks for it because it is away.
    pub stored: bool,
}

/// What a router keeps for this host, for reports.
#[derive(Clone, Debug, Serialize)]
pub struct DelegatedStatus {
    /// The content.
    pub content: Guid,
    /// The access router.
    pub kept_by: Guid,
    /// Chunks that it keeps.
    pub kept: u64,
    /// Chunks of the content.
    pub chunks: u64,
}

/// The state of the inbox, for reports.
#[derive(Clone, Debug, Serialize)]
pub struct InboxStatus {
    /// Programs that take offers.
    pub programs: usize,
    /// Offers that wait for a decision.
    pub waiting: usize,
    /// Chunks of those that are here.
    pub chunks: usize,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A host's state, for people and programs.
#[derive(Clone, Debug, Serialize)]
pub struct HostStatus {
    /// The host's GUID.
    pub guid: Guid,
    /// Seconds since its start.
    pub uptime_s: f64,
    /// True once the name service has the host's binding.
    pub registered: bool,
    /// The routers' latest answer about the binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<ControlCode>,
    /// Requests of local programs that are under way.
    pub downloads: usize,
    /// The difference between the host's clock and that of its first router, if it agrees with
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockDifference>,
    /// The oldest of those requests.
    pub transfers: Vec<DownloadStatus>,
    /// Contents on offer.
    pub published: usize,
    /// Contents being sent to others.
    pub uploads: usize,
    /// The first contents that programs send to receivers which have not requested them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sending: Vec<PushStatus>,
    /// The first contents that the access router keeps for this host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delegated: Vec<DelegatedStatus>,
    /// What others offer to this host.
    pub inbox: InboxStatus,
    /// The links to access routers.
    pub links: Vec<LinkStatus>,
    /// Of these, those that carry nothing, by label: switched off, or their quota is used up.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub shut: BTreeMap<String, Verdict>,
    /// All inbound peers together; of them, `links` has 256 at most.
    pub callers: CallersTotal,
    /// What those who are no neighbours yet have asked of its links.
    pub reception: ReceptionCounters,
    /// Configured neighbours without a port, because their host names are not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<UnresolvedStatus>,
    /// What the host sends and divides among its links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub divided: Vec<DividedStatus>,
    /// Counts since the start.
    pub counters: HostCounters,
}

impl Host {
    /// Notes that a configured neighbour's host name cannot be looked up.
    pub fn note_look_up_failure(&mut self, failure: LookUpFailure) {
        self.access.links.neighbours.note_look_up_failure(failure);
    }

    /// Returns the used packets of the back-pressure buffer, and its capacity.
    pub fn buffer(&self) -> (usize, usize) {
        self.access.links.buffer()
    }

    /// Returns the contents with names like this that programs offer or fetch.
    pub(super) fn names_beginning(&self, prefix: &GuidPrefix) -> Vec<Guid> {
        let offered = self.uploads.contents.catalogue().beginning(prefix);
        let names: BTreeSet<Guid> = offered
            .take(MAX_NAMES)
            .chain(self.downloads.beginning(prefix))
            .collect();
        names.into_iter().take(MAX_NAMES).collect()
    }

    /// Returns the host's state at `now`.
    pub fn status(&self, now: Time) -> HostStatus {
        HostStatus {
            guid: self.guid,
            uptime_s: now.as_secs_f64(),
            binding: self.registration.outcome(),
            transfers: self.downloads.status(now),
            registered: self.registration.is_registered(),
            clock: self.registration.clock_difference(now, &self.access),
            downloads: self.downloads.len(),
            published: self.uploads.contents.catalogue().len(),
            uploads: self.uploads.len(),
            sending: self.uploads.push_status(now, MAX_SENDING),
            delegated: self.uploads.delegated_status(MAX_SENDING),
            inbox: self.inbox.status(),
            links: self.access.links.neighbours.status(now),
            shut: self.access.interfaces.shut(&self.access.links),
            callers: self.access.links.neighbours.callers_total(),
            reception: self.access.links.reception(),
            unresolved: self.access.links.neighbours.unresolved(now),
            divided: self
                .access
                .links
                .division
                .status(&self.access.links.neighbours, now),
            counters: self.effects.counters.clone(),
        }
    }
}
