//! Nets: faults begin and end on time, and machines restart.
#![allow(
    clippy::unwrap_used,
    reason = "a test that finds nothing to unwrap has failed"
)]

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use whimbrel_core::{Endpoint, PortEvent, PortOrigin, PortRequest, PortToken, SeededRng, Time};
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::testbed::{Fault, Happening, Heard, Life, Net, Probe, Step, TOLERATED};
use whimbrel_sim::{Direction, DuplexLink};

const DELAY: Duration = Duration::from_millis(10);

fn link() -> DuplexLink {
    DuplexLink::symmetric(LinkSpec {
        delay: DELAY,
        ..LinkSpec::default()
    })
}

/// Makes a probe that keeps its record beyond a crash, as on a disk.
fn remembering(_: &Life, last: Option<&mut Probe>) -> Probe {
    let mut probe = Probe::default();
    probe.heard = last
        .map(|it| core::mem::take(&mut it.heard))
        .unwrap_or_default();
    probe
}

fn pair() -> Net<Probe> {
    Net::pair(1, &link(), remembering).unwrap()
}

fn send(net: &mut Net<Probe>, from: usize, frame: &[u8]) {
    let port = net.port(from);
    net.with(from, |probe, _| probe.send(port, frame));
}

fn got(net: &Net<Probe>, node: usize) -> Vec<&[u8]> {
    net[node].frames().collect()
}

#[test]
fn an_outage_ends_and_takes_only_its_directions() {
    let mut net = pair();
    let lasts = Duration::from_secs(1);
    net.strike(&Fault::Outage {
        link: 0,
        directions: 2,
        lasts,
    });
    for second in 0..2 {
        net.run_until(Time::from_secs(second));
        send(&mut net, 0, &[second as u8]);
        send(&mut net, 1, &[second as u8]);
    }
    net.run_for(lasts);
    assert_eq!(got(&net, 1), [[0], [1]]);
    assert_eq!(got(&net, 0), [[1]]);
}

#[test]
fn a_crashed_node_hears_nothing_and_starts_with_the_ports_that_it_had() {
    let mut net = pair();
    net.strike(&Fault::Crash {
        node: 1,
        down: Duration::from_secs(1),
        skew_s: -7,
    });
    send(&mut net, 0, b"lost");
    assert_eq!(
        net.run_until(Time::from_millis(999)),
        [Happening::Crashed(1)]
    );
    assert_eq!(net.run_until(Time::from_secs(1)), [Happening::Started(1)]);
    assert_eq!((net.life(1).number, net.life(1).skew_ms), (1, -7_000));
    send(&mut net, 0, b"heard");
    net.run_for(Duration::from_secs(1));
    assert_eq!(got(&net, 1), [b"heard"]);
    let ups = net[1]
        .heard
        .iter()
        .filter(|(_, it)| matches!(it, Heard::Port(_, PortEvent::Up(_))));
    let ups: Vec<Time> = ups.map(|(at, _)| *at).collect();
    assert_eq!(ups, [Time::ZERO, Time::from_secs(1)]);
}

#[test]
fn a_restart_while_it_runs_is_a_crash_too() {
    let mut net = pair();
    for down in [1, 2] {
        let down = Duration::from_secs(down);
        net.strike(&Fault::Crash {
            node: 0,
            down,
            skew_s: 0,
        });
    }
    let happened = net.run_until(Time::from_secs(3));
    use Happening::{Crashed, Started};
    assert_eq!(
        happened,
        [Crashed(0), Crashed(0), Started(0), Crashed(0), Started(0)]
    );
    assert_eq!(net.life(0).number, 2);
}

