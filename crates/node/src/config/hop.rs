//! `[hop]`: the hops of a node, and who may call it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_core::Guid;
use whimbrel_core::units::{ByteSize, Rate, Span};
use whimbrel_gnrs::KeyPair;
use whimbrel_link::HopConfig;
use whimbrel_link::hop::{
    CallerLists, CallerPolicy, Callers, MAX_CHUNK, MAX_LISTED, PostQuantum, Reception,
};

use super::LinkSection;
use super::checks::{Found, TICK};
use super::planning::HEADERS;
use super::sections::example_names;

/// Largest back-pressure buffer, in packets: 25 GB of Ethernet's size.
const MAX_BUFFER_PACKETS: u64 = 1 << 24;
/// Smallest limit of a chunk, in bytes: contents are never cut into smaller ones.
const MIN_CHUNK_LIMIT: u64 = 16 << 10;

/// `[hop]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HopSection {
    /// Congestion control: "bottleneck" (a model of the path that tolerates jitter and random loss),
    /// "cubic" (RFC 9438), "scavenger" (yields to other traffic), "unpaced" (limited only by the
    /// neighbour's window), or a constant rate such as "100 Mbit/s".
    pub pacing: Pacing,
    /// Capacity of this node's back-pressure buffer, in packets.
    pub buffer_packets: usize,
    /// Largest chunk, at most 4 MiB; the smaller of both neighbours' limits applies.
    #[schemars(with = "String")]
    pub chunk_limit: ByteSize,
    /// Chunks of at most this many packets are sent without requesting room first.
    pub small_chunk_packets: u16,
    /// Maximum number of chunks in flight per direction.
    pub max_chunks_in_flight: u16,
    /// Minimum retransmission timeout.
    #[schemars(with = "String")]
    pub min_timeout: Span,
    /// Maximum retransmission timeout.
    #[schemars(with = "String")]
    pub max_timeout: Span,
    /// Silence after which a neighbour is probed.
    #[schemars(with = "String")]
    pub idle_probe_interval: Span,
    /// Interval of probes to a silent neighbour.
    #[schemars(with = "String")]
    pub outage_probe_interval: Span,
    /// Silence after which a neighbour counts as unresponsive.
    #[schemars(with = "String")]
    pub unresponsive_silence: Span,
    /// Half-received chunks without a new frame for this long are dropped.
    #[schemars(with = "String")]
    pub reassembly_patience: Span,
    /// Hybrid key exchange with ML-KEM-512 and X25519, so that recorded traffic stays secret from a
    /// future quantum computer. "off": calls do not ask for it, but calls that do are answered with it;
    /// "offer": calls ask for it, and fall back to X25519 alone if the neighbour does not support it
    /// or the path loses its frames (1,040 octets); "require": no sessions without it.
    #[schemars(with = "String")]
    pub post_quantum: PostQuantum,
    /// Which callers of a listening link are admitted. "any": all that are not denied; "first-use":
    /// as "any", but a caller is added to the list, up to 2,048 names and each network's share;
    /// "listed": listed names only. `whimbrel router allow` and `deny` (`host allow`, `host deny`)
    /// change the list at run time, in a file next to the key.
    #[schemars(with = "String")]
    pub callers: CallerPolicy,
    /// Admitted names, in addition to those in the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>", example = example_names())]
    pub allow: Vec<Guid>,
    /// Denied names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>", example = example_names())]
    pub deny: Vec<Guid>,
}

impl Default for HopSection {
    fn default() -> HopSection {
        let hop = HopConfig::sealed(&KeyPair::from_secret(&[0; 32]), [0; 32], 1472);
        HopSection {
            pacing: Pacing::Bottleneck,
            buffer_packets: 32_768,
            chunk_limit: ByteSize(hop.chunk_limit as u64),
            small_chunk_packets: hop.small_chunk_packets,
            max_chunks_in_flight: hop.max_chunks_in_flight,
            min_timeout: Span(hop.min_timeout),
            max_timeout: Span(hop.max_timeout),
            idle_probe_interval: Span(hop.idle_probe_interval),
            outage_probe_interval: Span(hop.outage_probe_interval),
            unresponsive_silence: Span(hop.unresponsive_silence),
            reassembly_patience: Span(hop.reassembly_patience),
            post_quantum: PostQuantum::default(),
            callers: CallerPolicy::default(),
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }
}

impl HopSection {
    /// Returns the names that may call the node and those that may not.
    pub fn caller_lists(&self) -> CallerLists {
        CallerLists {
            allowed: self.allow.iter().copied().collect(),
            denied: self.deny.iter().copied().collect(),
        }
    }

