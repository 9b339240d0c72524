//! `serve` and `send`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use whimbrel_client::place::Places;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::wire::ControlCode;
use whimbrel_node::config::{Bind, LinkSection, NamedRemote, Remote, listen_address};
use whimbrel_node::keys;
use whimbrel_node::run::EmbeddedHost;
use whimbrel_node::serve::{ServeEvent, ShelfServer};
use whimbrel_node::shelf::{Shelf, ShelfError, Shelved};
use whimbrel_node::ticket::Ticket;
use zeroize::Zeroizing;

use super::access::{no_host, reach};
use super::offering::{self, Takers};
use super::pointers::Pointing;
use super::transfer::TransferArguments;
use super::waiting::ToldWait;
use super::{Outcome, code, json_line, out, stop_flag, tell, tell_json};
use crate::arguments::HostAccess;
use crate::exit::{Exit, Failure};
use crate::logging::{note, one_line, path_line, say, say_plainly, shows_progress};
use crate::progress::draw_target;

/// The label of the link for inbound peers.
pub(super) const DIRECT: &str = "direct";
/// A router that has not answered for so long has no name in tickets.
const ROUTER_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  whimbrel serve film.mkv photos/\n  whimbrel serve --listen 0.0.0.0:4711 film.mkv\n  whimbrel serve --as films films/\n\nEach line that it prints is a name and what \
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
    /// name service; ip://ADDRESS and dev://INTERFACE listen on bare IP and Ethernet
    #[arg(long, value_name = "[ADDRESS:]PORT", conflicts_with_all = ["socket", "print_names"])]
    listen: Option<Bind>,
    /// Ask the access router to keep a copy of what others fetch, and to answer for it while this machine is
    /// off
    #[arg(long)]
    delegate: bool,
    #[command(flatten)]
    pointing: Pointing,
    #[command(flatten)]
    access: HostAccess,
    #[command(flatten)]
    transfer: TransferArguments,
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

/// `send`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  whimbrel send film.mkv\n\nIt prints a command for the other machine, `whimbrel receive TICKET`, and on a terminal \
                        a picture of the ticket for a camera. Over a router:\n  whimbrel send --router 192.0.2.1:4711 film.mkv\n\nWith a code \
                        to say aloud as well, such as 7-crusade-hazardous-button-rebellion:\n  whimbrel send --code --router 192.0.2.1:4711 film.mkv\n  \
                        whimbrel send --code --listen 192.0.2.7:4711 film.mkv"
)]
pub(crate) struct Send {
    /// Files and folders; each gets a ticket
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Address to listen on; by default all addresses and a free port, unless there is a router
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address, conflicts_with = "socket")]
    listen: Option<SocketAddr>,
    /// An address by which others reach this machine, in addition to its own; such as that of a
    /// router which forwards a port to it
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "socket")]
    address: Vec<Remote>,
    /// Also make a code that can be said aloud: anyone who enters it gets the ticket. The two sides meet at
    /// the router, if there is one, or at this machine's address. For one PATH; three wrong guesses use
    /// it up
    #[arg(long, conflicts_with = "socket")]
    code: bool,
    #[command(flatten)]
    access: HostAccess,
    /// Send the bytes as they are. Otherwise only those with the ticket or the code can read them: the routers on the way
    /// and what they store hold encrypted bytes
    #[arg(long)]
    no_encryption: bool,
    /// Hash files again, and store nothing for the next start: tickets for encrypted files then differ from run to run
    #[arg(long)]
    no_cache: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn send(arguments: Send) -> Outcome {
    if arguments.code && arguments.paths.len() > 1 {
        return Err(Failure::new(
            Exit::Usage,
            "a code stands for one file or folder: send a folder that holds them, or run a command for each",
        ));
    }
    let mut listen = arguments.listen;
    if listen.is_none() && arguments.access.router.is_empty() {
        // A daemon knows no ticket: it has listeners and routers of its own.
        listen = listen_address("0").ok();
    }
    let secret = match arguments.no_encryption {
        true => None,
        false => Some(sender_secret(&arguments)?),
    };
    offer(Offer {
        secret,
        serve: Serve {
            delegate: false,
            paths: arguments.paths,
            print_names: false,
            listen: listen.map(Bind::Udp),
            pointing: Pointing::default(),
            transfer: TransferArguments::default(),
            access: HostAccess {
                socket: None,
                ..arguments.access
            },
            no_cache: arguments.no_cache,
            json: arguments.json,
        },
        addresses: arguments.address,
        is_send: true,
        with_code: arguments.code,
    })
}

