//! Each feature of the link model, checked against a calculation.
#![allow(
    clippy::unwrap_used,
    reason = "a test that finds nothing to unwrap has failed"
)]

use core::time::Duration;
use std::sync::Arc;

use crate::frames::{Link, arrivals, frame, link, number};

use proptest::prelude::*;
use whimbrel_core::{SeededRng, Time};
use whimbrel_sim::link::{
    Change, DeliveryTrace, DropReason, GilbertElliott, LinkSpec, LinkSpecError, Loss, Outage,
    QueueLimit, Rate, Reorder,
};

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

fn counted(spec: &LinkSpec, seed: u64, count: u32) -> (Link, Vec<u32>) {
    let mut link = link(spec, seed);
    let mut got = Vec::new();
    for n in 0..count {
        let now = Time::from_nanos(u64::from(n) * 1_000_000);
        link.enqueue(now, frame(n, 100));
        while let Some(frame) = link.poll(now) {
            got.push(number(&frame));
        }
    }
    got.extend(arrivals(&mut link).iter().map(|(_, frame)| number(frame)));
    (link, got)
}

#[test]
fn a_frame_arrives_after_its_transmission_and_the_one_way_delay() {
    let spec = LinkSpec {
        overhead: 28,
        ..LinkSpec::new(54_000_000, ms(25))
    };
    let mut link = link(&spec, 1);
    link.enqueue(Time::from_millis(1), frame(0, 1472));
    // 12,000 bits at 54 Mbit/s are 222,222.2 ns.
    let expected = Time::from_nanos(1_000_000 + 222_222 + 25_000_000);
    assert_eq!(
        arrivals(&mut link)
            .iter()
            .map(|(at, _)| *at)
            .collect::<Vec<_>>(),
        [expected]
    );
    assert_eq!(link.stats().transmitted_bytes, 1500);
    assert_eq!(link.stats().delivered_bytes, 1472);
}

#[test]
fn back_to_back_frames_take_exactly_the_time_of_their_bits() {
    let spec = LinkSpec::new(54_000_000, Duration::ZERO).with_queue(QueueLimit::Unlimited);
    let mut link = link(&spec, 1);
    for n in 0..54_000 {
        link.enqueue(Time::ZERO, frame(n, 1500));
    }
    let arrived = arrivals(&mut link);
    assert_eq!(arrived[26_999].0, Time::from_secs(6));
    assert_eq!(arrived[53_999].0, Time::from_secs(12));
}

#[test]
fn an_unlimited_rate_takes_no_time_and_queues_nothing() {
    let mut link = link(&LinkSpec::default(), 1);
    for n in 0..10_000 {
        link.enqueue(Time::ZERO, frame(n, 1500));
    }
    let order: Vec<u32> = arrivals(&mut link)
        .iter()
        .map(|(_, frame)| number(frame))
        .collect();
    assert_eq!(order, (0..10_000).collect::<Vec<_>>());
    assert_eq!(
        (link.stats().max_queue_frames, link.stats().dropped()),
        (0, 0)
    );
}

#[test]
fn a_queue_of_packets_holds_exactly_its_limit_beside_the_frame_in_transmission() {
    let spec = LinkSpec::new(8_000_000, Duration::ZERO).with_queue(QueueLimit::Packets(10));
    let mut link = link(&spec, 1);
    for n in 0..20 {
        link.enqueue(Time::ZERO, frame(n, 1000));
    }
    assert_eq!(
        (link.stats().dropped_queue, link.stats().queue_frames),
        (9, 10)
    );
    // One frame has left after 1 ms, so that one more fits.
    link.enqueue(Time::from_millis(1), frame(20, 1000));
    link.enqueue(Time::from_millis(1), frame(21, 1000));
    assert_eq!(link.stats().dropped_queue, 10);
    let order: Vec<u32> = arrivals(&mut link)
        .iter()
        .map(|(_, frame)| number(frame))
        .collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20]);
    assert_eq!(
        (
            link.stats().max_queue_frames,
            link.stats().queue_frames,
            link.stats().queue_bytes
        ),
        (10, 0, 0)
    );
    assert_eq!(link.stats().queueing_delay_max, ms(10));
}

