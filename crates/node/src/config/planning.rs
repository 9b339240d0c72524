//! A draft becomes a plan, or every fault that would stop its start is reported.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use whimbrel_core::units::{ByteSize, Span};
use whimbrel_core::{Guid, suggest};
use whimbrel_gnrs::{KeyPair, Placement, StoreLimits};
use whimbrel_link::hop::MIN_MTU;
use whimbrel_mobilityfirst::host::interfaces::LinkTerms;
use whimbrel_mobilityfirst::router::{ContactPlan, MAX_PLAN, NextHop, Route};

use super::checks::{ANY, Found, HOUR, TICK};
use super::hop::check_hop;
use super::names;
use super::{
    Bind, ConfigError, Draft, HostPlan, Kind, LinkSection, MobilityFirstPlan, NameServerPlan, Plan,
    RouterPlan, StorageSection, Via,
};
use crate::pointers::unix_ms;
use whimbrel_client::place::{Places, check_own};

/// Longest lifetime of an announcement without renewal.
const MAX_ANNOUNCEMENT: Span = Span(Duration::from_millis(
    whimbrel_gnrs::MAX_PROVIDER_LIFETIME_MS,
));
/// Bound of things that are counted one by one: inbound peers, transfers, clients.
pub(super) const MOST: u64 = 1 << 20;
/// Bytes of the headers of IPv6 and UDP, which are the longest of all carriers.
pub(super) const HEADERS: u64 = 48;
/// Largest IP packet.
pub(super) const MAX_PACKET: u64 = 65_535;

impl Draft {
    /// Returns the plan for a node of `kind`, or every fault that would stop its start or silently
    /// change it.
    pub fn plan(&self, kind: Kind) -> Result<Plan, ConfigError> {
        match kind {
            Kind::Router => self.router().map(Box::new).map(Plan::Router),
            Kind::Host => self.host().map(Plan::Host),
            Kind::Gnrs => self.name_server().map(Plan::NameServer),
        }
    }

    /// Returns the plan for a router.
    pub fn router(&self) -> Result<RouterPlan, ConfigError> {
        let config = &self.config;
        let mut found = Found::new(self);
        self.check_sections(&mut found, Kind::Router);
        check_hop(&mut found, &config.hop, &config.link);
        check_storage(&mut found, &config.storage);
        check_links(&mut found, &config.link);
        check_links_of_a_router(&mut found, &config.link);
        let places = Places::of_this_user();
        let section = &config.router;
        let key = section
            .key
            .clone()
            .unwrap_or_else(|| places.state.join("router.pem"));
        if !config.link.is_empty() {
            check_key(&mut found, "router.key", &key);
        }
        found.socket_path("router.socket", section.socket.as_deref());
        let socket_group = found.group("router.socket_group", section.socket_group.as_deref());
        let mut name_servers = Vec::new();
        for (index, server) in section.name_servers.iter().enumerate() {
            match server.udp() {
                Some(peer) => name_servers.push(peer),
                None => found.add(
                    format!("router.name_servers[{index}]"),
                    format!("{server} is not the address of a name server: those are reached over UDP; write host:port"),
                ),
            }
        }
        let routes = self.routes(&mut found);
        let default_route = section
            .default_route
            .as_ref()
            .and_then(|via| self.next_hop(&mut found, "router.default_route", via));
        let contacts = section.contacts.as_deref();
        if contacts.is_some() && !section.routing.is_learned() {
            found.add(
                "router.contacts",
                "contacts are for learned ways; write routing = \"learned\"",
            );
        }
        let contacts = contacts.and_then(|path| found.keep("router.contacts", contact_plan(path)));
        let ndn_on = config.ndn.enabled.unwrap_or(config.link.is_empty());
        self.check_planes(&mut found, ndn_on);
        // If NDN is off, its sections are not checked until it is on.
        let ndn = if ndn_on {
            super::ndn_plan::check(&mut found, config, self.strategies)
        } else {
            None
        };
        let mobility_first = (!config.link.is_empty()).then(|| MobilityFirstPlan {
            key,
            socket: section
                .socket
                .clone()
                .unwrap_or_else(|| places.router_socket()),
            socket_group,
            name_servers,
            routes,
            default_route,
            contacts,
            ..MobilityFirstPlan::new(
                config.hop.clone(),
                &config.storage,
                section,
                config.link.clone(),
            )
        });
        found.or(RouterPlan {
            mobility_first,
            ndn,
            metrics: section.metrics,
        })
    }

