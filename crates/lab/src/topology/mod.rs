//! Hosts and the links between them.

mod multicast;
mod plan;

use std::net::Ipv4Addr;
use std::time::Instant;

use whimbrel_sim::link::LinkSpec;

use crate::tun::Tun;
use crate::{Direction, EmulatedLink, Emulator, LabError, LinkReport, Namespace};

pub use multicast::GroupRoutes;
use plan::{Carrier, Plan, PlannedLink, address, interface, network};

/// The largest packet of a link, in bytes.
const DEFAULT_MTU: usize = 1500;
/// Packets that the kernel keeps for the emulator. The link's own queue must be the bottleneck,
/// never this one.
const DEVICE_QUEUE: u32 = 10_000;

/// Describes a topology and builds it.
#[derive(Clone, Debug)]
pub struct TopologyBuilder {
    plan: Plan,
    seed: u64,
    mtu: usize,
}

impl TopologyBuilder {
    /// Returns an empty topology. Every random draw of the emulated links comes from `seed`.
    pub fn new(seed: u64) -> TopologyBuilder {
        TopologyBuilder {
            plan: Plan::default(),
            seed,
            mtu: DEFAULT_MTU,
        }
    }

    /// Adds a host.
    #[must_use]
    pub fn host(mut self, name: &str) -> TopologyBuilder {
        self.plan.hosts.push(name.to_owned());
        self
    }

    /// Adds an emulated link between two hosts: `forward` from `first` to `second`, `backward` the
    /// other way.
    #[must_use]
    pub fn link(
        self,
        name: &str,
        first: &str,
        second: &str,
        forward: LinkSpec,
        backward: LinkSpec,
    ) -> TopologyBuilder {
        let carrier = Carrier::Emulated {
            forward: Box::new(forward),
            backward: Box::new(backward),
        };
        self.add(name, first, second, carrier)
    }

    /// Adds a pair of virtual Ethernet interfaces: as fast as the kernel, with its offloads, and
    /// uncounted.
    #[must_use]
    pub fn veth(self, name: &str, first: &str, second: &str) -> TopologyBuilder {
        self.add(name, first, second, Carrier::Veth)
    }

    /// Sets the largest IP packet of every link that is added from here on, in bytes. Default 1500.
    #[must_use]
    pub fn mtu(self, mtu: usize) -> TopologyBuilder {
        TopologyBuilder { mtu, ..self }
    }

    fn add(mut self, name: &str, first: &str, second: &str, carrier: Carrier) -> TopologyBuilder {
        let ends = [first.to_owned(), second.to_owned()];
        self.plan.links.push(PlannedLink {
            name: name.to_owned(),
            ends,
            carrier,
            mtu: self.mtu,
        });
        self
    }

    /// Builds the topology: namespaces, interfaces, addresses, routes, and the emulator.
    pub fn build(self) -> Result<Topology, LabError> {
        let TopologyBuilder { plan, seed, .. } = self;
        plan.check()?;
        let mtus = plan.links.iter().map(|link| link.mtu);
        if let Some(mtu) = mtus.clone().find(|mtu| !(576..=65_535).contains(mtu)) {
            return Err(LabError::BadTopology(format!(
                "an MTU of {mtu} is not within 576 to 65535 bytes"
            )));
        }
        let largest = mtus.max().unwrap_or(DEFAULT_MTU);
        let hosts: Vec<Namespace> = plan
            .hosts
            .iter()
            .map(|name| Namespace::new(name))
            .collect::<Result<_, _>>()?;
        let mut emulated = Vec::new();
        let mut emulator_index = Vec::with_capacity(plan.links.len());
        for (index, link) in plan.links.iter().enumerate() {
            let [first, second] = [
                &hosts[plan.host(&link.ends[0])?],
                &hosts[plan.host(&link.ends[1])?],
            ];
            let device = interface(index);
            match &link.carrier {
                Carrier::Veth => {
                    connect(first, second, &device)?;
                    emulator_index.push(None);
                }
                Carrier::Emulated { forward, backward } => {
                    emulator_index.push(Some(emulated.len()));
                    emulated.push(EmulatedLink {
                        name: link.name.clone(),
                        ends: [Tun::create(first, &device)?, Tun::create(second, &device)?],
                        forward: (**forward).clone(),
                        backward: (**backward).clone(),
                    });
                }
            }
        }
        for (index, host) in hosts.iter().enumerate() {
            configure(&plan, index, host)?;
        }
        let emulator = Emulator::start(emulated, seed, largest)?;
        Ok(Topology {
            emulator,
            plan,
            emulator_index,
            hosts,
        })
    }
}

fn connect(first: &Namespace, second: &Namespace, device: &str) -> Result<(), LabError> {
    let peer = second.path();
    first.run(
        "ip",
        &[
            "link", "add", device, "type", "veth", "peer", "name", device, "netns", &peer,
        ],
    )?;
    Ok(())
}

