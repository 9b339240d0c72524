//! The interface manager's decisions are carried out, and changed by programs.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Guid, Time};

use super::interfaces::{InterfacesStatus, QuotaUse};
use super::{Host, Timer};
use crate::links::NameRule;

/// A quota is looked at this often while something crosses the links, and else this often.
const BUSY_REVIEW: Duration = Duration::from_millis(100);
const IDLE_REVIEW: Duration = Duration::from_secs(1);

impl Host {
    /// Judges the links anew, and does what follows: first the routers learn by which links the host
    /// is to be reached, then the others are left.
    pub(super) fn review_interfaces(&mut self, now: Time) {
        let unix_ms = self.registration.own_millis(now);
        let review = self.access.review(unix_ms);
        self.renew_if_changed(now);
        self.carry_out();
        for port in review.retired {
            let waiting = self.access.links.retire(now, port);
            self.send_again(waiting);
        }
        for (port, shut) in review.shut {
            self.access.links.neighbours.set_shut(now, port, shut);
        }
        let uplink = self.access.uplink();
        if review.gained && uplink.is_up {
            self.downloads
                .resume_transfers(now, &uplink, &mut self.effects);
        }
        if self.access.interfaces.has_quotas() {
            let next = if review.busy {
                BUSY_REVIEW
            } else {
                IDLE_REVIEW
            };
            self.timers.set(Timer::Interfaces, now + next);
        }
    }

    /// The neighbour of link `number` must prove a name by this rule.
    pub fn set_name_rule(&mut self, number: u32, rule: NameRule) {
        self.access.links.set_name_rule(number, rule);
    }

    /// Returns the names that neighbours of configured links have proven, by the links' numbers.
    pub fn proven_names(&self) -> BTreeMap<u32, Guid> {
        self.access.links.neighbours.proven_names()
    }

    /// Returns what has been used of the links' quotas, by their numbers: for the next run's
    /// [`HostConfig::used`](super::HostConfig::used).
    pub fn quota_use(&self) -> BTreeMap<u32, QuotaUse> {
        self.access.interfaces.quota_use()
    }

    /// Makes a change, if there is one, and describes the links.
    pub(super) fn manage_interfaces(&mut self, now: Time, change: &str) -> InterfacesStatus {
        let outcome = match change {
            "" => Ok(()),
            json => serde_json::from_str(json)
                .map_err(|fault| format!("this change makes no sense: {fault}"))
                .and_then(|change| self.access.change(&change)),
        };
        self.review_interfaces(now);
        self.access.status(outcome.err())
    }
}