#[test]
fn a_queue_of_bytes_counts_overhead_and_admits_what_fits_exactly() {
    let spec = LinkSpec {
        overhead: 28,
        ..LinkSpec::new(8_000_000, ms(1))
    }
    .with_queue(QueueLimit::Bytes(2 * 1028));
    let mut link = link(&spec, 1);
    for n in 0..4 {
        link.enqueue(Time::ZERO, frame(n, 1000));
    }
    assert_eq!(
        (link.stats().dropped_queue, link.stats().queue_bytes),
        (1, 2056)
    );
    assert_eq!(link.stats().max_queue_bytes, 2056);
}

#[test]
fn independent_loss_has_its_rate_and_takes_transmission_time() {
    let spec = LinkSpec::new(100_000_000, ms(1)).with_loss(Loss::Independent(0.01));
    let (link, got) = counted(&spec, 7, 100_000);
    let lost = link.stats().dropped_loss;
    // 1,000 expected; standard deviation 31.5.
    assert!((870..1130).contains(&lost), "{lost}");
    assert_eq!(got.len() as u64 + lost, 100_000);
    assert_eq!(link.stats().transmitted_bytes, 100_000 * 100);
}

#[test]
fn gilbert_elliott_has_its_loss_rate_and_burst_length() {
    let model = GilbertElliott::bursts(0.05, 4.0);
    assert!((model.loss_rate() - 0.05).abs() < 1e-12);
    let spec = LinkSpec::default().with_loss(Loss::GilbertElliott(model));
    let (link, got) = counted(&spec, 3, 200_000);
    let lost = link.stats().dropped_loss as f64;
    assert!((lost / 200_000.0 - 0.05).abs() < 0.005, "{lost}");
    let gaps: Vec<u32> = got
        .windows(2)
        .map(|pair| pair[1] - pair[0] - 1)
        .filter(|gap| *gap > 0)
        .collect();
    let mean = gaps.iter().sum::<u32>() as f64 / gaps.len() as f64;
    assert!((mean - 4.0).abs() < 0.25, "{mean}");
}

#[test]
fn gilbert_elliott_survival_in_each_state_counts() {
    let model = GilbertElliott {
        p: 0.1,
        r: 0.3,
        h: 0.5,
        k: 0.98,
    };
    let (link, _) = counted(
        &LinkSpec::default().with_loss(Loss::GilbertElliott(model)),
        4,
        200_000,
    );
    let rate = link.stats().dropped_loss as f64 / 200_000.0;
    // The state is bad for a quarter of the time: 0.25 x 0.5 + 0.75 x 0.02.
    assert!((rate - 0.14).abs() < 0.005, "{rate}");
}

#[test]
fn an_outage_loses_frames_offered_or_in_transmission_but_not_propagating_ones() {
    let outage = Outage::Once {
        start: ms(10),
        duration: ms(5),
    };
    let spec = LinkSpec {
        outages: vec![outage],
        ..LinkSpec::new(8_000_000, ms(100))
    };
    let mut link = link(&spec, 1);
    let mut drops = Vec::new();
    // Each takes 1 ms: 0 has left at 9 ms, 1 at 10 ms, 2 is half sent at 10 ms, 3 is offered during
    // the outage, 4 at its end.
    for (n, micros) in [(0, 8_000), (1, 9_000), (2, 9_500), (3, 12_000), (4, 15_000)] {
        let now = Time::from_nanos(micros * 1_000);
        link.enqueue_reporting(now, frame(n, 1000), &mut |at, reason, frame| {
            drops.push((at, reason, number(&frame)))
        });
    }
    let order: Vec<u32> = arrivals(&mut link)
        .iter()
        .map(|(_, frame)| number(frame))
        .collect();
    assert_eq!(order, [0, 1, 4]);
    assert_eq!(
        drops,
        [
            (Time::from_millis(11), DropReason::Outage, 2),
            (Time::from_millis(12), DropReason::Outage, 3)
        ]
    );
    assert_eq!(link.stats().dropped_outage, 2);
}

#[test]
fn a_queue_drains_into_an_outage() {
    let outage = Outage::Once {
        start: ms(2),
        duration: ms(2),
    };
    let spec = LinkSpec {
        outages: vec![outage],
        ..LinkSpec::new(8_000_000, Duration::ZERO)
    };
    let mut link = link(&spec, 1);
    for n in 0..8 {
        link.enqueue(Time::ZERO, frame(n, 1000));
    }
    let order: Vec<u32> = arrivals(&mut link)
        .iter()
        .map(|(_, frame)| number(frame))
        .collect();
    assert_eq!(order, [0, 1, 4, 5, 6, 7]);
}