pub(crate) fn run(arguments: Serve) -> Outcome {
    offer(Offer {
        secret: None,
        serve: arguments,
        addresses: Vec::new(),
        is_send: false,
        with_code: false,
    })
}

/// What `serve` and `send` have in common.
struct Offer {
    /// The keys of encrypted contents follow from it; none if they are not encrypted.
    secret: Option<Zeroizing<[u8; 32]>>,
    serve: Serve,
    /// Addresses for tickets that the user knows.
    addresses: Vec<Remote>,
    is_send: bool,
    /// Makes a code that can be said aloud.
    with_code: bool,
}

fn offer(offer: Offer) -> Outcome {
    let arguments = &offer.serve;
    let transfer = arguments.transfer.options()?;
    let stop = stop_flag()?;
    let cache = (!arguments.no_cache).then(|| Places::of_this_user().cache.join("trees"));
    let mut shelf = Shelf::new(cache);
    if arguments.delegate {
        shelf.delegate();
    }
    let mut access = if arguments.print_names {
        None
    } else {
        Some(reach(
            &arguments.access,
            listening(arguments.listen.as_ref()),
        )?)
    };
    let (attachment, embedded) = match &mut access {
        Some(access) => (Some(&mut access.attachment), access.embedded.as_ref()),
        None => (None, None),
    };
    // Detects a missing daemon before hashing for an hour.
    let serving = attachment.map(ShelfServer::connect).transpose();
    let serving = serving.map_err(no_host)?;
    let mut offered = Vec::new();
    for path in &arguments.paths {
        let mut shelved = shelve(&mut shelf, path, arguments.json)?;
        if let Some(secret) = &offer.secret {
            encrypt(&mut shelf, &mut shelved, secret, arguments.json)?;
        }
        for skipped in &shelved.skipped {
            note(&format!("skipped {:?}: {}", skipped.path, skipped.why));
        }
        if arguments.json {
            json_line(&json!({ "event": "name", "shelved": shelved }));
        } else if !offer.is_send {
            out(&format!("{}  {}\n", shelved.name, path_line(&shelved.path)));
        }
        offered.push(shelved);
    }
    let Some(mut serving) = serving else {
        return Ok(Exit::Done);
    };
    serving.publish(&shelf, transfer).map_err(no_host)?;
    let (key, json) = (arguments.access.key.as_deref(), arguments.json);
    arguments.pointing.begin(&offered, key, json, &stop)?;
    let links = embedded.map(|host| host.links());
    let listener = links.and_then(|links| links.get(DIRECT));
    if let Some(address) = listener {
        let names: BTreeSet<Guid> = offered.iter().map(|one| one.name).collect();
        if arguments.json {
            tell_json(&json!({ "event": "listening", "address": address, "names": names }));
        } else if !offer.is_send {
            note(&format!("listening on {address}"));
        }
    }
    let mut hosts = offer.addresses.clone();
    hosts.extend(listener.into_iter().flat_map(offering::reachable));
    let meeting = offer.meeting(embedded, hosts);
    offer.tell_tickets(&offered, &meeting);
    let mut teller = Teller {
        json: arguments.json,
        wanted: offered.iter().map(|one| one.name).collect(),
        failed: BTreeSet::new(),
        takers: Takers::new(arguments.json, &offered),
        told_wait: ToldWait::default(),
    };
    let gift = offer.gift(&offered, &meeting, teller.takers.bar());
    let giving = match (gift, embedded) {
        (Some(gift), Some(host)) => Some(code::give(gift, host.connect())?),
        _ => None,
    };
    let mut observe = |event: ServeEvent| teller.tell(event);
    let served = serving.run(&mut shelf, &stop, &mut observe);
    drop(giving);
    teller.takers.end();
    served.map_err(no_host)?;
    Ok(Exit::Done)
}

