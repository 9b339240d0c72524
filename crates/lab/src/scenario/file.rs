//! A whole scenario: read from a file, with its sweeps expanded.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::DeValue;
use whimbrel_core::units;
use whimbrel_node::config::Pacing;
use whimbrel_node::config::key_path::KeyPath;

use super::document::{Document, Value, empty_table, table_value};
use super::event::{Timed, timeline};
use super::fault::{Fault, Faults, Found, hint};
use super::link;
use super::load::{Load, loads};
use super::metric;
use super::network::{Network, network};
use super::node::Role;
use super::route::{Routes, routes};
use super::statement::{Statement, shown};
use crate::study::Backend;

/// Settings that a command may replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The seed of everything random.
    pub seed: Option<u64>,
    /// Runs of each setting.
    pub runs: Option<u32>,
    /// The back end, whose section `[sim]` or `[netns]` then applies.
    pub backend: Option<Backend>,
}

/// A scenario that has no fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its path.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// Its title, for people; the file's name by default.
    pub title: String,
    /// A description, for people.
    pub about: String,
    /// Runs of each setting; each has a seed of its own.
    pub runs: u32,
    /// The settings of its sweep, in order; one if it has no sweep.
    pub settings: Vec<Setting>,
    /// The names of the wanted metrics.
    pub metrics: Vec<String>,
    /// Statements of a paper.
    pub statements: Vec<Statement>,
}

/// One combination of the sweep's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The swept keys and their values here.
    pub values: Vec<(String, String)>,
    /// The plan of its runs.
    pub plan: Plan,
}

/// The input of a back end for a run, except for the seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Nodes and links.
    pub network: Network,
    /// The routes.
    pub routes: Routes,
    /// The loads.
    pub loads: Vec<Load>,
    /// Actions in the order of their times.
    pub timeline: Vec<Timed>,
    /// Seed of the first run; each further run has the next one.
    pub seed: u64,
    /// Time limit of a run, counted from its origin.
    pub limit: Duration,
    /// Time that a run continues after the last load's end; bytes that arrive in it count.
    pub linger: Duration,
    /// Time from the run's origin until links are counted.
    pub warm_up: Duration,
    /// Hops between hosts and routers are not encrypted.
    pub plain: bool,
    /// The law by which hops between hosts and routers send.
    pub pacing: Pacing,
}

/// The keys of the root that are not tables.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    #[serde(default)]
    title: String,
    #[serde(default)]
    about: String,
    #[serde(default = "one")]
    seed: u64,
    #[serde(default = "one")]
    runs: u64,
    #[serde(default = "ten_minutes", with = "units::duration")]
    limit: Duration,
    #[serde(default, with = "units::duration")]
    linger: Duration,
    #[serde(default, with = "units::duration")]
    warm_up: Duration,
    #[serde(default)]
    plain: bool,
    #[serde(default = "bottleneck")]
    pacing: Pacing,
    #[serde(default = "transfers")]
    metrics: Vec<String>,
    #[serde(default)]
    statements: Vec<Statement>,
}

fn bottleneck() -> Pacing {
    Pacing::Bottleneck
}

fn one() -> u64 {
    1
}

fn ten_minutes() -> Duration {
    Duration::from_secs(600)
}

/// Returns all metrics but those of links and nodes.
fn transfers() -> Vec<String> {
    Vec::new()
}

const TABLES: [&str; 11] = [
    "defaults", "nodes", "graph", "links", "routes", "loads", "events", "sweep", "study", "sim",
    "netns",
];
/// Bound of the settings of a sweep: more are likely a mistake.
const MAX_SETTINGS: usize = 10_000;

impl Setting {
    /// Returns the value of a swept key here, or the name of the set of keys.
    pub fn value(&self, key: &str) -> Option<&str> {
        let (_, value) = self.values.iter().find(|(known, _)| known == key)?;
        Some(value)
    }
}

