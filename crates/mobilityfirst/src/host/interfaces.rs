//! The interface manager: which links a host may use, what crosses them, and changes of that at run
//! time. "The device-level policies allow the user to manage how data is multiplexed across one or
//! more active interfaces" [MF-5G §IV].
//!
//! Links are in tiers: those that are not metered before those that are, and in each of both by cost.
//! Of the links that are neither switched off nor have used up their quota, those of the lowest tier
//! with a link that answers are used; the others stand by. Among the used ones the policy chooses.
//! A link that stands by is kept up, but the host is not attached by it, so that nothing is sent to
//! it there. One that is off, or whose quota is used up, sends and takes nothing.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use whimbrel_core::{Guid, PortId, PortOrigin};

use super::clocks::EARLIEST_UNIX_MS;
use crate::links::{Link, Links};

/// Bytes of the headers of IPv4 and UDP, which count as the frames that they carry do (RFC 791
/// without options, RFC 768).
const HEADERS: u64 = 28;

/// How a host uses several links to routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkPolicy {
    /// Those to the same router as the preferred one at once: what the host fetches and serves is
    /// divided among them. The others take over when all of these are silent.
    #[default]
    All,
    /// Those to different routers at once as well. The routers must reach the same destinations.
    Everywhere,
    /// The preferred one that responds; the others take over when it is silent.
    Order,
    /// As [`LinkPolicy::Everywhere`], and what the host sends is divided by the links' weights, not by
    /// what they can carry.
    Weights,
}

/// What a host's user has said about one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTerms {
    /// Its share under [`LinkPolicy::Weights`]; at least 1.
    pub weight: u32,
    /// Its tier: links of a lower one are used first.
    pub cost: u32,
    /// It is used only while no link that is not metered answers.
    pub metered: bool,
    /// Bytes, both ways and with headers, that may cross it in each period.
    pub quota: Option<u64>,
    /// The period, counted from the Unix epoch.
    pub quota_period: Duration,
    /// It is not used at all.
    pub off: bool,
}

impl Default for LinkTerms {
    fn default() -> LinkTerms {
        LinkTerms {
            weight: 1,
            cost: 0,
            metered: false,
            quota: None,
            quota_period: Duration::from_secs(30 * 86_400),
            off: false,
        }
    }
}

/// Why a link is used, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It carries what the host sends and fetches.
    Used,
    /// Its neighbour does not answer; it is tried all the time.
    Silent,
    /// Its interface is switched off, not connected, or without address or route.
    NoCarrier,
    /// A link that costs less answers.
    Cost,
    /// A link that is not metered answers.
    Metered,
    /// The policy prefers another one.
    Policy,
    /// Its quota is used up for this period.
    Quota,
    /// It is switched off by command or configuration.
    Off,
}

impl Verdict {
    /// Returns true for a link that carries nothing at all.
    fn is_shut(&self) -> bool {
        matches!(self, Verdict::Off | Verdict::Quota)
    }
}

/// What the rules judge a link by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its neighbour answers.
    pub up: bool,
    /// See [`LinkTerms`].
    pub off: bool,
    /// See [`LinkTerms`].
    pub metered: bool,
    /// See [`LinkTerms`].
    pub cost: u32,
    /// Nothing is left of its quota.
    pub used_up: bool,
}

impl Candidate {
    fn tier(&self) -> (bool, u32) {
        (self.metered, self.cost)
    }

    fn is_allowed(&self) -> bool {
        !self.off && !self.used_up
    }
}

/// Judges links together, in their order: [`Verdict::Used`] means that the policy may use it, should
/// it answer.
pub fn judge(links: &[Candidate]) -> Vec<Verdict> {
    let usable = links.iter().filter(|it| it.up && it.is_allowed());
    let tier = usable.map(Candidate::tier).min();
    let each = links.iter().map(|it| match tier {
        _ if it.off => Verdict::Off,
        _ if it.used_up => Verdict::Quota,
        Some((false, _)) if it.metered => Verdict::Metered,
        Some(tier) if it.tier() > tier => Verdict::Cost,
        _ => Verdict::Used,
    });
    each.collect()
}

