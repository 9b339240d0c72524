use super::*;

fn feed(model: &mut RateModel, now: &mut Time, rounds: u32, rate: f64, rtt_ms: u64) {
    for _ in 0..rounds {
        *now += Duration::from_millis(rtt_ms);
        let sample = Answer {
            rtt: Duration::from_millis(rtt_ms),
            one_way: 0,
            acked: 0,
            filled: true,
            delivery: Some(rate),
            measured: (rate * rtt_ms as f64 / 1e3) as u64,
            loss: 0.0,
            limited: false,
            round_over: true,
            marked: false,
        };
        model.sample(*now, &sample);
    }
}

#[test]
fn start_up_ends_when_the_rate_stops_growing_and_cruise_holds_it() {
    let (mut model, mut now) = (RateModel::new(Time::ZERO, 40_000), Time::ZERO);
    for doubling in 0..5 {
        feed(&mut model, &mut now, 1, 1e5 * f64::from(1 << doubling), 50);
        assert_eq!(model.phase, Phase::StartUp);
    }
    feed(&mut model, &mut now, 4, 1.6e6, 50);
    assert!(
        matches!(model.phase, Phase::Cruise { .. }),
        "{:?}",
        model.phase
    );
    assert_eq!(model.bandwidth_delay(), 80_000);
}

#[test]
fn a_slower_path_is_believed_within_a_window_of_rounds() {
    let (mut model, mut now) = (RateModel::new(Time::ZERO, 40_000), Time::ZERO);
    feed(&mut model, &mut now, 20, 1e6, 50);
    feed(&mut model, &mut now, 2 * RATE_ROUNDS, 1e5, 50);
    assert_eq!(model.bandwidth(), 1e5);
}

#[test]
fn a_standing_queue_lowers_the_cap_and_the_pace() {
    let (mut model, mut now) = (RateModel::new(Time::ZERO, 40_000), Time::ZERO);
    feed(&mut model, &mut now, 12, 1e6, 50);
    model.phase = Phase::Cruise { rounds: 5 };
    let (cap, pace) = (model.inflight_cap(0), model.pace());
    feed(&mut model, &mut now, 1, 1e6, 70);
    assert!(model.inflight_cap(0) < cap && model.pace() < pace);
    assert_eq!(model.inflight_cap(0), model.bandwidth_delay());
}

#[test]
fn an_outage_keeps_the_rate_and_is_followed_by_a_cautious_round() {
    let (mut model, mut now) = (RateModel::new(Time::ZERO, 40_000), Time::ZERO);
    feed(&mut model, &mut now, 12, 1e6, 50);
    model.resume();
    assert_eq!(model.bandwidth(), 1e6);
    assert_eq!(model.pace(), Some(5e5));
}
