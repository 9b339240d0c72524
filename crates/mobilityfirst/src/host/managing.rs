//! The interface manager's decisions are carried out, and changed by programs.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Guid, Time};

use super::interfaces::QuotaUse;
use super::interfaces::{InterfaceChange, Interfaces, InterfacesStatus, LinkChange};
use super::{Host, LinkPolicy, Timer};
use crate::links::NameRule;
use crate::split::{Scheduler, SplitConfig};

/// A quota is looked at this often while something crosses the links, and else this often.
const BUSY_REVIEW: Duration = Duration::from_millis(100);
const IDLE_REVIEW: Duration = Duration::from_secs(1);

/// Returns how flows are divided under a policy.
pub(super) fn split_of(policy: LinkPolicy, configured: SplitConfig) -> SplitConfig {
    match policy {
        LinkPolicy::Weights => SplitConfig {
            scheduler: Scheduler::Weights,
            ..configured
        },
        _ => configured,
    }
}

impl Host {
    /// Judges the links anew, and does what follows: first the routers learn by which links the host
    /// is to be reached, then the others are left.
    pub(super) fn review_interfaces(&mut self, now: Time) {
        let unix_ms = self.registration.own_millis(now);
        let mut interfaces = core::mem::take(&mut self.uplinks.interfaces);
        let uplinks = &self.uplinks;
        let review = interfaces.review(unix_ms, &self.links, |port| uplinks.has(port));
        self.uplinks.interfaces = interfaces;
        self.renew_if_changed(now);
        self.carry_out();
        for port in review.retired {
            let waiting = self.links.retire(now, port);
            self.send_again(waiting);
        }
        for (port, shut) in review.shut {
            self.links.neighbours.set_shut(now, port, shut);
        }
        let uplink = self.uplink();
        if review.gained && uplink.is_up {
            self.downloads
                .resume_transfers(now, &uplink, &mut self.effects);
        }
        if self.uplinks.interfaces.has_quotas() {
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
        self.links.set_name_rule(number, rule);
    }

    /// Returns the names that neighbours of configured links have proven, by the links' numbers.
    pub fn proven_names(&self) -> BTreeMap<u32, Guid> {
        self.links.neighbours.proven_names()
    }

    /// Returns what has been used of the links' quotas, by their numbers: for the next run's
    /// [`HostConfig::used`](super::HostConfig::used).
    pub fn quota_use(&self) -> BTreeMap<u32, QuotaUse> {
        self.uplinks.interfaces.quota_use()
    }

    /// Makes a change, if there is one, and describes the links.
    pub(super) fn manage_interfaces(&mut self, now: Time, change: &str) -> InterfacesStatus {
        let outcome = match change {
            "" => Ok(()),
            json => serde_json::from_str(json)
                .map_err(|fault| format!("this change makes no sense: {fault}"))
                .and_then(|change| self.change_interfaces(&change)),
        };
        self.review_interfaces(now);
        let ports = self.links.ports().filter(|port| self.uplinks.has(*port));
        let describe = |port| {
            let chosen = self.uplinks.is_chosen(port, &self.links);
            self.uplinks.interfaces.describe(port, chosen, &self.links)
        };
        InterfacesStatus {
            policy: self.uplinks.policy(),
            interfaces: ports.filter_map(describe).collect(),
            error: outcome.err(),
        }
    }

    fn change_interfaces(&mut self, change: &InterfaceChange) -> Result<(), String> {
        let labels = change.preference.iter().flatten();
        let numbers = labels.map(|label| {
            let number = Interfaces::number_of_label(label, &self.links);
            number.ok_or_else(|| format!("no link has the label \"{label}\""))
        });
        let numbers: Vec<u32> = numbers.collect::<Result<_, _>>()?;
        if let Some(link) = &change.link {
            self.change_link(link)?;
        }
        if change.preference.is_some() {
            self.uplinks.set_preference(numbers);
        }
        if let Some(policy) = change.policy {
            self.uplinks.set_policy(policy);
            let split = split_of(policy, self.split);
            self.links.set_split(split);
            self.divisions.set_scheduler(split.scheduler);
        }
        Ok(())
    }

    fn change_link(&mut self, change: &LinkChange) -> Result<(), String> {
        self.uplinks.interfaces.change(change, &self.links)
    }
}