    /// Returns the plan for a host.
    pub fn host(&self) -> Result<HostPlan, ConfigError> {
        let section = &self.config.host;
        let mut found = Found::new(self);
        let key = section
            .key
            .clone()
            .unwrap_or_else(|| Places::of_this_user().state.join("host.pem"));
        check_key(&mut found, "host.key", &key);
        self.plan_host(found, key)
    }

    /// Returns the plan for a host inside a program that has a key of its own.
    pub fn embedded_host(&self) -> Result<HostPlan, ConfigError> {
        self.plan_host(Found::new(self), PathBuf::new())
    }

    fn plan_host(&self, mut found: Found<'_>, key: PathBuf) -> Result<HostPlan, ConfigError> {
        let config = &self.config;
        self.check_sections(&mut found, Kind::Host);
        check_hop(&mut found, &config.hop, &config.link);
        check_links(&mut found, &config.link);
        let section = &config.host;
        found.socket_path("host.socket", section.socket.as_deref());
        let socket_group = found.group("host.socket_group", section.socket_group.as_deref());
        for (key, value) in [
            ("host.binding_lifetime", section.binding_lifetime),
            ("host.announcement_lifetime", section.announcement_lifetime),
            ("host.nack_timeout", section.nack_timeout),
        ] {
            found.time(key, value, TICK);
        }
        let announced_for = section.announcement_lifetime;
        if announced_for > MAX_ANNOUNCEMENT {
            found.add(
                "host.announcement_lifetime",
                format!("no router believes an announcement for {announced_for}; write at most {MAX_ANNOUNCEMENT}"),
            );
        }
        found.count("host.window", section.window.0, 1..=1 << 40, " bytes");
        found.count(
            "host.content_limit",
            section.content_limit.0,
            1..=u64::MAX,
            " bytes",
        );
        found.count(
            "host.max_transfers",
            section.max_transfers as u64,
            1..=MOST,
            "",
        );
        for (index, link) in config.link.iter().enumerate() {
            let weight = u64::from(link.weight);
            found.count(&format!("link[{index}].weight"), weight, 1..=1_000, "");
            found.time(
                &format!("link[{index}].quota_period"),
                link.quota_period,
                HOUR,
            );
        }
        let mut preference = Vec::new();
        for (index, label) in section.preference.iter().enumerate() {
            let number = config.link.iter().position(|link| link.label == *label);
            match number.filter(|number| !preference.contains(&(*number as u32))) {
                Some(number) => preference.push(number as u32),
                None if number.is_some() => found.add(
                    format!("host.preference[{index}]"),
                    format!("\"{label}\" is listed twice; name each link once"),
                ),
                None => {
                    let hint = suggest::hint(label, labels(&config.link));
                    found.add(
                        format!("host.preference[{index}]"),
                        format!("no link has the label \"{label}\"{hint}"),
                    );
                }
            }
        }
        found.or(HostPlan {
            key,
            socket: section
                .socket
                .clone()
                .unwrap_or_else(|| Places::of_this_user().host_socket()),
            socket_group,
            preference,
            ..HostPlan::new(config.hop.clone(), section, config.link.clone())
        })
    }

