//! `host interfaces` and `host policy`: the links of a running host.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use whimbrel_client::Question;
use whimbrel_client::place::host_daemon_socket;
use whimbrel_core::units::{ByteSize, Rate};
use whimbrel_mobilityfirst::host::LinkPolicy;
use whimbrel_mobilityfirst::host::interfaces::{InterfaceChange, LinkChange};

use super::Outcome;
use super::status::{Asked, manage};

pub(super) const LIST_HELP: &str = "Examples:\n  \
    whimbrel host interfaces\n  \
    whimbrel host interfaces --json | jq .interfaces\n  \
    whimbrel host interfaces set lte --metered yes --quota \"5 GB\"\n  \
    whimbrel host interfaces set wifi --off\n\n\
    A link is: used; policy (another one is preferred); cost, metered (it stands by for one that costs less, or is not \
    metered); silent (its router does not answer); no-carrier (its interface is down, or has no address or route); \
    quota (used up); off. \
    Bytes count both ways, with the headers of IP and UDP, since the host's start.";
pub(super) const POLICY_HELP: &str = "Examples:\n  \
    whimbrel host policy\n  \
    whimbrel host policy order --prefer ethernet,lte\n  \
    whimbrel host policy all\n\n\
    A change lasts until the host ends; [host] policy and preference in its configuration are permanent.";

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Interfaces {
    #[command(subcommand)]
    command: Option<InterfacesCommand>,
    #[command(flatten)]
    from: From,
}

/// Where the host is, and how to print what it says.
#[derive(Args, Debug)]
struct From {
    /// The host's socket; default: $WHIMBREL_SOCKET, or else that of this user's daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum InterfacesCommand {
    /// Change how one link is used, until the host ends
    #[command(after_help = "Examples:\n  \
        whimbrel host interfaces set lte --cost 1            (only while no link of cost 0 answers)\n  \
        whimbrel host interfaces set lte --quota \"5 GB\"\n  \
        whimbrel host interfaces set lte --quota none\n  \
        whimbrel host interfaces set wifi --off\n  \
        whimbrel host interfaces set wifi --on --weight 3")]
    Set(Set),
}

#[derive(Args, Debug)]
#[group(id = "change", required = true, multiple = true, args = ["weight", "cost", "metered", "quota", "on", "off"])]
struct Set {
    /// The link's label
    label: String,
    /// Its share under the policy "weights"
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    weight: Option<u32>,
    /// Its cost tier: it is used only while no link of a lower tier answers
    #[arg(long)]
    cost: Option<u32>,
    /// Whether the link is metered: it is then used only while no unmetered link answers
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    metered: Option<bool>,
    /// Bytes that may cross it in each period, as "5 GB"; none for no bound
    #[arg(long, value_name = "SIZE", value_parser = quota)]
    quota: Option<Quota>,
    /// Use it again
    #[arg(long, conflicts_with = "off")]
    on: bool,
    /// Do not use it: nothing is sent on it, and nothing taken
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    from: From,
}

#[derive(Clone, Copy, Debug)]
struct Quota(Option<u64>);

#[derive(Args, Debug)]
pub(crate) struct Policy {
    /// The policy; without it, the one in force is shown
    policy: Option<PolicyArgument>,
    /// Labels of links, the preferred one first
    #[arg(long, value_name = "LABEL,...", value_delimiter = ',')]
    prefer: Option<Vec<String>>,
    #[command(flatten)]
    from: From,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyArgument {
    /// All links to the preferred link's router together
    All,
    /// Links to other routers as well
    Everywhere,
    /// The preferred one that responds
    Order,
    /// As everywhere, with uploads divided by the links' weights
    Weights,
}

impl std::convert::From<PolicyArgument> for LinkPolicy {
    fn from(argument: PolicyArgument) -> LinkPolicy {
        match argument {
            PolicyArgument::All => LinkPolicy::All,
            PolicyArgument::Everywhere => LinkPolicy::Everywhere,
            PolicyArgument::Order => LinkPolicy::Order,
            PolicyArgument::Weights => LinkPolicy::Weights,
        }
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(String::from("write yes or no")),
    }
}

fn quota(text: &str) -> Result<Quota, String> {
    if text == "none" {
        return Ok(Quota(None));
    }
    let size: Result<ByteSize, _> = text.parse();
    size.map(|size| Quota(Some(size.0)))
        .map_err(|fault| format!("{fault}; or write none"))
}

pub(crate) fn interfaces(arguments: &Interfaces) -> Outcome {
    match &arguments.command {
        None => tell(&arguments.from, None),
        Some(InterfacesCommand::Set(set)) => {
            let off = (set.on || set.off).then_some(set.off);
            let link = LinkChange {
                label: set.label.clone(),
                weight: set.weight,
                cost: set.cost,
                metered: set.metered,
                quota: set.quota.map(|quota| quota.0),
                off,
            };
            let change = InterfaceChange {
                link: Some(link),
                ..InterfaceChange::default()
            };
            tell(&set.from, Some(&change))
        }
    }
}

pub(crate) fn policy(arguments: &Policy) -> Outcome {
    let change = InterfaceChange {
        policy: arguments.policy.map(LinkPolicy::from),
        preference: arguments.prefer.clone(),
        link: None,
    };
    let is_one = arguments.policy.is_some() || arguments.prefer.is_some();
    tell(&arguments.from, is_one.then_some(&change))
}

/// Asks the host for a change, if there is one, and prints what it says of its links.
fn tell(from: &From, change: Option<&InterfaceChange>) -> Outcome {
    let path = from.socket.clone();
    let path = path.unwrap_or_else(host_daemon_socket);
    let change = change.map(|change| serde_json::to_string(change).unwrap_or_default());
    let question = Question::Interfaces(change.unwrap_or_default());
    let asked = Asked {
        path: &path,
        what: "host",
        command: "host run",
        json: from.json,
    };
    manage(asked, question, table)
}

const COLUMNS: [&str; 9] = [
    "link",
    "to",
    "state",
    "cost",
    "weight",
    "rate",
    "round trip",
    "bytes",
    "quota left",
];

fn table(answer: &Value) -> String {
    let mut rows = vec![COLUMNS.map(String::from)];
    for link in answer["interfaces"].as_array().into_iter().flatten() {
        let text = |key: &str| link[key].as_str().unwrap_or("-").to_owned();
        let size = |key: &str| {
            let bytes = link[key].as_u64();
            bytes.map_or(String::from("-"), |bytes| ByteSize(bytes).to_string())
        };
        let cost = match link["metered"].as_bool() {
            Some(true) => format!("{}, metered", link["cost"]),
            _ => link["cost"].to_string(),
        };
        let rate = link["rate_bps"].as_u64();
        let rtt = link["rtt_ms"]
            .as_f64()
            .map(|ms| Duration::from_secs_f64(ms / 1e3));
        rows.push([
            text("label"),
            text("peer"),
            text("verdict"),
            cost,
            link["weight"].to_string(),
            rate.map_or(String::from("-"), |rate| Rate(rate).to_string()),
            rtt.map_or(String::from("-"), |rtt| {
                format!("{:.1} ms", rtt.as_secs_f64() * 1e3)
            }),
            size("bytes"),
            size("quota_left"),
        ]);
    }
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let policy = answer["policy"].as_str().unwrap_or("-");
    let mut text = format!("policy: {policy}\n");
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line: Vec<String> = cells.collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}
