//! Links: defaults, presets and their own keys, merged layer by layer.

use std::fmt;
use std::sync::OnceLock;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::DeTable;
use whimbrel_core::units;
use whimbrel_link::ndnlp::PaperOptions;
use whimbrel_node::config::key_path::{KeyPath, Step};
use whimbrel_node::ndn::faces::ModelledDevice;
use whimbrel_sim::link::presets::{preset, presets};
use whimbrel_sim::link::{LinkSpec, LinkSpecError, QueueLimit, Rate};
use whimbrel_sim::simulator::UDP_IPV4_HEADERS;

use super::document::{Document, Table, Value, empty_table, merged, table_value};
use super::fault::{Fault, hint};
use super::network::Network;
use super::node::{Role, check_name};

/// A link of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The indices of its nodes.
    pub ends: (usize, usize),
    /// From the first end to the second.
    pub forward: LinkSpec,
    /// From the second end to the first.
    pub backward: LinkSpec,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// The cost, for routes by cost.
    pub cost: Option<u64>,
    /// Recovery of lost frames between NDN routers.
    pub recovery: Recovery,
    /// [`PaperOptions::later_acks`] of the paper's BELRP.
    pub later_acks: u8,
    /// [`PaperOptions::acks_together`] of the paper's BELRP.
    pub acks_together: bool,
    /// The carrier of frames.
    pub carrier: Carrier,
    /// True if NDN routers see the queues of its devices; see [`Link::device`].
    pub device: bool,
    /// True if NDN routers mark congestion on it.
    pub marking: bool,
    /// True if namespaces emulate it; else it is a veth pair, as fast as the kernel.
    pub emulated: bool,
    /// True if the host at its end uses it only while no other link answers.
    pub metered: bool,
    /// Bytes that may cross it, for the host at its end.
    pub quota: Option<u64>,
}

impl Link {
    /// Returns the other end, if `node` is one of its ends.
    pub fn other_end(&self, node: usize) -> Option<usize> {
        match self.ends {
            (a, b) if a == node => Some(b),
            (a, b) if b == node => Some(a),
            _ => None,
        }
    }

    /// Returns the device by which frames of NDN leave `node`, if its router sees the queue, so
    /// that waiting frames can still take acknowledgements. The link has the same rate, so that
    /// nothing waits twice. Returns `None` also for a link without a constant rate, which a file
    /// cannot ask for.
    pub fn device(&self, node: usize) -> Option<ModelledDevice> {
        let spec = self.from(node);
        match (self.device, &spec.rate) {
            (true, Rate::Fixed(rate)) => Some(ModelledDevice {
                rate: *rate,
                overhead: spec.overhead + self.carrier.headers(),
                queue: match spec.queue {
                    QueueLimit::Packets(packets) => usize::try_from(packets).unwrap_or(usize::MAX),
                    QueueLimit::Bytes(_) | QueueLimit::Unlimited => usize::MAX,
                },
            }),
            _ => None,
        }
    }

    /// Returns the direction of packets that leave `node`.
    pub fn from(&self, node: usize) -> &LinkSpec {
        if self.ends.0 == node {
            &self.forward
        } else {
            &self.backward
        }
    }
}

/// The recovery of lost frames between NDN routers on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// No recovery.
    Off,
    /// The paper's BELRP with at most one retransmission of a frame.
    #[serde(rename = "paper-1")]
    Paper1,
    /// The paper's BELRP with at most two retransmissions of a frame.
    #[serde(rename = "paper-2")]
    Paper2,
    /// The paper's BELRP with at most three, as in the paper.
    #[serde(rename = "paper", alias = "paper-3")]
    Paper3,
    /// NDNLPv2's recovery.
    Ndnlpv2,
    /// Whimbrel's adaptive recovery.
    #[default]
    Adaptive,
}

/// The carrier of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// UDP over IPv4. TCP and MobilityFirst share the link.
    #[default]
    Udp,
    /// Packets of IPv4 alone, between MobilityFirst's nodes. TCP shares the link.
    Ip,
    /// No carrier: the link belongs to two NDN routers alone.
    Bare,
}

/// The header of IPv4 without options.
const IPV4_HEADER: u32 = 20;

