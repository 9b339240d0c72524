//! What only the machine of a node can tell: its addresses, and the state that an earlier run left.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use whimbrel_core::suggest;
use whimbrel_gnrs::DiskStore;
use whimbrel_io::Interface;

use super::checks::Found;
use super::ndn_plan::{absent_interfaces, datagram_listeners, stream_listeners};
use super::planning::{bound_by_links, own_end};
use super::{Bind, Config, ConfigError, Draft, Faults, Kind, LinkSection, NameStorePlan, Plan};

impl Draft {
    /// Returns the plan and what a start on this machine would wait for, or every fault that would stop a
    /// start of a node of `kind` here: those of [`Draft::plan`], interfaces of another kind, and a damaged
    /// store.
    ///
    /// A port that is taken is no fault: the node itself may be running.
    pub fn check_here(&self, kind: Kind) -> Result<Checked, ConfigError> {
        let plan = self.plan(kind)?;
        let (mut found, mut awaited) = (Found::new(self), Found::new(self));
        for (key, address) in listeners(&self.config, kind) {
            let ip = address.ip();
            let any = if ip.is_ipv4() { "0.0.0.0" } else { "[::]" };
            match is_here(ip) {
                true => {}
                false if ip.is_unspecified() => {
                    found.add(key, format!("this machine has no addresses like {ip}"));
                }
                false => awaited.add(key, not_here(ip, any)),
            }
        }
        if matches!(&plan, Plan::Router(router) if router.ndn.is_some()) {
            for (key, name) in absent_interfaces(&self.config.ndn) {
                awaited.add(key, no_interface(&name));
            }
        }
        for (key, end) in ends_without_ports(&self.config.link, kind) {
            match &end {
                Bind::Ip(ip) if !is_here(*ip) => {
                    let any = if ip.is_ipv4() {
                        "ip://0.0.0.0"
                    } else {
                        "ip://[::]"
                    };
                    awaited.add(key, not_here(*ip, any));
                }
                Bind::Device(name) => match Interface::find(name) {
                    Ok(it) if it.name == *name && it.ethernet.is_some() => {}
                    Ok(it) if it.name == *name => found.add(key, format!(
                        "{name} carries no Ethernet frames; write an interface that does (`ip link` shows of which kind each is)"
                    )),
                    _ => awaited.add(key, no_interface(name)),
                },
                Bind::Udp(_) | Bind::Ip(_) => {}
            }
        }
        if let Plan::NameServer(plan) = &plan
            && let NameStorePlan::Disk(store) = &plan.store
            && let Some(fault) = store_fault(store)
        {
            found.add("gnrs.store", fault);
        }
        let awaited = awaited.all();
        found.or(Checked { plan, awaited })
    }
}

/// A configuration with which a start on this machine succeeds.
#[derive(Debug)]
pub struct Checked {
    /// What would be started.
    pub plan: Plan,
    /// Addresses and interfaces that the machine does not have now: the node starts, and waits for them.
    pub awaited: Option<Faults>,
}

fn not_here(ip: IpAddr, any: &str) -> String {
    format!(
        "this machine has no address {ip} now; a start waits for it. If it is a slip, write one of its own (`ip address` \
         lists them), or {any} for all"
    )
}

fn listeners(config: &Config, kind: Kind) -> Vec<(String, SocketAddr)> {
    let metrics = |key: &str, at: Option<SocketAddr>| at.map(|at| (key.to_owned(), at));
    match kind {
        Kind::Router => {
            let mut all = datagram_listeners(config);
            all.extend(stream_listeners(config));
            all
        }
        Kind::Host => {
            let mut all = bound_by_links(&config.link);
            all.extend(metrics("host.metrics", config.host.metrics));
            all
        }
        Kind::Gnrs => {
            let mut all = vec![(String::from("gnrs.listen"), config.gnrs.listen)];
            all.extend(metrics("gnrs.metrics", config.gnrs.metrics));
            all
        }
    }
}

/// Returns this machine's ends of the links on bare IP and Ethernet, with the key that says each.
fn ends_without_ports(links: &[LinkSection], kind: Kind) -> Vec<(String, Bind)> {
    if kind == Kind::Gnrs {
        return Vec::new();
    }
    let keyed = |(index, link): (usize, &LinkSection)| {
        let said = if link.bind.is_some() {
            "bind"
        } else {
            "remote"
        };
        let end = own_end(link).filter(|end| end.udp().is_none())?;
        Some((format!("link[{index}].{said}"), end))
    };
    links.iter().enumerate().filter_map(keyed).collect()
}

fn no_interface(name: &str) -> String {
    let all = Interface::all().unwrap_or_default();
    let hint = suggest::hint(name, all.iter().map(|known| known.name.as_str()));
    format!(
        "this machine has no network interface {name} now; a start waits for it. If it is a slip, write one that `ip link` lists{hint}"
    )
}

/// Whether a socket of this machine can have the address.
fn is_here(address: IpAddr) -> bool {
    !UdpSocket::bind((address, 0)).is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

fn store_fault(store: &Path) -> Option<String> {
    let fault = DiskStore::check(store).err()?;
    Some(format!("{}: {fault}", store.display()))
}
