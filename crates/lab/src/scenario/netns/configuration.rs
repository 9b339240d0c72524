//! Configurations of a plan's daemons, from its roles, links and routes.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;

use whimbrel_core::units::ByteSize;
use whimbrel_node::config::{
    Bind, Config, GNRS_PORT, LinkSection, NDN_PORT, NdnFaceSection, NdnRouteSection, Reliability,
    Remote, RouteSection, Via,
};

use super::daemons::{Daemons, label, socket_of};
use crate::LabError;
use crate::scenario::link::{Carrier, Recovery};
use crate::scenario::load::Plane;
use crate::scenario::node::Role;
use crate::scenario::proxies;
use crate::scenario::route::preferences;
use crate::scenario::sections::Sections;

const ROUTER_PORT: u16 = 4711;

fn read(text: &str) -> Result<Remote, LabError> {
    text.parse()
        .map_err(|error| LabError::BadTopology(format!("{text}: {error}")))
}

impl Daemons<'_> {
    fn remote(&self, address: Ipv4Addr, port: u16) -> Result<Remote, LabError> {
        read(&format!("{address}:{port}"))
    }

    fn link_to(&self, peer: usize, link: usize) -> Result<LinkSection, LabError> {
        let known = &self.plan.network.links[link];
        let address = self.address(peer, link)?;
        let remote = match known.carrier {
            Carrier::Ip => read(&format!("ip://{address}"))?,
            Carrier::Udp | Carrier::Bare => self.remote(address, ROUTER_PORT)?,
        };
        Ok(LinkSection {
            remote: Some(remote),
            mtu: known.mtu,
            plain: self.plan.plain,
            ..LinkSection::new(label(&known.name))
        })
    }

    fn sections(&self, node: usize) -> Sections {
        Sections::of(&self.plan.network.nodes[node].settings, self.plan.pacing)
    }

    pub(super) fn host_config(&self, node: usize) -> Result<Config, LabError> {
        let network = &self.plan.network;
        let mut config = Config::default();
        let sections = self.sections(node);
        config.hop = sections.hop;
        config.host = sections.host;
        config.host.key = Some(self.key(node));
        config.host.socket = Some(socket_of(
            self.folder,
            Plane::MobilityFirst,
            self.name(node),
        ));
        let preferred = network.nodes[node].preference.iter();
        let labels = preferred.map(|link| label(&network.links[*link].name));
        config.host.preference = labels.collect();
        for (link, peer) in network.at(node) {
            if network.attach(node, peer) {
                let known = &network.links[link];
                config.link.push(LinkSection {
                    metered: known.metered,
                    quota: known.quota.map(ByteSize),
                    ..self.link_to(peer, link)?
                });
            }
        }
        for router in &network.nodes[node].routers {
            let address = self
                .topology
                .address_towards(self.name(*router), self.name(node))?;
            config.link.push(LinkSection {
                remote: Some(self.remote(address, ROUTER_PORT)?),
                mtu: network.mtu(),
                plain: self.plan.plain,
                ..LinkSection::new(label(self.name(*router)))
            });
        }
        Ok(config)
    }

    pub(super) fn router_config(&self, node: usize) -> Result<Config, LabError> {
        let network = &self.plan.network;
        let known = &network.nodes[node];
        let mut config = Config::default();
        config.ndn.enabled = Some(known.is(Role::NdnRouter));
        if known.is(Role::NdnRouter) {
            self.add_ndn(node, &mut config)?;
        }
        if !known.is(Role::Router) {
            return Ok(config);
        }
        let sections = self.sections(node);
        config.hop = sections.hop;
        config.storage = sections.storage;
        if let Some(folder) = &mut config.storage.folder {
            // Each router's own, which outlives its crashes.
            *folder = self.folder.join(format!("{}.chunks", self.name(node)));
        }
        config.router = sections.router;
        config.router.key = Some(self.key(node));
        config.router.socket = Some(socket_of(
            self.folder,
            Plane::MobilityFirst,
            self.name(node),
        ));
        let links = || network.at(node).map(|(link, _)| &network.links[link]);
        let listener = |label: &str, bind: Bind| LinkSection {
            bind: Some(bind),
            listen: true,
            mtu: links().map(|link| link.mtu).min().unwrap_or(1500),
            plain: self.plan.plain,
            ..LinkSection::new(label)
        };
        let any = Ipv4Addr::UNSPECIFIED;
        let udp = SocketAddr::from((any, ROUTER_PORT));
        config.link.push(listener("listen", udp.into()));
        if links().any(|link| link.carrier == Carrier::Ip) {
            config
                .link
                .push(listener("listen-ip", Bind::Ip(any.into())));
        }
        for (link, peer) in network.at(node) {
            // One of the two connects.
            if network.nodes[peer].is(Role::Router) && peer < node {
                config.link.push(self.link_to(peer, link)?);
            }
        }
        for server in network.with_role(Role::NameServer) {
            let address = self
                .topology
                .address_towards(self.name(server), self.name(node))?;
            config
                .router
                .name_servers
                .push(self.remote(address, GNRS_PORT)?);
        }
        if config.router.routing.is_learned() {
            let peers = network
                .at(node)
                .filter_map(|(_, peer)| self.guids.get(&peer));
            config.router.neighbours.extend(peers.copied());
            return Ok(config);
        }
        for (other, guid) in self.guids.iter().filter(|(other, _)| **other != node) {
            let hops = self.plan.routes.towards(network, *other, Role::Router);
            for (next, preference) in preferences(&hops[node]) {
                config
                    .route
                    .extend(self.guids.get(&next).map(|via| RouteSection {
                        to: *guid,
                        via: Via(via.to_string()),
                        preference,
                        weight: NonZeroU16::MIN,
                    }));
            }
        }
        Ok(config)
    }

    fn add_ndn(&self, node: usize, config: &mut Config) -> Result<(), LabError> {
        let network = &self.plan.network;
        let enabled = config.ndn.enabled;
        config.ndn = self.sections(node).ndn;
        let section = &mut config.ndn;
        section.enabled = enabled;
        section.socket = Some(socket_of(self.folder, Plane::Ndn, self.name(node)));
        section.udp = vec![SocketAddr::from(([0, 0, 0, 0], NDN_PORT))];
        section.tcp = Vec::new();
        section.websocket = Vec::new();
        section.multicast = false;
        for (link, peer) in network.at(node) {
            if !network.nodes[peer].is(Role::NdnRouter) {
                continue;
            }
            let known = &network.links[link];
            config.ndn_face.push(NdnFaceSection {
                uri: self.face_uri(peer, link)?,
                local: None,
                reliability: Some(match known.recovery {
                    Recovery::Off => Reliability::Off,
                    // `check` refuses the others.
                    Recovery::Paper1 | Recovery::Paper2 | Recovery::Paper3 => Reliability::Paper,
                    Recovery::Ndnlpv2 => Reliability::Ndnlpv2,
                    Recovery::Adaptive => Reliability::Adaptive,
                }),
                mtu: Some(known.mtu),
            });
        }
        for proxy in network.with_role(Role::TcpProxy) {
            let hops = self.plan.routes.towards(network, proxy, Role::NdnRouter);
            for hop in &hops[node] {
                config.ndn_route.push(NdnRouteSection {
                    prefix: proxies::prefix(self.name(proxy)).to_string(),
                    face: self.face_uri(hop.to, hop.link)?,
                    cost: hop.cost,
                });
            }
        }
        for load in self
            .plan
            .loads
            .iter()
            .filter(|load| load.plane == Plane::Ndn)
        {
            let hops = self
                .plan
                .routes
                .towards_any(network, load.sources(), Role::NdnRouter);
            for hop in &hops[node] {
                config.ndn_route.push(NdnRouteSection {
                    prefix: format!("/{}", load.name),
                    face: self.face_uri(hop.to, hop.link)?,
                    cost: hop.cost,
                });
            }
        }
        Ok(())
    }

    fn face_uri(&self, peer: usize, link: usize) -> Result<String, LabError> {
        Ok(format!("udp4://{}:{NDN_PORT}", self.address(peer, link)?))
    }
}