impl Carrier {
    /// Returns the bytes that it adds to a frame.
    pub const fn headers(self) -> u32 {
        match self {
            Carrier::Udp => UDP_IPV4_HEADERS,
            Carrier::Ip => IPV4_HEADER,
            Carrier::Bare => 0,
        }
    }
}

/// Keys of a link beside those of [`LinkSpec`] and the tables `forward` and `backward`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    #[serde(deserialize_with = "two_nodes")]
    between: (String, String),
    #[serde(default, rename = "preset")]
    _preset: Option<String>,
    #[serde(default = "ethernet")]
    mtu: usize,
    #[serde(default)]
    cost: Option<u64>,
    #[serde(default)]
    recovery: Recovery,
    #[serde(default = "later_acks")]
    later_acks: u8,
    #[serde(default)]
    acks_together: bool,
    #[serde(default)]
    carrier: Carrier,
    #[serde(default)]
    device: bool,
    #[serde(default = "yes")]
    marking: bool,
    #[serde(default = "yes")]
    emulated: bool,
    #[serde(default)]
    metered: bool,
    #[serde(default, with = "units::optional_size")]
    quota: Option<u64>,
}

/// The MTU of Ethernet, bytes.
pub(super) const ETHERNET: usize = 1500;

fn ethernet() -> usize {
    ETHERNET
}

fn later_acks() -> u8 {
    PaperOptions::default().later_acks
}

fn yes() -> bool {
    true
}

// A derived tuple ignores a third node.
fn two_nodes<'de, D: Deserializer<'de>>(from: D) -> Result<(String, String), D::Error> {
    struct Ends;

    impl<'de> Visitor<'de> for Ends {
        type Value = (String, String);

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("two nodes, as in [\"a\", \"b\"]")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(name) = names.next_element::<String>()? {
                all.push(name);
            }
            <[String; 2]>::try_from(all)
                .map(Into::into)
                .map_err(|all| A::Error::invalid_length(all.len(), &self))
        }
    }

    from.deserialize_seq(Ends)
}

const OWN: [&str; 13] = [
    "between",
    "preset",
    "mtu",
    "cost",
    "recovery",
    "later_acks",
    "acks_together",
    "carrier",
    "device",
    "marking",
    "emulated",
    "metered",
    "quota",
];
const DIRECTIONS: [&str; 2] = ["forward", "backward"];
/// The smallest MTU of IPv4, and the largest packet.
const MTUS: core::ops::RangeInclusive<usize> = 576..=65_535;

/// The keys of a link, merged layer by layer; a later layer overrides an earlier one.
#[derive(Clone, Debug)]
pub(super) struct Layers<'t> {
    own: Table<'t>,
    directions: [Table<'t>; 2],
}

