//! TCP/ICN proxies on the nodes of a plan: the machine that ships, with its network device to the
//! node's IP host and its face to the node's NDN router.

use std::net::IpAddr;

use ipnet::IpNet;
use whimbrel_core::{Endpoint, SeededRng, WallClock};
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::{AnyMachine, Door, DuplexLink, NodeId};
use whimbrel_tcp_proxy::{
    Counters, Gateway, Options, Permission, Policy, Protection, Proxy, Route, SealOptions, Target,
};
use whimbrel_transport::AppFace;

use super::build::address;
use super::stack::PROXY_DEVICE;
use super::{World, WorldEvent};
use crate::LabError;
use crate::scenario::node::Role;
use crate::scenario::proxies::{Part, carried, part, prefix};
use crate::simulated::ORIGIN_UNIX_MS;

/// The largest packet of the device.
const DEVICE_MTU: usize = 1500;
/// The secret that the proxies of a plan share.
const SECRET: [u8; 32] = [7; 32];

type ProxyMachine = Gateway<AppFace<Proxy>>;

impl World<'_> {
    /// Starts the proxies that loads use.
    pub(super) fn start_proxies(&mut self) -> Result<(), LabError> {
        let plan = self.plan;
        for node in plan.network.with_role(Role::TcpProxy) {
            let part = part(&plan.loads, node);
            if part.distant.is_empty() {
                continue;
            }
            let proxy = self.start_proxy(node, &part)?;
            self.proxies.push((node, proxy));
            let nodes = || 0..plan.network.nodes.len();
            for (a, b) in nodes().flat_map(|a| nodes().map(move |b| (a, b))) {
                if carried(&plan.loads, a, b) {
                    self.stack(node, |stack, _| stack.carry(address(a), address(b)));
                }
            }
        }
        Ok(())
    }

    fn start_proxy(&mut self, node: usize, part: &Part) -> Result<NodeId, LabError> {
        let name = &self.plan.network.nodes[node].name;
        let device = Endpoint::Tun {
            name: format!("proxy {name}"),
            addresses: Vec::new(),
            mtu: DEVICE_MTU,
        };
        let wire = DuplexLink::ip(LinkSpec::default(), LinkSpec::default(), DEVICE_MTU);
        self.sim.add_door(Door {
            endpoint: device.clone(),
            node: self.nodes[node],
            origin: PROXY_DEVICE,
            link: wire,
        });
        let label = format!("proxy {name}");
        let rng = SeededRng::stream(self.seed, &label);
        let proxy = Proxy::new(self.options(node, part), rng)
            .map_err(|fault| LabError::BadTopology(format!("the proxy on '{name}': {fault}")))?;
        let gateway: ProxyMachine = Gateway::new(device, AppFace::new(proxy));
        let machine = AnyMachine::new(gateway, |_| WorldEvent::Nothing);
        let proxy = self.sim.add_node(&label, machine);
        self.attach(proxy, node)?;
        Ok(proxy)
    }

    fn options(&self, node: usize, part: &Part) -> Options {
        let name_of = |node: usize| prefix(&self.plan.network.nodes[node].name);
        let host = |node: usize| IpNet::from(IpAddr::V4(address(node)));
        let routes = part.distant.iter().map(|(distant, known)| Route {
            to: host(*distant),
            target: Target::Prefix(name_of(known.proxy)),
            protocol: Some(known.protocol),
        });
        let sources = part.clients.keys().map(|near| host(*near));
        let servers = part.servers.keys();
        let servers = servers.map(|near| Permission::all_ports(host(*near)));
        let policy = Policy::new(routes.collect(), sources.collect(), servers.collect());
        let seal = SealOptions {
            protection: Protection::Encrypted,
            secret: SECRET.to_vec(),
            ..SealOptions::unprotected((node as u64).to_be_bytes(), WallClock::new(ORIGIN_UNIX_MS))
        };
        let options = Options::new(name_of(node), policy, seal);
        Options {
            duplex: part.tuning.duplex.unwrap_or(options.duplex),
            paths: part.tuning.paths.unwrap_or(options.paths),
            ..options
        }
    }

    /// Returns the counters of the proxies, by node.
    pub(super) fn proxy_counters(&self) -> Vec<(usize, Counters)> {
        let proxies = self.proxies.iter();
        let counters = proxies.filter_map(|(node, proxy)| {
            let gateway = self.sim.node(*proxy).get::<ProxyMachine>()?;
            Some((*node, *gateway.proxy().counters()))
        });
        counters.collect()
    }
}
