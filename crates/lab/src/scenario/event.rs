//! Events: changes to a network while it runs. Each is lowered to [`Action`]s, and a back end
//! implements only those. To add an event: a field of `Section`, an arm of `lower`.

use std::time::Duration;

use serde::Deserialize;
use whimbrel_core::units;
use whimbrel_node::config::key_path::KeyPath;
use whimbrel_sim::link::LinkSpec;

use super::document::Document;
use super::fault::{Fault, Faults, Found};
use super::network::{Network, link_at as any_link_at, network as read_network, node_at};
use super::node::Role;

/// A single change to a running network.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing passes the link any more.
    Cut(usize),
    /// The link passes packets again.
    Restore(usize),
    /// The kernel of this node says whether the interface to this link works.
    Carrier {
        /// The node.
        node: usize,
        /// The link.
        link: usize,
        /// False if it does not.
        works: bool,
    },
    /// This host prefers the link to its others from now on, as its user tells it.
    Prefer {
        /// The host.
        node: usize,
        /// The link.
        link: usize,
    },
    /// The link has other properties from now on, in each direction.
    Change(usize, Box<(LinkSpec, LinkSpec)>),
    /// The node is killed without warning.
    Crash(usize),
    /// The node starts again, with nothing in its memory.
    Restart(usize),
    /// The node erases its cache.
    EmptyCache(usize),
}

/// An action and its time, counted from the run's origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Its time.
    pub at: Duration,
    /// The action.
    pub action: Action,
    /// The number of the event in the file, from 0.
    pub event: usize,
}

/// `[[events]]`: `at`, and exactly one of `outage`, `change`, `move`, `prefer`, `crash`, `sleep` and
/// `empty_cache`, which names the link or node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    #[serde(with = "units::duration")]
    at: Duration,
    /// A link, which is out for `duration`, or for ever.
    outage: Option<String>,
    /// A link, of which `set` changes some keys.
    change: Option<String>,
    set: Option<toml::Table>,
    /// A node, which leaves the link `from` for the link `to`, which was out until then; `gap` lies
    /// between, or `overlap`.
    #[serde(rename = "move")]
    moved: Option<String>,
    from: Option<String>,
    to: Option<String>,
    #[serde(default, with = "units::optional_duration")]
    gap: Option<Duration>,
    #[serde(default, with = "units::optional_duration")]
    overlap: Option<Duration>,
    /// Whether the kernel of the node that moves says that its interfaces go and come; it does
    /// unless this is false.
    link_events: Option<bool>,
    /// A link, which the host at its end prefers from then on.
    prefer: Option<String>,
    /// A node, which starts again after `duration`, or never.
    crash: Option<String>,
    /// A node, whose interfaces are off for `duration`: `times` times, one in `every`.
    sleep: Option<String>,
    #[serde(default, with = "units::optional_duration")]
    every: Option<Duration>,
    times: Option<u32>,
    /// A node.
    empty_cache: Option<String>,
    #[serde(default, with = "units::optional_duration")]
    duration: Option<Duration>,
}

/// Reads `events`. Returns all actions in the order of their times.
pub(super) fn timeline(
    document: &Document<'_>,
    network: &Network,
    seed: u64,
) -> Result<Vec<Timed>, Faults> {
    let mut found = Found::default();
    let at = KeyPath::from(["events"]);
    let count = document
        .get(&at)
        .and_then(|events| events.get_ref().as_array())
        .map_or(0, |events| events.len());
    if count == 0 && document.get(&at).is_some() {
        found.add(document.fault(&at, "events are a list: [[events]]"));
    }
    let mut timeline = Vec::new();
    for index in 0..count {
        let lowered = lower(document, network, &at.index(index), seed);
        let actions = found.keep(lowered).into_iter().flatten();
        timeline.extend(actions.map(|(at, action)| Timed {
            at,
            action,
            event: index,
        }));
    }
    timeline.sort_by_key(|timed: &Timed| timed.at);
    found.or(Some(timeline))
}