impl<'t> Layers<'t> {
    pub(super) fn new() -> Layers<'t> {
        Layers {
            own: empty_table(),
            directions: [empty_table(), empty_table()],
        }
    }

    /// Merges the table at `path`, if it exists, over the present keys.
    pub(super) fn lay(&mut self, document: &Document<'t>, path: &KeyPath) -> Result<(), Fault> {
        let Some(value) = document.get(path) else {
            return Ok(());
        };
        let Some(table) = value.get_ref().as_table() else {
            return Err(
                document.fault(path, "a link is a table: { between = [\"a\", \"b\"], ... }")
            );
        };
        if let Some(name) = table.get("preset") {
            let at = path.key("preset");
            let name = name
                .get_ref()
                .as_str()
                .ok_or_else(|| document.fault(&at, "the name of a preset is a string in quotes"))?;
            let ways = preset_tables(name).ok_or_else(|| {
                let known: Vec<&str> = presets().iter().map(|preset| preset.name).collect();
                document.fault(
                    &at,
                    format!("there is no preset '{name}'{}", hint(name, known)),
                )
            })?;
            for (layered, way) in self.directions.iter_mut().zip(ways) {
                *layered = merged(layered, &way);
            }
        }
        let (mut own, mut both) = (empty_table(), empty_table());
        for (key, value) in table {
            match key.get_ref().as_ref() {
                known if OWN.contains(&known) => own.insert(key.clone(), value.clone()),
                known if DIRECTIONS.contains(&known) => None,
                _ => both.insert(key.clone(), value.clone()),
            };
        }
        self.own = merged(&self.own, &own);
        for (layered, name) in self.directions.iter_mut().zip(DIRECTIONS) {
            *layered = merged(layered, &both);
            if let Some(way) = table.get(name).and_then(|way| way.get_ref().as_table()) {
                *layered = merged(layered, way);
            }
        }
        Ok(())
    }

    /// Sets a key of both directions to a text.
    pub(super) fn set(&mut self, key: &'static str, text: String) {
        for way in &mut self.directions {
            way.insert(Spanned::new(0..0, key.into()), text_value(text.clone()));
        }
    }

    /// Reads the link. `ends` are its nodes if a graph has made it; `node` finds a node by name.
    pub(super) fn read(
        self,
        document: &Document<'t>,
        name: &str,
        ends: Option<(usize, usize)>,
        node: &dyn Fn(&str) -> Option<usize>,
        known: &[&str],
    ) -> Result<Link, Fault> {
        let path = KeyPath::from(["links", name]);
        if ends.is_none() {
            check_name(document, &path, name)?;
        }
        let span = document.get(&path).map_or(0..0, Spanned::span);
        let mut own = self.own;
        if ends.is_some() {
            let place = || text_value(String::new());
            let both = toml::de::DeValue::Array([place(), place()].into_iter().collect());
            let between = Spanned::new(0..0, "between".into());
            own.insert(between, Spanned::new(0..0, both));
        } else if !own.contains_key("between") {
            let message = "a link needs its ends: between = [\"a\", \"b\"]";
            return Err(document.fault(&path, message));
        }
        let own: Own = document.decode(table_value(span.clone(), own), &[])?;
        if own.later_acks == 0 {
            let message = "a frame is lost after at least 1 later ACK";
            return Err(document.fault(&path.key("later_acks"), message));
        }
        let is_papers = matches!(
            own.recovery,
            Recovery::Paper1 | Recovery::Paper2 | Recovery::Paper3
        );
        let letter = PaperOptions::default();
        for (key, is_set) in [
            ("later_acks", own.later_acks != letter.later_acks),
            ("acks_together", own.acks_together != letter.acks_together),
        ] {
            if is_set && !is_papers {
                let message = "this key is for recovery = \"paper\" only";
                return Err(document.fault(&path.key(key), message));
            }
        }
        if !MTUS.contains(&own.mtu) {
            let message = format!(
                "an MTU of {} is not within {} to {} bytes",
                own.mtu,
                MTUS.start(),
                MTUS.end()
            );
            return Err(document.fault(&path.key("mtu"), message));
        }
        let end = |index: usize, name: &str| {
            node(name).ok_or_else(|| {
                let at = path.key("between").index(index);
                let message = format!("there is no node '{name}'{}", hint(name, known.to_vec()));
                document.fault(&at, message)
            })
        };
        let ends = match ends {
            Some(ends) => ends,
            None => (end(0, &own.between.0)?, end(1, &own.between.1)?),
        };
        if ends.0 == ends.1 {
            let message = format!("link '{name}' leads back to its node");
            return Err(document.fault(&path.key("between"), message));
        }
        let also: Vec<&str> = OWN.into_iter().chain(DIRECTIONS).collect();
        let [forward, backward] = self.directions.map(|way| {
            let mut spec: LinkSpec = document.decode(table_value(span.clone(), way), &also)?;
            let read = |file: &str| std::fs::read_to_string(document.folder().join(file));
            spec.load_traces(read)
                .and_then(|()| spec.validate())
                .map_err(|error| {
                    document.fault(&at_fault(document, &path, &error), error.to_string())
                })?;
            Ok(spec)
        });
        Ok(Link {
            name: name.to_owned(),
            ends,
            forward: forward?,
            backward: backward?,
            mtu: own.mtu,
            cost: own.cost,
            recovery: own.recovery,
            later_acks: own.later_acks,
            acks_together: own.acks_together,
            carrier: own.carrier,
            device: own.device,
            marking: own.marking,
            emulated: own.emulated,
            metered: own.metered,
            quota: own.quota,
        })
    }
}

