//! What `serve` and `send` say of what they offer: tickets, and who takes how much of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};
use serde_json::json;
use whimbrel_content::RangeSet;
use whimbrel_core::{Guid, Peer};
use whimbrel_io::Interface;
use whimbrel_node::config::{Bind, NamedRemote, Remote};
use whimbrel_node::shelf::Shelved;
use whimbrel_node::ticket::{Ticket, means_the_same_elsewhere};

use super::tell_json;
use crate::logging::{note, one_line};
use crate::progress;

/// Shortest interval between two lines of JSON about what is sent.
const JSON_INTERVAL: Duration = Duration::from_secs(1);

/// Where a socket that is bound to `bound` can be reached from other machines; from this one, if it
/// has no other address. The interface that leads to an Ethernet address is for the other machine
/// to say.
pub(super) fn reachable(bound: &Bind) -> Vec<Remote> {
    let all_of = |ip: IpAddr| match ip {
        _ if ip.is_unspecified() => of_this_machine(ip.is_ipv6()),
        // It means something together with the other machine's interface only.
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Vec::new(),
        _ => vec![ip],
    };
    let texts: Vec<String> = match bound {
        Bind::Udp(bound) => {
            let at = |ip| SocketAddr::new(ip, bound.port()).to_string();
            all_of(bound.ip()).into_iter().map(at).collect()
        }
        Bind::Ip(ip) => {
            let of_family = |it: &IpAddr| it.is_ipv4() == ip.is_ipv4();
            let ips = all_of(*ip).into_iter().filter(of_family);
            ips.map(|ip| Bind::Ip(ip).to_string()).collect()
        }
        Bind::Device(name) => {
            let station = Interface::find(name).ok().and_then(|it| it.ethernet);
            let written = station.map(|station| station.map(|octet| format!("{octet:02x}")));
            let uri = written.map(|pairs| format!("ether://[{}]", pairs.join(":")));
            uri.into_iter().collect()
        }
    };
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Returns the addresses of this machine that mean it to others; IPv4 first.
fn of_this_machine(with_ipv6: bool) -> Vec<IpAddr> {
    let interfaces = Interface::all().unwrap_or_default();
    let up = interfaces
        .iter()
        .filter(|interface| interface.is_up && !interface.is_loopback);
    // A link-local address means something together with the other machine's interface only.
    let usable = |ip: &&IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => with_ipv6 && !ip.is_unicast_link_local(),
    };
    let mut addresses: Vec<IpAddr> = up
        .flat_map(|interface| &interface.addresses)
        .filter(usable)
        .copied()
        .collect();
    addresses.sort();
    addresses.dedup();
    if addresses.is_empty() {
        addresses.push(IpAddr::from([127, 0, 0, 1]));
    }
    addresses
}

/// Returns a ticket without a content, with the addresses that mean the same on other machines, and tells
/// the user of the others; `None` if nobody can be asked but a daemon on this machine.
pub(super) fn blank_ticket(hosts: &[NamedRemote], routers: &[NamedRemote]) -> Option<Ticket> {
    let usable = |remotes: &[NamedRemote]| -> Vec<NamedRemote> {
        let over_udp = remotes.iter().filter_map(|it| Some((it, it.remote.udp()?)));
        let (elsewhere, here): (Vec<_>, Vec<_>) =
            over_udp.partition(|(_, peer)| means_the_same_elsewhere(peer));
        for (it, _) in here {
            let remote = &it.remote;
            note(&format!(
                "the ticket leaves out {remote}: another machine reaches a link-local address by an interface of its own"
            ));
        }
        let elsewhere = elsewhere.into_iter();
        elsewhere.map(|(remote, _)| remote.clone()).collect()
    };
    let any = !hosts.is_empty() || !routers.is_empty();
    let (hosts, routers) = (usable(hosts), usable(routers));
    if hosts.is_empty() && routers.is_empty() {
        if any {
            note(
                "there is no ticket: no address here means the same to another machine (--address adds one)",
            );
        }
        return None;
    }
    if hosts.iter().chain(&routers).all(is_loopback) {
        note("the ticket has addresses of this machine only: other machines cannot use it");
    }
    Some(Ticket {
        content: Guid::NONE,
        key: None,
        hosts,
        routers,
    })
}

