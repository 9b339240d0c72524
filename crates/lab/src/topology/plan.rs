//! The addresses and routes of every host. Nothing here touches the machine.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use whimbrel_sim::link::LinkSpec;

use crate::LabError;

/// Each link has a network of four addresses below 10.0.0.0/8, of which there are 2^16 with two
/// bytes each.
const MAX_LINKS: usize = 1 << 16;

/// The carrier of a link.
#[derive(Clone, Debug)]
pub(super) enum Carrier {
    Veth,
    Emulated {
        forward: Box<LinkSpec>,
        backward: Box<LinkSpec>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct PlannedLink {
    pub(super) name: String,
    pub(super) ends: [String; 2],
    pub(super) carrier: Carrier,
    /// The largest IP packet, bytes.
    pub(super) mtu: usize,
}

/// A route of one host: the network of link `link` is reached by `via`, on the host's own link
/// `out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) link: usize,
    pub(super) via: Ipv4Addr,
    pub(super) out: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) hosts: Vec<String>,
    pub(super) links: Vec<PlannedLink>,
}

impl Plan {
    /// Refuses missing names, repeated names and links that lead nowhere.
    pub(super) fn check(&self) -> Result<(), LabError> {
        let twice = |names: Vec<&String>, what: &str| {
            let mut sorted = names;
            sorted.sort_unstable();
            match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                Some(pair) => Err(LabError::BadTopology(format!(
                    "two {what} are named '{}'",
                    pair[0]
                ))),
                None => Ok(()),
            }
        };
        twice(self.hosts.iter().collect(), "hosts")?;
        twice(self.links.iter().map(|link| &link.name).collect(), "links")?;
        for link in &self.links {
            for end in &link.ends {
                self.host(end)?;
            }
            if link.ends[0] == link.ends[1] {
                return Err(LabError::BadTopology(format!(
                    "link '{}' leads back to its host",
                    link.name
                )));
            }
        }
        if self.links.len() > MAX_LINKS {
            return Err(LabError::BadTopology(format!(
                "{} links are too many",
                self.links.len()
            )));
        }
        Ok(())
    }

    pub(super) fn host(&self, name: &str) -> Result<usize, LabError> {
        let found = self.hosts.iter().position(|host| host == name);
        found.ok_or_else(|| LabError::UnknownHost(name.to_owned()))
    }

    pub(super) fn link(&self, name: &str) -> Result<usize, LabError> {
        let found = self.links.iter().position(|link| link.name == name);
        found.ok_or_else(|| LabError::UnknownLink(name.to_owned(), String::new()))
    }

    /// Returns the end of a link at which a host is: 0 or 1.
    pub(super) fn end(&self, link: usize, host: &str) -> Result<usize, LabError> {
        self.host(host)?;
        let planned = &self.links[link];
        let found = planned.ends.iter().position(|end| end == host);
        found.ok_or_else(|| {
            LabError::UnknownLink(planned.name.clone(), format!(" at host '{host}'"))
        })
    }

    /// Returns the link that the shortest path from one host to another begins with, the one named
    /// first if several do.
    pub(super) fn first_link(&self, from: usize, to: usize) -> Option<usize> {
        self.reach(from)[to].map(|reached| reached.out)
    }

    /// Returns the link that the shortest path from a host to each host begins with; none to itself, and where no
    /// path leads.
    pub(super) fn first_links(&self, from: usize) -> Vec<Option<usize>> {
        let reached = self.reach(from).into_iter();
        reached.map(|reached| Some(reached?.out)).collect()
    }

    /// Returns one route, by the shortest path, for each network that is reachable and not the
    /// host's own.
    pub(super) fn routes(&self, host: usize) -> Vec<Route> {
        let reach = self.reach(host);
        let mut routes = Vec::new();
        for (link, planned) in self.links.iter().enumerate() {
            if planned.ends.contains(&self.hosts[host]) {
                continue;
            }
            let ends = planned
                .ends
                .iter()
                .filter_map(|end| reach[self.position(end)]);
            let Some(nearest) = ends.min_by_key(|reached| reached.distance) else {
                continue;
            };
            let peer = 1 - self.end_of(nearest.out, host);
            routes.push(Route {
                link,
                via: address(nearest.out, peer),
                out: nearest.out,
            });
        }
        routes
    }

    /// Returns the distance of each host from `from`, and the link of `from` towards it; `None` for
    /// `from` itself and for unreachable hosts.
    fn reach(&self, from: usize) -> Vec<Option<Reached>> {
        let mut reached: Vec<Option<Reached>> = vec![None; self.hosts.len()];
        let mut next = VecDeque::from([from]);
        while let Some(host) = next.pop_front() {
            for (link, planned) in self.links.iter().enumerate() {
                let [a, b] = planned.ends.each_ref().map(|end| self.position(end));
                let peer = match host {
                    host if host == a => b,
                    host if host == b => a,
                    _ => continue,
                };
                if peer != from && reached[peer].is_none() {
                    let (distance, out) =
                        reached[host].map_or((1, link), |by| (by.distance + 1, by.out));
                    reached[peer] = Some(Reached { distance, out });
                    next.push_back(peer);
                }
            }
        }
        reached
    }

    fn position(&self, host: &str) -> usize {
        // `check` has found every name that a link uses.
        self.hosts.iter().position(|name| name == host).unwrap_or(0)
    }

    fn end_of(&self, link: usize, host: usize) -> usize {
        usize::from(self.links[link].ends[1] == self.hosts[host])
    }
}

