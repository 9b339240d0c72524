//! The topology of [MFTP §5], Figure 7.

use std::time::Duration;

use whimbrel_sim::link::LinkSpec;

use super::{Topology, TopologyBuilder};
use crate::LabError;

/// Server N1 - router N2 - access router N3 - client N4. Each link is the same in both directions.
///
/// "A local GNRS server on both N2 and N3" [MFTP §5]: one host for the name server, a wire
/// away from both routers, so that a look-up takes no round trip between them. The simulator has
/// the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Fig7 {
    /// N1 to N2: the testbed's Gigabit Ethernet.
    pub server_link: LinkSpec,
    /// N2 to N3, where the paper adds its round-trip time: half of it each way.
    pub router_link: LinkSpec,
    /// N3 to N4: the WiFi, where the paper loses packets and disconnects.
    pub last_hop: LinkSpec,
}

impl Fig7 {
    /// The name of the link between the server and the first router.
    pub const SERVER_LINK: &str = "N1-N2";
    /// The name of the link between the routers.
    pub const ROUTER_LINK: &str = "N2-N3";
    /// The name of the link to the client.
    pub const LAST_HOP: &str = "N3-N4";
    /// The name of the host for the name server.
    pub const NAME_SERVER: &str = "GNRS";

    /// The name of the wire between N`router` and the name server.
    pub fn name_server_wire(router: u8) -> String {
        format!("N{router}-{}", Fig7::NAME_SERVER)
    }

    /// With Gigabit Ethernet up to the last hop and `rtt` added between the routers.
    pub fn new(rtt: Duration, last_hop: LinkSpec) -> Fig7 {
        const GIGABIT: u64 = 1_000_000_000;
        Fig7 {
            server_link: LinkSpec::new(GIGABIT, Duration::ZERO),
            router_link: LinkSpec::new(GIGABIT, rtt / 2),
            last_hop,
        }
    }

    /// Builds it; every random draw comes from `seed`.
    pub fn build(&self, seed: u64) -> Result<Topology, LabError> {
        let both = |builder: TopologyBuilder, name, first, second, spec: &LinkSpec| {
            builder.link(name, first, second, spec.clone(), spec.clone())
        };
        let hosts = ["N1", "N2", "N3", "N4", Fig7::NAME_SERVER];
        let builder = hosts
            .into_iter()
            .fold(TopologyBuilder::new(seed), TopologyBuilder::host);
        let builder = both(builder, Fig7::SERVER_LINK, "N1", "N2", &self.server_link);
        let builder = both(builder, Fig7::ROUTER_LINK, "N2", "N3", &self.router_link);
        let builder = both(builder, Fig7::LAST_HOP, "N3", "N4", &self.last_hop);
        builder
            .veth(&Fig7::name_server_wire(2), "N2", Fig7::NAME_SERVER)
            .veth(&Fig7::name_server_wire(3), "N3", Fig7::NAME_SERVER)
            .build()
    }
}
