//! The kernel's word that addresses, routes or interfaces have changed (rtnetlink(7)).
//!
//! Only that something changed is taken from it: what that means for a peer, its route tells when it
//! is asked again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use whimbrel_core::{Machine, Time};

use crate::EventLoop;
use crate::transport::Transport;

/// Multicast groups of links, IPv4 and IPv6 addresses and routes: `RTMGRP_LINK`,
/// `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_IFADDR`, `RTMGRP_IPV6_ROUTE` of
/// rtnetlink(7).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// Messages read per round; the rest keeps the socket ready.
const MESSAGES_PER_ROUND: usize = 256;
/// Routes of all peers are asked again at most once in this time: a machine with a routing daemon
/// may see thousands of changes a second.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// How often they are asked where the kernel says nothing (a sandbox may forbid netlink).
const UNTOLD_INTERVAL: Duration = Duration::from_secs(1);

/// When the routes of the peers are to be asked again.
#[derive(Debug)]
pub(crate) struct RouteWatch {
    socket: Option<OwnedFd>,
    due: Option<Time>,
    allowed_at: Time,
}

impl RouteWatch {
    /// Of the network namespace that this thread is in.
    pub(crate) fn open(now: Time) -> RouteWatch {
        let socket = open()
            .inspect_err(|error| {
                tracing::info!(%error, "the kernel does not tell of changed routes; they are asked every second");
            })
            .ok();
        RouteWatch {
            due: socket.is_none().then(|| now + UNTOLD_INTERVAL),
            socket,
            allowed_at: now,
        }
    }

    /// To be waited for.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// The kernel has said something.
    pub(crate) fn note_change(&mut self, now: Time) {
        let Some(socket) = &self.socket else { return };
        let mut buffer = [0; 8192];
        for _ in 0..MESSAGES_PER_ROUND {
            // An overrun says that messages were lost (`ENOBUFS`): something has changed, too.
            match rustix::net::recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.due.get_or_insert(now.max(self.allowed_at));
    }

    /// When [`RouteWatch::take_due`] answers true.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    fn take_due(&mut self, now: Time) -> bool {
        let due = self.due.is_some_and(|at| at <= now);
        if due {
            self.allowed_at = now + SHORTEST_INTERVAL;
            self.due = self.socket.is_none().then(|| now + UNTOLD_INTERVAL);
        }
        due
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

impl<M: Machine + 'static> EventLoop<M> {
    /// Asks the routes of all neighbours again if it is time.
    pub(crate) fn recheck_routes(&mut self, now: Time) {
        if !self
            .routes
            .as_mut()
            .is_some_and(|routes| routes.take_due(now))
        {
            return;
        }
        for slot in &mut self.slots {
            if let Some(Transport::Udp(endpoint)) = &mut slot.transport {
                endpoint.recheck_routes(&mut self.side, now);
            }
        }
    }
}
