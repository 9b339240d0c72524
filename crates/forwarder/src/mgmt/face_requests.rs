//! Requests of management to the program around it: to open, change and close faces.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Deadline, Time};
use whimbrel_ndn_mgmt::{
    ControlParameters, FLAG_CONGESTION_MARKING, FLAG_LOCAL_FIELDS, FLAG_LP_RELIABILITY, FaceUri,
    Persistency,
};
use whimbrel_ndn_packet::Name;

use crate::face::FaceId;

/// Identifies a pending creation. Not reused in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// The settings in a face request; `None` leaves one unchanged, or at its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaceSettings {
    /// The lifetime of a face that is idle or fails.
    pub persistency: Option<Persistency>,
    /// Largest frame, in bytes.
    pub mtu: Option<u64>,
    /// Local fields in use.
    pub local_fields: Option<bool>,
    /// Link reliability in use.
    pub reliability: Option<bool>,
    /// Congestion marking in use.
    pub congestion_marking: Option<bool>,
    /// Base interval of congestion marks.
    pub base_congestion_interval: Option<Duration>,
    /// Bytes in its queue above which it is congested.
    pub default_congestion_threshold: Option<u64>,
}

impl FaceSettings {
    pub(crate) fn of(parameters: &ControlParameters) -> FaceSettings {
        FaceSettings {
            persistency: parameters.persistency,
            mtu: parameters.mtu,
            local_fields: parameters.flag(FLAG_LOCAL_FIELDS),
            reliability: parameters.flag(FLAG_LP_RELIABILITY),
            congestion_marking: parameters.flag(FLAG_CONGESTION_MARKING),
            base_congestion_interval: parameters.base_congestion_marking_interval,
            default_congestion_threshold: parameters.default_congestion_threshold,
        }
    }
}

/// A face request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaceRequest {
    /// Open a socket, add the face and answer with [`crate::Forwarder::face_created`].
    Create {
        /// To be returned in the answer.
        request: RequestId,
        /// The remote end; canonical.
        remote: FaceUri,
        /// The local end; canonical.
        local: Option<FaceUri>,
        /// Its settings; persistent by default.
        settings: FaceSettings,
    },
    /// Apply changed settings to the link of a face; the forwarder's own record is already changed.
    Update {
        /// The face.
        face: FaceId,
        /// The changed settings.
        settings: FaceSettings,
    },
    /// Close the link of a face, which the forwarder has already removed.
    Destroy(FaceId),
}

/// Why a face was not created. The text goes to the requester.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaceFailure {
    /// A face to this peer exists.
    #[error("face {0} to this peer exists already")]
    Exists(FaceId),
    /// This router does not open faces of this scheme, or not in this combination.
    #[error("{0}")]
    Unsupported(String),
    /// The system or the peer refused.
    #[error("the face could not be opened: {0}")]
    Failed(String),
    /// There are too many faces.
    #[error("{0}")]
    TooMany(String),
}

/// Maximum of pending creations.
const MAX_PENDING: usize = 256;
/// Maximum of commands that wait for the same creation.
const MAX_WAITING: usize = 16;
/// Maximum time of a creation. Clients give up much sooner; this only bounds memory.
const PATIENCE: Duration = Duration::from_secs(60);

/// A creation requested from the program around.
pub(crate) struct Pending {
    pub(crate) remote: FaceUri,
    pub(crate) local: Option<FaceUri>,
    /// The commands that requested it, the first one first.
    pub(crate) commands: Vec<Name>,
    until: Time,
}

/// Pending creations.
#[derive(Default)]
pub(crate) struct Creations {
    pending: BTreeMap<RequestId, Pending>,
    last: u64,
}

impl Creations {
    /// Records a command that creates a face. Returns the request to make for it, unless an earlier
    /// command waits for the same face; `None` if too many are pending.
    pub(crate) fn add(
        &mut self,
        now: Time,
        remote: FaceUri,
        local: Option<FaceUri>,
        settings: FaceSettings,
        command: Name,
    ) -> Option<Option<FaceRequest>> {
        let same = self
            .pending
            .values_mut()
            .find(|pending| pending.remote == remote && pending.local == local);
        if let Some(pending) = same {
            let has_room = pending.commands.len() < MAX_WAITING;
            if has_room {
                pending.commands.push(command);
            }
            return has_room.then_some(None);
        }
        if self.pending.len() >= MAX_PENDING {
            return None;
        }
        self.last += 1;
        let request = RequestId(self.last);
        let pending = Pending {
            remote: remote.clone(),
            local: local.clone(),
            commands: vec![command],
            until: now + PATIENCE,
        };
        self.pending.insert(request, pending);
        Some(Some(FaceRequest::Create {
            request,
            remote,
            local,
            settings,
        }))
    }

    pub(crate) fn finish(&mut self, request: RequestId) -> Option<Pending> {
        self.pending.remove(&request)
    }

    /// Removes and returns overdue creations.
    pub(crate) fn take_late(&mut self, now: Time) -> Vec<Pending> {
        let is_late = |pending: &Pending| pending.until <= now;
        let late: Vec<RequestId> = self
            .pending
            .iter()
            .filter(|(_, pending)| is_late(pending))
            .map(|(request, _)| *request)
            .collect();
        late.into_iter()
            .filter_map(|request| self.pending.remove(&request))
            .collect()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Deadline> {
        // Numbers and times grow together.
        self.pending
            .values()
            .next()
            .map(|pending| Deadline::new(pending.until, "face creation"))
    }
}
