//! Nodes and their roles. To add a role: a variant of [`Role`], and its machine in each back end.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use whimbrel_ndn_packet::Name;
use whimbrel_node::config::key_path::KeyPath;
use whimbrel_node::config::{HopSection, HostSection, NdnSection, PolicyName, SchedulerName};

use super::document::{Document, Table, empty_table, merged, table_value};
use super::fault::{Fault, hint};
use super::sections::{GIVEN, RouterKey, Sections, StorageKey};
use crate::rivals::STRATEGIES;

/// A role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A MobilityFirst host: programs publish and fetch on it.
    Host,
    /// A MobilityFirst router.
    Router,
    /// The name server of MobilityFirst routers.
    NameServer,
    /// An NDN forwarder, with the programs of loads on it.
    NdnRouter,
    /// A host with TCP only.
    TcpHost,
    /// A TCP/ICN proxy on an NDN router, for the loads that name it.
    TcpProxy,
}

impl Role {
    /// Returns its name in a scenario.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Host => "host",
            Role::Router => "router",
            Role::NameServer => "name-server",
            Role::NdnRouter => "ndn-router",
            Role::TcpHost => "tcp-host",
            Role::TcpProxy => "tcp-proxy",
        }
    }

    /// Returns true if it forwards packets of others.
    pub const fn forwards(self) -> bool {
        matches!(self, Role::Router | Role::NdnRouter)
    }
}

/// One role or several: `"router"`, `["router", "ndn-router"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles(pub Vec<Role>);

impl<'de> Deserialize<'de> for Roles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Roles, D::Error> {
        struct RolesVisitor;
        impl<'de> Visitor<'de> for RolesVisitor {
            type Value = Roles;
            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("a role such as \"host\", or several: [\"router\", \"ndn-router\"]")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Roles, E> {
                let text = serde::de::value::StrDeserializer::new(text);
                Role::deserialize(text).map(|role| Roles(vec![role]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Roles, A::Error> {
                let mut roles = Vec::<Role>::deserialize(SeqAccessDeserializer::new(seq))?;
                roles.sort_unstable();
                roles.dedup();
                Ok(Roles(roles))
            }
        }
        deserializer.deserialize_any(RolesVisitor)
    }
}

/// A node of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its roles.
    pub roles: Roles,
    /// Its settings beyond the defaults.
    pub settings: NodeSettings,
    /// A host's routers, reached by any path; empty for those at its links.
    pub routers: Vec<usize>,
    /// A host's links that it prefers, the most preferred one first.
    pub preference: Vec<usize>,
}

impl Node {
    /// Returns true if it has this role.
    pub fn is(&self, role: Role) -> bool {
        self.roles.0.contains(&role)
    }

    /// Returns true if it forwards packets of others.
    pub fn forwards(&self) -> bool {
        self.roles.0.iter().any(|role| role.forwards())
    }
}

/// One name or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a node's name, or several: [\"a\", \"b\"]")]
pub enum Names {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Names {
    /// Returns each name with the path at which it was written, below `at`. A range, `n2..n11`, stands for
    /// the names with its numbers.
    pub(super) fn at(&self, at: &KeyPath) -> Vec<(KeyPath, Cow<'_, str>)> {
        let written: Vec<(KeyPath, &str)> = match self {
            Names::One(one) => vec![(at.clone(), one.as_str())],
            Names::Several(several) => {
                let names = several.iter().enumerate();
                names
                    .map(|(index, name)| (at.index(index), name.as_str()))
                    .collect()
            }
        };
        let each = written.into_iter().flat_map(|(at, name)| {
            let names = match range(name) {
                None => vec![Cow::Borrowed(name)],
                Some((prefix, numbers)) => numbers
                    .map(|number| Cow::Owned(format!("{prefix}{number}")))
                    .collect(),
            };
            names.into_iter().map(move |name| (at.clone(), name))
        });
        each.collect()
    }
}

/// Most names of a range: as many as a graph has nodes.
const MOST_OF_RANGE: u32 = 10_000;

/// Reads a range of numbered names. Anything else is a name, which no node may have if it is a faulty range.
fn range(text: &str) -> Option<(&str, RangeInclusive<u32>)> {
    let (first, last) = text.split_once("..")?;
    let digits = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (prefix, from) = first.split_at(digits(first));
    let to = last.strip_prefix(prefix)?;
    let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
    let fits = from <= to && to - from < MOST_OF_RANGE;
    fits.then_some((prefix, from..=to))
}

/// Settings of a node: `n2 = { role = "router", storage = "100 MB" }`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSettings {
    #[serde(default, rename = "role")]
    roles: Roles,
    /// Routers that a host attaches to, near or far, instead of those at its links; or `[router]`.
    #[serde(default)]
    pub(super) router: Option<RouterKey>,
    /// Bytes that a router stores for destinations that are away, or `[storage]`.
    #[serde(default)]
    pub(super) storage: Option<StorageKey>,
    /// `[hop]`
    #[serde(default)]
    pub(super) hop: Option<HopSection>,
    /// `[host]`
    #[serde(default)]
    pub(super) host: Option<HostSection>,
    /// `[ndn]`
    #[serde(default)]
    pub(super) ndn: Option<NdnSection>,
    /// True if a router's proxy forwards stored chunks as soon as it can; otherwise it waits for a
    /// Push from the source.
    #[serde(default)]
    pub proactive: Option<bool>,
    /// How a router or a host divides flows among several next hops: "pull", "weights", "paper",
    /// "round-robin".
    #[serde(default)]
    pub scheduler: Option<SchedulerName>,
    /// Bytes that may overtake a chunk of a flow that a router or a host divides.
    #[serde(default, with = "whimbrel_core::units::optional_size")]
    pub reorder_budget: Option<u64>,
    /// How a host uses several links: "all" to one router at once, "everywhere", or in "order".
    #[serde(default)]
    pub policy: Option<PolicyName>,
    /// Links that a host prefers, the most preferred one first; the others follow in the file's order.
    #[serde(default)]
    pub(super) preference: Vec<String>,
    /// Bytes of an NDN router's content store; 0 for none.
    #[serde(default, with = "whimbrel_core::units::optional_size")]
    pub content_store: Option<u64>,
    /// Of the names of Data, so many in a hundred are admitted to an NDN router's content store.
    #[serde(default)]
    pub admits: Option<u8>,
    /// An NDN router's strategy for all names: "best-route", "asf", ...
    #[serde(default)]
    pub strategy: Option<Strategy>,
}

/// An existing forwarding strategy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Strategy(pub Name);

impl TryFrom<String> for Strategy {
    type Error = String;