/// A change of one link's terms at run time; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkChange {
    /// The link's label.
    pub label: String,
    /// See [`LinkTerms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// See [`LinkTerms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u32>,
    /// See [`LinkTerms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metered: Option<bool>,
    /// See [`LinkTerms`]; `Some(None)` is none.
    #[serde(skip_serializing_if = "Option::is_none", with = "present")]
    pub quota: Option<Option<u64>>,
    /// See [`LinkTerms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off: Option<bool>,
}

/// A key that is there, with the value null, is not one that is absent.
mod present {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Option<u64>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.flatten().serialize(serializer)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<Option<Option<u64>>, D::Error> {
        Option::<u64>::deserialize(deserializer).map(Some)
    }
}

/// A change at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InterfaceChange {
    /// Another policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<LinkPolicy>,
    /// Labels of links, the preferred one first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<Vec<String>>,
    /// Other terms of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkChange>,
}

/// One link, for reports.
#[derive(Clone, Debug, Serialize)]
pub struct InterfaceStatus {
    /// The link's name in the configuration.
    pub label: String,
    /// The other end's address.
    pub peer: String,
    /// The router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<Guid>,
    /// True while that answers.
    pub up: bool,
    /// Whether the link is used, and why.
    pub verdict: Verdict,
    /// See [`LinkTerms`].
    pub weight: u32,
    /// See [`LinkTerms`].
    pub cost: u32,
    /// See [`LinkTerms`].
    pub metered: bool,
    /// Bits per second that it delivers, as far as this host has measured that by sending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// The round trip without a queue, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Bytes that have crossed it since the host's start, both ways and with headers.
    pub bytes: u64,
    /// Of these, those of this period of its quota.
    pub bytes_of_period: u64,
    /// See [`LinkTerms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// What is left of it in this period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_left: Option<u64>,
}

/// The interface manager's answer to a program.
#[derive(Clone, Debug, Serialize)]
pub struct InterfacesStatus {
    /// The policy in force.
    pub policy: LinkPolicy,
    /// The links that are open; one whose neighbour's name is not found yet is not.
    pub interfaces: Vec<InterfaceStatus>,
    /// Why a change was not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What has been used of a link's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUse {
    /// The number of the period, counted from the Unix epoch.
    pub period: u64,
    /// Bytes in that period.
    pub bytes: u64,
}

/// What has crossed one link.
#[derive(Clone, Copy, Debug, Default)]
struct LinkUsage {
    /// Since the start, without what the present port has carried.
    closed: u64,
    /// The present port, and what it had carried when last looked at.
    port: Option<(PortId, u64)>,
    /// The period of the quota, and what had crossed the link when it began.
    period: u64,
    before: u64,
    /// What an earlier run of the host had used in this period.
    earlier: u64,
}

impl LinkUsage {
    fn total(&self) -> u64 {
        self.closed + self.port.map_or(0, |(_, bytes)| bytes)
    }

    fn of_period(&self) -> u64 {
        let here = self.total().saturating_sub(self.before);
        self.earlier.saturating_add(here)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    terms: BTreeMap<u32, LinkTerms>,
    usage: BTreeMap<u32, LinkUsage>,
    verdicts: BTreeMap<PortId, Verdict>,
}

/// Returns the number of the configured link of a port.
fn number_of(port: PortId, links: &Links) -> Option<u32> {
    match links.info(port)?.origin {
        PortOrigin::Configured(number) => Some(number),
        _ => None,
    }
}

impl Interfaces {
    pub(super) fn new(
        terms: BTreeMap<u32, LinkTerms>,
        used: BTreeMap<u32, QuotaUse>,
    ) -> Interfaces {
        let usage = used.into_iter().map(|(number, used)| {
            let usage = LinkUsage {
                period: used.period,
                earlier: used.bytes,
                ..LinkUsage::default()
            };
            (number, usage)
        });
        Interfaces {
            terms,
            usage: usage.collect(),
            ..Interfaces::default()
        }
    }