#[test]
fn jitter_spreads_delays_evenly_within_its_bounds_and_keeps_the_order() {
    let spec = LinkSpec {
        jitter: ms(5),
        ..LinkSpec::new(1_000_000_000, ms(20))
    };
    let mut link = link(&spec, 5);
    let mut delays = Vec::new();
    for n in 0..2_000u32 {
        // The frames are far apart: their order cannot change, and the delays are the bare draws.
        let now = Time::from_millis(u64::from(n) * 100);
        link.enqueue(now, frame(n, 100));
        let [(at, _)] = arrivals(&mut link).try_into().unwrap();
        delays.push(at.since(now).as_secs_f64() * 1e3);
    }
    let (least, most) = delays
        .iter()
        .fold((f64::MAX, 0.0f64), |(a, b), d| (a.min(*d), b.max(*d)));
    assert!(
        (15.0..15.1).contains(&least) && (24.9..25.01).contains(&most),
        "{least} {most}"
    );
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    assert!((mean - 20.0).abs() < 0.25, "{mean}");
    for n in 0..2_000 {
        link.enqueue(Time::from_secs(1_000), frame(n, 100));
    }
    let order: Vec<u32> = arrivals(&mut link)
        .iter()
        .map(|(_, frame)| number(frame))
        .collect();
    assert!(order.is_sorted() && order.len() > 900);
    assert_eq!(link.stats().reordered, 0);
}

#[test]
fn jitter_larger_than_the_delay_never_arrives_before_it_was_sent() {
    let spec = LinkSpec {
        jitter: ms(50),
        ..LinkSpec::new(8_000_000, ms(1))
    };
    let mut link = link(&spec, 6);
    for n in 0..500u64 {
        let now = Time::from_secs(n);
        link.enqueue(now, frame(n as u32, 1000));
        let [(at, _)] = arrivals(&mut link).try_into().unwrap();
        assert!(at >= now + ms(1) && at <= now + ms(52));
    }
}

#[test]
fn picked_frames_fall_behind_by_the_extra_delay_and_others_do_not_wait() {
    let reorder = Some(Reorder {
        probability: 0.1,
        extra_delay: ms(3),
    });
    let spec = LinkSpec {
        reorder,
        ..LinkSpec::new(1_000_000_000, ms(10))
    };
    let mut link = link(&spec, 8);
    let mut all = Vec::new();
    for n in 0..10_000u32 {
        let now = Time::from_millis(u64::from(n));
        while let Some(at) = link.next_time().filter(|at| *at <= now) {
            while let Some(frame) = link.poll(at) {
                all.push((at, frame));
            }
        }
        link.enqueue(now, frame(n, 125));
    }
    all.extend(arrivals(&mut link));
    assert_eq!(all.len(), 10_000);
    assert!(all.is_sorted_by_key(|(at, _)| *at));
    let late = all.iter().filter(|(at, frame)| {
        let delay = at.since(Time::from_millis(u64::from(number(frame))));
        assert!(
            delay == Duration::from_micros(10_001) || delay == Duration::from_micros(13_001),
            "{delay:?}"
        );
        delay > ms(11)
    });
    let late = late.count() as u64;
    assert!((900..1100).contains(&late), "{late}");
    assert!(link.stats().reordered > late * 9 / 10 && link.stats().reordered <= late);
}

#[test]
fn duplicates_follow_their_original_and_corruption_flips_one_bit() {
    let spec = LinkSpec {
        duplicate: 0.2,
        corrupt: 0.1,
        ..LinkSpec::new(1_000_000_000, ms(1))
    };
    let mut link = link(&spec, 9);
    let (mut copies, mut flipped) = (0u64, 0u64);
    for n in 0..10_000u64 {
        let original = frame(n as u32, 64);
        link.enqueue(Time::from_millis(n * 10), original.clone());
        let got = arrivals(&mut link);
        assert!((1..=2).contains(&got.len()) && got[0].0 == got[got.len() - 1].0);
        copies += got.len() as u64 - 1;
        for (_, frame) in got {
            let bits: u32 = frame
                .iter()
                .zip(&original)
                .map(|(a, b)| (a ^ b).count_ones())
                .sum();
            assert!(bits <= 1 && frame.len() == original.len());
            flipped += u64::from(bits);
        }
    }
    assert_eq!(
        (copies, flipped),
        (link.stats().duplicated, link.stats().corrupted)
    );
    assert!((1_850..2_150).contains(&copies), "{copies}");
    assert!((1_080..1_320).contains(&flipped), "{flipped}");
}