    fn try_from(text: String) -> Result<Strategy, String> {
        // Their names are /localhost/nfd/strategy/WORD and a version.
        let word = |name: &Name| name.to_string().split('/').nth(4).map(str::to_owned);
        let known = STRATEGIES.names();
        let found = known
            .iter()
            .find(|name| word(name).is_some_and(|word| word == text) || name.to_string() == text);
        found.cloned().map(Strategy).ok_or_else(|| {
            let words: Vec<String> = known.iter().filter_map(word).collect();
            let near = hint(&text, words.iter().map(String::as_str));
            format!("there is no strategy '{text}'{near}")
        })
    }
}

/// Refuses a name that cannot name files, hosts and components of NDN names.
pub(super) fn check_name(document: &Document<'_>, path: &KeyPath, name: &str) -> Result<(), Fault> {
    const MAX: usize = 64;
    let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let letters = name.starts_with(char::is_alphanumeric) && name.chars().all(plain);
    if letters && name.len() <= MAX {
        return Ok(());
    }
    let message = format!(
        "'{name}' is not a name: letters, digits, '-', '_' and '.', the first a letter or digit, at most {MAX} bytes"
    );
    Err(document.fault(path, message))
}

/// Reads `nodes.NAME`.
pub(super) fn read(document: &Document<'_>, name: &str) -> Result<Node, Fault> {
    let path = KeyPath::from(["nodes", name]);
    check_name(document, &path, name)?;
    let table = match document.get(&path) {
        Some(value) if value.get_ref().is_table() => value.get_ref().as_table().cloned(),
        Some(value) => {
            let mut table = empty_table();
            table.insert(Spanned::new(value.span(), "role".into()), value.clone());
            Some(table)
        }
        None => None,
    };
    let settings = settings(document, &path, table.unwrap_or_else(empty_table))?;
    if settings.roles.0.is_empty() {
        return Err(document.fault(
            &path,
            "a node needs a role: \"host\", { role = \"router\" }",
        ));
    }
    let has = |role: Role| settings.roles.0.contains(&role);
    if has(Role::TcpProxy) && !has(Role::NdnRouter) {
        let message =
            "a TCP proxy needs an NDN forwarder on its node: [\"ndn-router\", \"tcp-proxy\"]";
        return Err(document.fault(&path, message));
    }
    if has(Role::Router) && has(Role::Host) {
        let message = "a node is a router or a host, not both: give it the role \"router\", and link a node with the role \"host\" to it";
        return Err(document.fault(&path, message));
    }
    let sections = Sections::of(&settings, HopSection::default().pacing);
    sections
        .check(has)
        .map_err(|fault| document.fault(&path, fault.to_string()))?;
    Ok(Node {
        name: name.to_owned(),
        roles: settings.roles.clone(),
        settings,
        routers: Vec::new(),
        preference: Vec::new(),
    })
}

/// Returns the settings of a node: its own over the defaults.
pub(super) fn settings<'t>(
    document: &Document<'t>,
    at: &KeyPath,
    own: Table<'t>,
) -> Result<NodeSettings, Fault> {
    let all = document.table(&KeyPath::from(["defaults", "node"]));
    let table = all.map_or(own.clone(), |all| merged(all, &own));
    refuse_given(document, at, &table)?;
    let span = document.get(at).map_or(0..0, Spanned::span);
    document.decode(table_value(span, table), &[])
}

/// Refuses keys of sections that follow from the scenario itself.
fn refuse_given(document: &Document<'_>, at: &KeyPath, table: &Table<'_>) -> Result<(), Fault> {
    for (section, keys) in GIVEN {
        let section_of = |table: &Table<'_>| {
            let section = table.get(*section)?.get_ref().as_table().cloned();
            section.map(|section| {
                let mut keys = keys.iter();
                keys.find(|key| section.contains_key(**key)).copied()
            })
        };
        if let Some(key) = section_of(table).flatten() {
            let message = "this follows from the scenario's nodes, links and routes; remove it";
            return Err(document.fault(&at.key(section).key(key), message));
        }
    }
    Ok(())
}
