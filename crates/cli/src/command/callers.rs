//! `router peers|allow|deny` and `host peers|allow|deny`: who may call a running node's listeners.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;
use whimbrel_core::units::format_duration;
use whimbrel_mobilityfirst::links::callers::CallersChange;
use whimbrel_mobilityfirst::local::LocalRequest;

use super::Outcome;
use super::status::{Asked, manage};

const PEERS_HELP: &str = "Examples:\n  \
    whimbrel router peers\n  \
    whimbrel router peers --json | jq '.callers[] | select(.refused > 0)'\n\n\
    The names of those that call a listener here: connected ones, those that were refused of late, and those that \
    were decided about. [hop] callers in the configuration says who gets in: any that is not denied, those listed at \
    their first use, or those listed.";
const ALLOW_HELP: &str = "Examples:\n  \
    whimbrel router allow 3fa9c2                 (a caller that `peers` shows)\n  \
    whimbrel host allow 3fa9c2 0011223344\n\n\
    Kept in a file beside the key until deny takes it back.";
const DENY_HELP: &str = "Examples:\n  \
    whimbrel router deny 3fa9c2\n\n\
    A caller that is connected is disconnected. A neighbour of the configuration is not a caller: remove its link. \
    Kept in a file beside the key until allow takes it back.";

#[derive(Subcommand, Debug)]
pub(crate) enum CallersCommand {
    /// Show who calls the listeners of the node on this machine, and who was refused
    #[command(after_help = PEERS_HELP)]
    Peers(Peers),
    /// Let callers with these names in
    #[command(after_help = ALLOW_HELP)]
    Allow(Decision),
    /// Keep callers with these names out
    #[command(after_help = DENY_HELP)]
    Deny(Decision),
}

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

/// Prints who may call the daemon on its socket, by default `path`, after a decision if the command is
/// one. `run` starts such a daemon.
pub(super) fn callers(command: &CallersCommand, path: PathBuf, what: &str, run: &str) -> Outcome {
    let (from, change) = match command {
        CallersCommand::Peers(from) => (from, None),
        CallersCommand::Allow(Decision { names, from }) => {
            let allow = names.clone();
            let deny = Vec::new();
            (from, Some(CallersChange { allow, deny }))
        }
        CallersCommand::Deny(Decision { names, from }) => {
            let allow = Vec::new();
            let deny = names.clone();
            (from, Some(CallersChange { allow, deny }))
        }
    };
    let change = change.map(|change| serde_json::to_string(&change).unwrap_or_default());
    let request = LocalRequest::Callers {
        request: 1,
        change: change.unwrap_or_default(),
    };
    let asked = Asked {
        path: from.socket.as_ref().unwrap_or(&path),
        what,
        command: run,
        json: from.json,
    };
    manage(asked, &request, table)
}

fn table(answer: &Value) -> String {
    let policy = match answer["policy"].as_str().unwrap_or("-") {
        "any" => "any that is not denied",
        "first-use" => "any that is not denied; listed at their first use",
        "listed" => "those that are allowed",
        other => other,
    };
    let mut text = format!("callers: {policy}\n");
    if let (Some(left), Some(listed)) = (answer["left"].as_u64(), answer["listed"].as_u64()) {
        text += &match left {
            0 => format!(
                "{listed} names are listed, and the list is full: `allow` lists further ones\n"
            ),
            left => format!("{listed} names are listed, {left} more are at their first use\n"),
        };
        if let Some(times @ 1..) = answer["unlisted"].as_u64() {
            text += &format!("{times} calls of names that were not listed for want of room\n");
        }
    }
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
