//! `serve`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use whimbrel_mobilityfirst::wire::ControlCode;
use whimbrel_node::config::{LinkSection, listen_address};
use whimbrel_node::place::Places;
use whimbrel_node::serve::{ServeEvent, serve};
use whimbrel_node::shelf::{Shelf, ShelfError};

use super::access::{no_host, reach};
use super::{Outcome, json_line, out, stop_flag};
use crate::arguments::HostAccess;
use crate::exit::{Exit, Failure};
use crate::logging::{note, shows_progress};

/// The label of the link for inbound peers.
const DIRECT: &str = "direct";

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  whimbrel serve film.mkv photos/\n  whimbrel serve --listen 0.0.0.0:4711 film.mkv\n\nEach line that it prints is a name and what \
                        it stands for; `whimbrel get NAME` fetches it."
)]
pub(crate) struct Serve {
    /// Files and folders
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Print the names and exit, without serving
    #[arg(long)]
    print_names: bool,
    /// Also answer hosts that connect here directly (`whimbrel get --from`), without router and
    /// name service
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address, conflicts_with_all = ["socket", "print_names"])]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    access: HostAccess,
    /// Hash files again, and store no hashes for the next start
    #[arg(long)]
    no_cache: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

impl From<ShelfError> for Failure {
    fn from(error: ShelfError) -> Failure {
        let exit = match error {
            ShelfError::Changing(_) => Exit::Other,
            _ => Exit::Usage,
        };
        Failure::new(exit, error)
    }
}

pub(crate) fn run(arguments: Serve) -> Outcome {
    let stop = stop_flag()?;
    let cache = (!arguments.no_cache).then(|| Places::of_this_user().cache.join("trees"));
    let mut shelf = Shelf::new(cache);
    // Detects a missing daemon before hashing for an hour.
    let mut access = if arguments.print_names {
        None
    } else {
        Some(reach(&arguments.access, listening(arguments.listen))?)
    };
    let mut wanted = BTreeSet::new();
    for path in &arguments.paths {
        let bar = hashing_bar(path, arguments.json);
        let mut before = 0;
        let shelved = shelf.add(path, &mut |file, done| {
            bar.set_message(file.display().to_string());
            // `done` counts from zero for each file.
            bar.inc(done.saturating_sub(if done < before { 0 } else { before }));
            before = done;
        });
        bar.finish_and_clear();
        let shelved = shelved?;
        wanted.insert(shelved.name);
        for skipped in &shelved.skipped {
            note(&format!("skipped {:?}: {}", skipped.path, skipped.why));
        }
        if arguments.json {
            json_line(&json!({ "event": "name", "shelved": shelved }));
        } else {
            out(&format!("{}  {}\n", shelved.name, shelved.path.display()));
        }
    }
    let Some(access) = &mut access else {
        return Ok(Exit::Done);
    };
    if let Some(address) = access
        .embedded
        .as_ref()
        .and_then(|host| host.links().get(DIRECT))
    {
        if arguments.json {
            json_line(&json!({ "event": "listening", "address": address, "names": wanted }));
        } else {
            note(&format!(
                "listening on {address}; fetch with: whimbrel get --from {address} NAME"
            ));
        }
    }
    let mut failed = BTreeSet::new();
    let mut observe = |event: ServeEvent| match event {
        ServeEvent::Announced { content, code } => {
            let first = match code {
                ControlCode::Registered => wanted.remove(&content),
                // Printed once, because the host retries.
                _ => failed.insert((content, code as u8)),
            };
            if !first || code == ControlCode::Attached {
                return;
            }
            if arguments.json {
                json_line(
                    &json!({ "event": "announced", "name": content, "outcome": format!("{code:?}") }),
                );
            } else if code == ControlCode::Registered {
                out(&format!("{content}  announced\n"));
            } else {
                note(&format!(
                    "{content} is not announced yet: {}",
                    explain(code)
                ));
            }
        }
        ServeEvent::Unreadable { content, why } => {
            if arguments.json {
                json_line(
                    &json!({ "event": "unreadable", "name": content, "error": why.to_string() }),
                );
            } else {
                eprintln!("whimbrel: {why}");
            }
        }
        ServeEvent::DaemonGone => note("the host daemon closed the connection; waiting for it"),
        ServeEvent::DaemonBack => note("the host daemon is back; all contents are published again"),
        ServeEvent::Sent { .. } => {}
    };
    serve(&mut access.attachment, &mut shelf, &stop, &mut observe).map_err(no_host)?;
    Ok(Exit::Done)
}

fn listening(address: Option<SocketAddr>) -> Vec<LinkSection> {
    let link = |bind| LinkSection {
        bind: Some(bind),
        listen: true,
        ..LinkSection::new(DIRECT)
    };
    address.map(link).into_iter().collect()
}

fn explain(code: ControlCode) -> &'static str {
    match code {
        ControlCode::Registered => "the name service has it",
        ControlCode::Attached => "waiting for the name service",
        ControlCode::Invalid => "refused as invalid",
        ControlCode::Clock => {
            "refused: this machine's clock differs from the router's or the name service's; trying again"
        }
        ControlCode::Stale => "a newer announcement exists; trying again",
        ControlCode::Unreachable => {
            "known at this router only; no name service responds, trying again"
        }
        ControlCode::Full => "the name service is full; trying again",
    }
}

fn hashing_bar(path: &Path, json: bool) -> ProgressBar {
    if json || !shows_progress() {
        return ProgressBar::hidden();
    }
    let bar = match path.metadata() {
        Ok(metadata) if metadata.is_file() => ProgressBar::new(metadata.len()),
        _ => ProgressBar::no_length(),
    };
    let template = "hashing {bytes}, {bytes_per_sec} {wide_msg}";
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
