//! `router peers|allow|deny` and `host peers|allow|deny`: who may call a running node's listeners.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use whimbrel_core::units::format_duration;
use whimbrel_mobilityfirst::links::callers::CallersChange;
use whimbrel_mobilityfirst::local::LocalRequest;

use super::status::query;
use super::{Outcome, json_line, out};
use crate::exit::{Exit, Failure};

pub(super) const PEERS_HELP: &str = "Examples:\n  \
    whimbrel router peers\n  \
    whimbrel router peers --json | jq '.callers[] | select(.refused > 0)'\n\n\
    The names of those that call a listener here: connected ones, those that were refused of late, and those that \
    were decided about. [hop] callers in the configuration says who gets in: any that is not denied, those listed at \
    their first use, or those listed.";
pub(super) const ALLOW_HELP: &str = "Examples:\n  \
    whimbrel router allow 3fa9c2                 (a caller that `peers` shows)\n  \
    whimbrel host allow 3fa9c2 0011223344\n\n\
    Kept in a file beside the key until deny takes it back.";
pub(super) const DENY_HELP: &str = "Examples:\n  \
    whimbrel router deny 3fa9c2\n\n\
    A caller that is connected is disconnected. A neighbour of the configuration is not a caller: remove its link. \
    Kept in a file beside the key until allow takes it back.";

/// Where the node is, and how to print what it says.
#[derive(Args, Debug)]
pub(crate) struct Peers {
    /// The daemon's socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Decision {
    /// Names of callers: 64 hexadecimal digits, or the first four or more of one that `peers` shows
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    from: Peers,
}

/// A kind of daemon, for errors: what it is called, the command that starts it, its socket.
pub(super) type Daemon = (&'static str, &'static str, PathBuf);

pub(super) fn peers(arguments: &Peers, daemon: Daemon) -> Outcome {
    tell(arguments, daemon, String::new())
}

pub(super) fn decide(arguments: &Decision, allow: bool, daemon: Daemon) -> Outcome {
    let (names, none) = (arguments.names.clone(), Vec::new());
    let (allow, deny) = if allow { (names, none) } else { (none, names) };
    let change = serde_json::to_string(&CallersChange { allow, deny }).unwrap_or_default();
    tell(&arguments.from, daemon, change)
}

fn tell(from: &Peers, (what, command, socket): Daemon, change: String) -> Outcome {
    let path = from.socket.clone().unwrap_or(socket);
    let request = LocalRequest::Callers { request: 1, change };
    let answer = query(&path, &request, what, command)?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or(Value::String(answer));
    if let Some(error) = answer["error"].as_str() {
        let failure = format!("nothing was changed: {error}");
        return Err(Failure::new(Exit::Usage, failure));
    }
    if from.json {
        json_line(&answer);
    } else {
        out(&table(&answer));
    }
    Ok(Exit::Done)
}

fn table(answer: &Value) -> String {
    let policy = match answer["policy"].as_str().unwrap_or("-") {
        "any" => "any that is not denied",
        "first-use" => "any that is not denied; listed at their first use",
        "listed" => "those that are allowed",
        other => other,
    };
    let mut text = format!("callers: {policy}\n");
    for caller in answer["callers"].as_array().into_iter().flatten() {
        let mut state = vec![
            caller["decision"]
                .as_str()
                .unwrap_or("undecided")
                .to_owned(),
        ];
        if caller["connected"] == true {
            state.push("connected".to_owned());
        }
        if let (Some(times @ 1..), Some(ago)) =
            (caller["refused"].as_u64(), caller["refused_ago_s"].as_f64())
        {
            let ago = format_duration(Duration::from_secs(ago as u64));
            state.push(format!("refused {times} times, last {ago} ago"));
        }
        if let Some(from) = caller["from"].as_str() {
            state.push(format!("from {from}"));
        }
        let name = caller["name"].as_str().unwrap_or("-");
        text += &format!("{name}  {}\n", state.join(", "));
    }
    text
}
