//! What a link service says of its link: rate, queue, loss and round trip.

use std::time::Duration;

use whimbrel_core::{LinkState, SeededRng, Time};
use whimbrel_link::ndnlp::{LinkService, LinkServiceConfig, Mode, Reliability};

const DELAY: Duration = Duration::from_millis(5);

fn service(reliability: Reliability, seed: u64) -> LinkService {
    let config = LinkServiceConfig {
        reliability,
        ..LinkServiceConfig::datagram(1400)
    };
    LinkService::new(config, SeededRng::new(seed))
}

fn data(number: u64, len: usize) -> Vec<u8> {
    let mut packet = vec![6, 0xfd, (len >> 8) as u8, len as u8];
    packet.extend(number.to_be_bytes());
    packet.resize(len + 4, 0);
    packet
}

/// Ten Data of 1,004 bytes each in every 10 ms one way and a small packet the other, for four
/// seconds, over a link of 5 ms that loses the share `loss` of all frames.
fn busy_link(reliability: Reliability, loss: f64) -> LinkService {
    let mut ends = [service(reliability, 1), service(reliability, 2)];
    let mut flying: Vec<(Time, usize, Vec<u8>)> = Vec::new();
    let mut rng = SeededRng::new(3);
    for milli in 0..4_000u64 {
        let now = Time::from_millis(milli);
        if milli % 10 == 0 {
            for number in 0..10 {
                ends[0].send(now, data(milli + number, 1000), None);
            }
            ends[1].send(now, data(milli, 20), None);
        }
        for (_, to, frame) in flying.extract_if(.., |(at, ..)| *at <= now) {
            ends[to].handle_frame(now, &frame, &mut |_| {});
        }
        for (from, end) in ends.iter_mut().enumerate() {
            end.handle_timeout(now);
            let mut frame = Vec::new();
            while end.poll_transmit(now, 1, &mut frame).is_some() {
                let frame = core::mem::take(&mut frame);
                if !rng.chance(loss) {
                    flying.push((now + DELAY, 1 - from, frame));
                }
            }
        }
    }
    let [sender, _] = ends;
    sender
}

#[test]
fn a_profile_with_acknowledgements_measures_rate_loss_and_round_trip() {
    for (reliability, mode) in [
        (
            Reliability::Paper {
                max_retransmissions: 3,
            },
            Mode::Paper,
        ),
        (Reliability::Ndnlpv2, Mode::Ndnlpv2),
        (Reliability::Adaptive, Mode::Adaptive),
    ] {
        let link = busy_link(reliability, 0.05);
        assert_eq!(link.stats().mode, mode);
        let state = link.state(Time::from_secs(4));
        let rate = state.delivery_rate.unwrap();
        // A million bytes in a second, in bursts, with what is recovered.
        assert!((950_000..1_400_000).contains(&rate), "{mode:?}: {rate}");
        let loss = state.loss.unwrap();
        assert!((0.02..0.1).contains(&loss), "{mode:?}: {loss}");
        let rtt = state.rtt.unwrap();
        // The adaptive profile subtracts how long a report waited, in thirds of 10 ms.
        let expected = DELAY * 2 - Duration::from_millis(3)..DELAY * 2 + Duration::from_millis(15);
        assert!(expected.contains(&rtt), "{mode:?}: {rtt:?}");
        let lossless = busy_link(reliability, 0.0).state(Time::from_secs(4));
        assert!(lossless.loss.unwrap() < 0.01, "{mode:?}: {lossless:?}");
    }
}

#[test]
fn without_acknowledgements_nothing_is_claimed() {
    let state = busy_link(Reliability::Off, 0.05).state(Time::from_secs(4));
    assert_eq!(state, LinkState::default());
    // Nor when they end.
    let mut link = busy_link(Reliability::Ndnlpv2, 0.0);
    link.set_reliability(Reliability::Off);
    assert_eq!(link.state(Time::from_secs(4)).loss, None);
}

#[test]
fn the_queue_has_an_age_and_a_packet_that_was_begun_is_its_head() {
    let at = Time::from_millis;
    let mut config = LinkServiceConfig::datagram(1400);
    config.drain_rate = Some(8_000_000);
    let mut link = LinkService::new(config, SeededRng::new(1));
    assert_eq!(link.state(at(0)).delivery_rate, Some(1_000_000));
    link.send(at(10), data(1, 2500), None);
    link.send(at(30), data(2, 496), None);
    let state = link.state(at(50));
    assert_eq!((state.queue_packets, state.queue_bytes), (2, 3_004));
    assert_eq!(state.queue_age, Some(Duration::from_millis(40)));
    // One frame of the first packet leaves, and the others wait for the device.
    assert!(link.poll_transmit(at(50), 44, &mut Vec::new()).is_some());
    let state = link.state(at(50));
    assert!((1_600..1_800).contains(&state.queue_bytes), "{state:?}");
    assert_eq!(state.queue_packets, 2);
    assert_eq!(state.queue_age, Some(Duration::from_millis(40)));
    // The first packet is gone, the second one has waited since it came.
    assert!(link.poll_transmit(at(60), 44, &mut Vec::new()).is_some());
    let state = link.state(at(62));
    assert_eq!((state.queue_packets, state.queue_bytes), (1, 500));
    assert_eq!(state.queue_age, Some(Duration::from_millis(32)));
    assert!(link.poll_transmit(at(70), 44, &mut Vec::new()).is_some());
    let state = link.state(at(70));
    assert_eq!((state.queue_packets, state.queue_age), (0, None));
}