/// Returns the text of a ticket for what is shelved.
pub(super) fn ticket(blank: &Ticket, shelved: &Shelved) -> Option<String> {
    let ticket = Ticket {
        content: shelved.name,
        key: shelved.key.clone(),
        ..blank.clone()
    };
    match ticket.encode() {
        Ok(text) => Some(text),
        Err(error) => {
            note(&error.to_string());
            None
        }
    }
}

fn is_loopback(at: &NamedRemote) -> bool {
    match at.remote.udp() {
        Some(Peer::Address(address)) => address.ip().to_canonical().is_loopback(),
        _ => false,
    }
}

/// Returns a text as a picture for cameras, in characters; `None` if it is too long. Capital
/// letters take less room, and mean the same in a ticket.
pub(super) fn picture(ticket: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(ticket.to_uppercase(), EcLevel::L).ok()?;
    let mut picture = code.render::<Dense1x2>();
    // "Dark" is drawn in the colour of letters: on a terminal that is usually the light one, and
    // cameras expect dark on light.
    picture
        .dark_color(Dense1x2::Light)
        .light_color(Dense1x2::Dark);
    Some(picture.build())
}

/// What others have taken of an offered content.
struct Taken {
    path: String,
    length: u64,
    ranges: RangeSet,
}

/// Who takes how much of what is offered.
pub(super) struct Takers {
    json: bool,
    offered: BTreeMap<Guid, Taken>,
    bytes: u64,
    connected: usize,
    told: Instant,
    bar: ProgressBar,
}

impl Takers {
    pub(super) fn new(json: bool, offered: &[Shelved]) -> Takers {
        let bar = progress::bar(!json, 4);
        let style = ProgressStyle::with_template("{spinner} {bytes} sent, {bytes_per_sec}; {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        // Of a folder, the files are contents of their own: how much of it is taken is not known here.
        let files = offered.iter().filter(|one| one.path.is_file());
        let offered = files.map(|one| {
            let taken = Taken {
                path: one.path.display().to_string(),
                length: one.length,
                ranges: RangeSet::new(),
            };
            (one.name, taken)
        });
        Takers {
            json,
            offered: offered.collect(),
            bytes: 0,
            connected: 0,
            told: Instant::now(),
            bar,
        }
    }

    /// Hosts are connected to the listener.
    pub(super) fn connected(&mut self, connected: usize) {
        if self.connected == connected {
            return;
        }
        self.connected = connected;
        if self.json {
            return tell_json(&json!({ "event": "connected", "hosts": connected }));
        }
        self.bar
            .set_message(format!("{} connected", hosts(connected)));
        if self.bar.is_hidden() {
            note(&format!("{} connected", hosts(connected)));
        }
    }

    /// A chunk was read for somebody.
    pub(super) fn sent(&mut self, content: Guid, offset: u64, bytes: usize) {
        self.bytes += bytes as u64;
        self.bar.set_position(self.bytes);
        let Some(taken) = self.offered.get_mut(&content) else {
            return;
        };
        let end = (offset + bytes as u64).min(taken.length);
        taken.ranges.insert(offset..end);
        let here = taken.ranges.total();
        let complete = here >= taken.length;
        let (path, length) = (taken.path.clone(), taken.length);
        if complete {
            // Whoever comes next takes it from its start.
            taken.ranges = RangeSet::new();
        }
        if self.json && (complete || self.told.elapsed() >= JSON_INTERVAL) {
            self.told = Instant::now();
            tell_json(
                &json!({ "event": "sent", "name": content, "bytes": here, "length": length, "complete": complete }),
            );
        } else if complete {
            self.say(&format!(
                "all of {} was sent: {length} bytes",
                one_line(&path)
            ));
        }
    }

    /// Prints a remark above the bar.
    pub(super) fn say(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }

    /// Returns the bar, for who prints from another thread.
    pub(super) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }

    pub(super) fn is_drawn(&self) -> bool {
        !self.bar.is_hidden()
    }

    pub(super) fn show(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn hosts(count: usize) -> String {
    match count {
        1 => "1 host is".to_owned(),
        count => format!("{count} hosts are"),
    }
}
