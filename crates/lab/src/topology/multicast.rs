//! IP multicast between hosts: routes in their kernels, for programs that send to a group.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};

use super::Topology;
use super::plan::{Plan, address, interface};
use crate::{LabError, Namespace};

// include/uapi/linux/mroute.h
const MRT_INIT: libc::c_int = 200;
const MRT_ADD_VIF: libc::c_int = 202;
const MRT_ADD_MFC: libc::c_int = 204;
/// `VIFF_USE_IFINDEX`: an interface is named by its number.
const BY_INDEX: u8 = 0x8;
/// `MAXVIFS`: interfaces of a multicast router.
const MAX_INTERFACES: usize = 32;
/// A packet with a longer time to live than this is forwarded by an interface of a route, ...
const FORWARD: u8 = 1;
/// ... and none by the others.
const NEVER: u8 = 255;

/// The routes of a group. They exist for as long as this value.
#[derive(Debug)]
pub struct GroupRoutes {
    // The kernel drops a host's multicast routes when their socket is closed.
    _routers: Vec<Socket>,
}

/// The route of one source in one host, by links.
#[derive(Debug, PartialEq, Eq)]
struct SourceRoute {
    source: Ipv4Addr,
    from: usize,
    to: BTreeSet<usize>,
}

impl Topology {
    /// Routes a group between hosts, in a network without cycles: what one of them sends reaches each other one, and
    /// crosses each link between them once. Each host has one link.
    pub fn route_group(&self, group: Ipv4Addr, members: &[&str]) -> Result<GroupRoutes, LabError> {
        let members: Vec<usize> = members
            .iter()
            .map(|name| self.plan.host(name))
            .collect::<Result<_, _>>()?;
        let mut routers = Vec::new();
        for (index, host) in self.hosts.iter().enumerate() {
            let routes = source_routes(&self.plan, index, &members);
            if !routes.is_empty() {
                routers.push(forward(host, group, &routes)?);
            }
        }
        for member in members {
            let links = self.plan.first_links(member).into_iter().flatten();
            if let Some(link) = links.min() {
                let route = [&format!("{group}/32"), "dev", &interface(link)];
                let words: Vec<&str> = ["route", "add"].into_iter().chain(route).collect();
                self.hosts[member].run("ip", &words)?;
            }
        }
        Ok(GroupRoutes { _routers: routers })
    }
}

/// Returns the routes of a host that forwards what members send; none for one at the edge.
fn source_routes(plan: &Plan, host: usize, members: &[usize]) -> Vec<SourceRoute> {
    let towards = plan.first_links(host);
    let routes = members.iter().filter_map(|source| {
        let from = towards[*source]?;
        let others = members.iter().filter(|it| *it != source);
        let to: BTreeSet<usize> = others
            .filter_map(|member| towards[*member])
            .filter(|link| *link != from)
            .collect();
        // The source's own link, by which it sends.
        let own = plan.first_links(*source).into_iter().flatten().min()?;
        let end = plan.end(own, &plan.hosts[*source]).ok()?;
        let source = address(own, end);
        (!to.is_empty()).then_some(SourceRoute { source, from, to })
    });
    routes.collect()
}

/// Gives a host its routes of a group.
fn forward(host: &Namespace, group: Ipv4Addr, routes: &[SourceRoute]) -> Result<Socket, LabError> {
    let links = routes.iter().flat_map(|it| it.to.iter().chain([&it.from]));
    let links: Vec<usize> = links
        .copied()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    if links.len() > MAX_INTERFACES {
        let (name, count) = (host.name(), links.len());
        return Err(LabError::BadTopology(format!(
            "'{name}' would forward a group by {count} links; a kernel does by {MAX_INTERFACES}"
        )));
    }
    let number = |link: usize| links.binary_search(&link).unwrap_or(0);
    let opened = host.enter(|| {
        // A host has one multicast router, which is an IGMP socket.
        let router = Socket::new(
            Domain::IPV4,
            Type::RAW,
            Some(Protocol::from(libc::IPPROTO_IGMP)),
        )?;
        set(&router, MRT_INIT, &1_i32.to_ne_bytes())?;
        for (number, link) in links.iter().enumerate() {
            set(&router, MRT_ADD_VIF, &interface_request(number, *link)?)?;
        }
        for route in routes {
            let mut hops = [NEVER; MAX_INTERFACES];
            route
                .to
                .iter()
                .for_each(|link| hops[number(*link)] = FORWARD);
            let request = route_request(route.source, group, number(route.from), &hops);
            set(&router, MRT_ADD_MFC, &request)?;
        }
        Ok::<_, io::Error>(router)
    })?;
    let action = format!("route the group {group} in host '{}'", host.name());
    opened.map_err(LabError::system(action))
}

/// Returns a `struct vifctl`: number, flags, least time to live, rate limit, interface, tunnel's end.
fn interface_request(number: usize, link: usize) -> io::Result<[u8; 16]> {
    let index = rustix::net::netdevice::name_to_index(
        Socket::new(Domain::IPV4, Type::DGRAM, None)?,
        &interface(link),
    )?;
    let mut request = [0; 16];
    request[..2].copy_from_slice(&(number as u16).to_ne_bytes());
    request[2] = BY_INDEX;
    request[3] = FORWARD;
    request[8..12].copy_from_slice(&index.to_ne_bytes());
    Ok(request)
}

/// Returns a `struct mfcctl`: source, group, number of the interface that it comes by, times to live of all interfaces,
/// and counters that a request leaves out.
fn route_request(
    source: Ipv4Addr,
    group: Ipv4Addr,
    from: usize,
    hops: &[u8; MAX_INTERFACES],
) -> [u8; 60] {
    let mut request = [0; 60];
    request[..4].copy_from_slice(&source.octets());
    request[4..8].copy_from_slice(&group.octets());
    request[8..10].copy_from_slice(&(from as u16).to_ne_bytes());
    request[10..10 + MAX_INTERFACES].copy_from_slice(hops);
    request
}

fn set(socket: &Socket, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes at its start, and keeps no reference to them.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopologyBuilder;

    /// A source, two routers, and two receivers behind the second.
    fn plan() -> Plan {
        let mut builder = TopologyBuilder::new(1);
        for host in ["source", "first", "second", "one", "two"] {
            builder = builder.host(host);
        }
        for (name, a, b) in [
            ("up", "source", "first"),
            ("trunk", "first", "second"),
            ("left", "second", "one"),
            ("right", "second", "two"),
        ] {
            builder = builder.veth(name, a, b);
        }
        builder.plan
    }

    #[test]
    fn a_router_forwards_once_to_each_link_with_members() {
        let plan = plan();
        let routes = |host: usize| source_routes(&plan, host, &[0, 3, 4]);
        let of = |source: [u8; 4], from: usize, to: &[usize]| SourceRoute {
            source: source.into(),
            from,
            to: to.iter().copied().collect(),
        };
        let expected = [
            of([10, 0, 0, 1], 1, &[2, 3]),
            of([10, 0, 2, 2], 2, &[1, 3]),
            of([10, 0, 3, 2], 3, &[1, 2]),
        ];
        assert_eq!(routes(2), expected);
        // What two receivers send to each other does not reach the other router's far side twice.
        assert_eq!(routes(1)[0], of([10, 0, 0, 1], 0, &[1]));
        assert!(routes(0).is_empty() && routes(3).is_empty());
    }
}
