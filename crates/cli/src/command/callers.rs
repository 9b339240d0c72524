//! `router peers|allow|deny` and `host peers|allow|deny`: who may call a running node's listeners.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::Value;
use whimbrel_client::Question;
use whimbrel_core::GuidPrefix;
use whimbrel_core::units::format_duration;
use whimbrel_mobilityfirst::links::callers::CallersChange;
use whimbrel_node::directory::ResolveError;

use super::status::{Asked, answer, manage, print};
use super::{Outcome, directory};
use crate::exit::{Exit, Failure};

/// Interval of the questions whether a decision is kept.
const LOOK: Duration = Duration::from_millis(100);
/// How long a node has to write a decision to its disk.
const KEEP_PATIENCE: Duration = Duration::from_secs(10);

const PEERS_HELP: &str = "Examples:\n  \
    whimbrel router peers\n  \
    whimbrel router peers --json | jq '.callers[] | select(.refused > 0)'\n\n\
    Lists the names that have called a listener of this node: connected callers, those refused recently, and those \
    allowed or denied by name. [hop] callers in the configuration decides who is admitted: anyone not denied \
    (\"any\"), the same with each name listed at first use (\"first-use\"), or listed names only (\"listed\").";
const ALLOW_HELP: &str = "Examples:\n  \
    whimbrel router allow 3fa9c2                 (a caller that `peers` shows)\n  \
    whimbrel host allow 3fa9c2 0011223344\n\n\
    The decision is kept in a file next to the key until `deny` reverses it. The command returns once it is on disk; \
    exit code 6 means that it could not be written.";
const DENY_HELP: &str = "Examples:\n  \
    whimbrel router deny 3fa9c2\n  \
    whimbrel host deny 3fa9c2\n\n\
    A connected caller is disconnected. A configured neighbour is not a caller: remove its link instead. The decision \
    is kept in a file next to the key until `allow` reverses it. The command returns once it is on disk; exit code 6 \
    means that it could not be written.";

#[derive(Subcommand, Debug)]
pub(crate) enum CallersCommand {
    /// Show which callers are connected to the node on this machine, and which were refused
    #[command(after_help = PEERS_HELP)]
    Peers(Peers),
    /// Admit callers with these names
    #[command(after_help = ALLOW_HELP)]
    Allow(Decision),
    /// Refuse callers with these names
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
    /// Names of callers: 64 hexadecimal digits, or the first four or more of one that `peers` shows, or
    /// aliases
    #[arg(required = true, value_name = "NAME", value_parser = digits)]
    names: Vec<String>,
    #[command(flatten)]
    from: Peers,
}

/// Returns the digits of an alias, and other texts as they are: the node knows which names begin so.
fn digits(text: &str) -> Result<String, ResolveError> {
    match GuidPrefix::new(text) {
        Some(_) => Ok(text.to_owned()),
        None => directory::name(text).map(|name| name.to_string()),
    }
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
    let asked = Asked {
        path: from.socket.as_ref().unwrap_or(&path),
        what,
        command: run,
        json: from.json,
    };
    let Some(change) = change else {
        return manage(asked, Question::Callers(String::new()), table);
    };
    let answer = kept(asked, answer(asked, Question::Callers(change))?)?;
    print(asked, &answer, table);
    match answer["keep_error"].as_str() {
        None => Ok(Exit::Done),
        Some(reason) => Err(Failure::new(
            Exit::Write,
            format!(
                "the decision is in force until the {what} ends, but cannot be kept next to its key ({reason}): make room or \
                 mend the permissions, and the {what} tries again by itself"
            ),
        )),
    }
}

/// Waits until the node has kept what was decided, or says why it cannot. Returns its last answer.
fn kept(asked: Asked<'_>, mut answer_now: Value) -> Result<Value, Failure> {
    let until = Instant::now() + KEEP_PATIENCE;
    while answer_now["kept"] == false && answer_now["keep_error"].is_null() {
        if Instant::now() >= until {
            let what = asked.what;
            let text = format!(
                "the decision is in force, but the {what} has not written it next to its key yet: ask `peers --json` for `kept`"
            );
            return Err(Failure::new(Exit::Write, text));
        }
        std::thread::sleep(LOOK);
        answer_now = answer(asked, Question::Callers(String::new()))?;
    }
    Ok(answer_now)
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
        let name = name
            .parse()
            .map_or(name.to_owned(), |it| directory::shown(&it));
        text += &format!("{name}  {}\n", state.join(", "));
    }
    text
}