#[test]
fn changes_take_effect_at_their_time() {
    let change = |at, rate, delay, loss| Change {
        at: ms(at),
        rate,
        delay,
        loss,
    };
    let changes = vec![
        change(30, None, None, Some(Loss::Independent(1.0))),
        change(10, Some(Rate::Fixed(4_000_000)), None, None),
        change(20, None, Some(ms(50)), None),
    ];
    let mut link = link(
        &LinkSpec {
            changes,
            ..LinkSpec::new(8_000_000, ms(5))
        },
        1,
    );
    let mut took = |at: u64| {
        link.enqueue(Time::from_millis(at), frame(0, 1000));
        arrivals(&mut link)
            .first()
            .map(|(arrived, _)| arrived.since(Time::from_millis(at)))
    };
    assert_eq!(took(0), Some(ms(6)));
    assert_eq!(took(10), Some(ms(7)));
    assert_eq!(took(20), Some(ms(52)));
    assert_eq!(took(100), None);
}

#[test]
fn a_shorter_delay_does_not_let_frames_overtake() {
    let changes = vec![Change {
        at: ms(10),
        delay: Some(ms(1)),
        ..Change::default()
    }];
    let mut link = link(
        &LinkSpec {
            changes,
            ..LinkSpec::new(8_000_000, ms(100))
        },
        1,
    );
    link.enqueue(Time::ZERO, frame(0, 1000));
    link.enqueue(Time::from_millis(20), frame(1, 1000));
    let got: Vec<_> = arrivals(&mut link)
        .iter()
        .map(|(at, frame)| (*at, number(frame)))
        .collect();
    assert_eq!(
        got,
        [(Time::from_millis(101), 0), (Time::from_millis(101), 1)]
    );
}

#[test]
fn a_trace_delivers_at_its_opportunities() {
    let trace = DeliveryTrace::parse("1\n2\n2\n10\n").unwrap();
    let spec = LinkSpec {
        rate: Rate::Trace(Arc::new(trace)),
        ..LinkSpec::default()
    };
    let mut link = link(&spec, 1);
    for (n, length) in [(0, 1500), (1, 700), (2, 800), (3, 1501), (4, 100)] {
        link.enqueue(Time::ZERO, frame(n, length));
    }
    let got: Vec<_> = arrivals(&mut link)
        .iter()
        .map(|(at, frame)| (at.as_micros() / 1000, number(frame)))
        .collect();
    // 1 and 2 share an opportunity; 3 needs a second one, and 4 uses part of the rest.
    assert_eq!(got, [(1, 0), (2, 1), (2, 2), (10, 3), (10, 4)]);
    // The recording repeats after 10 ms; an opportunity without a waiting frame is wasted.
    link.enqueue(Time::from_millis(11), frame(5, 100));
    assert_eq!(arrivals(&mut link)[0].0, Time::from_millis(12));
}

#[test]
fn a_link_set_down_loses_frames_and_a_held_one_keeps_them() {
    let mut link = link(&LinkSpec::new(8_000_000, ms(5)), 1);
    link.enqueue(Time::ZERO, frame(0, 1000));
    link.set_up(Time::from_millis(2), false);
    link.enqueue(Time::from_millis(2), frame(1, 1000));
    link.set_up(Time::from_millis(3), true);
    link.enqueue(Time::from_millis(3), frame(2, 1000));
    link.hold();
    assert_eq!(
        (link.next_time(), link.poll(Time::from_millis(50))),
        (None, None)
    );
    link.release();
    let order: Vec<u32> = core::iter::from_fn(|| link.poll(Time::from_millis(60)))
        .map(|frame| number(&frame))
        .collect();
    assert_eq!(order, [0, 2]);
    assert_eq!(link.stats().dropped_outage, 1);
}

