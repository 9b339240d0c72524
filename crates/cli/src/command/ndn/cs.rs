//! `cs info|config|erase`.

use clap::{Args, Subcommand};
use serde_json::json;
use whimbrel_ndn_mgmt::{ControlParameters, CsInfo, FLAG_CS_ADMIT, FLAG_CS_SERVE, ForwarderStatus};
use whimbrel_node::ndn::control::Control;

use super::manage::{Change, Manage, is_whimbrel};
use super::name;
use super::words::{Keys, on_off};
use crate::command::{Outcome, json_line, out};
use crate::exit::{Exit, Failure, MANAGEMENT_HELP};

const CAPACITY: &str = "\
The capacity is a number of Data packets, as the management protocol has it. A Whimbrel router also bounds their \
bytes (content_store in its configuration), and that bound usually applies first: it is shown as maxBytes, and \
no command changes it.

";

#[derive(Subcommand, Debug)]
pub(crate) enum CsCommand {
    /// Show the size, limits and hits of the content store
    #[command(after_help = format!("Example:\n  whimbrel cs info\n\n{CAPACITY}{MANAGEMENT_HELP}"))]
    Info(Info),
    /// Set its capacity in packets, and whether it admits and serves Data
    #[command(after_help = format!("Example:\n  whimbrel cs config capacity 100000 admit on serve on\n\n{CAPACITY}{MANAGEMENT_HELP}"))]
    Config(Configure),
    /// Erase Data under a prefix
    #[command(after_help = format!("Example:\n  whimbrel cs erase /example\n\n{MANAGEMENT_HELP}"))]
    Erase(Erase),
}

#[derive(Args, Debug)]
pub(crate) struct Info {
    #[command(flatten)]
    manage: Manage,
}