impl Scenario {
    /// Reads a file.
    pub fn load(path: &Path, overrides: Overrides) -> Result<Scenario, Faults> {
        let text = std::fs::read_to_string(path).map_err(|error| Fault {
            file: path.to_owned(),
            line: 0,
            key: String::new(),
            message: format!("cannot be read: {error}"),
        })?;
        Scenario::parse(path, &text, overrides)
    }

    /// Reads a text; `file` is for messages. Files that it names are relative to `file`.
    pub fn parse(file: &Path, text: &str, overrides: Overrides) -> Result<Scenario, Faults> {
        let mut document = Document::parse(file, text)?;
        match overrides.backend {
            Some(backend) => document = of_backend(&document, backend)?,
            None => {
                for backend in Backend::ALL {
                    plan(&of_backend(&document, backend)?, overrides)?;
                }
            }
        }
        let head = head(&document)?;
        // Before anything is swept, so that a value that every setting replaces is checked too.
        plan(&document, overrides)?;
        let swept = sweep(&document)?;
        let mut settings: Vec<Setting> = Vec::with_capacity(swept.len());
        for (values, document) in swept {
            // The first setting with faults is enough: the others have the same faults.
            let plan = plan(&document, overrides)?;
            settings.push(Setting { values, plan });
        }
        let metrics = metrics(&document, &head, &settings)?;
        statements(&document, &head, &settings)?;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let runs = overrides
            .runs
            .unwrap_or(u32::try_from(head.runs).unwrap_or(u32::MAX));
        Ok(Scenario {
            file: file.to_owned(),
            text: text.to_owned(),
            title: if head.title.is_empty() {
                stem.into_owned()
            } else {
                head.title
            },
            about: head.about,
            runs: runs.max(1),
            settings,
            metrics,
            statements: head.statements,
        })
    }

    /// Reads the section `[study]`, which only the code of a study uses.
    pub fn study<T: DeserializeOwned>(&self) -> Result<T, Faults> {
        let document = Document::parse(&self.file, &self.text)?;
        let at = KeyPath::from(["study"]);
        let none = || table_value(0..0, empty_table());
        let section = document.get(&at).cloned().unwrap_or_else(none);
        Ok(document.decode(section, &[])?)
    }
}

/// Returns the document with the keys that apply to one back end only.
fn of_backend<'t>(document: &Document<'t>, backend: Backend) -> Result<Document<'t>, Fault> {
    let at = KeyPath::from([backend.name()]);
    let mut changed = document.clone();
    for (key, value) in document.table(&at).into_iter().flatten() {
        let place = at.key(key.get_ref());
        let path = KeyPath::parse(key.get_ref()).filter(|path| *path != at);
        let path = path.ok_or_else(|| document.fault(&place, "this is not a key of a scenario"))?;
        changed = changed
            .with(&path, value)
            .map_err(|_| document.fault(&place, format!("there is no key '{path}'")))?;
    }
    Ok(changed)
}

fn head(document: &Document<'_>) -> Result<Head, Fault> {
    let root = document.get(&KeyPath::default());
    let mut own = empty_table();
    let span = root.map_or(0..0, Spanned::span);
    for (key, value) in root
        .and_then(|root| root.get_ref().as_table())
        .into_iter()
        .flatten()
    {
        if !TABLES.contains(&key.get_ref().as_ref()) {
            own.insert(key.clone(), value.clone());
        }
    }
    let head: Head = document.decode(table_value(span, own), &TABLES)?;
    if head.runs == 0 {
        return Err(document.fault(&KeyPath::from(["runs"]), "at least one run is needed"));
    }
    Ok(head)
}

fn plan(document: &Document<'_>, overrides: Overrides) -> Result<Plan, Faults> {
    let head = head(document)?;
    let seed = overrides.seed.unwrap_or(head.seed);
    let network = network(document, seed)?;
    let mut found = Found::default();
    let routes = found.keep_all(routes(document, &network));
    let loads = found.keep_all(loads(document, &network));
    let timeline = found.keep_all(timeline(document, &network, seed));
    let ((routes, loads), timeline) = found.or(routes.zip(loads).zip(timeline))?;
    let plan = Plan {
        routes,
        loads,
        timeline,
        seed,
        limit: head.limit,
        linger: head.linger,
        warm_up: head.warm_up,
        plain: head.plain,
        pacing: head.pacing,
        network,
    };
    fits(document, &plan)?;
    Ok(plan)
}