#[test]
fn features_do_not_disturb_each_others_draws() {
    let plain = LinkSpec::new(1_000_000_000, ms(1)).with_loss(Loss::Independent(0.05));
    let busy = LinkSpec {
        jitter: ms(1),
        corrupt: 0.5,
        ..plain.clone()
    };
    let sent = |spec: &LinkSpec| counted(spec, 12, 2_000).0.stats().dropped_loss;
    assert!(sent(&plain) > 50);
    assert_eq!(sent(&plain), sent(&busy));
}

#[test]
fn a_specification_is_read_from_text_and_written_back() {
    let text = r#"
        rate = "54 Mbit/s"
        burst = "64 kB"
        delay = "25 ms"
        jitter = "0.5 ms"
        queue = "256 KiB"
        loss = { p = "1 %", r = 0.25 }
        reorder = { probability = 0.01, extra_delay = "2 ms" }
        duplicate = "0.1 %"
        corrupt = 0
        overhead = 28
        outages = [{ start = "10 s", duration = "5 s" }, { first = "1 min", every = "30 s", duration = "5 s" }]
        changes = [{ at = "20 s", rate = 6000000, loss = "none" }, { at = "30 s", rate = { trace = [1, 2] } }]
    "#;
    let spec: LinkSpec = toml::from_str(text).unwrap();
    assert_eq!(spec.rate, Rate::Fixed(54_000_000));
    assert_eq!(spec.queue, QueueLimit::Bytes(262_144));
    assert_eq!(
        spec.loss,
        Loss::GilbertElliott(GilbertElliott {
            p: 0.01,
            r: 0.25,
            h: 0.0,
            k: 1.0
        })
    );
    assert_eq!(spec.jitter, Duration::from_micros(500));
    assert_eq!(
        (spec.duplicate, spec.corrupt, spec.outages.len()),
        (0.001, 0.0, 2)
    );
    assert_eq!(spec.changes[0].loss, Some(Loss::None));
    spec.validate().unwrap();
    let again: LinkSpec = toml::from_str(&toml::to_string(&spec).unwrap()).unwrap();
    assert_eq!(again, spec);
    let json: LinkSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
    assert_eq!(json, spec);
}

#[test]
fn invalid_specifications_are_refused_with_the_reason() {
    let refused = |text: &str| toml::from_str::<LinkSpec>(text).unwrap_err().to_string();
    assert!(refused("speed = 1").contains("unknown field `speed`"));
    assert!(refused("delay = 25").contains("25 ms"));
    assert!(refused("rate = \"fast\"").contains("number"));
    assert!(refused("loss = 1.5").contains("probability"));
    assert!(refused("loss = { p = 0.1 }").contains("missing field `r`"));
    assert!(refused("queue = \"many packets\"").contains("whole number of packets"));
    assert!(refused("outages = [{ duration = \"1 s\" }]").contains("either 'start'"));
    assert!(
        refused("outages = [{ first = \"0 s\", every = \"1 s\", duration = \"2 s\" }]")
            .contains("at least 'duration'")
    );
    assert!(refused("rate = { trace = [5, 1] }").contains("earlier"));
    let invalid = |spec: &LinkSpec| Link::new(spec, SeededRng::new(1)).unwrap_err();
    assert_eq!(invalid(&LinkSpec::new(0, ms(1))), LinkSpecError::ZeroRate);
    assert!(matches!(
        invalid(&LinkSpec {
            corrupt: f64::NAN,
            ..LinkSpec::default()
        }),
        LinkSpecError::Probability {
            field: "corrupt",
            ..
        }
    ));
}