pub(super) fn shelve(shelf: &mut Shelf, path: &Path, json: bool) -> Result<Shelved, Failure> {
    let bar = hashing_bar(path, json);
    let shelved = shelf.add(path, &mut counting(&bar));
    bar.finish_and_clear();
    Ok(shelved?)
}

/// Puts an encrypted copy in the place of what was shelved.
fn encrypt(
    shelf: &mut Shelf,
    shelved: &mut Shelved,
    secret: &[u8; 32],
    json: bool,
) -> Result<(), Failure> {
    let bar = hashing_bar(&shelved.path, json);
    let encrypted = shelf.encrypt(shelved, secret, &mut counting(&bar));
    bar.finish_and_clear();
    Ok(encrypted?)
}

/// Returns the secret from which the keys of encrypted contents follow: that of the key that is given, or of this user, so
/// that `send` of the same files prints the same tickets, or else that of this run.
fn sender_secret(arguments: &Send) -> Result<Zeroizing<[u8; 32]>, Failure> {
    if let Some(key) = &arguments.access.key {
        return Ok(Zeroizing::new(keys::sender_secret(key)?));
    }
    if !arguments.no_cache {
        match keys::sender_secret(&Places::of_this_user().state.join("send.pem")) {
            Ok(secret) => return Ok(Zeroizing::new(secret)),
            Err(error) => note(&format!(
                "the next run will print other tickets for the same files: {error}"
            )),
        }
    }
    Ok(Zeroizing::new(keys::random_bytes()?))
}

/// Returns what counts bytes on a bar as they are hashed.
fn counting(bar: &ProgressBar) -> impl FnMut(&Path, u64) {
    let mut before = 0;
    move |file, done| {
        bar.set_message(path_line(file));
        // `done` counts from zero for each file.
        bar.inc(done.saturating_sub(if done < before { 0 } else { before }));
        before = done;
    }
}

/// Where others get what is offered, with the names that are to be proven there as far as they are
/// known.
struct Meeting {
    hosts: Vec<NamedRemote>,
    routers: Vec<NamedRemote>,
    /// A ticket for all contents, if others can reach this host or its routers.
    blank: Option<Ticket>,
}

impl Meeting {
    fn ticket(&self, shelved: &Shelved) -> Option<String> {
        offering::ticket(self.blank.as_ref()?, shelved)
    }
}

impl Offer {
    /// Adds the names to the addresses of this host and its routers: of a host that keeps its key, and
    /// of routers that the user named or that have answered.
    fn meeting(&self, host: Option<&EmbeddedHost>, hosts: Vec<Remote>) -> Meeting {
        let arguments = &self.serve.access;
        let own = host.filter(|_| arguments.key.is_some());
        let own = own.map(|host| host.guid());
        let mut routers = arguments.router.clone();
        let until = Instant::now() + ROUTER_PATIENCE;
        while let Some(host) = host.filter(|_| routers.iter().any(|router| router.name.is_none())) {
            // The links to routers are the first.
            let proven = host.proven_names();
            for (number, router) in (0..).zip(&mut routers) {
                router.name = router.name.or_else(|| proven.get(&number).copied());
            }
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(ROUTER_PATIENCE / 100);
        }
        let named = |remote| NamedRemote { name: own, remote };
        let hosts: Vec<NamedRemote> = hosts.into_iter().map(named).collect();
        Meeting {
            blank: offering::blank_ticket(&hosts, &routers),
            hosts,
            routers,
        }
    }

    /// What the code stands for, if there is to be one.
    fn gift(&self, offered: &[Shelved], meeting: &Meeting, bar: ProgressBar) -> Option<code::Gift> {
        let Meeting { hosts, routers, .. } = meeting;
        let one = offered.first().filter(|_| self.with_code)?;
        let meet = match (routers.first(), hosts.first()) {
            (Some(router), _) => format!("--router {router}"),
            (None, host) => format!("--from {}", host?),
        };
        Some(code::Gift {
            name: one.name,
            ticket: meeting.ticket(one)?,
            routers: (!routers.is_empty()).then(|| self.serve.access.clone()),
            meet,
            json: self.serve.json,
            bar,
        })
    }

