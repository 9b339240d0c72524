//! The measured state of a link: rate, queue, loss and round trip.

use std::time::Duration;

use crate::faces::{Faces, losing};
use whimbrel_core::{LinkState, SeededRng, Time};
use whimbrel_link::ndnlp::{LinkService, LinkServiceConfig, Mode, PaperOptions, Reliability};

const DELAY: Duration = Duration::from_millis(5);

fn data(number: u64, len: usize) -> Vec<u8> {
    let mut packet = vec![6, 0xfd, (len >> 8) as u8, len as u8];
    packet.extend(number.to_be_bytes());
    packet.resize(len + 4, 0);
    packet
}

/// Every 10 ms, ten Data of 1,004 bytes each travel one way and a small packet the other, for four
/// seconds, over a link of 5 ms that loses the share `loss` of all frames. The first end sends the
/// Data.
fn busy_link(reliability: Reliability, loss: f64) -> Faces {
    let config = LinkServiceConfig {
        reliability,
        ..LinkServiceConfig::datagram(1400)
    };
    let mut faces = Faces::new(1, &config, &losing(DELAY, loss));
    for milli in (0..4_000).step_by(10) {
        faces.run(Time::from_millis(milli));
        for number in 0..10 {
            faces.send(0, data(milli + number, 1000).into());
        }
        faces.send(1, data(milli, 20).into());
    }
    faces.run(Time::from_secs(4));
    faces
}

#[test]
fn a_profile_with_acknowledgements_measures_rate_loss_and_round_trip() {
    for (reliability, mode) in [
        (Reliability::Paper(PaperOptions::default()), Mode::Paper),
        (Reliability::Ndnlpv2, Mode::Ndnlpv2),
        (Reliability::Adaptive, Mode::Adaptive),
    ] {
        let faces = busy_link(reliability, 0.05);
        let link = &faces.net[0].service;
        assert_eq!(link.stats().mode, mode);
        let state = link.state(Time::from_secs(4));
        let rate = state.delivery_rate.unwrap();
        // A million bytes in a second, in bursts, plus the recovered frames.
        assert!((950_000..1_400_000).contains(&rate), "{mode:?}: {rate}");
        let loss = state.loss.unwrap();
        assert!((0.02..0.1).contains(&loss), "{mode:?}: {loss}");
        let rtt = state.rtt.unwrap();
        // The adaptive profile subtracts the delay of a report, in thirds of 10 ms.
        let expected = DELAY * 2 - Duration::from_millis(3)..DELAY * 2 + Duration::from_millis(15);
        assert!(expected.contains(&rtt), "{mode:?}: {rtt:?}");
        let lossless = busy_link(reliability, 0.0);
        let lossless = lossless.net[0].service.state(Time::from_secs(4));
        assert!(lossless.loss.unwrap() < 0.01, "{mode:?}: {lossless:?}");
    }
}

#[test]
fn nothing_is_reported_without_acknowledgements() {
    let faces = busy_link(Reliability::Off, 0.05);
    let state = faces.net[0].service.state(Time::from_secs(4));
    assert_eq!(state, LinkState::default());
    // The estimates end with the acknowledgements, too.
    let mut faces = busy_link(Reliability::Ndnlpv2, 0.0);
    faces.at(0, |end, _| end.service.set_reliability(Reliability::Off));
    let state = faces.net[0].service.state(Time::from_secs(4));
    assert_eq!(state.loss, None);
}

#[test]
fn the_queue_has_an_age_and_a_started_packet_is_its_head() {
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
    // One frame of the first packet leaves; the others wait for the device.
    assert!(link.poll_transmit(at(50), 44, &mut Vec::new()).is_some());
    let state = link.state(at(50));
    assert!((1_600..1_800).contains(&state.queue_bytes), "{state:?}");
    assert_eq!(state.queue_packets, 2);
    assert_eq!(state.queue_age, Some(Duration::from_millis(40)));
    // The first packet is sent; the second one has waited since it was queued.
    assert!(link.poll_transmit(at(60), 44, &mut Vec::new()).is_some());
    let state = link.state(at(62));
    assert_eq!((state.queue_packets, state.queue_bytes), (1, 500));
    assert_eq!(state.queue_age, Some(Duration::from_millis(32)));
    assert!(link.poll_transmit(at(70), 44, &mut Vec::new()).is_some());
    let state = link.state(at(70));
    assert_eq!((state.queue_packets, state.queue_age), (0, None));
}