#[test]
fn trace_files_are_read_by_the_given_reader() {
    let mut spec: LinkSpec = toml::from_str("rate = { trace_file = \"a.up\" }").unwrap();
    assert_eq!(
        spec.validate(),
        Err(LinkSpecError::TraceNotLoaded("a.up".into()))
    );
    let bad = spec
        .load_traces(|_| Ok::<_, String>("1\nx".into()))
        .unwrap_err()
        .to_string();
    assert!(bad.contains("'a.up': line 2"), "{bad}");
    let missing = spec
        .load_traces(|_| Err("no such file"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("no such file"), "{missing}");
    spec.load_traces(|_| Ok::<_, String>("1\n2\n".into()))
        .unwrap();
    spec.validate().unwrap();
}

proptest! {
    /// The model is a list of frames processed one by one.
    #[test]
    fn a_lossless_link_is_a_queue_with_a_clock(
        rate in 1_000_000u64..1_000_000_000, delay in 0u64..10_000_000, limit in 0u64..6, overhead in 0u32..50,
        offers in prop::collection::vec((0u64..2_000_000, 4usize..1500), 1..60),
    ) {
        let spec = LinkSpec { overhead, ..LinkSpec::new(rate, Duration::from_nanos(delay)) }
            .with_queue(QueueLimit::Packets(limit));
        let mut link = link(&spec, 1);
        let mut expected = Vec::new();
        // Units of 1/rate ns avoid rounding before the end.
        let (mut now, mut busy_until) = (0u64, 0u128);
        let mut starts: Vec<u64> = Vec::new();
        for (n, (gap, length)) in offers.iter().enumerate() {
            now += gap;
            link.enqueue(Time::from_nanos(now), frame(n as u32, *length));
            let waiting = starts.iter().filter(|start| **start > now).count() as u64;
            let idle = busy_until / u128::from(rate) <= u128::from(now);
            if !idle && waiting >= limit {
                continue;
            }
            // A transmission that ends at this moment passes on its fraction; an idle transmitter
            // starts at zero.
            let carried = busy_until / u128::from(rate) == u128::from(now) && !starts.is_empty();
            if idle && !carried {
                busy_until = u128::from(now) * u128::from(rate);
            }
            starts.push((busy_until / u128::from(rate)) as u64);
            busy_until += (*length as u128 + u128::from(overhead)) * 8_000_000_000;
            expected.push(((busy_until / u128::from(rate)) as u64 + delay, n as u32));
        }
        let got: Vec<_> = arrivals(&mut link).iter().map(|(at, f)| (at.as_nanos(), number(f))).collect();
        prop_assert_eq!(got, expected);
    }

    /// The outcome does not depend on how often the link is polled.
    #[test]
    fn polling_more_often_changes_nothing(
        seed: u64, looks in prop::collection::vec(0u64..60_000, 0..100), jitter in 0u64..3_000, behind: bool,
    ) {
        let spec = LinkSpec {
            jitter: Duration::from_micros(jitter),
            reorder: behind.then_some(Reorder { probability: 0.2, extra_delay: ms(2) }),
            duplicate: 0.1,
            corrupt: 0.1,
            outages: vec![Outage::Periodic { first: ms(7), every: ms(20), duration: ms(3) }],
            changes: vec![Change { at: ms(30), rate: Some(Rate::Fixed(2_000_000)), ..Change::default() }],
            ..LinkSpec::new(8_000_000, ms(5))
        }
        .with_loss(Loss::GilbertElliott(GilbertElliott::bursts(0.1, 2.0)))
        .with_queue(QueueLimit::Packets(5));
        let run = |looks: &[u64]| {
            let mut link = link(&spec, seed);
            let mut times: Vec<(u64, Option<u32>)> = looks.iter().map(|micros| (*micros, None)).collect();
            times.extend((0..60).map(|n| (u64::from(n) * 900, Some(n))));
            times.sort_unstable_by_key(|(at, n)| (*at, n.is_some(), *n));
            let mut got = Vec::new();
            for (micros, offer) in times {
                let now = Time::from_nanos(micros * 1_000);
                while let Some(at) = link.next_time().filter(|at| *at <= now) {
                    while let Some(frame) = link.poll(at) {
                        got.push((at, frame));
                    }
                }
                match offer {
                    Some(n) => link.enqueue(now, frame(n, 800)),
                    None => prop_assert!(link.poll(now).is_none()),
                }
            }
            got.extend(arrivals(&mut link));
            Ok((got, *link.stats()))
        };
        let (seldom, seldom_stats) = run(&[])?;
        let (often, often_stats) = run(&looks)?;
        prop_assert_eq!(seldom, often);
        prop_assert_eq!(seldom_stats, often_stats);
        prop_assert_eq!(
            seldom_stats.offered + seldom_stats.duplicated,
            seldom_stats.delivered + seldom_stats.dropped()
        );
    }
}