#[test]
fn held_frames_arrive_in_order_when_the_fault_ends() {
    let mut net = pair();
    let lasts = Duration::from_secs(1);
    net.strike(&Fault::Hold { link: 0, lasts });
    send(&mut net, 0, b"a");
    send(&mut net, 0, b"b");
    net.run_until(Time::from_millis(999));
    assert!(got(&net, 1).is_empty());
    assert!(net.run_until_idle(Time::from_secs(2)));
    assert_eq!(got(&net, 1), [b"a", b"b"]);
    assert_eq!(net[1].heard.last().unwrap().0, Time::from_secs(1));
}

#[test]
fn an_impaired_link_is_as_good_as_before_once_it_is_mended() {
    let mut net = pair();
    net.strike(&Fault::Impair {
        link: 0,
        percent: 100,
    });
    send(&mut net, 0, b"lost");
    net.strike(&Fault::Mend { link: 0 });
    send(&mut net, 0, b"there");
    net.run_for(DELAY);
    assert_eq!(got(&net, 1), [b"there"]);
}

#[test]
fn a_fast_clock_shows_more_and_its_deadlines_come_early() {
    let mut net = pair();
    net.set_clock(0, Duration::from_secs(5), 10_000);
    net.run_until(Time::from_secs(100));
    let shown = net.with(0, |_, now| now);
    assert_eq!(shown, Time::from_secs(106));
    net.end_faults();
    net.run_until(Time::from_secs(200));
    assert_eq!(net.with(0, |_, now| now), Time::from_secs(206));
    assert_eq!(net.with(1, |_, now| now), Time::from_secs(200));
}

/// A starting node asks for the time, so only its skew is wrong then.
#[test]
fn a_wall_clock_is_set_when_its_node_starts() {
    let mut net = pair();
    net.set_clock(1, Duration::from_secs(90), 0);
    net.run_until(Time::from_secs(10));
    net.restart(1, -2_000);
    let wall = net.life(1).wall(1_000_000);
    let shown = net.with(1, |_, now| now);
    assert_eq!(shown, Time::from_secs(100));
    assert_eq!(wall.unix_millis(shown), 1_000_000 + 10_000 - 2_000);
}

#[test]
fn a_node_with_a_badly_wrong_clock_restarts_when_the_faults_end() {
    let mut net = pair();
    net.set_clock(0, TOLERATED, 0);
    net.set_clock(1, TOLERATED + Duration::from_millis(1), 0);
    net.end_faults();
    use Happening::{Crashed, Started};
    assert_eq!(net.run_for(DELAY), [Crashed(1), Started(1)]);
    assert_eq!(
        [0, 1].map(|node| net.wall_error(node)),
        [TOLERATED, Duration::ZERO]
    );
}

#[test]
fn a_caller_that_moves_comes_in_on_another_port_and_the_old_one_closes() {
    let mut net = Net::new(1);
    let first = net.add("caller", remembering);
    let second = net.add("listener", remembering);
    let link = link().with_origins(PortOrigin::Configured(0), PortOrigin::Accepted(0));
    let connection = net.connect(first, second, &link).unwrap();
    net.strike(&Fault::Move { link: 0 });
    let ports = net.sim().node_ports(net.id(1)).to_vec();
    let [old, new] = ports[..] else {
        panic!("{ports:?}");
    };
    assert_eq!(old, connection.b);
    send(&mut net, 0, b"from the new address");
    net.run_for(DELAY);
    assert_eq!(got(&net, 1), [&b"from the new address"[..]]);
    // What still goes to the old address is lost; what goes to the new one arrives.
    net.with(1, |probe, _| probe.send(old, "to the old"));
    net.with(1, |probe, _| probe.send(new, "to the new"));
    net.run_for(DELAY);
    assert_eq!(got(&net, 0), [&b"to the new"[..]]);
    assert!(net.sim().is_open(old));
    net.run_for(Duration::from_secs(61));
    assert!(!net.sim().is_open(old) && net.sim().is_open(new));
}