    /// Returns what has been used of the links with a quota.
    pub(super) fn quota_use(&self) -> BTreeMap<u32, QuotaUse> {
        let bounded = self.terms.iter().filter(|(_, it)| it.quota.is_some());
        let used = bounded.filter_map(|(number, _)| {
            let usage = self.usage.get(number)?;
            let used = QuotaUse {
                period: usage.period,
                bytes: usage.of_period(),
            };
            Some((*number, used))
        });
        used.collect()
    }

    fn terms_of(&self, port: PortId, links: &Links) -> LinkTerms {
        let number = number_of(port, links);
        let terms = number.and_then(|number| self.terms.get(&number));
        terms.copied().unwrap_or_default()
    }

    /// Returns the share of a link.
    pub(super) fn weight_of(&self, port: PortId, links: &Links) -> u32 {
        self.terms_of(port, links).weight.max(1)
    }

    /// Returns true if the policy may use the link of a port.
    pub(super) fn admits(&self, port: PortId) -> bool {
        let verdict = self.verdicts.get(&port);
        verdict.is_none_or(|verdict| *verdict == Verdict::Used)
    }

    /// Returns true if a link has a quota, so that its use must be looked at from time to time.
    pub(super) fn has_quotas(&self) -> bool {
        self.terms.values().any(|terms| terms.quota.is_some())
    }

    /// Looks at the links anew. Returns the ports that may not be used any more, and those that are
    /// to be closed or opened for all frames.
    pub(super) fn review(
        &mut self,
        unix_ms: u64,
        links: &Links,
        is_own: impl Fn(PortId) -> bool,
    ) -> InterfaceReview {
        let ports: Vec<PortId> = links.ports().filter(|port| is_own(*port)).collect();
        let before: u64 = self.usage.values().map(LinkUsage::total).sum();
        for port in &ports {
            self.count(*port, unix_ms, links);
        }
        let after: u64 = self.usage.values().map(LinkUsage::total).sum();
        let candidates: Vec<Candidate> = ports
            .iter()
            .map(|port| {
                let terms = self.terms_of(*port, links);
                Candidate {
                    up: links.is_up(*port),
                    off: terms.off,
                    metered: terms.metered,
                    cost: terms.cost,
                    used_up: self.left(*port, links) == Some(0),
                }
            })
            .collect();
        let former = core::mem::take(&mut self.verdicts);
        self.verdicts = ports.iter().copied().zip(judge(&candidates)).collect();
        let is_shut = Verdict::is_shut;
        let was = |port: &PortId| former.get(port).copied().unwrap_or(Verdict::Used);
        let mut review = InterfaceReview {
            // More than the probes of idle links.
            busy: after > before + 10_000,
            ..InterfaceReview::default()
        };
        for (port, verdict) in &self.verdicts {
            if *verdict != Verdict::Used && was(port) == Verdict::Used {
                review.retired.insert(*port);
            }
            review.gained |= *verdict == Verdict::Used && was(port) != Verdict::Used;
            if is_shut(verdict) != is_shut(&was(port)) {
                review.shut.insert(*port, is_shut(verdict));
            }
        }
        review
    }

    fn count(&mut self, port: PortId, unix_ms: u64, links: &Links) {
        let Some(number) = number_of(port, links) else {
            return;
        };
        let period = self.terms_of(port, links).quota_period;
        let (frames, bytes) = links.at(port).map_or((0, 0), Link::traffic);
        let bytes = bytes + frames * HEADERS;
        let usage = self.usage.entry(number).or_default();
        if let Some((former, carried)) = usage.port.filter(|(former, _)| *former != port) {
            usage.closed += carried;
            tracing::debug!(%former, carried, "a link has another port");
        }
        usage.port = Some((port, bytes));
        let period = unix_ms / (period.as_millis() as u64).max(1);
        // A clock that was never set yet tells no period.
        if usage.period != period && unix_ms >= EARLIEST_UNIX_MS {
            usage.before = if usage.period == 0 { 0 } else { usage.total() };
            (usage.period, usage.earlier) = (period, 0);
        }
    }