    /// Returns the configuration of the hops of the node with these keys; each port has its own MTU.
    /// All secrets of its sessions follow from `seed`; `has_fast_aes` chooses their cipher.
    pub fn hop_config(
        &self,
        keys: &KeyPair,
        incarnation: u64,
        seed: [u8; 32],
        has_fast_aes: bool,
    ) -> HopConfig {
        let reception = Reception::new(keys.clone(), seed, has_fast_aes);
        let callers = Callers::new(self.callers, self.caller_lists());
        reception.with_callers(|of_node| *of_node = callers);
        HopConfig {
            incarnation,
            chunk_limit: self.chunk_limit.as_usize(),
            small_chunk_packets: self.small_chunk_packets,
            max_chunks_in_flight: self.max_chunks_in_flight,
            min_timeout: self.min_timeout.0,
            max_timeout: self.max_timeout.0,
            idle_probe_interval: self.idle_probe_interval.0,
            outage_probe_interval: self.outage_probe_interval.0,
            unresponsive_silence: self.unresponsive_silence.0,
            reassembly_patience: self.reassembly_patience.0,
            pacing: self.pacing.into(),
            post_quantum: self.post_quantum,
            reception: Arc::new(reception),
            ..HopConfig::sealed(keys, seed, 1472)
        }
    }
}

/// Returns true if the processor has instructions for AES.
pub fn has_fast_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// `[hop] pacing`, `[[link]] pacing`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Pacing {
    /// From a model of the path.
    Bottleneck,
    /// As CUBIC does.
    Cubic,
    /// What other flows leave.
    Scavenger,
    /// Limited only by the neighbour's window.
    Unpaced,
    /// At a fixed rate.
    Fixed(Rate),
}

const CHOICES: &str =
    "\"bottleneck\", \"cubic\", \"scavenger\", \"unpaced\" or a rate as \"100 Mbit/s\"";

impl Pacing {
    /// Adds a fault for a rate of 0.
    pub(super) fn check(self, found: &mut Found<'_>, key: impl Into<String>) {
        if self == Pacing::Fixed(Rate(0)) {
            found.add(key, format!("a rate of 0 sends nothing; write {CHOICES}"));
        }
    }
}

impl TryFrom<String> for Pacing {
    type Error = String;
    fn try_from(text: String) -> Result<Pacing, String> {
        match text.as_str() {
            "bottleneck" => Ok(Pacing::Bottleneck),
            "cubic" => Ok(Pacing::Cubic),
            "scavenger" => Ok(Pacing::Scavenger),
            "unpaced" => Ok(Pacing::Unpaced),
            rate => rate
                .parse()
                .map(Pacing::Fixed)
                .map_err(|_| format!("'{rate}' is not a pacing; write {CHOICES}")),
        }
    }
}

impl From<Pacing> for String {
    fn from(pacing: Pacing) -> String {
        match pacing {
            Pacing::Bottleneck => "bottleneck".to_owned(),
            Pacing::Cubic => "cubic".to_owned(),
            Pacing::Scavenger => "scavenger".to_owned(),
            Pacing::Unpaced => "unpaced".to_owned(),
            Pacing::Fixed(rate) => rate.to_string(),
        }
    }
}

impl From<Pacing> for whimbrel_link::Pacing {
    fn from(pacing: Pacing) -> whimbrel_link::Pacing {
        match pacing {
            Pacing::Bottleneck => whimbrel_link::Pacing::Bottleneck,
            Pacing::Cubic => whimbrel_link::Pacing::Cubic,
            Pacing::Scavenger => whimbrel_link::Pacing::Scavenger,
            Pacing::Unpaced => whimbrel_link::Pacing::Unpaced,
            Pacing::Fixed(rate) => whimbrel_link::Pacing::Fixed(rate.0),
        }
    }
}

/// Adds a fault for each value that makes no sense.
pub(super) fn check_hop(found: &mut Found<'_>, hop: &HopSection, links: &[LinkSection]) {
    hop.pacing.check(found, "hop.pacing");
    found.count(
        "hop.buffer_packets",
        hop.buffer_packets as u64,
        1..=MAX_BUFFER_PACKETS,
        " packets",
    );
    found.count(
        "hop.chunk_limit",
        hop.chunk_limit.0,
        MIN_CHUNK_LIMIT..=MAX_CHUNK as u64,
        " bytes",
    );
    found.count(
        "hop.max_chunks_in_flight",
        hop.max_chunks_in_flight,
        1..=16_384,
        "",
    );
    for (key, value) in [
        ("hop.min_timeout", hop.min_timeout),
        ("hop.max_timeout", hop.max_timeout),
        ("hop.idle_probe_interval", hop.idle_probe_interval),
        ("hop.outage_probe_interval", hop.outage_probe_interval),
        ("hop.unresponsive_silence", hop.unresponsive_silence),
        ("hop.reassembly_patience", hop.reassembly_patience),
    ] {
        found.time(key, value, TICK);
    }
    for (key, names) in [("hop.allow", &hop.allow), ("hop.deny", &hop.deny)] {
        if names.len() > MAX_LISTED {
            found.add(
                key,
                format!("{} names are too many; {MAX_LISTED} at most", names.len()),
            );
        }
    }
    let required = hop.post_quantum == PostQuantum::Require;
    let needed = PostQuantum::LONGEST_MESSAGE + HEADERS as usize;
    for link in links.iter().filter(|_| required) {
        let fault = if link.plain {
            "is plain, so nothing is encrypted there; remove its plain, or write \"offer\""
                .to_owned()
        } else if link.mtu < needed {
            let mtu = link.mtu;
            format!("has an MTU of {mtu}, and calls need {needed}; raise it, or write \"offer\"")
        } else {
            continue;
        };
        let label = &link.label;
        found.add("hop.post_quantum", format!("link \"{label}\" {fault}"));
    }
    for name in hop.allow.iter().filter(|name| hop.deny.contains(name)) {
        found.add(
            "hop.deny",
            format!("{name} is in allow, too; write it in one of both"),
        );
    }
    if hop.max_timeout < hop.min_timeout {
        found.add(
            "hop.max_timeout",
            format!(
                "{} is less than min_timeout, {}; write that or more",
                hop.max_timeout, hop.min_timeout
            ),
        );
    }
}