#[test]
fn a_wall_clock_is_set_as_far_as_it_may_be_and_right_when_faults_end() {
    let mut net = pair();
    let lives = Rc::new(RefCell::new(Vec::new()));
    let set = Rc::clone(&lives);
    let max_skew = |node| Duration::from_secs(100 * node as u64);
    net.allow_setting_time(max_skew, move |life, _, _| {
        set.borrow_mut().push((life.node, life.skew_ms))
    });
    for node in [0, 1] {
        net.strike(&Fault::SetTime { node, skew_s: 90 });
    }
    assert_eq!(*lives.borrow(), [(1, 90_000)]);
    assert_eq!(net.wall_error(1), Duration::from_secs(90));
    net.end_faults();
    assert_eq!(*lives.borrow(), [(1, 90_000), (1, 0)]);
    assert_eq!(net.wall_error(1), Duration::ZERO);
    assert_eq!(net.life(1).number, 0);
}

#[test]
fn a_script_says_which_frames_are_lost() {
    let mut net = pair();
    net.lose(0, Direction::AToB, &[true, false, true]);
    for number in 0..5 {
        send(&mut net, 0, &[number]);
    }
    net.run_for(DELAY);
    assert_eq!(got(&net, 1), [[1], [3], [4]]);
}

#[test]
fn after_any_faults_the_net_carries_frames_again() {
    let mut rng = SeededRng::new(3);
    for seed in 0..200 {
        let mut net = Net::pair(seed, &link(), remembering).unwrap();
        let steps: Vec<Step<Fault>> = (0..20)
            .map(|_| Step {
                after: Duration::from_millis(rng.below(500)),
                act: Fault::draw(&mut rng),
            })
            .collect();
        net.suffer(&steps);
        net.end_faults();
        net.run_for(Duration::from_secs(1));
        for (from, to) in [(0, 1), (1, 0)] {
            let before = got(&net, to).len();
            send(&mut net, from, b"frame");
            net.run_for(DELAY);
            assert_eq!(got(&net, to).len(), before + 1, "{steps:?}");
        }
        assert!(net.run_until_idle(Time::MAX), "{steps:?}");
    }
}

#[test]
fn port_requests_can_be_answered_by_hand() {
    let mut net = pair();
    let (id, port) = (net.id(0), net.port(0));
    net.sim_mut().answer_requests_by_hand(id);
    let open = PortRequest::Open {
        token: PortToken(3),
        label: String::from("more"),
        endpoint: Endpoint::Unix {
            path: "/run/more".into(),
        },
    };
    net.with(0, |probe, _| probe.request(open.clone()));
    net.with(0, |probe, _| probe.request(PortRequest::Close(port)));
    assert_eq!(net.sim_mut().poll_request(), Some((id, open)));
    assert_eq!(
        net.sim_mut().poll_request(),
        Some((id, PortRequest::Close(port)))
    );
    assert_eq!(net.sim_mut().poll_request(), None);
    assert!(net.sim().is_open(port));
    net.sim_mut().close_port(id, port);
    assert!(!net.sim().is_open(port));
}

#[test]
fn a_machine_s_reaction_to_a_closed_port_takes_effect_at_once() {
    let mut net = pair();
    let (id, port) = (net.id(0), net.port(0));
    net.connect(0, 1, &link()).unwrap();
    let other = net.sim().node_ports(id)[1];
    net.with(0, |probe, _| probe.send_when_down(other, b"goodbye"));
    net.sim_mut().close_port(id, port);
    net.run_for(DELAY);
    assert_eq!(got(&net, 1), [b"goodbye"]);
}

#[test]
#[should_panic(expected = "'first' sends by port 0, which is blocked")]
fn a_machine_that_sends_to_a_blocked_port_is_caught() {
    let mut net = pair();
    let (id, port) = (net.id(0), net.port(0));
    net.sim_mut().set_blocked(id, port, true);
    assert_eq!(
        net[0].heard.last().unwrap().1,
        Heard::Port(port, PortEvent::Blocked)
    );
    send(&mut net, 0, b"frame");
}
