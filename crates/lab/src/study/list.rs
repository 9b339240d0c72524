//! The studies that there are.

use super::{
    Backend, Study, belrp, disconnection, gstar, m2m, multicast, multihoming, name_service, ptp,
    tcpicn, throughput, web,
};

/// Papers by their titles, which readers of a page know; keys are for code.
macro_rules! mftp {
    () => {
        "Su et al., \"MFTP: A Clean-Slate Transport Protocol for the Information Centric MobilityFirst \
         Network\" (ICN 2015)"
    };
}
macro_rules! belrp {
    () => {
        "Vusirikala et al., \"Hop-By-Hop Best Effort Link Layer Reliability in Named Data Networking\""
    };
}

macro_rules! ptp {
    () => {
        "Ye et al., \"PTP: Path-specified Transport Protocol for Concurrent Multipath Transmission in Named Data \
         Networks\" (Computer Networks 2018)"
    };
}

macro_rules! tcpicn {
    () => {
        "Moiseenko and Oran, \"TCP/ICN: Carrying TCP over Content Centric and Named Data Networks\" (ICN 2016)"
    };
}
macro_rules! multihoming {
    () => {
        "Karimi et al., \"Evaluating 5G Multihoming Services in the MobilityFirst Future Internet Architecture\""
    };
}