fn lower(
    document: &Document<'_>,
    network: &Network,
    at: &KeyPath,
    seed: u64,
) -> Result<Vec<(Duration, Action)>, Fault> {
    let section: Section = document.read(at)?;
    let when = section.at;
    let until = section.duration.map(|duration| when + duration);
    let verbs = [
        ("outage", &section.outage),
        ("change", &section.change),
        ("move", &section.moved),
        ("prefer", &section.prefer),
        ("crash", &section.crash),
        ("sleep", &section.sleep),
        ("empty_cache", &section.empty_cache),
    ];
    let mut named = verbs
        .iter()
        .filter_map(|(verb, object)| Some((*verb, object.as_deref()?)));
    let (verb, object) = match (named.next(), named.next()) {
        (Some(one), None) => one,
        _ => {
            let message = "an event has exactly one of outage, change, move, prefer, crash, sleep and empty_cache";
            return Err(document.fault(at, message));
        }
    };
    unused(document, at, &section, verb)?;
    let key = at.key(verb);
    let link = |name: &str| link_at(document, network, &key, name);
    let node = |name: &str| node_at(document, network, &key, name);
    Ok(match verb {
        "outage" => {
            let link = link(object)?;
            let cut = (when, Action::Cut(link));
            let restored = until.map(|until| (until, Action::Restore(link)));
            [cut].into_iter().chain(restored).collect()
        }
        "change" => {
            let index = link(object)?;
            let changed = changed(document, at, object, seed, index)?;
            vec![(when, Action::Change(index, Box::new(changed)))]
        }
        "move" => {
            let node = node(object)?;
            moved(document, network, at, &section, node)?
        }
        "prefer" => {
            let link = any_link_at(document, network, &key, object)?;
            let (a, b) = network.links[link].ends;
            let host = [a, b]
                .into_iter()
                .find(|end| network.nodes[*end].is(Role::Host));
            let node = host.filter(|_| network.attach(a, b)).ok_or_else(|| {
                document.fault(&key, format!("link '{object}' joins no host to its router"))
            })?;
            vec![(when, Action::Prefer { node, link })]
        }
        "crash" => {
            let node = node(object)?;
            let crash = (when, Action::Crash(node));
            let restart = until.map(|until| (until, Action::Restart(node)));
            [crash].into_iter().chain(restart).collect()
        }
        "sleep" => {
            let node = node(object)?;
            asleep(document, network, at, &section, node)?
        }
        _ => {
            let node = node(object)?;
            if !network.nodes[node].is(Role::NdnRouter) {
                let message = format!("'{object}' is not an ndn-router, so it has no cache");
                return Err(document.fault(&key, message));
            }
            vec![(when, Action::EmptyCache(node))]
        }
    })
}

/// Returns the link that `path` names, if events can change it.
fn link_at(
    document: &Document<'_>,
    network: &Network,
    path: &KeyPath,
    name: &str,
) -> Result<usize, Fault> {
    let link = any_link_at(document, network, path, name)?;
    if network.links[link].emulated {
        return Ok(link);
    }
    let message = format!("link '{name}' is not emulated, so it cannot change");
    Err(document.fault(path, message))
}

/// Refuses keys that this verb does not use: they were meant for another one.
fn unused(
    document: &Document<'_>,
    at: &KeyPath,
    section: &Section,
    verb: &str,
) -> Result<(), Fault> {
    let given = [
        ("set", section.set.is_some(), &["change"][..]),
        ("from", section.from.is_some(), &["move"]),
        ("to", section.to.is_some(), &["move"]),
        ("gap", section.gap.is_some(), &["move"]),
        ("overlap", section.overlap.is_some(), &["move"]),
        ("link_events", section.link_events.is_some(), &["move"]),
        ("every", section.every.is_some(), &["sleep"]),
        ("times", section.times.is_some(), &["sleep"]),
        (
            "duration",
            section.duration.is_some(),
            &["outage", "crash", "sleep"],
        ),
    ];
    for (key, given, verbs) in given {
        if given && !verbs.contains(&verb) {
            let message = format!("{key} goes with {}, not with {verb}", verbs.join(" and "));
            return Err(document.fault(&at.key(key), message));
        }
    }
    Ok(())
}