    /// Returns what is left of a link's quota, if it has one.
    fn left(&self, port: PortId, links: &Links) -> Option<u64> {
        let quota = self.terms_of(port, links).quota?;
        let usage = number_of(port, links).and_then(|number| self.usage.get(&number));
        Some(quota.saturating_sub(usage.map_or(0, LinkUsage::of_period)))
    }

    /// Returns the labels of the links that carry nothing, and why.
    pub(super) fn shut(&self, links: &Links) -> BTreeMap<String, Verdict> {
        let shut = self.verdicts.iter().filter(|(_, it)| it.is_shut());
        let named = shut.filter_map(|(port, it)| Some((links.info(*port)?.label.clone(), *it)));
        named.collect()
    }

    /// Changes the terms of a link. The error says what is wrong.
    pub(super) fn change(&mut self, change: &LinkChange, links: &Links) -> Result<(), String> {
        let Some(number) = Self::number_of_label(&change.label, links) else {
            let ports = links
                .ports()
                .filter(|port| number_of(*port, links).is_some());
            let known: Vec<&str> = ports
                .filter_map(|port| Some(links.info(port)?.label.as_str()))
                .collect();
            return Err(format!(
                "no link has the label \"{}\"; there are: {}",
                change.label,
                known.join(", ")
            ));
        };
        if change.weight == Some(0) {
            return Err(String::from(
                "a weight is at least 1; to use a link not at all, switch it off",
            ));
        }
        let terms = self.terms.entry(number).or_default();
        terms.weight = change.weight.unwrap_or(terms.weight);
        terms.cost = change.cost.unwrap_or(terms.cost);
        terms.metered = change.metered.unwrap_or(terms.metered);
        terms.quota = change.quota.unwrap_or(terms.quota);
        terms.off = change.off.unwrap_or(terms.off);
        Ok(())
    }

    /// Returns the number of the link with this label.
    pub(super) fn number_of_label(label: &str, links: &Links) -> Option<u32> {
        let of_label = |port: &PortId| links.info(*port).is_some_and(|info| info.label == label);
        let port = links.ports().find(of_label)?;
        number_of(port, links)
    }

    /// Describes a link; `chosen` is true if the policy uses it.
    pub(super) fn describe(
        &self,
        port: PortId,
        chosen: bool,
        links: &Links,
    ) -> Option<InterfaceStatus> {
        let number = number_of(port, links)?;
        let info = links.info(port)?;
        let terms = self.terms_of(port, links);
        let state = links.neighbours.state(port);
        let min_rtt = links.at(port).and_then(Link::min_rtt);
        let usage = self.usage.get(&number).copied().unwrap_or_default();
        let judged = self.verdicts.get(&port).copied().unwrap_or(Verdict::Used);
        let verdict = match judged {
            Verdict::Used if !links.at(port).is_some_and(Link::has_carrier) => Verdict::NoCarrier,
            Verdict::Used if !links.is_up(port) => Verdict::Silent,
            Verdict::Used if !chosen => Verdict::Policy,
            judged => judged,
        };
        Some(InterfaceStatus {
            label: info.label.clone(),
            peer: info.peer.clone(),
            router: links.neighbour(port),
            up: links.is_up(port),
            verdict,
            weight: terms.weight.max(1),
            cost: terms.cost,
            metered: terms.metered,
            rate_bps: state.delivery_rate.map(|rate| rate * 8),
            rtt_ms: min_rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            bytes: usage.total(),
            bytes_of_period: usage.of_period(),
            quota: terms.quota,
            quota_left: self.left(port, links),
        })
    }
}

/// What has changed for the ports.
#[derive(Debug, Default)]
pub(super) struct InterfaceReview {
    /// They were used, and are not any more.
    pub(super) retired: BTreeSet<PortId>,
    /// Links may be used that could not before.
    pub(super) gained: bool,
    /// Something has crossed a link since the last time.
    pub(super) busy: bool,
    /// They are to carry nothing from now on (true), or may again.
    pub(super) shut: BTreeMap<PortId, bool>,
}