/// Checks the parts against each other.
fn fits(document: &Document<'_>, plan: &Plan) -> Result<(), Fault> {
    let network = &plan.network;
    link::check(document, network)?;
    if plan.loads.is_empty() {
        let message =
            "a scenario needs a load: loads.NAME = { from = \"a\", to = \"b\", file = \"10 MB\" }";
        return Err(document.fault(&KeyPath::from(["loads"]), message));
    }
    let routers = network.with_role(Role::Router).count();
    let servers = network.with_role(Role::NameServer).count();
    if routers > 1 && servers == 0 {
        let message = format!(
            "{routers} routers find names by a name server only: nodes.names = \"name-server\", and a link to it"
        );
        return Err(document.fault(&KeyPath::from(["nodes"]), message));
    }
    if plan.warm_up >= plan.limit {
        let message = "the run is cut off before it has warmed up";
        return Err(document.fault(&KeyPath::from(["warm_up"]), message));
    }
    for load in &plan.loads {
        for receiver in &load.to {
            if !plan.routes.connect(network, load, *receiver) {
                let message = format!(
                    "no path of routers leads from '{}' to '{}'; hosts do not forward, and two of them need a router between them",
                    network.nodes[*receiver].name, network.nodes[load.from].name
                );
                return Err(document.fault(&KeyPath::from(["loads", &load.name, "to"]), message));
            }
        }
    }
    Ok(())
}

/// The documents of all settings of the sweep, with the values of each.
type Swept<'t> = Vec<(Vec<(String, String)>, Document<'t>)>;

fn sweep<'t>(document: &Document<'t>) -> Result<Swept<'t>, Fault> {
    let at = KeyPath::from(["sweep"]);
    let mut swept = vec![(Vec::new(), document.clone())];
    for key in document.keys(&at) {
        let steps = steps(document, &key)?;
        if swept.len() * steps.len() > MAX_SETTINGS {
            let message = format!("this makes more than {MAX_SETTINGS} settings");
            return Err(document.fault(&at.key(&key), message));
        }
        let mut next = Vec::with_capacity(swept.len() * steps.len());
        for (labels, document) in &swept {
            for step in &steps {
                let mut labels = labels.clone();
                labels.push((key.clone(), step.label.clone()));
                let changed = step.changes.iter().try_fold(
                    document.clone(),
                    |document, (path, value, place)| {
                        document.with(path, value).map_err(|_| {
                            let message = format!("there is no key '{path}' to sweep");
                            document.fault(place, message)
                        })
                    },
                )?;
                next.push((labels, changed));
            }
        }
        swept = next;
    }
    Ok(swept)
}

/// One value of a sweep.
struct Step<'t> {
    label: String,
    /// Keys, their values, and the places at which these were written.
    changes: Vec<(KeyPath, Value<'t>, KeyPath)>,
}

/// Returns the steps of `sweep.KEY`: values of the key of that name, or tables of several keys
/// each, with a label: `recovery = { none = { "defaults.link.recovery" = "off" } }`.
fn steps<'t>(document: &Document<'t>, key: &str) -> Result<Vec<Step<'t>>, Fault> {
    let at = KeyPath::from(["sweep", key]);
    let wrong = || {
        let message = "a sweep is a list of values, [\"0 %\", \"1 %\"], or names sets of keys: \
                       { low = { \"links.a-b.loss\" = \"0 %\" } }";
        document.fault(&at, message)
    };
    let path = |place: &KeyPath, key: &str| {
        KeyPath::parse(key)
            .filter(|path| path.0.first() != KeyPath::from(["sweep"]).0.first())
            .ok_or_else(|| document.fault(place, format!("'{key}' is not a key")))
    };
    let mut steps = Vec::new();
    match document.get(&at).map(Spanned::get_ref) {
        Some(DeValue::Array(values)) => {
            let path = path(&at, key)?;
            steps.extend(values.iter().enumerate().map(|(index, value)| Step {
                label: text_of(value),
                changes: vec![(path.clone(), value.clone(), at.index(index))],
            }));
        }
        Some(DeValue::Table(sets)) => {
            for (label, set) in sets {
                let at = at.key(label.get_ref());
                let set = set.get_ref().as_table().ok_or_else(wrong)?;
                let changes = set.iter().map(|(key, value)| {
                    let place = at.key(key.get_ref());
                    Ok((path(&place, key.get_ref())?, value.clone(), place))
                });
                steps.push(Step {
                    label: label.get_ref().to_string(),
                    changes: changes.collect::<Result<_, Fault>>()?,
                });
            }
        }
        _ => {}
    }
    if steps.is_empty() {
        return Err(wrong());
    }
    Ok(steps)
}