#[derive(Args, Debug)]
pub(crate) struct Configure {
    /// [capacity N] [admit ON|OFF] [serve ON|OFF]
    words: Vec<String>,
    /// Maximum number of Data packets
    #[arg(long, value_name = "N")]
    capacity: Option<String>,
    /// Admit new Data
    #[arg(long, value_name = "ON|OFF")]
    admit: Option<String>,
    /// Answer Interests from it
    #[arg(long, value_name = "ON|OFF")]
    serve: Option<String>,
    #[command(flatten)]
    change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct Erase {
    /// [prefix] PREFIX [count N]
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    change: Change,
}

pub(crate) fn run(command: CsCommand) -> Outcome {
    match command {
        CsCommand::Info(arguments) => info(&arguments),
        CsCommand::Config(arguments) => configure(&arguments),
        CsCommand::Erase(arguments) => erase(&arguments),
    }
}

fn info(arguments: &Info) -> Outcome {
    let mut control = arguments.manage.look()?;
    let items: Vec<CsInfo> = control.list("cs", "info")?;
    let Some(info) = items.first() else {
        return Err(Failure::new(
            Exit::Other,
            "the forwarder's answer to cs/info is empty",
        ));
    };
    let on = |bit| info.flags & bit != 0;
    let octets = octets(&mut control);
    if arguments.manage.json {
        let mut line = json!({
            "capacity": info.capacity, "admit": on(FLAG_CS_ADMIT), "serve": on(FLAG_CS_SERVE),
            "entries": info.entries, "hits": info.hits, "misses": info.misses,
        });
        if let Some((held, bound)) = octets {
            line["bytes"] = held.into();
            line["capacity_bytes"] = bound.into();
        }
        json_line(&line);
        return Ok(Exit::Done);
    }
    let octets = octets.map_or(String::new(), |(held, bound)| {
        format!("  nBytes={held}\nmaxBytes={bound}\n")
    });
    // A store bounded only in bytes reports a number beyond its reach.
    let capacity = if info.capacity > i64::MAX as u64 {
        "unlimited".into()
    } else {
        info.capacity.to_string()
    };
    out(&format!(
        "capacity={}\n   admit={}\n   serve={}\nnEntries={}\n   nHits={}\n nMisses={}\n{octets}",
        capacity,
        on_text(on(FLAG_CS_ADMIT)),
        on_text(on(FLAG_CS_SERVE)),
        info.entries,
        info.hits,
        info.misses
    ));
    Ok(Exit::Done)
}

/// Returns the octets that a Whimbrel router's store holds and may hold.
fn octets(control: &mut Control) -> Option<(u64, u64)> {
    // Some other forwarders answer late to a dataset that they do not know.
    let general = ForwarderStatus::decode(&control.content("status", "general").ok()?).ok()?;
    if !is_whimbrel(&general) {
        return None;
    }
    let counters = control.content("whimbrel", "counters").ok()?;
    let counters: serde_json::Value = serde_json::from_slice(&counters).ok()?;
    let store = counters.get("cs")?;
    Some((
        store.get("bytes")?.as_u64()?,
        store.get("capacity_bytes")?.as_u64()?,
    ))
}

const fn on_text(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn configure(arguments: &Configure) -> Outcome {
    let keys = Keys {
        ordered: &[],
        named: &["capacity", "admit", "serve"],
        flags: &[],
    };
    let options = [
        ("capacity", &arguments.capacity),
        ("admit", &arguments.admit),
        ("serve", &arguments.serve),
    ];
    let values = keys.read(&arguments.words, &options)?;
    let mut wish = ControlParameters {
        capacity: values.with("capacity", |text| {
            let number = text.parse::<u64>();
            number.map_err(|_| "must be a number of Data packets".to_owned())
        })?,
        ..ControlParameters::default()
    };
    for (key, bit) in [("admit", FLAG_CS_ADMIT), ("serve", FLAG_CS_SERVE)] {
        if let Some(on) = values.with(key, on_off)? {
            wish = wish.with_flag(bit, on);
        }
    }
    let now = arguments.change.control()?.command("cs", "config", &wish)?;
    let on = |bit| now.flags.map(|flags| flags & bit != 0);
    if arguments.change.manage.json {
        json_line(&json!({
            "event": "cs-config-updated", "capacity": now.capacity, "admit": on(FLAG_CS_ADMIT), "serve": on(FLAG_CS_SERVE),
        }));
    } else {
        out(&format!(
            "cs-config-updated capacity={} admit={} serve={}\n",
            now.capacity.unwrap_or_default(),
            on_text(on(FLAG_CS_ADMIT).unwrap_or_default()),
            on_text(on(FLAG_CS_SERVE).unwrap_or_default())
        ));
    }
    Ok(Exit::Done)
}

fn erase(arguments: &Erase) -> Outcome {
    let keys = Keys {
        ordered: &["prefix"],
        named: &["count"],
        flags: &[],
    };
    let values = keys.read(&arguments.words, &[])?;
    values.required("prefix")?;
    let prefix = values.with("prefix", name)?.unwrap_or_default();
    let wanted = values.value::<u64>("count")?;
    let mut control = arguments.change.control()?;
    let mut erased = 0;
    // A forwarder erases some hundred at a time, and reports a capacity if more are left.
    loop {
        let left = wanted.map(|wanted| wanted.saturating_sub(erased));
        if left == Some(0) {
            break;
        }
        let wish = ControlParameters {
            name: Some(prefix.clone()),
            count: left,
            ..ControlParameters::default()
        };
        let done = control.command("cs", "erase", &wish)?;
        let count = done.count.unwrap_or(0);
        erased += count;
        if done.capacity.is_none() || count == 0 {
            break;
        }
    }
    if arguments.change.manage.json {
        json_line(&json!({ "event": "cs-erased", "prefix": prefix.to_string(), "count": erased }));
    } else {
        out(&format!("cs-erased prefix={prefix} count={erased}\n"));
    }
    Ok(Exit::Done)
}
