//! Attacks of who has no port on the listener of hosts and routers ([hop.md], sections 2 and 9).
//!
//! [hop.md]: ../../../../docs/protocols/hop.md

use std::net::UdpSocket;

use super::socket::{drawn, udp};
use super::{Assault, Attack, Plane, Sent};
use crate::LabError;

/// Octets of a call, its type, and the version.
const CALL_LEN: usize = 240;
const CALL: u8 = 0x30;
const VERSION: u8 = 1;
/// Addresses that call: a NAT has as many for one attacker.
const CALLERS: usize = 500;

pub(super) const REFLECTOR: Attack = Attack {
    name: "reflector",
    what: "datagrams of one octet and more to a listener, which is to answer somebody else",
    plane: Plane::Native,
    is_proven: false,
    run: |assault| {
        flood_from(assault, 1, |number| {
            let len = [1, 2, 12, 26, 56, 112][(number % 6) as usize];
            let first = [0, 0x10, 0x20, CALL, 0x31, 0x32, 0xff][(number % 7) as usize];
            let mut datagram = vec![(number >> 8) as u8; len];
            datagram[0] = first;
            datagram
        })
    },
};

pub(super) const CALLS: Attack = Attack {
    name: "calls",
    what: "well-formed calls from 500 addresses, none of which goes on",
    plane: Plane::Native,
    is_proven: false,
    run: |assault| flood_from(assault, CALLERS, call),
};

pub(super) const SESSIONS: Attack = Attack {
    name: "sessions",
    what: "frames of sessions that do not exist",
    plane: Plane::Native,
    is_proven: false,
    run: |assault| {
        flood_from(assault, CALLERS, |number| {
            let mut frame = vec![0x21; 1_400];
            frame[1..9].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            frame
        })
    },
};

fn call(number: u64) -> Vec<u8> {
    let mut call = vec![0; CALL_LEN];
    (call[0], call[1], call[2]) = (CALL, 1, VERSION);
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    call[4..12].copy_from_slice(&random);
    call[32..40].copy_from_slice(&random);
    call
}

fn flood_from(
    assault: &Assault<'_>,
    addresses: usize,
    datagram: impl Fn(u64) -> Vec<u8> + Sync,
) -> Result<Sent, LabError> {
    let target = assault.target(Plane::Native)?;
    assault.there(|| {
        let sockets: Result<Vec<UdpSocket>, _> = (0..addresses).map(|_| udp(target)).collect();
        let sockets = sockets?;
        let mut sent = Sent::default();
        assault.flood(&mut sent, |number| {
            let socket = &sockets[number as usize % addresses];
            socket.send(&datagram(number))
        })?;
        sent.drawn = sockets.iter().map(drawn).sum();
        Ok(sent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_as_the_protocol_has_it() {
        let call = call(7);
        assert_eq!((call.len(), call[0], call[2], call[3]), (240, 0x30, 1, 0));
        assert!(call[40..56].iter().all(|octet| *octet == 0), "no cookie");
    }
}
