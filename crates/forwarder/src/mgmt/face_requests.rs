//! What management wishes of the program around it: to open, change and close faces.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Deadline, Time};
use whimbrel_ndn_mgmt::{
    ControlParameters, FLAG_CONGESTION_MARKING, FLAG_LOCAL_FIELDS, FLAG_LP_RELIABILITY, FaceUri,
    Persistency,
};
use whimbrel_ndn_packet::Name;

use crate::face::FaceId;

/// What tells the creations under way apart. Not given again in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What a wish about a face says of it; `None` leaves it as it is, or at its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaceSettings {
    /// What happens when it is idle or breaks.
    pub persistency: Option<Persistency>,
    /// Largest frame, in bytes.
    pub mtu: Option<u64>,
    /// Local fields in use.
    pub local_fields: Option<bool>,
    /// Link reliability in use.
    pub reliability: Option<bool>,
    /// Congestion marking in use.
    pub congestion_marking: Option<bool>,
    /// Shortest time between two congestion marks when the queue has just grown.
    pub base_congestion_interval: Option<Duration>,
    /// Bytes in its queue from which on it is congested.
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

/// A wish about a face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaceRequest {
    /// Open a socket, add the face and answer with [`crate::Forwarder::face_created`].
    Create {
        /// To be given back in the answer.
        request: RequestId,
        /// The other end; canonical.
        remote: FaceUri,
        /// This end; canonical.
        local: Option<FaceUri>,
        /// How it is to be; persistent where it does not say.
        settings: FaceSettings,
    },
    /// Let the link of a face follow what has been changed; the forwarder's own record of it is
    /// already changed.
    Update {
        /// The face.
        face: FaceId,
        /// What has been changed.
        settings: FaceSettings,
    },
    /// Close the link of a face, which the forwarder has already removed.
    Destroy(FaceId),
}

/// Why a face was not created. The text goes to who asked for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaceFailure {
    /// There is one to this peer already.
    #[error("face {0} already leads there")]
    Exists(FaceId),
    /// Nobody can: the scheme, or what it is combined with, is not one that this router opens.
    #[error("{0}")]
    Unsupported(String),
    /// The system or the peer refused.
    #[error("the face could not be opened: {0}")]
    Failed(String),
    /// There are too many faces.
    #[error("{0}")]
    TooMany(String),
}

/// Most creations under way.
const MOST_PENDING: usize = 256;
/// Most commands that wait for the same creation.
const MOST_WAITING: usize = 16;
/// How long a creation may take. A client gives up much sooner; this only bounds what is
/// remembered.
const PATIENCE: Duration = Duration::from_secs(60);

/// A creation that the program around has been asked for.
pub(crate) struct Pending {
    pub(crate) remote: FaceUri,
    pub(crate) local: Option<FaceUri>,
    /// The commands that asked for it, the first one first.
    pub(crate) commands: Vec<Name>,
    until: Time,
}

/// Creations that have not been answered.
#[derive(Default)]
pub(crate) struct Creations {
    pending: BTreeMap<RequestId, Pending>,
    last: u64,
}

impl Creations {
    /// Takes note of a command that wants a face. Returns the wish to be made for it, if nobody
    /// else waits for the same face already; `None` if too many are under way.
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
            let has_room = pending.commands.len() < MOST_WAITING;
            if has_room {
                pending.commands.push(command);
            }
            return has_room.then_some(None);
        }
        if self.pending.len() >= MOST_PENDING {
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

    /// Creations that took too long.
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
