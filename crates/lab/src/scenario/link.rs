//! Links: what is said of all, of a preset, and of one, laid upon each other.

use std::sync::OnceLock;

use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;
use whimbrel_sim::link::presets::{preset, presets};
use whimbrel_sim::link::{LinkSpec, LinkSpecError};

use super::document::{Document, Table, Value, empty_table, merged, table_value};
use super::fault::{Fault, hint};
use super::node::check_name;
use super::path::KeyPath;

/// A link of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Indices of nodes.
    pub ends: (usize, usize),
    /// From the first end to the second.
    pub forward: LinkSpec,
    /// From the second end to the first.
    pub backward: LinkSpec,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// For routes by cost.
    pub cost: Option<u64>,
    /// Recovery of lost frames between NDN routers.
    pub recovery: Recovery,
}

impl Link {
    /// The other end, if `node` is one of its ends.
    pub fn other_end(&self, node: usize) -> Option<usize> {
        match self.ends {
            (a, b) if a == node => Some(b),
            (a, b) if b == node => Some(a),
            _ => None,
        }
    }

    /// What happens to packets that leave `node`.
    pub fn from(&self, node: usize) -> &LinkSpec {
        if self.ends.0 == node {
            &self.forward
        } else {
            &self.backward
        }
    }
}

/// What recovers lost frames of NDN on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// Nothing.
    Off,
    /// The paper's BELRP.
    Paper,
    /// NDNLPv2's.
    Ndnlpv2,
    /// Whimbrel's.
    #[default]
    Adaptive,
}

/// Keys of a link beside those of [`LinkSpec`] and the tables `forward` and `backward`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    between: (String, String),
    #[serde(default, rename = "preset")]
    _preset: Option<String>,
    #[serde(default = "ethernet")]
    mtu: usize,
    #[serde(default)]
    cost: Option<u64>,
    #[serde(default)]
    recovery: Recovery,
}

fn ethernet() -> usize {
    1500
}

const OWN: [&str; 5] = ["between", "preset", "mtu", "cost", "recovery"];
const DIRECTIONS: [&str; 2] = ["forward", "backward"];
/// IPv4's least, and the largest packet there is.
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

    /// Lays the table at `path` upon what is there, if there is one.
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
                .ok_or_else(|| document.fault(&at, "a preset is named in quotes"))?;
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

    /// Reads the link. `ends` are its nodes if a graph has made it; `node` finds one by name.
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
        })
    }
}

/// Which key of a link, or of what it inherits, an error is about.
fn at_fault(document: &Document<'_>, link: &KeyPath, error: &LinkSpecError) -> KeyPath {
    let key = match error {
        LinkSpecError::OverlappingOutage => "outages",
        LinkSpecError::Probability { field, .. } => field,
        _ => "rate",
    };
    let places = [
        link.key(key),
        link.key("forward").key(key),
        link.key("backward").key(key),
        KeyPath::from(["graph", "link", key]),
        KeyPath::from(["defaults", "link", key]),
    ];
    let known = places
        .into_iter()
        .find(|place| document.get(place).is_some());
    known.unwrap_or_else(|| link.clone())
}

fn text_value<'t>(text: String) -> Value<'t> {
    Spanned::new(0..0, toml::de::DeValue::String(text.into()))
}

/// The uplink and the downlink of a preset; its first end is the subscriber.
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
