//! Requests to query and configure an interface (netdevice(7)).
#![allow(
    unsafe_code,
    reason = "the kernel offers TUN devices and the MTU of interfaces through ioctl alone"
)]

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater};

pub(crate) const IFF_UP: u16 = 0x0001;
pub(crate) const IFF_TUN: u16 = 0x0001;
pub(crate) const IFF_NO_PI: u16 = 0x1000;
const AF_INET: u16 = 2;

/// `struct ifreq`: a name and a union of 24 bytes.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Request {
    name: [u8; 16],
    value: Value,
}

#[repr(C, align(8))]
#[derive(Debug)]
struct Value([u8; 24]);

impl Request {
    /// Returns `None` if the kernel does not accept the name.
    pub(crate) fn for_interface(name: &str) -> Option<Request> {
        let usable = (1..=15).contains(&name.len())
            && name != "."
            && name != ".."
            && name
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%'));
        let mut bytes = [0; 16];
        bytes
            .get_mut(..name.len())
            .filter(|_| usable)?
            .copy_from_slice(name.as_bytes());
        Some(Request {
            name: bytes,
            value: Value([0; 24]),
        })
    }

    fn set(&mut self, value: &[u8]) {
        self.value.0 = [0; 24];
        self.value
            .0
            .iter_mut()
            .zip(value)
            .for_each(|(to, from)| *to = *from);
    }

    pub(crate) fn set_flags(&mut self, flags: u16) {
        self.set(&flags.to_ne_bytes());
    }

    pub(crate) fn flags(&self) -> u16 {
        u16::from_ne_bytes([self.value.0[0], self.value.0[1]])
    }

    pub(crate) fn set_mtu(&mut self, mtu: i32) {
        self.set(&mtu.to_ne_bytes());
    }

    pub(crate) fn mtu(&self) -> i32 {
        let [a, b, c, d, ..] = self.value.0;
        i32::from_ne_bytes([a, b, c, d])
    }

    /// Sets the address as a `struct sockaddr_in`: family, port, address.
    pub(crate) fn set_address(&mut self, address: Ipv4Addr) {
        let [family_0, family_1] = AF_INET.to_ne_bytes();
        let [a, b, c, d] = address.octets();
        self.set(&[family_0, family_1, 0, 0, a, b, c, d]);
    }
}

macro_rules! requests {
    ($($name:ident = $opcode:expr;)*) => {
        $(pub(crate) fn $name(fd: impl AsFd, request: &mut Request) -> Result<(), Errno> {
            const OPCODE: Opcode = $opcode;
            // SAFETY: each of these opcodes takes a pointer to a `struct ifreq`. `Request` has its
            // layout and is borrowed for the call.
            unsafe { rustix::ioctl::ioctl(fd, Updater::<OPCODE, Request>::new(request)) }
        })*
    };
}

// Numbers from linux/if_tun.h and linux/sockios.h; the latter have no direction encoded.
requests! {
    create_tun = rustix::ioctl::opcode::write::<i32>(b'T', 202);
    get_flags = 0x8913;
    set_flags = 0x8914;
    set_address = 0x8916;
    set_netmask = 0x891c;
    get_mtu = 0x8921;
    set_mtu = 0x8922;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ioctl_request_has_the_kernel_s_size_and_fields() {
        assert_eq!(size_of::<Request>(), 40);
        let mut request = Request::for_interface("tun0").unwrap();
        request.set_address(Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!(
            request.value.0[..8],
            [
                2u16.to_ne_bytes()[0],
                2u16.to_ne_bytes()[1],
                0,
                0,
                10,
                1,
                2,
                3
            ]
        );
        request.set_mtu(1400);
        assert_eq!(request.mtu(), 1400);
    }

    #[test]
    fn names_that_the_kernel_refuses_are_refused_here() {
        for name in ["", "sixteen-letters-", "a/b", "a b", "a:b", "..", "tun%d"] {
            assert!(Request::for_interface(name).is_none(), "{name}");
        }
        assert!(Request::for_interface("fifteen-letters").is_some());
    }
}
