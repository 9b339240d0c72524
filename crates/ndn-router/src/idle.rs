//! On-demand faces that have been silent for too long.

use core::time::Duration;

use whimbrel_core::{Deadline, Time};
use whimbrel_forwarder::FaceId;

use crate::attached::Table;

/// Interval at which on-demand faces are checked.
const CHECK: Duration = Duration::from_secs(5);

/// The next check of on-demand faces, while there are any.
pub(crate) struct Idle {
    timeout: Duration,
    check_at: Option<Time>,
}

impl Idle {
    /// On-demand faces end after a silence of `timeout`.
    pub(crate) fn new(timeout: Duration) -> Idle {
        Idle {
            timeout,
            check_at: None,
        }
    }

    /// Starts checking, because there is an on-demand face.
    pub(crate) fn watch(&mut self, now: Time) {
        self.check_at.get_or_insert(now + CHECK);
    }

    /// Returns the faces that end now.
    pub(crate) fn handle_timeout(&mut self, now: Time, table: &Table) -> Vec<FaceId> {
        if self.check_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let mut any = false;
        let mut ended = Vec::new();
        for (face, attached) in table.iter().filter(|(_, attached)| attached.on_demand) {
            any = true;
            // A stream ends when its program does; datagrams only fall silent.
            if attached.last_heard + self.timeout <= now && !attached.stream {
                ended.push(face);
            }
        }
        self.check_at = any.then_some(now + CHECK);
        ended
    }

    pub(crate) fn poll_timeout(&self) -> Option<Deadline> {
        self.check_at.map(|at| Deadline::new(at, "idle faces"))
    }
}