/// All studies.
pub const STUDIES: [Study; 27] = [
    Study {
        name: "mftp-fig8",
        title: "MFTP and TCP at three round-trip times, with and without 1 % loss on the last hop",
        source: concat!(mftp!(), ", section 5.1, Fig. 8 (a) and (b)"),
        scenario: include_str!("../../../../studies/mftp-fig8/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-fig8/paper.toml"),
        readme: include_str!("../../../../studies/mftp-fig8/README.md"),
        backends: &Backend::ALL,
        transfers_per_processor: 1,
        run: throughput::run,
    },
    Study {
        name: "mftp-fig9",
        title: "Response times over a disconnection of 10 s and of 30 s: MFTP's proxy and TCP",
        source: concat!(mftp!(), ", section 5.2, Fig. 9 (a) and (b)"),
        scenario: include_str!("../../../../studies/mftp-fig9/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-fig9/paper.toml"),
        readme: include_str!("../../../../studies/mftp-fig9/README.md"),
        backends: &Backend::ALL,
        // They wait for most of their time.
        transfers_per_processor: 2,
        run: disconnection::run,
    },
    Study {
        name: "mftp-fig10",
        title: "Network-proactive and receiver-driven retransmission over a disconnection of 10 s",
        source: concat!(mftp!(), ", section 5.2.1, Fig. 10"),
        scenario: include_str!("../../../../studies/mftp-fig10/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-fig10/paper.toml"),
        readme: include_str!("../../../../studies/mftp-fig10/README.md"),
        backends: &Backend::ALL,
        transfers_per_processor: 2,
        run: disconnection::run,
    },
    Study {
        name: "mftp-web",
        title: "Load times of 40 web pages at 50 ms: MFTP's proxies, HTTP/1.1, HTTP/2 and HTTP/3",
        source: concat!(mftp!(), ", section 5.3, Fig. 11 (a) and (b)"),
        scenario: include_str!("../../../../studies/mftp-web/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-web/paper.toml"),
        readme: include_str!("../../../../studies/mftp-web/README.md"),
        // The proxies are programs: there are none in virtual time.
        backends: &[Backend::Netns],
        transfers_per_processor: 1,
        run: web::run,
    },
    Study {
        name: "mftp-m2m",
        title: "A sensor and a receiver that are never awake together, and routers that are killed",
        source: concat!(mftp!(), ", section 2, Table 1, row M2M communications"),
        scenario: include_str!("../../../../studies/mftp-m2m/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-m2m/paper.toml"),
        readme: include_str!("../../../../studies/mftp-m2m/README.md"),
        backends: &Backend::ALL,
        // They wait for most of their time.
        transfers_per_processor: 2,
        run: m2m::run,
    },
    Study {
        name: "mftp-multicast",
        title: "One file for 1 to 1,000 receivers behind a tree: to a group, to each, and by NORM, UFTP and udpcast",
        source: concat!(
            mftp!(),
            ", section 3.5, and section 2, Table 1, row Multicast"
        ),
        scenario: include_str!("../../../../studies/mftp-multicast/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-multicast/paper.toml"),
        readme: include_str!("../../../../studies/mftp-multicast/README.md"),
        backends: &Backend::ALL,
        // Up to thirty receivers share the processors.
        transfers_per_processor: 1,
        run: multicast::run,
    },
    Study {
        name: "belrp-linear",
        title: "Recovery of losses on each link of a line of six nodes, at six loss rates",
        source: concat!(belrp!(), ", section IV, Figs. 2 (a), 2 (c) and 3, Table II"),
        scenario: include_str!("../../../../studies/belrp-linear/scenario.toml"),
        paper: include_str!("../../../../studies/belrp-linear/paper.toml"),
        readme: include_str!("../../../../studies/belrp-linear/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: belrp::linear::run,
    },
    Study {
        name: "belrp-hops",
        title: "Recovery of losses on each link of a line of two to eight nodes, at 5 % loss",
        source: concat!(
            belrp!(),
            ", section IV, Figs. 2 (b), 2 (d) and 6 (a), Table III"
        ),
        scenario: include_str!("../../../../studies/belrp-hops/scenario.toml"),
        paper: include_str!("../../../../studies/belrp-hops/paper.toml"),
        readme: include_str!("../../../../studies/belrp-hops/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: belrp::hops::run,
    },
    Study {
        name: "belrp-abilene",
        title: "Recovery of losses on the links of the Abilene network: delay, traffic, buffers",
        source: concat!(
            belrp!(),
            ", section IV, Figs. 4, 5, 6 (b) and 7, Tables IV and V"
        ),
        scenario: include_str!("../../../../studies/belrp-abilene/scenario.toml"),
        paper: include_str!("../../../../studies/belrp-abilene/paper.toml"),
        readme: include_str!("../../../../studies/belrp-abilene/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: belrp::abilene::run,
    },
    Study {
        name: "ptp-tree",
        title: "Four producers behind a tree: PTP and its rivals, link by link",
        source: concat!(ptp!(), ", section 6-B, Figs. 13 and 14"),
        scenario: include_str!("../../../../studies/ptp-tree/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-tree/paper.toml"),
        readme: include_str!("../../../../studies/ptp-tree/README.md"),
        backends: &Backend::ALL,
        // Namespaces share the processors that its routers need.
        transfers_per_processor: 1,
        run: ptp::networks::run,
    },
    Study {
        name: "ptp-diamond",
        title: "Four paths that share links: PTP and its rivals, link by link",
        source: concat!(ptp!(), ", section 6-C, Figs. 16 and 17"),
        scenario: include_str!("../../../../studies/ptp-diamond/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-diamond/paper.toml"),
        readme: include_str!("../../../../studies/ptp-diamond/README.md"),
        backends: &Backend::ALL,
        // Namespaces share the processors that its routers need.
        transfers_per_processor: 1,
        run: ptp::networks::run,
    },
    Study {
        name: "ptp-fairness",
        title: "A consumer with two paths and one with a single path over a shared bottleneck",
        source: concat!(ptp!(), ", section 6-D, Figs. 19 and 20"),
        scenario: include_str!("../../../../studies/ptp-fairness/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-fairness/paper.toml"),
        readme: include_str!("../../../../studies/ptp-fairness/README.md"),
        backends: &[Backend::Sim],
        // Namespaces share the processors that its routers need.
        transfers_per_processor: 1,
        run: ptp::fairness::run,
    },
    Study {
        name: "ptp-cache",
        title: "A path with a cache that holds half of the first 2,000 Data",
        source: concat!(ptp!(), ", section 6-E, Figs. 22 and 23"),
        scenario: include_str!("../../../../studies/ptp-cache/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-cache/paper.toml"),
        readme: include_str!("../../../../studies/ptp-cache/README.md"),
        backends: &[Backend::Sim],
        // Namespaces share the processors that its routers need.
        transfers_per_processor: 1,
        run: ptp::cache::run,
    },
    Study {
        name: "ptp-mesh",
        title: "A hierarchical mesh with detours: PTP and its rivals, link by link",
        source: concat!(ptp!(), ", section 6-F, Table I"),
        scenario: include_str!("../../../../studies/ptp-mesh/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-mesh/paper.toml"),
        readme: include_str!("../../../../studies/ptp-mesh/README.md"),
        backends: &Backend::ALL,
        // Namespaces share the processors that its routers need.
        transfers_per_processor: 1,
        run: ptp::networks::run,
    },
    Study {
        name: "ptp-random",
        title: "100 random networks with 1 % loss on each link: PTP and its rivals",
        source: concat!(ptp!(), ": beyond it"),
        scenario: include_str!("../../../../studies/ptp-random/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-random/paper.toml"),
        readme: include_str!("../../../../studies/ptp-random/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: ptp::random::run,
    },
    Study {
        name: "tcpicn-sim",
        title: "50 MB over TCP: plain IP and the three inter-proxy protocols",
        source: concat!(tcpicn!(), ", section 4.1, Figs. 8 and 9"),
        scenario: include_str!("../../../../studies/tcpicn-sim/scenario.toml"),
        paper: include_str!("../../../../studies/tcpicn-sim/paper.toml"),
        readme: include_str!("../../../../studies/tcpicn-sim/README.md"),
        backends: &Backend::ALL,
        transfers_per_processor: 1,
        run: tcpicn::completion::run,
    },
    Study {
        name: "tcpicn-fairness",
        title: "Ten concurrent TCP streams: plain IP and unreliable prefetching",
        source: concat!(tcpicn!(), ", section 4.2, Fig. 11"),
        scenario: include_str!("../../../../studies/tcpicn-fairness/scenario.toml"),
        paper: include_str!("../../../../studies/tcpicn-fairness/paper.toml"),
        readme: include_str!("../../../../studies/tcpicn-fairness/README.md"),
        backends: &Backend::ALL,
        // Streams in real time share the processors with the proxies and routers that they measure.
        transfers_per_processor: 1,
        run: tcpicn::fairness::run,
    },
    Study {
        name: "tcpicn-grid",
        title: "A file over TCP by round-trip time and loss: plain IP and unreliable prefetching",
        source: concat!(tcpicn!(), ": beyond it"),
        scenario: include_str!("../../../../studies/tcpicn-grid/scenario.toml"),
        paper: include_str!("../../../../studies/tcpicn-grid/paper.toml"),
        readme: include_str!("../../../../studies/tcpicn-grid/README.md"),
        backends: &Backend::ALL,
        // They wait for most of their time.
        transfers_per_processor: 1,
        run: tcpicn::grid::run,
    },
    Study {
        name: "tcpicn-duplex",
        title: "One TCP connection in both directions: the policies for Interests",
        source: concat!(tcpicn!(), ", section 3.5.2"),
        scenario: include_str!("../../../../studies/tcpicn-duplex/scenario.toml"),
        paper: include_str!("../../../../studies/tcpicn-duplex/paper.toml"),
        readme: include_str!("../../../../studies/tcpicn-duplex/README.md"),
        backends: &Backend::ALL,
        transfers_per_processor: 1,
        run: tcpicn::duplex::run,
    },
    Study {
        name: "tcpicn-page",
        title: "A web page of many small objects in a browser: plain IP and unreliable prefetching",
        source: concat!(tcpicn!(), ": beyond it"),
        scenario: include_str!("../../../../studies/tcpicn-page/scenario.toml"),
        paper: include_str!("../../../../studies/tcpicn-page/paper.toml"),
        readme: include_str!("../../../../studies/tcpicn-page/README.md"),
        backends: &[Backend::Netns],
        // A browser has processes of its own: `--jobs 1` measures one alone.
        transfers_per_processor: 1,
        run: tcpicn::page::run,
    },
    Study {
        name: "multihoming-ping",
        title: "Echo requests over an LTE-like link, by IP and by MobilityFirst",
        source: concat!(multihoming!(), ", section IV-C, Fig. 3"),
        scenario: include_str!("../../../../studies/multihoming-ping/scenario.toml"),
        paper: include_str!("../../../../studies/multihoming-ping/paper.toml"),
        readme: include_str!("../../../../studies/multihoming-ping/README.md"),
        backends: &Backend::ALL,
        transfers_per_processor: 1,
        run: multihoming::ping::run,
    },
    Study {
        name: "multihoming-throughput",
        title: "A WiFi-like and an LTE-like link: each alone, both by Multipath TCP, both by the router's division",
        source: concat!(multihoming!(), ", section V-A, Fig. 5"),
        scenario: include_str!("../../../../studies/multihoming-throughput/scenario.toml"),
        paper: include_str!("../../../../studies/multihoming-throughput/paper.toml"),
        readme: include_str!("../../../../studies/multihoming-throughput/README.md"),
        backends: &Backend::ALL,
        // 40 Mbit/s leave most of a processor free, but a run that waits for one is measured too slow.
        transfers_per_processor: 1,
        run: multihoming::throughput::run,
    },
    Study {
        name: "multihoming-grid",
        title: "Links of unequal rates and round-trip times, with losses, faults and traces: the gain from dividing a flow",
        source: concat!(multihoming!(), ": beyond it"),
        scenario: include_str!("../../../../studies/multihoming-grid/scenario.toml"),
        paper: include_str!("../../../../studies/multihoming-grid/paper.toml"),
        readme: include_str!("../../../../studies/multihoming-grid/README.md"),
        backends: &Backend::ALL,
        // As multihoming-throughput: a run that waits for a processor is measured too slow.
        transfers_per_processor: 1,
        run: multihoming::grid::run,
    },
    Study {
        name: "multihoming-wide",
        title: "Twelve sites, wide-area delays, many clients with a WiFi-like and an LTE-like link each",
        source: concat!(multihoming!(), ", section VI: its plan"),
        scenario: include_str!("../../../../studies/multihoming-wide/scenario.toml"),
        paper: include_str!("../../../../studies/multihoming-wide/paper.toml"),
        readme: include_str!("../../../../studies/multihoming-wide/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: multihoming::wide::run,
    },
    Study {
        name: "mobility-handoff",
        title: "A client moves between access routers in the middle of a transfer: the pause of delivery",
        source: concat!(multihoming!(), ", section III: beyond it"),
        scenario: include_str!("../../../../studies/mobility-handoff/scenario.toml"),
        paper: include_str!("../../../../studies/mobility-handoff/paper.toml"),
        readme: include_str!("../../../../studies/mobility-handoff/README.md"),
        backends: &Backend::ALL,
        // They wait for most of their time.
        transfers_per_processor: 2,
        run: multihoming::handoff::run,
    },
    Study {
        name: "gstar",
        title: "Learned routes: a mesh, vehicles, a failed link, and intermittent contacts",
        source: "Nelson et al., \"GSTAR: Generalized Storage-Aware Routing for MobilityFirst in the Future Mobile \
                 Internet\" (MobiArch 2011), and Jain et al., \"STAR: STorage Aware Routing protocol for generalized \
                 delay tolerant networks\" (WoWMoM 2011, arXiv:2105.07292)",
        scenario: include_str!("../../../../studies/gstar/scenario.toml"),
        paper: include_str!("../../../../studies/gstar/paper.toml"),
        readme: include_str!("../../../../studies/gstar/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: gstar::run,
    },
    Study {
        name: "gnrs-scale",
        title: "Name service at scale: copies over an internet-like topology; name servers under load, embedded and on a cluster",
        source: "Vu et al., \"DMap: A Shared Hosting Scheme for Dynamic Identifier to Locator Mappings in the Global Internet\" \
                 (ICDCS 2012), and Sharma et al., \"A Global Name Service for a Highly Mobile Internetwork\" (SIGCOMM 2014)",
        scenario: include_str!("../../../../studies/gnrs-scale/scenario.toml"),
        paper: include_str!("../../../../studies/gnrs-scale/paper.toml"),
        readme: include_str!("../../../../studies/gnrs-scale/README.md"),
        backends: &Backend::ALL,
        transfers_per_processor: 1,
        run: name_service::run,
    },
];