/// Refuses contradictory keys of links.
pub(super) fn check(document: &Document<'_>, network: &Network) -> Result<(), Fault> {
    for link in &network.links {
        let refuse = |key, message| {
            let at = place_of(document, &KeyPath::from(["links", &link.name, key]));
            Err(document.fault(&at, message))
        };
        let ends = [link.ends.0, link.ends.1].map(|end| &network.nodes[end]);
        if link.carrier == Carrier::Bare
            && let Some(odd) = ends.iter().find(|end| !end.is(Role::NdnRouter))
        {
            let message = format!(
                "a bare link joins two NDN routers, and '{}' is not one",
                odd.name
            );
            return refuse("carrier", message);
        }
        if link.carrier == Carrier::Ip && !network.attach(link.ends.0, link.ends.1) {
            let message = "bare IP carries frames of MobilityFirst between a router and a host or router, and these are not";
            return refuse("carrier", message.to_owned());
        }
        if link.carrier == Carrier::Ip && ends.iter().all(|end| end.is(Role::NdnRouter)) {
            let message = "NDN has no faces on bare IP; write carrier = \"udp\", or a link of its own for MobilityFirst";
            return refuse("carrier", message.to_owned());
        }
        let is_hosts = ends.iter().any(|end| end.is(Role::Host));
        let terms = [("metered", link.metered), ("quota", link.quota.is_some())];
        if let Some((key, _)) = terms.into_iter().find(|(_, is_set)| *is_set && !is_hosts) {
            let message = format!("only the links of hosts have '{key}', and no end is a host");
            return refuse(key, message);
        }
        let clean = LinkSpec::default();
        if !link.emulated && (link.forward != clean || link.backward != clean) {
            let message = "a link that is not emulated has no rate, delay, queue, loss or the like";
            return refuse("emulated", message.to_owned());
        }
        let specs = [&link.forward, &link.backward];
        for queue in specs.map(|spec| spec.queue) {
            if let QueueLimit::Bytes(room) = queue
                && room < link.mtu as u64
            {
                let mtu = link.mtu;
                let message = format!(
                    "{room} bytes have no room for a packet of {mtu}; write a size, as \"64 kB\", or \"{room} packets\""
                );
                return refuse("queue", message);
            }
        }
        for spec in specs.into_iter().filter(|_| link.device) {
            if !matches!(spec.rate, Rate::Fixed(_)) {
                let message = "a device has a constant rate: rate = \"10 Mbit/s\"".to_owned();
                return refuse("device", message);
            }
            if matches!(spec.queue, QueueLimit::Bytes(_)) {
                let message =
                    "a device's queue is counted in packets: queue = \"80 packets\"".to_owned();
                return refuse("device", message);
            }
        }
    }
    Ok(())
}

/// Returns the key of a link, or of its defaults, that an error is about.
fn at_fault(document: &Document<'_>, link: &KeyPath, error: &LinkSpecError) -> KeyPath {
    let key = match error {
        LinkSpecError::OverlappingOutage => "outages",
        LinkSpecError::Probability { field, .. } => field,
        _ => "rate",
    };
    place_of(document, &link.key(key))
}

/// Returns the place at which a key was written, which a link may have inherited.
pub(super) fn place_of(document: &Document<'_>, key: &KeyPath) -> KeyPath {
    let [Step::Key(links), link, Step::Key(name)] = key.0.as_slice() else {
        return key.clone();
    };
    if links != "links" {
        return key.clone();
    }
    let link = KeyPath(vec![Step::Key(links.clone()), link.clone()]);
    let places = [
        key.clone(),
        link.key("forward").key(name),
        link.key("backward").key(name),
        KeyPath::from(["graph", "link", name]),
        KeyPath::from(["defaults", "link", name]),
    ];
    let known = places
        .into_iter()
        .find(|place| document.get(place).is_some());
    known.unwrap_or(link)
}

fn text_value<'t>(text: String) -> Value<'t> {
    Spanned::new(0..0, toml::de::DeValue::String(text.into()))
}

/// Returns the uplink and the downlink of a preset; the first end of the link is the subscriber.
fn preset_tables(name: &str) -> Option<[DeTable<'static>; 2]> {
    static TEXTS: OnceLock<Vec<(&'static str, [String; 2])>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let text = |spec: &LinkSpec| toml::to_string(spec).unwrap_or_default();
        let named = presets();
        let texts = named
            .iter()
            .map(|known| (known.name, [text(&known.uplink), text(&known.downlink)]));
        texts.collect()
    });
    preset(name)?;
    let (_, [up, down]) = texts.iter().find(|(known, _)| *known == name)?;
    let table = |text: &'static str| DeTable::parse(text).ok().map(Spanned::into_inner);
    Some([table(up)?, table(down)?])
}
