//! Packet sockets (packet(7)): two system calls that no dependency offers.
#![allow(
    unsafe_code,
    reason = "neither socket2 nor rustix can bind a packet socket or join an Ethernet group"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Opens a non-blocking socket that receives nothing until it is bound.
pub(super) fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // With a protocol, it would receive frames of all interfaces before it is bound to one.
    Ok(socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        flags,
        None,
    )?)
}

/// Binds the socket to frames of `ether_type` on the interface. A socket that is bound to one
/// EtherType does not see the frames that this machine sends.
pub(super) fn bind(socket: &OwnedFd, interface: u32, ether_type: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: ether_type.to_be(),
        sll_ifindex: index_of(interface)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the pointer is to a `sockaddr_ll` of the size given, which outlives the call.
    let outcome = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes the interface receive frames to a group, for as long as the socket is open.
pub(super) fn join(socket: &OwnedFd, interface: u32, group: [u8; 6]) -> io::Result<()> {
    let mut request = libc::packet_mreq {
        mr_ifindex: index_of(interface)?,
        mr_type: libc::PACKET_MR_MULTICAST as libc::c_ushort,
        mr_alen: group.len() as libc::c_ushort,
        mr_address: [0; 8],
    };
    request
        .mr_address
        .iter_mut()
        .zip(group)
        .for_each(|(to, from)| *to = from);
    // SAFETY: the option takes a `packet_mreq` of the size given, which outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            size_of::<libc::packet_mreq>() as libc::socklen_t,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn index_of(interface: u32) -> io::Result<libc::c_int> {
    libc::c_int::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput.into())
}