/// Returns the link's two directions after the keys of the event's `set` are applied.
fn changed(
    document: &Document<'_>,
    at: &KeyPath,
    name: &str,
    seed: u64,
    index: usize,
) -> Result<(LinkSpec, LinkSpec), Fault> {
    let at = at.key("set");
    let keys = document.keys(&at);
    if keys.is_empty() {
        return Err(document.fault(&at, "a change needs its keys: set = { loss = \"5 %\" }"));
    }
    let mut other = document.clone();
    for key in keys {
        if let Some(value) = document.get(&at.key(&key)) {
            other = other.with(&KeyPath::from(["links", name, &key]), value)?;
        }
    }
    let network = read_network(&other, seed).map_err(|mut faults| faults.0.remove(0))?;
    let link = network.links.get(index).filter(|link| link.name == name);
    link.map(|link| (link.forward.clone(), link.backward.clone()))
        .ok_or_else(|| document.fault(&at, "a change cannot add a link"))
}

/// Most times that one event has a node sleep.
const MOST_SLEEPS: u32 = 10_000;

/// A node whose interfaces are off for a while, again and again: its kernel and those of its neighbours
/// know of the links at once, as those of a device that switches its radio off.
fn asleep(
    document: &Document<'_>,
    network: &Network,
    at: &KeyPath,
    section: &Section,
    node: usize,
) -> Result<Vec<(Duration, Action)>, Fault> {
    let Some(duration) = section.duration else {
        return Err(document.fault(at, "a sleep needs its duration"));
    };
    let times = section.times.unwrap_or(1);
    if times > MOST_SLEEPS {
        let message = format!("a node sleeps at most {MOST_SLEEPS} times");
        return Err(document.fault(&at.key("times"), message));
    }
    let every = match section.every {
        Some(every) if every <= duration => {
            return Err(document.fault(&at.key("every"), "it must be longer than the duration"));
        }
        every => every.unwrap_or_default(),
    };
    if times > 1 && every.is_zero() {
        return Err(document.fault(&at.key("times"), "several times need every = \"10 min\""));
    }
    let mut actions = Vec::new();
    for (link, _) in network.at(node) {
        link_at(
            document,
            network,
            &at.key("sleep"),
            &network.links[link].name,
        )?;
        let carrier = |works| Action::Carrier { node, link, works };
        for time in 0..times {
            let from = section.at + every * time;
            actions.push((from, carrier(false)));
            actions.push((from, Action::Cut(link)));
            actions.push((from + duration, Action::Restore(link)));
            actions.push((from + duration, carrier(true)));
        }
    }
    Ok(actions)
}

fn moved(
    document: &Document<'_>,
    network: &Network,
    at: &KeyPath,
    section: &Section,
    node: usize,
) -> Result<Vec<(Duration, Action)>, Fault> {
    let end = |key: &str, name: &Option<String>| {
        let at = at.key(key);
        let name = name.as_deref().ok_or_else(|| {
            document.fault(&at, "a move names two links: from = \"wifi\", to = \"lte\"")
        })?;
        let link = link_at(document, network, &at, name)?;
        match network.links[link].other_end(node) {
            Some(_) => Ok(link),
            None => {
                let node = &network.nodes[node].name;
                Err(document.fault(&at, format!("link '{name}' is not at '{node}'")))
            }
        }
    };
    let (from, to) = (end("from", &section.from)?, end("to", &section.to)?);
    let gap = section.gap.unwrap_or_default();
    let overlap = section.overlap.unwrap_or_default();
    if !gap.is_zero() && !overlap.is_zero() {
        return Err(document.fault(&at.key("gap"), "a move has a gap or an overlap, not both"));
    }
    let come = (section.at + gap).saturating_sub(overlap);
    let mut actions = vec![
        (Duration::ZERO, Action::Cut(to)),
        (come, Action::Restore(to)),
        (section.at, Action::Cut(from)),
    ];
    if section.link_events.unwrap_or(true) {
        let carrier = |link, works| Action::Carrier { node, link, works };
        actions.insert(1, (Duration::ZERO, carrier(to, false)));
        actions.push((come, carrier(to, true)));
        actions.push((section.at, carrier(from, false)));
    }
    Ok(actions)
}
