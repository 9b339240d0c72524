//! What only the machine of a node can tell: its addresses, and the state that an earlier run left.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use whimbrel_gnrs::DiskStore;
use whimbrel_io::Interface;

use super::checks::Found;
use super::ndn_plan::{datagram_listeners, stream_listeners};
use super::plan::{bound_by_links, own_end};
use super::{Bind, Config, ConfigError, Draft, Kind, LinkSection, Plan};

impl Draft {
    /// Returns the plan, or every fault that would stop a start of a node of `kind` on this machine: those of
    /// [`Draft::plan`], addresses that the machine does not have, and a damaged store.
    ///
    /// A port that is taken is no fault: the node itself may be running.
    pub fn check_here(&self, kind: Kind) -> Result<Plan, ConfigError> {
        let plan = self.plan(kind)?;
        let mut found = Found::new(self);
        for (key, address) in listeners(&self.config, kind) {
            if !is_here(address.ip()) {
                found.add(
                    key,
                    format!(
                        "this machine has no address {}; write one of its own (`ip address` lists them), or {} for all",
                        address.ip(),
                        if address.is_ipv4() { "0.0.0.0" } else { "[::]" },
                    ),
                );
            }
        }
        for (key, end) in ends_without_ports(&self.config.link, kind) {
            if let Some(fault) = fault_of_end(&end) {
                found.add(key, fault);
            }
        }
        if let Plan::NameServer(plan) = &plan
            && let Some(store) = &plan.store
            && let Some(fault) = store_fault(store)
        {
            found.add("gnrs.store", fault);
        }
        found.or(plan)
    }
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

fn fault_of_end(end: &Bind) -> Option<String> {
    match end {
        Bind::Udp(_) => None,
        Bind::Ip(address) => (!is_here(*address)).then(|| {
            let all = if address.is_ipv4() {
                "ip://0.0.0.0"
            } else {
                "ip://[::]"
            };
            format!("this machine has no address {address}; write one of its own (`ip address` lists them), or {all} for all")
        }),
        Bind::Device(name) => match Interface::find(name) {
            Ok(interface) if interface.name == *name && interface.ethernet.is_some() => None,
            Ok(interface) if interface.name == *name => Some(format!(
                "{name} carries no Ethernet frames; write an interface that does (`ip link` shows of which kind each is)"
            )),
            _ => Some(format!(
                "this machine has no network interface {name}; write one that `ip link` lists"
            )),
        },
    }
}

/// Whether a socket of this machine can have the address.
fn is_here(address: IpAddr) -> bool {
    !UdpSocket::bind((address, 0)).is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

fn store_fault(store: &Path) -> Option<String> {
    let fault = DiskStore::check(store).err()?;
    Some(format!("{}: {fault}", store.display()))
}