/// Gives a host its addresses and routes, and lets it forward packets.
fn configure(plan: &Plan, host: usize, namespace: &Namespace) -> Result<(), LabError> {
    namespace.set_sysctl("net.ipv4.ip_forward", "1")?;
    let mut batch = String::new();
    for (index, link) in plan.links.iter().enumerate() {
        if let Ok(end) = plan.end(index, &plan.hosts[host]) {
            let (device, own, mtu) = (interface(index), address(index, end), link.mtu);
            // Veth interfaces have no queue of their own to lengthen.
            let queue = match link.carrier {
                Carrier::Veth => String::new(),
                Carrier::Emulated { .. } => format!(" txqueuelen {DEVICE_QUEUE}"),
            };
            batch += &format!(
                "link set {device} mtu {mtu}{queue} up\naddress add {own}/30 dev {device}\n"
            );
        }
    }
    for route in plan.routes(host) {
        batch += &format!(
            "route add {} via {} dev {}\n",
            network(route.link),
            route.via,
            interface(route.out)
        );
    }
    namespace.run_with_input("ip", &["-batch", "-"], &batch)?;
    Ok(())
}

/// Connected hosts. Dropping it ends every program in it and removes all traces of it.
#[derive(Debug)]
pub struct Topology {
    // First: it must stop before the hosts at the ends of its links go.
    emulator: Emulator,
    plan: Plan,
    // The number of each link in the emulator; `None` for a veth pair.
    emulator_index: Vec<Option<usize>>,
    hosts: Vec<Namespace>,
}

impl Topology {
    /// Returns the host of that name.
    pub fn host(&self, name: &str) -> Result<&Namespace, LabError> {
        Ok(&self.hosts[self.plan.host(name)?])
    }

    /// Returns the hosts' names, in the order in which they were added.
    pub fn host_names(&self) -> impl Iterator<Item = &str> {
        self.plan.hosts.iter().map(String::as_str)
    }

    /// Returns the address of `host` on `link`.
    pub fn address_of(&self, host: &str, link: &str) -> Result<Ipv4Addr, LabError> {
        let link = self.plan.link(link)?;
        Ok(address(link, self.plan.end(link, host)?))
    }

    /// Returns the name of `host`'s interface to `link`.
    pub fn interface_of(&self, host: &str, link: &str) -> Result<String, LabError> {
        let link = self.plan.link(link)?;
        self.plan.end(link, host)?;
        Ok(interface(link))
    }

    /// Returns the address of `host` on the first link of its shortest path to `other`: the one
    /// that
    /// `other`'s packets reach on the straightest way.
    pub fn address_towards(&self, host: &str, other: &str) -> Result<Ipv4Addr, LabError> {
        let (from, to) = (self.plan.host(host)?, self.plan.host(other)?);
        let link = self.plan.first_link(from, to).ok_or_else(|| {
            LabError::BadTopology(format!("no path leads from '{host}' to '{other}'"))
        })?;
        Ok(address(link, self.plan.end(link, host)?))
    }

    /// Starts the schedules of all emulated links at `start` and zeroes their counters; see
    /// [`Emulator::arm`].
    pub fn arm(&self, start: Instant) -> Result<(), LabError> {
        self.emulator.arm(start)
    }

    /// Cuts an emulated link in both directions, or restores it.
    pub fn set_outage(&self, link: &str, out: bool) -> Result<(), LabError> {
        self.emulator.set_outage(self.emulated(link)?, out)
    }

    /// Has the kernel of `host` say that its interface to an emulated link has lost its carrier, or
    /// has it again.
    pub fn set_carrier(&self, host: &str, link: &str, works: bool) -> Result<(), LabError> {
        self.emulated(link)?;
        let device = self.interface_of(host, link)?;
        let carrier = if works { "on" } else { "off" };
        // A kernel tells its programs of carriers once a second, and all namespaces are of one
        // kernel: news of one machine's link would wait for that of another's. A look at the
        // interface makes it tell them now.
        let batch = format!("link set dev {device} carrier {carrier}\nlink show dev {device}\n");
        self.host(host)?
            .run_with_input("ip", &["-batch", "-"], &batch)?;
        Ok(())
    }

    /// Replaces the model of an emulated link for packets that leave `sender`.
    pub fn set_spec(&self, link: &str, sender: &str, spec: &LinkSpec) -> Result<(), LabError> {
        let direction = match self.plan.end(self.plan.link(link)?, sender)? {
            0 => Direction::Forward,
            _ => Direction::Backward,
        };
        self.emulator
            .set_spec(self.emulated(link)?, direction, spec)
    }

    /// Returns the counters of the emulated links since the last [`Topology::arm`], in the order in
    /// which
    /// they were added.
    pub fn link_reports(&self) -> Result<Vec<LinkReport>, LabError> {
        self.emulator.report()
    }

    fn emulated(&self, link: &str) -> Result<usize, LabError> {
        self.emulator_index[self.plan.link(link)?]
            .ok_or_else(|| LabError::UnknownLink(link.to_owned(), " that is emulated".to_owned()))
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        // A `Process` or a clone of a host may outlive this; no program runs in it any more.
        self.hosts.iter().for_each(Namespace::shut_down);
    }
}