/// Returns a value as people read it.
fn text_of(value: &Value<'_>) -> String {
    match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Array(values) => {
            let texts: Vec<String> = values.iter().map(text_of).collect();
            format!("[{}]", texts.join(", "))
        }
        DeValue::Table(table) => {
            let texts = table
                .iter()
                .map(|(key, value)| format!("{} = {}", key.get_ref(), text_of(value)));
            format!("{{ {} }}", texts.collect::<Vec<_>>().join(", "))
        }
        DeValue::Datetime(value) => value.to_string(),
    }
}

/// Returns the metrics that match the patterns, in the order of all metrics.
fn metrics(
    document: &Document<'_>,
    head: &Head,
    settings: &[Setting],
) -> Result<Vec<String>, Fault> {
    let known = known_metrics(settings);
    let at = KeyPath::from(["metrics"]);
    for (index, pattern) in head.metrics.iter().enumerate() {
        if !known.iter().any(|name| metric::matches(pattern, name)) {
            let near = hint(pattern, known.iter().map(String::as_str));
            let message = format!("there is no metric '{pattern}'{near}");
            return Err(document.fault(&at.index(index), message));
        }
    }
    let wanted = |name: &String| match head.metrics.as_slice() {
        [] => !name.starts_with("links.") && !name.starts_with("nodes."),
        patterns => patterns
            .iter()
            .any(|pattern| metric::matches(pattern, name)),
    };
    Ok(known.into_iter().filter(wanted).collect())
}

/// The metrics of all settings, in order. A large network has thousands, and a sweep hundreds of
/// settings.
fn known_metrics(settings: &[Setting]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let all = settings
        .iter()
        .flat_map(|setting| metric::all(&setting.plan.network, &setting.plan.loads));
    all.map(|(name, _)| name)
        .filter(|name| seen.insert(name.clone()))
        .collect()
}

/// Refuses a statement about an unknown metric, or about no setting.
fn statements(document: &Document<'_>, head: &Head, settings: &[Setting]) -> Result<(), Fault> {
    if head.statements.is_empty() {
        return Ok(());
    }
    let known = known_metrics(settings);
    for (index, statement) in head.statements.iter().enumerate() {
        let at = KeyPath::from(["statements"]).index(index);
        if !known.contains(&statement.metric) {
            let near = hint(&statement.metric, known.iter().map(String::as_str));
            let message = format!("there is no metric '{}'{near}", statement.metric);
            return Err(document.fault(&at.key("metric"), message));
        }
        let places = [
            ("at", Some(&statement.at)),
            ("relative_to", statement.relative_to.as_ref()),
        ];
        for (name, place) in places
            .iter()
            .filter_map(|(name, place)| Some((name, (*place)?)))
        {
            for (key, value) in place {
                let value = shown(value);
                let swept = |setting: &Setting| {
                    setting
                        .values
                        .iter()
                        .any(|(known, at)| known == key && *at == value)
                };
                if !settings.iter().any(swept) {
                    let message = format!("the sweep has no setting with {key} = {value}");
                    return Err(document.fault(&at.key(name).key(key), message));
                }
            }
        }
    }
    Ok(())
}
