//! Timers, posted work, counters and stopping.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the driver have threads and clocks"
)]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::{PATIENCE, Script, script_loop, until};
use whimbrel_core::{PortId, Time};
use whimbrel_io::{Clock, EventLoop, IoError, UdpConfig};

#[test]
fn timers_fire_in_the_order_of_their_deadlines() {
    let mut a = script_loop();
    let now = a.clock().now();
    for timer in [5u32, 1, 4, 2, 3, 0] {
        a.machine_mut()
            .timers
            .set(timer, now + Duration::from_micros(u64::from(timer) * 1700));
    }
    until(&mut a, "six timers", |a| a.machine().fired.len() == 6);
    assert_eq!(a.machine().fired, [0, 1, 2, 3, 4, 5]);
    assert!(
        a.clock().now() >= now + Duration::from_micros(8500),
        "no timer fires early"
    );
    assert!(a.snapshot().event_loop.timeouts <= 6);
}

#[test]
fn waiting_for_a_timer_takes_few_rounds() {
    let mut a = script_loop();
    let now = a.clock().now();
    a.machine_mut()
        .timers
        .set(1, now + Duration::from_micros(20_500));
    while a.machine().fired.is_empty() {
        a.step(PATIENCE, |_, _, _| {}).unwrap();
    }
    let rounds = a.snapshot().event_loop.rounds;
    assert!(rounds <= 5, "{rounds} rounds for one timer: the loop spins");
}

#[test]
fn a_past_deadline_left_by_the_machine_is_counted_and_causes_no_busy_loop() {
    let mut a = script_loop();
    a.machine_mut().ignores_deadlines = true;
    a.machine_mut().timers.set(1, Time::ZERO);
    let until = a.clock().now() + Duration::from_millis(30);
    while a.clock().now() < until {
        a.step(PATIENCE, |_, _, _| {}).unwrap();
    }
    let counters = a.snapshot().event_loop;
    assert!(counters.stalled_deadlines > 0);
    assert!(
        counters.rounds < 60,
        "{} rounds in 30 ms: the loop spins",
        counters.rounds
    );
}

#[test]
fn posted_work_runs_in_order_on_the_loop_s_thread_and_stop_ends_it() {
    let (handle_out, handle_in) = mpsc::channel();
    let (done_out, done_in) = mpsc::channel();
    let running = thread::spawn(move || {
        let mut a = script_loop();
        handle_out.send(a.handle()).unwrap();
        let mut events = Vec::new();
        a.run(|_, _, event| events.push(event)).unwrap();
        done_out.send(()).unwrap();
        events
    });
    let handle = handle_in.recv_timeout(PATIENCE).unwrap();
    for number in 0..100 {
        handle
            .post(move |script: &mut Script, _| script.events.push_back(number))
            .unwrap();
    }
    let (port_out, port_in) = mpsc::channel();
    handle
        .post_to_loop(move |a| {
            let config = UdpConfig::new("late", "127.0.0.1:0".parse().unwrap())
                .neighbour("n", "127.0.0.1:9".parse().unwrap());
            port_out
                .send(a.sockets().add_udp(config).map(|link| link.ports))
                .unwrap();
        })
        .unwrap();
    assert_eq!(
        port_in.recv_timeout(PATIENCE).unwrap().unwrap(),
        [PortId(0)]
    );
    handle.stop();
    done_in
        .recv_timeout(PATIENCE)
        .expect("the loop stops when asked to");
    assert_eq!(running.join().unwrap(), (0..100).collect::<Vec<u32>>());
    let refused = handle.post(|_, _| {}).unwrap_err();
    assert!(matches!(refused, IoError::LoopEnded), "{refused}");
}

#[test]
fn events_reach_the_program_which_may_change_the_machine() {
    let mut a = script_loop();
    a.machine_mut().events.extend([1, 2]);
    let mut seen = Vec::new();
    a.step(Duration::ZERO, |script, _, event| {
        seen.push(event);
        if event == 2 {
            script.events.push_back(3);
            script.send(PortId(77), vec![b"nowhere".to_vec()]);
        }
    })
    .unwrap();
    assert_eq!(seen, [1, 2, 3]);
    assert_eq!(
        a.snapshot().event_loop.transmits_to_nowhere,
        1,
        "sent in the same round, to no port"
    );
}

#[test]
fn a_loop_that_was_stopped_can_run_again() {
    let mut a = script_loop();
    for _ in 0..2 {
        a.handle().stop();
        a.run(|_, _, _| {}).unwrap();
    }
}

#[test]
fn a_stopping_loop_still_writes_its_output() {
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut a = script_loop();
    let config = UdpConfig::new("wire", "127.0.0.1:0".parse().unwrap())
        .neighbour("r", receiver.local_addr().unwrap());
    let port = a.sockets().add_udp(config).unwrap().ports[0];
    a.machine_mut().send(port, vec![b"goodbye".to_vec()]);
    a.handle().stop();
    a.run(|_, _, _| {}).unwrap();
    let mut buffer = [0; 100];
    let length = receiver.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"goodbye");
}

#[test]
fn a_snapshot_is_written_as_json_with_names() {
    let mut a = EventLoop::new(Clock::start(), Script::default()).unwrap();
    let config = UdpConfig::new("uplink", "127.0.0.1:0".parse().unwrap())
        .neighbour("far", "127.0.0.1:9".parse().unwrap());
    a.sockets().add_udp(config).unwrap();
    let json = serde_json::to_value(a.snapshot()).unwrap();
    assert_eq!(json["transports"][0]["label"], "uplink");
    assert_eq!(json["transports"][0]["kind"], "udp");
    assert!(json["transports"][0]["kernel_buffers"][0].as_u64().unwrap() > 0);
    assert_eq!(json["ports"][0]["label"], "far");
    assert_eq!(json["ports"][0]["counters"]["drops"]["path_too_narrow"], 0);
    assert!(json["event_loop"]["rounds"].is_u64());
}
