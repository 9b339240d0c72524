//! `status`, and the part of it that `router status`, `host status` and `gnrs status` share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_client::place::{Places, daemon_socket};
use whimbrel_client::{Answer, AttachedSession, Attachment, LocalClient, LocalError, Question};
use whimbrel_node::wait::waits_in;

use super::directory::shown;
use super::ndn::status::{Forwarder, NdnStatus};
use super::{Outcome, json_line, out, tcp_proxy};
use crate::exit::{Exit, Failure, MANAGEMENT_HELP};
use crate::logging::note;
use crate::results::Silence;

/// How long to wait for a daemon's status.
const PATIENCE: Duration = Duration::from_secs(5);

/// The status of one daemon.
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The daemon's socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The status of whatever runs.
#[derive(Args, Debug)]
#[command(after_help = format!(
    "Examples:\n  whimbrel status\n  whimbrel status --json | jq .nodes\n  whimbrel status --faces --json | jq\n\n\
     Shows the routers, hosts, name servers and TCP proxies whose sockets are in the run-time folder, and the NDN forwarder. \
     With --transport or --faces, the NDN forwarder only.\n\n{MANAGEMENT_HELP}"
))]
pub(crate) struct StatusOfAll {
    /// Look for the sockets of routers, hosts, name servers and TCP proxies here. Default: the run-time folder
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    ndn: NdnStatus,
}

/// Prints the status of the daemon on its socket, by default `path`. `command` starts one.
pub(super) fn show(status: &Status, path: PathBuf, what: &str, command: &str) -> Outcome {
    let path = status.socket.clone().unwrap_or(path);
    let json = query(&path, Question::Status, what, command)?;
    if status.json {
        json_line(&parsed(json));
    } else {
        let mut text = String::new();
        let waits = waits_in(&json);
        describe(&mut text, &parsed(json), 0);
        for (content, wait) in waits {
            let what = content.map_or(String::new(), |content| shown(&content) + " ");
            text += &format!("{what}waiting: {wait}\n");
        }
        out(&text);
    }
    Ok(Exit::Done)
}

/// Where a daemon is, and how to print what it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// Its socket.
    pub(super) path: &'a Path,
    /// What it is, for errors.
    pub(super) what: &'a str,
    /// The command that starts one.
    pub(super) command: &'a str,
    /// Print JSON.
    pub(super) json: bool,
}

/// Asks a question, which may ask for a change, and prints the JSON object in the answer, or the `table` of it.
pub(super) fn manage(
    asked: Asked<'_>,
    question: Question,
    table: impl FnOnce(&Value) -> String,
) -> Outcome {
    let answer = answer(asked, question)?;
    print(asked, &answer, table);
    Ok(Exit::Done)
}

/// Asks such a question and returns the JSON object in the answer. Its `error` says why nothing was
/// changed.
pub(super) fn answer(asked: Asked<'_>, question: Question) -> Result<Value, Failure> {
    let answer = query(asked.path, question, asked.what, asked.command)?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or(Value::String(answer));
    if let Some(error) = answer["error"].as_str() {
        let failure = format!("nothing was changed: {error}");
        return Err(Failure::new(Exit::Usage, failure));
    }
    Ok(answer)
}

/// Prints an answer, or the `table` of it.
pub(super) fn print(asked: Asked<'_>, answer: &Value, table: impl FnOnce(&Value) -> String) {
    if asked.json {
        json_line(answer);
    } else {
        out(&table(answer));
    }
}

/// Returns the answer of the daemon on the socket `path`. `command` starts one.
pub(super) fn query(
    path: &Path,
    question: Question,
    what: &str,
    command: &str,
) -> Result<String, Failure> {
    ask_for(path, question).map_err(|failure| match failure {
        Silence::Cannot(LocalError::Nobody(path)) if path == daemon_socket(Places::router_socket) && forwarder_runs() =>
        {
            Failure::new(
                Exit::NoDaemon,
                format!(
                    "the router that runs here forwards NDN only, which `whimbrel status` shows: nothing listens on {}, as it has no \
                     MobilityFirst plane (a [[link]] with listen = true in its configuration, or --listen, starts it)",
                    path.display()
                ),
            )
        }
        Silence::Cannot(LocalError::Nobody(path)) => Failure::new(
            Exit::NoDaemon,
            format!(
                "no {what} listens on {}; start one with `whimbrel {command}`; `whimbrel status` shows what runs",
                path.display()
            ),
        ),
        Silence::Cannot(other) => other.into(),
        Silence::Mute => Failure::new(
            Exit::NoDaemon,
            format!("the {what} on {} does not respond", path.display()),
        ),
    })
}

/// Returns true if a Whimbrel router forwards NDN where this machine's programs look for a forwarder.
fn forwarder_runs() -> bool {
    NdnStatus::default()
        .ask()
        .is_ok_and(|found| found.is_ours())
}

/// Returns the status of the daemon behind a socket, as JSON.
fn ask(path: &Path) -> Result<String, Silence> {
    ask_for(path, Question::Status)
}

fn ask_for(path: &Path, question: Question) -> Result<String, Silence> {
    let mut once = Attachment::Once(Some(LocalClient::connect(path)?));
    match AttachedSession::attach(&mut once)?.ask(question, PATIENCE)? {
        Some(Answer::Status(json)) => Ok(json),
        _ => Err(Silence::Mute),
    }
}

fn parsed(json: String) -> Value {
    serde_json::from_str(&json).unwrap_or(Value::String(json))
}

/// A daemon whose socket was found.
struct Node {
    name: String,
    socket: PathBuf,
    status: Result<Value, String>,
}