    /// Returns the plan for a name server.
    pub fn name_server(&self) -> Result<NameServerPlan, ConfigError> {
        let section = &self.config.gnrs;
        let mut found = Found::new(self);
        self.check_sections(&mut found, Kind::Gnrs);
        found.count(
            "gnrs.max_records",
            section.max_records as u64,
            1..=1 << 32,
            "",
        );
        found.count(
            "gnrs.max_bytes",
            section.max_bytes.0,
            1 << 16..=u64::MAX,
            " bytes",
        );
        found.count(
            "gnrs.max_providers",
            section.max_providers as u64,
            1..=MOST,
            "",
        );
        found.count("gnrs.max_clients", section.max_clients as u64, 1..=MOST, "");
        found.count("gnrs.copies", section.copies as u64, 1..=64, "");
        found.count(
            "gnrs.max_watches",
            section.max_watches as u64,
            1..=1 << 32,
            "",
        );
        found.socket_path("gnrs.socket", section.socket.as_deref());
        let socket_group = found.group("gnrs.socket_group", section.socket_group.as_deref());
        let store = names::store(section, &mut found);
        let peers = names::peers(section, &store, &mut found);
        found.or(NameServerPlan {
            listen: section.listen,
            store,
            limits: StoreLimits {
                max_records: section.max_records,
                max_bytes: section.max_bytes.as_usize(),
                max_providers: section.max_providers,
            },
            peers,
            placement: Placement {
                own: section.name.clone(),
                copies: section.copies,
            },
            max_clients: section.max_clients,
            max_watches: section.max_watches,
            socket: section
                .socket
                .clone()
                .unwrap_or_else(|| Places::of_this_user().gnrs_socket()),
            socket_group,
            socket_is_wanted: section.socket.is_some(),
            metrics: section.metrics,
        })
    }

    /// Reports sections that another kind of node reads, which would be ignored.
    fn check_sections(&self, found: &mut Found<'_>, kind: Kind) {
        let written = self.document.as_ref().map(super::Document::sections);
        for section in written.unwrap_or_default() {
            if !kind.sections().contains(&section.as_str()) {
                let known = kind.sections().join(", ");
                let name = kind.name();
                found.add(
                    section,
                    format!(
                        "a section of another kind of node: this file is a {name}'s, which reads {known}"
                    ),
                );
            }
        }
    }

    /// Reports keys of a plane that is off, which would be ignored.
    fn check_planes(&self, found: &mut Found<'_>, ndn_on: bool) {
        let config = &self.config;
        if config.ndn.enabled.is_none() && !ndn_on {
            let sections = ["ndn", "ndn_face", "ndn_route", "ndn_strategy"];
            if let Some(key) = sections.iter().find_map(|section| self.said_of(section)) {
                found.add(
                    key,
                    "links make this a MobilityFirst router, which forwards NDN only if it is told to; write enabled = true \
                     in [ndn] (or --ndn), or enabled = false to leave NDN off",
                );
            }
        }
        if config.link.is_empty() {
            let sections = ["router", "route", "storage", "hop"];
            if let Some(key) = sections.iter().find_map(|section| self.said_of(section)) {
                found.add(
                    key,
                    "it is for MobilityFirst, and without links this is an NDN router only; write a [[link]] (or give \
                     --listen or --neighbour)",
                );
            }
        }
    }

    fn routes(&self, found: &mut Found<'_>) -> Vec<Route> {
        let mut routes: Vec<Route> = Vec::new();
        let mut written: BTreeMap<(Guid, &str), usize> = BTreeMap::new();
        for (index, route) in self.config.route.iter().enumerate() {
            let Via(via) = &route.via;
            if let Some(first) = written.insert((route.to, via), index) {
                found.add(
                    format!("route[{index}].via"),
                    format!("route[{first}] leads there by the same next hop; write one of them"),
                );
            }
            let via = self.next_hop(found, &format!("route[{index}].via"), &route.via);
            routes.extend(via.map(|via| Route {
                to: route.to,
                via,
                preference: route.preference,
                weight: route.weight.get(),
            }));
        }
        routes
    }

