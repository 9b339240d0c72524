//! The daemon's own sections of a node, for both back ends: `[nodes.n2.hop] buffer_packets = 4096`.

use core::fmt;

use serde::Deserialize;
use serde::Deserializer;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use whimbrel_core::units::ByteSize;
use whimbrel_node::config::{
    Config, ConfigError, Draft, HopSection, HostPlan, HostSection, LinkSection, MobilityFirstPlan,
    NdnPlan, NdnSection, Pacing, RouterSection, StorageSection,
};

use super::node::{Names, NodeSettings, Role};
use crate::rivals::STRATEGIES;

/// Keys of sections that follow from the scenario: its nodes, links and routes.
pub(super) const GIVEN: &[(&str, &[&str])] = &[
    (
        "router",
        &[
            "contacts",
            "default_route",
            "key",
            "metrics",
            "name_servers",
            "socket",
            "socket_group",
        ],
    ),
    (
        "host",
        &["key", "metrics", "preference", "socket", "socket_group"],
    ),
    (
        "ndn",
        &[
            "anchors",
            "enabled",
            "ethernet",
            "interfaces",
            "metrics",
            "multicast",
            "multicast_group",
            "socket",
            "socket_group",
            "tcp",
            "udp",
            "websocket",
        ],
    ),
];

/// A value, or a section: `storage = "100 MB"` or `storage = { total = "1 GB", per_flow = "10 MB" }`.
#[derive(Clone, Debug, PartialEq)]
pub enum Or<V, S> {
    /// The value.
    Value(V),
    /// The section.
    Section(S),
}

impl<V, S> Or<V, S> {
    /// Returns the section, if it is one.
    pub(super) fn section(&self) -> Option<&S> {
        match self {
            Or::Value(_) => None,
            Or::Section(section) => Some(section),
        }
    }

    /// Returns the value, if it is one.
    pub(super) fn value(&self) -> Option<&V> {
        match self {
            Or::Value(value) => Some(value),
            Or::Section(_) => None,
        }
    }
}

impl<'de, V: Deserialize<'de>, S: Deserialize<'de>> Deserialize<'de> for Or<V, S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<V, S>(core::marker::PhantomData<(V, S)>);
        impl<'de, V: Deserialize<'de>, S: Deserialize<'de>> Visitor<'de> for Either<V, S> {
            type Value = Or<V, S>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or a section of the daemon's configuration")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Or<V, S>, E> {
                V::deserialize(StrDeserializer::new(text)).map(Or::Value)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Or<V, S>, A::Error> {
                V::deserialize(SeqAccessDeserializer::new(list)).map(Or::Value)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Or<V, S>, A::Error> {
                S::deserialize(MapAccessDeserializer::new(map)).map(Or::Section)
            }
        }
        deserializer.deserialize_any(Either(core::marker::PhantomData))
    }
}

/// The value of `router`: names, or the daemon's section.
pub type RouterKey = Or<Names, RouterSection>;
/// The value of `storage`: the bytes for all chunks and for each flow, or the daemon's section.
pub type StorageKey = Or<ByteSize, StorageSection>;

/// A node's sections, with what the scenario's shorter keys say.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    /// `[hop]`
    pub hop: HopSection,
    /// `[storage]`
    pub storage: StorageSection,
    /// `[router]`
    pub router: RouterSection,
    /// `[host]`
    pub host: HostSection,
    /// `[ndn]`
    pub ndn: NdnSection,
}

impl Sections {
    /// Returns those of a node; `pacing` is the scenario's, which a node's own one replaces.
    pub fn of(settings: &NodeSettings, pacing: Pacing) -> Sections {
        let mut sections = Sections {
            hop: settings.hop.clone().unwrap_or_default(),
            storage: settings
                .storage
                .as_ref()
                .and_then(Or::section)
                .cloned()
                .unwrap_or_default(),
            router: settings
                .router
                .as_ref()
                .and_then(Or::section)
                .cloned()
                .unwrap_or_default(),
            host: settings.host.clone().unwrap_or_default(),
            ndn: settings.ndn.clone().unwrap_or_default(),
        };
        if sections.hop.pacing == HopSection::default().pacing {
            sections.hop.pacing = pacing;
        }
        if let Some(size) = settings.storage.as_ref().and_then(Or::value) {
            sections.storage.total = *size;
            sections.storage.per_flow = *size;
        }
        if let Some(proactive) = settings.proactive {
            sections.storage.proactive = proactive;
        }
        if let Some(policy) = settings.policy {
            sections.host.policy = policy;
        }
        if let Some(scheduler) = settings.scheduler {
            sections.router.scheduler = scheduler;
            sections.host.scheduler = scheduler;
        }
        if let Some(bytes) = settings.content_store {
            sections.ndn.content_store = ByteSize(bytes);
        }
        if let Some(strategy) = &settings.strategy {
            sections.ndn.strategy = strategy.0.to_string();
        }
        sections
    }

    /// Returns every fault that would stop a daemon with these sections.
    pub(super) fn check(&self, is: impl Fn(Role) -> bool) -> Result<(), ConfigError> {
        if is(Role::Host) {
            let config = Config {
                hop: self.hop.clone(),
                host: self.host.clone(),
                ..Config::default()
            };
            Draft::from(config).embedded_host()?;
        }
        if is(Role::Router) || is(Role::NdnRouter) {
            self.ndn_plan(Config {
                hop: self.hop.clone(),
                storage: self.storage.clone(),
                router: self.router.clone(),
                ..Config::default()
            })?;
        }
        Ok(())
    }