    /// Prints what to type on the other machine.
    fn tell_tickets(&self, offered: &[Shelved], meeting: &Meeting) {
        for one in offered {
            let Some(ticket) = meeting.ticket(one) else {
                continue;
            };
            if self.serve.json {
                let line = json!({ "event": "ticket", "name": one.name, "ticket": ticket });
                // It is all that `send` is for.
                match self.is_send {
                    true => json_line(&line),
                    false => tell_json(&line),
                }
            } else if self.is_send {
                note(&format!(
                    "sending {} until Ctrl-C; on the other machine:",
                    path_line(&one.path)
                ));
                out(&format!("whimbrel receive {ticket}\n"));
                if let Some(router) = self.serve.access.router.first() {
                    note(&format!(
                        "if it does not reach {router}: `whimbrel receive --router HOST:PORT TICKET`, with a router of its own site that \
                         shares the name service"
                    ));
                }
                if shows_progress()
                    && let Some(picture) = offering::picture(&ticket)
                {
                    say_plainly(&format!("{picture}\n"));
                }
            } else {
                note(&format!(
                    "{} on the other machine: whimbrel get {ticket}",
                    path_line(&one.path)
                ));
            }
        }
    }
}

/// Tells what happens while contents are served.
struct Teller {
    json: bool,
    /// Contents that the name service does not have yet.
    wanted: BTreeSet<Guid>,
    /// Failures to announce that were printed.
    failed: BTreeSet<(Guid, u8)>,
    takers: Takers,
    told_wait: ToldWait,
}

impl Teller {
    fn tell(&mut self, event: ServeEvent) {
        match event {
            ServeEvent::Announced { content, code } => self.announced(content, code),
            ServeEvent::Host { wait, connected } => {
                self.takers.connected(connected);
                let json: Option<&dyn Fn(&Value)> = self.json.then_some(&|value| tell_json(value));
                let drawn = self.takers.is_drawn();
                if let (true, Some(wait)) = (drawn, &wait) {
                    self.takers.show(&format!("waiting: {wait}"));
                }
                self.told_wait.tell(wait.as_ref(), json, drawn);
            }
            ServeEvent::Unreadable { content, why } => {
                if self.json {
                    tell_json(
                        &json!({ "event": "unreadable", "name": content, "error": why.to_string() }),
                    );
                } else {
                    say(&one_line(&why.to_string()));
                }
            }
            ServeEvent::DaemonGone => {
                self.takers
                    .say("the host daemon closed the connection; waiting for it");
            }
            ServeEvent::DaemonBack => {
                self.takers
                    .say("the host daemon is back; all contents are published again");
            }
            ServeEvent::Sent {
                content,
                offset,
                bytes,
            } => self.takers.sent(content, offset, bytes),
        }
    }

    fn announced(&mut self, content: Guid, code: ControlCode) {
        let first = match code {
            ControlCode::Registered => self.wanted.remove(&content),
            // Printed once, because the host retries.
            _ => self.failed.insert((content, code as u8)),
        };
        if !first || code == ControlCode::Attached {
            return;
        }
        if self.json {
            tell_json(
                &json!({ "event": "announced", "name": content, "outcome": format!("{code:?}") }),
            );
        } else if code == ControlCode::Registered {
            tell(&format!("{content}  announced\n"));
        } else {
            self.takers.say(&format!(
                "{content} is not announced yet: {}",
                explain(code)
            ));
        }
    }
}

pub(super) fn listening(bind: Option<&Bind>) -> Vec<LinkSection> {
    let link = |bind: &Bind| LinkSection {
        bind: Some(bind.clone()),
        listen: true,
        ..LinkSection::new(DIRECT)
    };
    bind.map(link).into_iter().collect()
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
    let length = match path.metadata() {
        Ok(metadata) if metadata.is_file() => Some(metadata.len()),
        _ => None,
    };
    let bar = ProgressBar::with_draw_target(length, draw_target(!json, 20));
    let template = "hashing {bytes}, {bytes_per_sec} {wide_msg}";
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