/// Returns the daemons behind the sockets in `folder`, by name. Files that nobody listens on are
/// those of programs that were killed.
fn nodes_in(folder: &Path) -> Vec<Node> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut sockets: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "sock"))
        // Where NDN programs attach: another protocol.
        .filter(|path| path.file_stem().is_none_or(|name| name != "nfd"))
        .collect();
    sockets.sort();
    let found = sockets.into_iter().filter_map(|socket| {
        let answer = if tcp_proxy::is_status_socket(&socket) {
            tcp_proxy::ask(&socket)
        } else {
            ask(&socket)
        };
        let status = match answer {
            Ok(json) => Ok(parsed(json)),
            Err(Silence::Cannot(LocalError::Nobody(_))) => return None,
            Err(Silence::Cannot(error)) => Err(error.to_string()),
            Err(Silence::Mute) => Err("it does not respond".to_owned()),
        };
        let name = socket.file_stem().unwrap_or_default().to_string_lossy();
        Some(Node {
            name: name.into_owned(),
            socket,
            status,
        })
    });
    found.collect()
}

/// Returns the daemons of this user, and the system's. Tells the user of a folder that this user may not read.
fn nodes_here() -> Vec<Node> {
    let mut folders = vec![Places::of_this_user().run, Places::of_the_system().run];
    folders.dedup();
    let closed = |folder: &&PathBuf| {
        let fault = std::fs::read_dir(folder).err();
        fault.is_some_and(|fault| fault.kind() == std::io::ErrorKind::PermissionDenied)
    };
    for folder in folders.iter().filter(closed) {
        note(&format!(
            "{} cannot be read by this user; `sudo whimbrel status` shows the daemons there",
            folder.display()
        ));
    }
    folders.iter().flat_map(|folder| nodes_in(folder)).collect()
}

pub(crate) fn run(arguments: &StatusOfAll) -> Outcome {
    let nodes = if arguments.ndn.is_asked_for() {
        Vec::new()
    } else {
        match &arguments.folder {
            Some(folder) => nodes_in(folder),
            None => nodes_here(),
        }
    };
    let forwarder = match arguments.ndn.ask() {
        Ok(forwarder) => Some(forwarder),
        // Only one of the two planes need run.
        Err(failure)
            if matches!(failure.exit, Exit::NoForwarder | Exit::NoDaemon) && !nodes.is_empty() =>
        {
            None
        }
        Err(failure)
            if matches!(failure.exit, Exit::NoForwarder | Exit::NoDaemon)
                && !arguments.ndn.is_asked_for() =>
        {
            let text =
                format!("nothing runs here: no router, host, name server or TCP proxy; {failure}");
            return Err(Failure::new(failure.exit, text));
        }
        Err(failure) => return Err(failure),
    };
    if arguments.ndn.json() {
        json_line(&in_json(&nodes, forwarder.as_ref()));
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    for node in &nodes {
        text += &format!("{} ({})\n", node.name, node.socket.display());
        match &node.status {
            Ok(status) => describe(&mut text, status, 1),
            Err(fault) => text += &format!("  {fault}\n"),
        }
    }
    if let Some(forwarder) = &forwarder {
        if !nodes.is_empty() {
            text += "NDN forwarder\n";
        }
        text += &forwarder.text();
    }
    out(&text);
    Ok(Exit::Done)
}

/// The forwarder's values stand at the top, as they do where it alone is asked.
fn in_json(nodes: &[Node], forwarder: Option<&Forwarder>) -> Value {
    let mut value = forwarder.map_or_else(
        || json!({ "general": null, "counters": null, "faces": null, "links": null }),
        Forwarder::json,
    );
    value["nodes"] = nodes
        .iter()
        .map(|node| {
            json!({
                "name": node.name,
                "socket": node.socket,
                "status": node.status.as_ref().ok(),
                "fault": node.status.as_ref().err(),
            })
        })
        .collect();
    value
}

/// Returns true for a value that says nothing: a block or a list in which there is no number, no text and no flag that is set.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_empty),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

/// Formats JSON as indented lines: "key: value". Omits empty blocks and lists, and zeros in lists of counters.
fn describe(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let Value::Object(fields) = value else { return };
    for (name, value) in fields {
        let name = name.replace('_', " ");
        match value {
            Value::Object(_) | Value::Array(_) if is_empty(value) => {}
            Value::Object(inner) if inner.contains_key("secs") && inner.contains_key("nanos") => {
                let number = |key: &str| inner.get(key).and_then(Value::as_f64).unwrap_or_default();
                let milliseconds = number("secs") * 1e3 + number("nanos") / 1e6;
                *text += &format!("{indent}{name}: {milliseconds:.3} ms\n");
            }
            Value::Object(_) => {
                *text += &format!("{indent}{name}:\n");
                describe(text, value, depth + 1);
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                for item in items {
                    *text += &format!("{indent}{}:\n", name.trim_end_matches('s'));
                    describe(text, item, depth + 1);
                }
            }
            Value::Number(number) if depth > 0 && number.as_f64() == Some(0.0) => {}
            Value::Null if depth > 0 => {}
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(plain).collect();
                *text += &format!("{indent}{name}: {}\n", items.join(" of "));
            }
            single => *text += &format!("{indent}{name}: {}\n", plain(single)),
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text
            .parse()
            .map_or_else(|_| text.clone(), |name| shown(&name)),
        Value::Null => "-".to_owned(),
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().unwrap_or_default() * 1e3;
            (rounded.round() / 1e3).to_string()
        }
        other => other.to_string(),
    }
}