    fn ndn_plan(&self, config: Config) -> Result<Option<NdnPlan>, ConfigError> {
        let mut draft = Draft::from(Config {
            ndn: NdnSection {
                enabled: Some(true),
                ..self.ndn.clone()
            },
            ..config
        });
        draft.strategies = STRATEGIES;
        Ok(draft.router()?.ndn)
    }

    /// Returns the plan of a host with these links.
    pub fn host(&self, links: Vec<LinkSection>) -> HostPlan {
        HostPlan::new(self.hop.clone(), &self.host, links)
    }

    /// Returns the plan of a router with these links.
    pub fn router(&self, links: Vec<LinkSection>) -> MobilityFirstPlan {
        MobilityFirstPlan::new(self.hop.clone(), &self.storage, &self.router, links)
    }

    /// Returns the plan of an NDN router without sockets and faces.
    ///
    /// # Errors
    /// Those that `Sections::check` finds when a scenario is read.
    pub fn ndn(&self) -> Result<Option<NdnPlan>, ConfigError> {
        self.ndn_plan(Config::default())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use whimbrel_core::{SeededRng, WallClock};
    use whimbrel_gnrs::KeyPair;
    use whimbrel_node::compose::{self, Start};

    use super::*;
    use crate::scenario::{Overrides, Scenario};

    fn read(nodes: &str) -> Result<Scenario, String> {
        let text = format!(
            "title = \"t\"\n[defaults.node.hop]\nmax_chunks_in_flight = 7\n{nodes}\n[defaults.link]\nrate = \"1 Mbit/s\"\n\
             [links]\nl = {{ between = [\"a\", \"r\"] }}\nm = {{ between = [\"r\", \"b\"] }}\nn = {{ between = [\"r\", \"s\"] }}\n\
             o = {{ between = [\"r\", \"names\"] }}\np = {{ between = [\"s\", \"names\"] }}\n\
             [loads]\nf = {{ from = \"a\", to = \"b\", file = \"1 MB\" }}\n"
        );
        Scenario::parse(Path::new("a.toml"), &text, Overrides::default())
            .map_err(|faults| faults.to_string())
    }

    const NODES: &str = "[nodes]\nnames = \"name-server\"\na = \"host\"\nb = { role = \"host\", host = { policy = \"order\" } }\n\
        r = { role = \"router\", storage = { per_flow = \"3 MB\" }, hop = { buffer_packets = 100 } }\n\
        s = { role = [\"router\", \"ndn-router\"], storage = \"2 MB\", ndn = { pit_entries = 99 } }";

    fn sections(scenario: &Scenario, name: &str) -> Sections {
        let plan = &scenario.settings[0].plan;
        let nodes = &plan.network.nodes;
        let node = nodes.iter().find(|node| node.name == name).unwrap();
        Sections::of(&node.settings, plan.pacing)
    }

    #[test]
    fn a_nodes_sections_are_those_of_its_daemon() {
        let scenario = read(NODES).unwrap();
        let router = sections(&scenario, "r");
        assert_eq!(router.storage.per_flow, ByteSize(3_000_000));
        assert_eq!(router.storage.total, StorageSection::default().total);
        assert_eq!(router.hop.max_chunks_in_flight, 7, "of all nodes");
        let keys = KeyPair::from_secret(&[1; 32]);
        let start = Start {
            hop: router.hop.hop_config(&keys, 1, [1; 32], true),
            keys,
            wall: WallClock::new(0),
            rng: SeededRng::new(1),
        };
        let config = compose::router_config(&router.router(Vec::new()), &start);
        assert_eq!(config.buffer_packets, 100);
        assert_eq!(config.store.per_flow, 3_000_000);
        assert_eq!(config.hop.max_chunks_in_flight, 7);
        let both = sections(&scenario, "s");
        assert_eq!(both.storage.total, both.storage.per_flow);
        assert_eq!(both.ndn().unwrap().unwrap().forwarder.pit_capacity, 99);
        assert_eq!(
            both.hop.buffer_packets,
            HopSection::default().buffer_packets
        );
    }

    #[test]
    fn faults_of_a_section_are_those_that_its_daemon_would_report() {
        let fault = |old: &str, new: &str| read(&NODES.replace(old, new)).err().unwrap_or_default();
        for (old, new, expected) in [
            (
                "buffer_packets = 100",
                "bufer_packets = 100",
                "did you mean 'buffer_packets'",
            ),
            (
                "buffer_packets = 100",
                "buffer_packets = 0",
                "hop.buffer_packets",
            ),
            (
                "policy = \"order\"",
                "socket = \"/tmp/s\"",
                "nodes.b.host.socket: this follows",
            ),
            (
                "pit_entries = 99",
                "strategy = \"afs\"",
                "did you mean 'asf'",
            ),
        ] {
            let fault = fault(old, new);
            assert!(fault.contains(expected), "{new}: {fault}");
        }
    }

    #[test]
    fn a_sweep_varies_a_key_of_a_section() {
        let sweep = format!("{NODES}\n[sweep]\n\"nodes.r.hop.buffer_packets\" = [64, 128]\n");
        let scenario = read(&sweep).unwrap();
        let of = |setting: &crate::scenario::Setting| {
            let nodes = &setting.plan.network.nodes;
            let router = nodes.iter().find(|node| node.name == "r").unwrap();
            Sections::of(&router.settings, setting.plan.pacing)
                .hop
                .buffer_packets
        };
        let swept: Vec<usize> = scenario.settings.iter().map(of).collect();
        assert_eq!(swept, [64, 128]);
    }
}
