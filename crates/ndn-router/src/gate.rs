//! Which senders of datagrams come to the router at all.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use whimbrel_core::{Admission, CallerGate, FrameShape, Limit, Meter, Time};
use whimbrel_ndn_packet::types;

/// New senders of datagrams: as many at once as arrive at an event, and in the long run so few that
/// their faces cost little.
const NEWCOMERS: Limit = Limit {
    at_once: 512,
    per_second: 256,
};

/// The gate of a UDP listener. A datagram with a forged source costs its sender nothing, and a face
/// costs the router some microseconds and two kilobytes: beyond a rate of new faces, datagrams of
/// unknown senders are dropped unread. NDN has no greeting by which honest ones could be told from
/// others; they ask again.
#[derive(Debug, Default)]
pub struct NewcomerGate {
    meter: Meter,
    refused: Arc<AtomicU64>,
}

impl NewcomerGate {
    /// Counts in `refused` the datagrams that it drops.
    pub fn new(refused: Arc<AtomicU64>) -> NewcomerGate {
        NewcomerGate {
            meter: Meter::default(),
            refused,
        }
    }
}

impl CallerGate for NewcomerGate {
    fn consider(
        &mut self,
        now: Time,
        from: SocketAddr,
        frame: &[u8],
        _reply: &mut Vec<u8>,
    ) -> Admission {
        let begins = frame.first().map(|first| u64::from(*first));
        let is_packet = begins
            .is_some_and(|typ| [types::INTEREST, types::DATA, types::LP_PACKET].contains(&typ));
        let is_here = from.ip().to_canonical().is_loopback();
        if is_packet && (is_here || self.meter.admits(now, NEWCOMERS)) {
            return Admission::Admitted;
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Admission::Refused
    }

    /// A packet is told from noise by its first octet, which is as soon read as filtered.
    fn shapes(&self) -> Vec<FrameShape> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_senders_come_at_a_bounded_rate_and_programs_of_this_machine_always() {
        let refused = Arc::default();
        let mut gate = NewcomerGate::new(Arc::clone(&refused));
        let mut admitted = |now, from: &str, frame: &[u8]| {
            let from = from.parse().unwrap();
            gate.consider(now, from, frame, &mut Vec::new()) == Admission::Admitted
        };
        let now = Time::from_secs(1);
        let flood = (0..10_000).filter(|_| admitted(now, "192.0.2.1:6363", &[5]));
        assert_eq!(flood.count(), 512);
        assert!(admitted(now, "127.0.0.1:6363", &[5]));
        assert!(admitted(now, "[::ffff:127.0.0.1]:6363", &[0x64]));
        assert!(!admitted(now, "127.0.0.1:6363", b"GET / HTTP/1.1"));
        let later = now + core::time::Duration::from_millis(500);
        let flood = (0..10_000).filter(|_| admitted(later, "192.0.2.1:6363", &[5]));
        assert_eq!(flood.count(), 128);
        assert_eq!(refused.load(Ordering::Relaxed), 9_488 + 1 + 9_872);
    }
}