    fn next_hop(&self, found: &mut Found<'_>, key: &str, via: &Via) -> Option<NextHop> {
        let next_hop = via.next_hop(labels(&self.config.link));
        if next_hop.is_none() {
            let Via(label) = via;
            let hint = suggest::hint(label, labels(&self.config.link));
            found.add(
                key,
                format!(
                    "\"{label}\" is neither the label of a link nor a name of 64 hexadecimal digits{hint}"
                ),
            );
        }
        next_hop
    }
}

fn labels(links: &[LinkSection]) -> impl Iterator<Item = &str> {
    links.iter().map(|link| link.label.as_str())
}

/// Reports a key file that exists and is not one.
fn check_key(found: &mut Found<'_>, key: &str, path: &Path) {
    let at = path.display();
    if let Err(foreign) = check_own(path) {
        found.add(key, foreign.to_string());
        return;
    }
    let fault = match whimbrel_keychain::small_file::read_text(path) {
        Ok(text) => KeyPair::from_pem(&text)
            .err()
            .map(|error| format!("{at} is not a key file: {error}; `whimbrel id new` makes one")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(format!("cannot read the key {at}: {error}")),
    };
    if let Some(fault) = fault {
        found.add(key, fault);
    }
}

/// Adds a fault for each key that has a meaning for hosts only.
fn check_links_of_a_router(found: &mut Found<'_>, links: &[LinkSection]) {
    for (index, link) in links.iter().enumerate() {
        if link.terms() != LinkTerms::default() {
            found.add(
                format!("link[{index}]"),
                format!(
                    "\"{}\": weight, cost, metered, quota, quota_period and off are of hosts' links; remove them ([[route]] has weight and preference)",
                    link.label
                ),
            );
        }
    }
}

fn check_links(found: &mut Found<'_>, links: &[LinkSection]) {
    for (index, link) in links.iter().enumerate() {
        let key = |name: &str| format!("link[{index}].{name}");
        let label = &link.label;
        let reserved = label.starts_with("gnrs:") || label.starts_with("local");
        // Logs and reports print it as it is.
        if label.is_empty() || reserved || label.chars().any(char::is_control) {
            found.add(
                key("label"),
                format!(
                    "\"{}\" is not a label; write one that is not empty, has no control characters, and begins with neither \
                     \"gnrs:\" nor \"local\"",
                    label.escape_debug()
                ),
            );
        }
        let before = &links[..index];
        if before.iter().any(|earlier| earlier.label == *label) {
            found.add(
                key("label"),
                format!("\"{label}\" is used twice; write another label"),
            );
        }
        if let Some(pacing) = link.pacing {
            pacing.check(found, key("pacing"));
        }
        if link.remote.is_none() && !link.listen {
            found.add(
                format!("link[{index}]"),
                format!(
                    "\"{label}\" has neither remote (a neighbour's address) nor listen = true; write one of them"
                ),
            );
        }
        match (link.listen, &link.bind) {
            (true, None) => found.add(
                key("bind"),
                format!(
                    "\"{label}\" listens; write an address and port to bind, as \"0.0.0.0:4711\", or \"ip://0.0.0.0\" or \"dev://eth0\""
                ),
            ),
            (true, Some(bind)) => {
                let same = |earlier: &&LinkSection| {
                    earlier.listen && earlier.bind.as_ref() == Some(bind)
                };
                if let Some(earlier) = before.iter().find(same).filter(|_| bind.is_shared()) {
                    let another = if bind.udp().is_some() { "port" } else { "address" };
                    found.add(
                        key("bind"),
                        format!(
                            "link \"{}\" listens on {bind} already; write another {another}",
                            earlier.label
                        ),
                    );
                }
            }
            (false, _) => {}
        }
        check_name(found, link, &key("name"));
        check_ends(found, before, link, &key("remote"));
        found.count(&key("max_callers"), link.max_callers as u64, 1..=MOST, "");
        let smallest = MIN_MTU as u64 + HEADERS;
        found.count(
            &key("mtu"),
            link.mtu as u64,
            smallest..=MAX_PACKET,
            " bytes",
        );
    }
    found.distinct(&bound_by_links(links));
}

/// Checks that the neighbour of a link can prove its name.
fn check_name(found: &mut Found<'_>, link: &LinkSection, key: &str) {
    let label = &link.label;
    if link.name.is_some() && link.remote.is_none() {
        found.add(
            key,
            format!("\"{label}\" has no remote whose name this is; write one, or list the name in hop.allow"),
        );
    }
}

/// Returns the addresses that the links' UDP sockets bind. Links with the same address share one.
pub(super) fn bound_by_links(links: &[LinkSection]) -> Vec<(String, SocketAddr)> {
    let mut bound: Vec<(String, SocketAddr)> = Vec::new();
    for (index, link) in links.iter().enumerate() {
        if let Some(bind) = link.bind.as_ref().and_then(Bind::udp)
            && !bound.iter().any(|(_, known)| *known == bind)
        {
            bound.push((format!("link[{index}].bind"), bind));
        }
    }
    bound
}

/// Returns this machine's end of a link, configured or chosen; `None` if an interface is missing.
pub(super) fn own_end(link: &LinkSection) -> Option<Bind> {
    let towards = || Bind::towards(link.remote.as_ref()?.way());
    link.bind.clone().or_else(towards)
}

/// Checks that a neighbour is reachable from this machine's end of the link, and is configured once.
fn check_ends(found: &mut Found<'_>, before: &[LinkSection], link: &LinkSection, key: &str) {
    let bind = own_end(link);
    if let Some(bind) = &bind {
        let overlaps =
            |earlier: &LinkSection| own_end(earlier).filter(|earlier| earlier.overlaps(bind));
        if let Some(other) = before.iter().find_map(overlaps) {
            found.add(
                key.replace(".remote", ".bind"),
                format!("{bind} and {other} would get the same packets; bind one of them in all links of bare IP"),
            );
        }
    }
    let Some(remote) = &link.remote else {
        return;
    };
    let Some(bind) = bind else {
        found.add(
            key,
            format!("{remote} does not say on which interface; write it behind the address, as %eth0 before the bracket, or bind = \"dev://eth0\""),
        );
        return;
    };
    if let Some(why) = bind.refuses(remote.way(), &remote.to_string()) {
        found.add(key, why);
    }
    let same = |earlier: &&LinkSection| {
        bind.is_shared()
            && own_end(earlier).as_ref() == Some(&bind)
            && (earlier.remote.as_ref()).is_some_and(|it| it.way() == remote.way())
    };
    if let Some(earlier) = before.iter().find(same) {
        found.add(
            key,
            format!(
                "link \"{}\" leads from {bind} to {remote} already; write one link to each neighbour",
                earlier.label
            ),
        );
    }
}

/// The smallest bound of a folder of stored chunks: some of the largest chunks.
const LEAST_DISK: ByteSize = ByteSize(64 << 20);

fn check_storage(found: &mut Found<'_>, storage: &StorageSection) {
    if storage.disk < LEAST_DISK {
        let disk = storage.disk;
        found.add(
            "storage.disk",
            format!("{disk} is too small; write {LEAST_DISK} or more"),
        );
    }
    found.time("storage.lifetime", storage.lifetime, TICK);
    found.time("storage.storage_timer", storage.storage_timer, TICK);
    found.time(
        "storage.held_back_patience",
        storage.held_back_patience,
        ANY,
    );
}

/// Reads a plan of known contacts, whose times count from now.
fn contact_plan(path: &Path) -> Result<ContactPlan, String> {
    let named = |fault: &dyn std::fmt::Display| format!("{}: {fault}", path.display());
    let size = std::fs::metadata(path)
        .map_err(|fault| named(&fault))?
        .len();
    if size > MAX_PLAN as u64 {
        return Err(named(&format!("a plan has at most {MAX_PLAN} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|fault| named(&fault))?;
    ContactPlan::parse(&text, unix_ms()).map_err(|fault| named(&fault))
}