#[derive(Clone, Copy, Debug)]
struct Reached {
    distance: usize,
    // The first link of the path.
    out: usize,
}

/// Returns the address of the first (0) or second (1) end of a link.
pub(super) fn address(link: usize, end: usize) -> Ipv4Addr {
    let [.., high, low] = (link as u32).to_be_bytes();
    Ipv4Addr::new(10, high, low, end as u8 + 1)
}

/// Returns the network of a link, as `ip` writes it.
pub(super) fn network(link: usize) -> String {
    let [.., high, low] = (link as u32).to_be_bytes();
    format!("10.{high}.{low}.0/30")
}

/// Returns the name of a link's interface, the same at both ends.
pub(super) fn interface(link: usize) -> String {
    format!("link{link}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(hosts: usize, pairs: &[(usize, usize)]) -> Plan {
        let name = |host: usize| format!("N{host}");
        let links = pairs.iter().enumerate().map(|(index, (a, b))| PlannedLink {
            name: format!("L{index}"),
            ends: [name(*a), name(*b)],
            carrier: Carrier::Veth,
            mtu: 1500,
        });
        Plan {
            hosts: (0..hosts).map(name).collect(),
            links: links.collect(),
        }
    }

    #[test]
    fn a_chain_routes_both_ways() {
        let plan = plan(4, &[(0, 1), (1, 2), (2, 3)]);
        let via = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        assert_eq!(
            plan.routes(0),
            [
                Route {
                    link: 1,
                    via: via("10.0.0.2"),
                    out: 0
                },
                Route {
                    link: 2,
                    via: via("10.0.0.2"),
                    out: 0
                },
            ]
        );
        assert_eq!(
            plan.routes(2),
            [Route {
                link: 0,
                via: via("10.0.1.1"),
                out: 1
            }]
        );
        assert_eq!(plan.first_link(3, 0), Some(2));
        assert_eq!(network(259), "10.1.3.0/30");
    }

    #[test]
    fn faults_are_refused_by_name() {
        let said = |plan: Plan| plan.check().unwrap_err().to_string();
        assert!(said(plan(1, &[(0, 1)])).contains("no host 'N1'"));
        assert!(said(plan(1, &[(0, 0)])).contains("'L0' leads back"));
        let mut twice = plan(2, &[(0, 1)]);
        twice.hosts.push("N0".to_owned());
        assert!(said(twice).contains("two hosts are named 'N0'"));
        assert!(
            plan(3, &[(0, 1)])
                .link("L7")
                .unwrap_err()
                .to_string()
                .contains("'L7'")
        );
        let error = plan(3, &[(0, 1)]).end(0, "N2").unwrap_err().to_string();
        assert!(error.contains("'L0' at host 'N2'"), "{error}");
    }

    proptest! {
        /// Routes are followed hop by hop: they arrive, and as fast as a search over all hosts
        /// finds possible.
        #[test]
        fn packets_reach_every_network_by_a_shortest_path(
            hosts in 2usize..8, pairs in prop::collection::vec((0usize..8, 0usize..8), 1..14),
        ) {
            let pairs: Vec<_> =
                pairs.into_iter().map(|(a, b)| (a % hosts, b % hosts)).filter(|(a, b)| a != b).collect();
            let plan = plan(hosts, &pairs);
            prop_assert!(plan.check().is_ok());
            let mut distance = vec![vec![usize::MAX / 4; hosts]; hosts];
            (0..hosts).for_each(|host| distance[host][host] = 0);
            for (a, b) in &pairs {
                distance[*a][*b] = 1;
                distance[*b][*a] = 1;
            }
            for k in 0..hosts { for a in 0..hosts { for b in 0..hosts {
                distance[a][b] = distance[a][b].min(distance[a][k] + distance[k][b]);
            } } }
            for (start, distance) in distance.iter().enumerate() {
                for (link, ends) in pairs.iter().enumerate() {
                    let best = distance[ends.0].min(distance[ends.1]);
                    let (mut host, mut hops) = (start, 0);
                    while host != ends.0 && host != ends.1 {
                        let Some(route) = plan.routes(host).into_iter().find(|route| route.link == link) else {
                            break;
                        };
                        let (a, b) = pairs[route.out];
                        prop_assert!(host == a || host == b);
                        let peer = if host == a { b } else { a };
                        prop_assert_eq!(route.via, address(route.out, usize::from(peer == b)));
                        host = peer;
                        hops += 1;
                        prop_assert!(hops <= hosts, "a loop");
                    }
                    let arrived = host == ends.0 || host == ends.1;
                    prop_assert_eq!(arrived, best < usize::MAX / 4);
                    if arrived {
                        prop_assert_eq!(hops, best);
                    }
                }
            }
        }
    }
}
