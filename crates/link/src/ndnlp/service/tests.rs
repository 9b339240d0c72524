//! Tests that need access to internals: numbers that wrap.

use core::time::Duration;

use super::*;
use crate::ndnlp::PaperOptions;
use crate::ndnlp::adaptive::Adaptive;
use crate::ndnlp::ndnlpv2::Ndnlpv2;
use crate::ndnlp::paper::Paper;

fn service(reliability: Reliability, seed: u64) -> LinkService {
    let mut config = LinkServiceConfig::datagram(1400);
    config.reliability = reliability;
    let mut service = LinkService::new(config.clone(), SeededRng::new(seed));
    service.next_sequence = u64::MAX - 3;
    service.profiles.recovering[0] = match reliability {
        Reliability::Paper(_) => Box::new(Paper::starting(
            u32::MAX - 3,
            u32::MAX - 5,
            PaperOptions::default(),
            1000,
        )),
        Reliability::Ndnlpv2 => Box::new(Ndnlpv2::starting(u64::MAX - 3, 1000)),
        Reliability::Adaptive => {
            let mut adaptive = Adaptive::new(&config, &mut SeededRng::new(seed));
            adaptive.start_at(u32::MAX - 3, 1000);
            Box::new(adaptive)
        }
        Reliability::Off | Reliability::Auto => unreachable!("no numbers of its own"),
    };
    service
}

/// Exchanges frames in both directions; for a while every fifth one is lost.
fn exchange(reliability: Reliability) {
    let mut ends = [service(reliability, 1), service(reliability, 2)];
    let mut received: [Vec<Vec<u8>>; 2] = Default::default();
    let mut sent = Vec::new();
    let mut rng = SeededRng::new(3);
    for step in 0..600u64 {
        let now = Time::from_millis(step * 5);
        for from in 0..2 {
            if step < 300 {
                let packet: Vec<u8> = vec![5, 3, step as u8, (step >> 8) as u8, from as u8];
                sent.push((from, packet.clone()));
                ends[from].send(now, packet, None);
            }
            ends[from].handle_timeout(now);
            let mut buffer = Vec::new();
            while ends[from].poll_transmit(now, 1, &mut buffer).is_some() {
                let frame = core::mem::take(&mut buffer);
                if step > 5 && step < 300 && rng.chance(0.2) {
                    continue;
                }
                let into = &mut received[1 - from];
                ends[1 - from].handle_frame(now + Duration::from_millis(2), &frame, &mut |lp| {
                    into.push(lp.fragment.unwrap_or_default().to_vec());
                });
            }
        }
    }
    for (end, service) in ends.iter().enumerate() {
        let mut arrived = received[end].clone();
        let total = arrived.len();
        arrived.sort();
        arrived.dedup();
        assert_eq!(arrived.len(), total, "{reliability:?}: each once");
        let missing = sent
            .iter()
            .filter(|(from, packet)| *from != end && !arrived.contains(packet))
            .count();
        // These are the last frames of the paper's profile, or those sent before the agreement.
        assert!(missing <= 3, "{reliability:?}: {missing} missing");
        assert!(
            service.stats().recovered > 20,
            "{reliability:?}: {:?}",
            service.stats()
        );
        assert_eq!(service.stats().drops.false_acks, 0);
    }
}

#[test]
fn numbers_wrap() {
    exchange(Reliability::Paper(PaperOptions::default()));
    exchange(Reliability::Ndnlpv2);
    exchange(Reliability::Adaptive);
}
