//! Notifications of the kernel that addresses, routes or interfaces have changed (rtnetlink(7)).
//!
//! The contents of a notification are ignored: notifications may be lost (`ENOBUFS`), so each only
//! causes the interfaces and the routes to all peers to be looked up again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use whimbrel_core::{Limit, Meter, Time};

/// Multicast groups of links, IPv4 and IPv6 addresses and routes: `RTMGRP_LINK`,
/// `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_IFADDR`, `RTMGRP_IPV6_ROUTE` of
/// rtnetlink(7).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// Messages read per round. Further messages keep the socket ready.
const MESSAGES_PER_ROUND: usize = 256;
/// Lookups of the peers' routes: a machine with a routing daemon may see thousands of changes a
/// second. An interface that comes up is some ten notifications (link, addresses, routes) within
/// milliseconds, of which each may be the one that a neighbour is reached by.
const LOOKUPS: Limit = Limit {
    at_once: 20,
    per_second: 10,
};
/// The interval at which lookups beyond that are tried.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// The interval between lookups when the kernel sends no notifications (a sandbox may forbid
/// netlink).
const FALLBACK_INTERVAL: Duration = Duration::from_secs(1);

/// Schedules the lookups of the peers' routes.
#[derive(Debug)]
pub(crate) struct RouteWatch {
    socket: Option<OwnedFd>,
    due: Option<Time>,
    lookups: Meter,
}

impl RouteWatch {
    /// Watches the routes of this thread's network namespace.
    pub(crate) fn open(now: Time) -> RouteWatch {
        let socket = open()
            .inspect_err(|error| {
                tracing::info!(%error, "the kernel does not report changed routes; they are looked up every second");
            })
            .ok();
        RouteWatch {
            // An interface may be down already.
            due: Some(now),
            socket,
            lookups: Meter::default(),
        }
    }

    /// Returns the socket to poll.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Reads the kernel's notifications.
    pub(crate) fn note_change(&mut self, now: Time) {
        let Some(socket) = &self.socket else { return };
        let mut buffer = [0; 8192];
        for _ in 0..MESSAGES_PER_ROUND {
            // An overrun (`ENOBUFS`) means that messages were lost, so something has changed, too.
            match rustix::net::recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.due = Some(now);
    }

    /// Returns the time at which [`RouteWatch::take_due`] returns true.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    pub(crate) fn take_due(&mut self, now: Time) -> bool {
        if self.due.is_none_or(|at| at > now) {
            return false;
        }
        if !self.lookups.admits(now, LOOKUPS) {
            self.due = Some(now + SHORTEST_INTERVAL);
            return false;
        }
        self.due = self.socket.is_none().then(|| now + FALLBACK_INTERVAL);
        true
    }
}

fn open() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        // Protocol 0 of this family is `NETLINK_ROUTE`.
        None,
    )?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    Ok(socket)
}
