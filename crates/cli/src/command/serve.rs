//! `serve`.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use qrcode::QrCode;
use qrcode::render::unicode;
use serde_json::json;
use whimbrel_core::Guid;
use whimbrel_io::Interface;
use whimbrel_mobilityfirst::wire::ControlCode;
use whimbrel_node::config::{LinkSection, Remote, listen_address};
use whimbrel_node::place::Places;
use whimbrel_node::serve::{ServeEvent, serve};
use whimbrel_node::shelf::{Shelf, ShelfError};
use whimbrel_node::ticket::Ticket;

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
    /// Show each ticket as a QR code, too
    #[arg(skip)]
    qr: bool,
}

/// `send`: `serve` as one who has no network of routers needs it.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  whimbrel send photos/\n\nIt prints a command for the other machine, and serves until Ctrl-C. The other machine must be \
                        able to reach this one, or both the same router (--router)."
)]
pub(crate) struct Send {
    /// Files and folders
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Address and UDP port for the other machine to call; by default a free port on every address
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Serve by this router instead of listening
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "listen")]
    router: Vec<Remote>,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

impl Send {
    pub(crate) fn serve(self) -> Serve {
        let anywhere = || SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let alone = self.router.is_empty();
        Serve {
            paths: self.paths,
            print_names: false,
            listen: alone.then(|| self.listen.unwrap_or_else(anywhere)),
            access: HostAccess {
                socket: None,
                router: self.router,
                key: None,
                mtu: None,
            },
            no_cache: false,
            json: self.json,
            qr: true,
        }
    }
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
    let listens = access.embedded.as_ref();
    let listens = listens.and_then(|host| host.links().get(DIRECT)).copied();
    if let (Some(address), true) = (listens, arguments.json) {
        json_line(&json!({ "event": "listening", "address": address, "names": wanted }));
    } else if let Some(address) = listens {
        note(&format!("listening on {address}"));
    }
    let hosts = listens.map(addresses).transpose()?.unwrap_or_default();
    if !hosts.is_empty() || !arguments.access.router.is_empty() {
        for content in &wanted {
            let ticket = Ticket {
                content: *content,
                hosts: hosts.clone(),
                routers: arguments.access.router.clone(),
            };
            show_ticket(&ticket, &arguments)?;
        }
    }
    let mut sending = Sending::new(arguments.json);
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
        ServeEvent::Sent { content, bytes } => sending.count(content, bytes),
        ServeEvent::Waiting(waiting) => match waiting {
            _ if arguments.json => json_line(&json!({ "event": "waiting", "waiting": waiting })),
            Some(waiting) => note(&format!("waiting: {}", waiting.reason)),
            None => note("connected"),
        },
    };
    serve(&mut access.attachment, &mut shelf, &stop, &mut observe).map_err(no_host)?;
    Ok(Exit::Done)
}

/// The addresses by which other machines may reach a socket here.
fn addresses(bound: SocketAddr) -> Result<Vec<Remote>, Failure> {
    let at = |ip: IpAddr| SocketAddr::new(ip, bound.port()).to_string().parse().ok();
    if !bound.ip().is_unspecified() {
        return Ok(at(bound.ip()).into_iter().collect());
    }
    let interfaces = Interface::all()?;
    let here = interfaces.iter().filter(|it| it.is_up && !it.is_loopback);
    let reachable = |ip: &&IpAddr| match ip {
        IpAddr::V4(v4) => !v4.is_link_local(),
        // Its zone has a name on this machine only.
        IpAddr::V6(v6) => bound.is_ipv6() && !v6.is_unicast_link_local(),
    };
    let all = here.flat_map(|it| it.addresses.iter().filter(reachable));
    let all: Vec<Remote> = all.filter_map(|ip| at(*ip)).collect();
    match all[..] {
        // Without a network, programs of this machine still reach it.
        [] => Ok(at(Ipv4Addr::LOCALHOST.into()).into_iter().collect()),
        _ => Ok(all),
    }
}

/// A line to be pasted on the other machine.
fn show_ticket(ticket: &Ticket, arguments: &Serve) -> Result<(), Failure> {
    if arguments.json {
        json_line(
            &json!({ "event": "ticket", "name": ticket.content, "ticket": ticket.to_string() }),
        );
        return Ok(());
    }
    out(&format!("fetch it with:  whimbrel get {ticket}\n"));
    if arguments.qr && std::io::stdout().is_terminal() {
        // In capitals a code needs fewer dots.
        let code = QrCode::new(ticket.to_string().to_uppercase())
            .map_err(|error| Failure::new(Exit::Other, format!("no QR code: {error}")))?;
        out(&format!(
            "{}\n",
            code.render::<unicode::Dense1x2>().quiet_zone(true).build()
        ));
    }
    Ok(())
}

/// What others fetch, on a terminal.
struct Sending {
    bar: ProgressBar,
    contents: BTreeSet<Guid>,
}

impl Sending {
    fn new(json: bool) -> Sending {
        let bar = match !json && shows_progress() {
            true => ProgressBar::no_length(),
            false => ProgressBar::hidden(),
        };
        let template = "{spinner} {bytes} sent, {bytes_per_sec}{msg}";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Sending {
            bar,
            contents: BTreeSet::new(),
        }
    }

    fn count(&mut self, content: Guid, bytes: usize) {
        self.bar.inc(bytes as u64);
        if self.contents.insert(content) {
            self.bar
                .set_message(format!(", {} contents asked for", self.contents.len()));
        }
    }
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
