//! The simulator's order, rounds, deadlines, ports, faults and traces.
#![allow(
    clippy::unwrap_used,
    reason = "a test that finds nothing to unwrap has failed"
)]

use core::time::Duration;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use whimbrel_core::{
    Deadline, Endpoint, Machine, Medium, OpenRefusal, PortEvent, PortId, PortInfo, PortOrigin,
    PortRequest, PortToken, Time, Transmit,
};
use whimbrel_sim::link::{LinkSpec, LinkSpecError, Loss};
use whimbrel_sim::trace::JsonLines;
use whimbrel_sim::{AnyMachine, Connection, Direction, Door, DuplexLink, NodeId, Simulator};

/// A call to a [`Probe`].
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Up(PortId, PortInfo),
    Down(PortId),
    Frame(PortId, Vec<u8>),
    Timeout,
}

/// Records all calls, echoes frames if told to, and keeps the deadlines that it is given.
#[derive(Debug, Default)]
struct Probe {
    refused: Vec<PortToken>,
    told: Vec<(Time, Told)>,
    outgoing: VecDeque<(PortId, Vec<Vec<u8>>)>,
    requests: VecDeque<PortRequest>,
    events: VecDeque<Told>,
    deadlines: VecDeque<Time>,
    echo: bool,
    rounds: usize,
}

impl Probe {
    fn echoing() -> Probe {
        Probe {
            echo: true,
            ..Probe::default()
        }
    }

    fn send(&mut self, port: PortId, frame: &[u8]) {
        self.outgoing.push_back((port, vec![frame.to_vec()]));
    }

    fn frames(&self) -> Vec<(Time, Vec<u8>)> {
        self.told
            .iter()
            .filter_map(|(at, told)| match told {
                Told::Frame(_, bytes) => Some((*at, bytes.clone())),
                _ => None,
            })
            .collect()
    }

    fn timeouts(&self) -> Vec<Time> {
        self.told
            .iter()
            .filter(|(_, told)| *told == Told::Timeout)
            .map(|(at, _)| *at)
            .collect()
    }
}

impl Machine for Probe {
    type Event = Told;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        match event {
            PortEvent::Up(info) => self.told.push((now, Told::Up(port, info))),
            PortEvent::Down => self.told.push((now, Told::Down(port))),
            _ => {}
        }
    }

    fn handle_refusal(&mut self, _: Time, token: PortToken, _: OpenRefusal) {
        self.refused.push(token);
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            self.told.push((now, Told::Frame(port, frame.to_vec())));
            self.events.push_back(Told::Frame(port, frame.to_vec()));
            if self.echo {
                self.send(port, frame);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.told.push((now, Told::Timeout));
        while self.deadlines.front().is_some_and(|at| *at <= now) {
            self.deadlines.pop_front();
        }
    }

    fn poll_transmit(
        &mut self,
        _now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let Some((port, frames)) = self.outgoing.pop_front() else {
            self.rounds += 1;
            return None;
        };
        assert!(frames.len() <= max_segments);
        let start = buffer.len();
        frames
            .iter()
            .for_each(|frame| buffer.extend_from_slice(frame));
        let segment_size = (frames.len() > 1).then(|| frames[0].len());
        Some(Transmit {
            port,
            size: buffer.len() - start,
            segment_size,
        })
    }

    fn poll_event(&mut self) -> Option<Told> {
        self.events.pop_front()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.requests.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.deadlines.front().map(|at| Deadline::new(*at, "probe"))
    }
}

fn delay(millis: u64) -> LinkSpec {
    LinkSpec {
        delay: Duration::from_millis(millis),
        ..LinkSpec::default()
    }
}

fn pair(spec: LinkSpec, a: Probe, b: Probe) -> (Simulator<Probe>, NodeId, NodeId, Connection) {
    let mut sim = Simulator::new(1);
    let (a, b) = (sim.add_node("a", a), sim.add_node("b", b));
    let link = sim
        .connect(
            a,
            b,
            &DuplexLink::symmetric(spec).with_labels("to-b", "to-a"),
        )
        .unwrap();
    (sim, a, b, link)
}

#[test]
fn both_ends_learn_of_their_ports_and_frames_take_the_delay_each_way() {
    let (mut sim, a, b, link) = pair(delay(10), Probe::default(), Probe::echoing());
    let info = PortInfo {
        label: "to-b".into(),
        origin: PortOrigin::Configured(0),
        mtu: 1472,
        peer: "b port 1".into(),
        medium: Medium::Unaddressed,
    };
    assert_eq!(sim.node(a).told, [(Time::ZERO, Told::Up(link.a, info))]);
    sim.with_node(a, |m, _| m.send(link.a, b"hello"));
    assert!(sim.run_until_idle(Time::from_secs(1)));
    assert_eq!(
        sim.node(b).frames(),
        [(Time::from_millis(10), b"hello".to_vec())]
    );
    assert_eq!(
        sim.node(a).frames(),
        [(Time::from_millis(20), b"hello".to_vec())]
    );
    assert_eq!(sim.now(), Time::from_millis(20));
    assert_eq!((sim.stats().transmitted, sim.stats().delivered), (2, 2));
}

#[test]
fn a_batch_is_cut_into_its_frames_and_taken_in_one_round() {
    let (mut sim, a, b, link) = pair(delay(1), Probe::default(), Probe::default());
    let rounds = sim.node(b).rounds;
    let batch = vec![b"abc".to_vec(), b"def".to_vec(), b"g".to_vec()];
    sim.with_node(a, |m, _| m.outgoing.push_back((link.a, batch.clone())));
    sim.run_until_idle(Time::from_secs(1));
    assert_eq!(
        sim.node(b)
            .frames()
            .into_iter()
            .map(|(_, frame)| frame)
            .collect::<Vec<_>>(),
        batch
    );
    assert_eq!(
        sim.node(b).rounds,
        rounds + 2,
        "one drain, and a second one because it gave events"
    );
}

#[test]
fn encapsulation_takes_time_and_larger_frames_than_the_mtu_are_counted() {
    let (mut sim, a, b, link) = pair(
        LinkSpec::new(8_000_000, Duration::ZERO),
        Probe::default(),
        Probe::default(),
    );
    sim.with_node(a, |m, _| {
        m.send(link.a, &[0; 1472]);
        m.send(link.a, &[0; 1473]);
    });
    sim.run_until_idle(Time::from_secs(1));
    assert_eq!(
        sim.node(b)
            .frames()
            .iter()
            .map(|(at, _)| *at)
            .collect::<Vec<_>>(),
        [Time::from_nanos(1_500_000)]
    );
    assert_eq!(sim.stats().dropped_oversize, 1);
    assert_eq!(sim.link_stats(link.link, Direction::AToB).delivered, 1);
    assert_eq!(sim.link_stats(link.link, Direction::BToA).offered, 0);
}

#[test]
fn a_deadline_is_kept_to_the_nanosecond_also_when_it_moves() {
    let mut sim = Simulator::new(1);
    let at = Time::from_nanos;
    let node = sim.add_node(
        "n",
        Probe {
            deadlines: [at(500)].into(),
            ..Probe::default()
        },
    );
    sim.run_until(at(100));
    sim.with_node(node, |m, _| m.deadlines = [at(900)].into());
    sim.run_until(at(899));
    assert_eq!(sim.node(node).timeouts(), []);
    sim.with_node(node, |m, _| m.deadlines.push_front(at(899)));
    sim.run_until(at(899));
    assert_eq!(sim.node(node).timeouts(), [at(899)]);
    sim.run_until_idle(at(5_000));
    assert_eq!(sim.node(node).timeouts(), [at(899), at(900)]);
    sim.with_node(node, |m, _| m.deadlines = [at(2_000)].into());
    sim.with_node(node, |m, _| m.deadlines.clear());
    assert!(sim.run_until_idle(at(9_000)));
    assert_eq!(
        sim.node(node).timeouts().len(),
        2,
        "a withdrawn deadline is not called"
    );
}

#[test]
#[should_panic(expected = "asks at 0.000000000s without end to be woken because of: probe")]
fn a_machine_that_stops_time_is_named_in_the_panic() {
    struct Stuck;
    impl Machine for Stuck {
        type Event = ();
        fn handle_port(&mut self, _: Time, _: PortId, _: PortEvent) {}
        fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

        fn handle_frames(&mut self, _: Time, _: PortId, _: &[&[u8]]) {}
        fn handle_timeout(&mut self, _: Time) {}
        fn poll_transmit(&mut self, _: Time, _: usize, _: &mut Vec<u8>) -> Option<Transmit> {
            None
        }
        fn poll_event(&mut self) -> Option<()> {
            None
        }
        fn poll_port_request(&mut self) -> Option<PortRequest> {
            None
        }

        fn poll_timeout(&self) -> Option<Deadline> {
            Some(Deadline::new(Time::ZERO, "probe"))
        }
    }
    let mut stuck = Simulator::new(1);
    stuck.add_node("stuck", Stuck);
    stuck.run_until(Time::from_secs(1));
}

#[test]
fn simultaneous_events_happen_in_the_order_of_scheduling() {
    let (mut sim, a, b, link) = pair(delay(5), Probe::default(), Probe::default());
    let order = Rc::new(RefCell::new(Vec::new()));
    let note = |what: &'static str| {
        let order = Rc::clone(&order);
        move |_: &mut Simulator<Probe>| order.borrow_mut().push(what)
    };
    sim.schedule(Time::from_millis(5), note("first"));
    sim.with_node(a, |m, _| m.send(link.a, b"x"));
    sim.schedule(Time::from_millis(5), note("third"));
    sim.schedule(Time::from_millis(1), note("zeroth"));
    let seen = Rc::clone(&order);
    sim.set_hook(b, move |_, _, _| seen.borrow_mut().push("frame"));
    sim.run_until_idle(Time::from_secs(1));
    assert_eq!(*order.borrow(), ["zeroth", "first", "frame", "third"]);
}

#[test]
fn events_go_to_the_hook_or_else_to_the_queue() {
    let (mut sim, a, b, link) = pair(delay(1), Probe::default(), Probe::default());
    sim.with_node(a, |m, _| m.send(link.a, b"one"));
    sim.run_until(Time::from_millis(1));
    let occurrence = sim.poll_event().unwrap();
    assert_eq!(
        (occurrence.time, occurrence.node),
        (Time::from_millis(1), b)
    );
    assert_eq!(sim.poll_event(), None);
    // The hook may act on the simulation.
    sim.set_hook(b, move |sim, node, event| {
        if let Told::Frame(port, bytes) = event {
            sim.with_node(node, |m, _| m.send(port, &[&bytes[..], b"!"].concat()));
        }
    });
    sim.with_node(a, |m, _| m.send(link.a, b"two"));
    sim.run_until_idle(Time::from_secs(1));
    assert_eq!(
        sim.node(a).frames(),
        [(Time::from_millis(3), b"two!".to_vec())]
    );
}

#[test]
fn a_partition_loses_frames_until_it_is_repaired() {
    let (mut sim, a, b, link) = pair(delay(1), Probe::default(), Probe::default());
    for millis in 0..10 {
        sim.schedule(Time::from_millis(millis), move |sim| {
            sim.with_node(a, |m, _| m.send(link.a, &[millis as u8]));
        });
    }
    sim.schedule(Time::from_millis(3), move |sim| sim.partition(link.link));
    sim.schedule(Time::from_millis(6), move |sim| sim.repair(link.link));
    sim.run_until_idle(Time::from_secs(1));
    let got: Vec<u8> = sim
        .node(b)
        .frames()
        .iter()
        .map(|(_, frame)| frame[0])
        .collect();
    // The frame at 3 ms was sent before the partition, and on an unlimited link it had left. The
    // frame at 6 ms met the partition.
    assert_eq!(got, [0, 1, 2, 3, 7, 8, 9]);
    assert_eq!(sim.stats().dropped_by_links, 3);
}

#[test]
fn a_held_link_delivers_everything_at_its_release() {
    let (mut sim, a, b, link) = pair(delay(1), Probe::default(), Probe::default());
    sim.hold(link.link);
    sim.with_node(a, |m, _| (0..3).for_each(|n| m.send(link.a, &[n])));
    sim.run_until(Time::from_millis(50));
    assert_eq!(sim.node(b).frames(), []);
    sim.release(link.link);
    sim.run_until_idle(Time::from_secs(1));
    let expected: Vec<_> = (0..3).map(|n| (Time::from_millis(50), vec![n])).collect();
    assert_eq!(sim.node(b).frames(), expected);
}

#[test]
fn a_crashed_node_gets_nothing_and_a_fresh_machine_gets_its_ports_again() {
    let (mut sim, a, b, link) = pair(delay(1), Probe::default(), Probe::default());
    sim.with_node(b, |m, _| m.deadlines = [Time::from_millis(2)].into());
    sim.crash(b);
    sim.with_node(a, |m, _| m.send(link.a, b"lost"));
    sim.run_until(Time::from_millis(5));
    assert!(!sim.is_running(b));
    assert_eq!(
        (sim.stats().dropped_node_down, sim.node(b).timeouts().len()),
        (1, 0)
    );
    let old = sim.restart(b, Probe::default());
    assert_eq!(old.told.len(), 1);
    assert!(
        matches!(&sim.node(b).told[..], [(at, Told::Up(port, _))] if *at == sim.now() && *port == link.b)
    );
    sim.with_node(a, |m, _| m.send(link.a, b"back"));
    sim.run_until_idle(Time::from_secs(1));
    assert_eq!(
        sim.node(b).frames(),
        [(Time::from_millis(6), b"back".to_vec())]
    );
}

#[test]
fn a_closed_port_goes_down_and_neither_sends_nor_receives() {
    let (mut sim, a, b, link) = pair(delay(1), Probe::default(), Probe::default());
    sim.with_node(b, |m, _| m.requests.push_back(PortRequest::Close(link.b)));
    assert_eq!(sim.node(b).told.last().unwrap().1, Told::Down(link.b));
    sim.with_node(a, |m, _| m.send(link.a, b"x"));
    sim.with_node(b, |m, _| m.send(link.b, b"y"));
    sim.with_node(b, |m, _| m.send(link.a, b"not its port"));
    sim.run_until_idle(Time::from_secs(1));
    assert_eq!(
        (sim.node(a).frames().len(), sim.node(b).frames().len()),
        (0, 0)
    );
    assert_eq!(sim.stats().dropped_port_closed, 3);
}

#[test]
fn a_link_can_change_while_it_runs() {
    let (mut sim, a, b, link) = pair(delay(1), Probe::default(), Probe::default());
    let slow = LinkSpec::new(8_000, Duration::ZERO);
    sim.set_link_spec(link.link, Direction::AToB, &slow)
        .unwrap();
    assert_eq!(
        sim.set_link_spec(
            link.link,
            Direction::AToB,
            &LinkSpec::new(0, Duration::ZERO)
        ),
        Err(LinkSpecError::ZeroRate)
    );
    sim.with_node(a, |m, _| m.send(link.a, &[0; 972]));
    sim.run_until_idle(Time::from_secs(5));
    assert_eq!(
        sim.node(b).frames()[0].0,
        Time::from_secs(1),
        "972 bytes and 28 of encapsulation at 1 kB/s"
    );
}

#[test]
fn run_while_stops_as_soon_as_the_condition_ends() {
    let (mut sim, a, b, link) = pair(delay(1), Probe::echoing(), Probe::echoing());
    sim.with_node(a, |m, _| m.send(link.a, b"ping"));
    assert!(sim.run_while(Time::from_secs(1), |sim| sim.node(b).frames().len() < 10));
    assert_eq!(sim.now(), Time::from_millis(19));
    assert!(!sim.run_while(Time::from_millis(30), |_| true));
    assert!(
        !sim.run_until_idle(Time::from_millis(40)),
        "two echoes are never idle"
    );
}

/// A conversation over lossy links, whose whole trace is hashed.
fn chatter(seed: u64, payload: u8) -> ([u8; 32], u64) {
    let mut sim = Simulator::new(seed);
    sim.trace.enable_hash();
    let nodes: Vec<NodeId> = (0..4)
        .map(|n| sim.add_node(&format!("n{n}"), Probe::echoing()))
        .collect();
    let spec = LinkSpec {
        jitter: Duration::from_micros(500),
        duplicate: 0.02,
        corrupt: 0.02,
        ..delay(1)
    }
    .with_loss(Loss::Independent(0.02));
    for ends in [(0, 1), (1, 2), (2, 3), (3, 0)] {
        let link = DuplexLink::symmetric(spec.clone());
        let link = sim.connect(nodes[ends.0], nodes[ends.1], &link).unwrap();
        sim.with_node(nodes[ends.0], |m, _| {
            (0..8).for_each(|n| m.send(link.a, &[n, payload, 7]))
        });
    }
    sim.run_until(Time::from_millis(200));
    (sim.trace.hash().unwrap(), sim.stats().delivered)
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_or_byte_another() {
    let (hash, delivered) = chatter(1, 0);
    assert!(delivered > 500, "{delivered}");
    assert_eq!(chatter(1, 0), (hash, delivered));
    assert_ne!(chatter(2, 0).0, hash);
    assert_ne!(chatter(1, 1).0, hash);
}

#[test]
fn the_written_trace_has_a_line_for_each_record() {
    let (mut sim, a, _, link) = pair(
        delay(1).with_loss(Loss::Independent(0.5)),
        Probe::default(),
        Probe::default(),
    );
    let lines = Rc::new(RefCell::new(JsonLines::new(Vec::new())));
    sim.trace.set_sink(Some(Box::new(Rc::clone(&lines))));
    sim.with_node(a, |m, _| (0..20).for_each(|n| m.send(link.a, &[n])));
    sim.run_until_idle(Time::from_secs(1));
    sim.trace.set_sink(None);
    let lines = Rc::try_unwrap(lines)
        .unwrap()
        .into_inner()
        .finish()
        .unwrap();
    let parsed: Vec<serde_json::Value> = String::from_utf8(lines)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let count = |kind: &str| parsed.iter().filter(|line| line["kind"] == kind).count() as u64;
    assert_eq!(
        (count("transmit"), count("deliver")),
        (20, sim.stats().delivered)
    );
    assert_eq!(count("drop-loss"), sim.stats().dropped_by_links);
    assert!(count("drop-loss") > 3);
    let delivered = parsed
        .iter()
        .find(|line| line["kind"] == "deliver")
        .unwrap();
    assert_eq!(
        (&delivered["time_ns"], &delivered["node"]),
        (&1_000_000.into(), &1.into())
    );
}

#[test]
fn machines_of_different_types_meet_in_one_network() {
    let mut sim: Simulator<AnyMachine<usize>> = Simulator::new(1);
    let length = |told| match told {
        Told::Frame(_, bytes) => bytes.len(),
        _ => 0,
    };
    let a = sim.add_node("a", AnyMachine::new(Probe::default(), length));
    let b = sim.add_node("b", AnyMachine::new(Probe::echoing(), length));
    let link = sim.connect(a, b, &DuplexLink::local()).unwrap();
    sim.with_node(a, |m, _| {
        m.get_mut::<Probe>().unwrap().send(link.a, &[0; 70_000])
    });
    sim.run_until_idle(Time::from_secs(1));
    assert_eq!(
        sim.poll_event()
            .map(|occurrence| (occurrence.node, occurrence.event)),
        Some((b, 70_000))
    );
    assert_eq!(sim.node(a).get::<Probe>().unwrap().frames().len(), 1);
    assert!(sim.node(a).get::<whimbrel_sim::tcp::Relay>().is_none());
}

fn door(endpoint: Endpoint, node: NodeId) -> Door {
    Door {
        endpoint,
        node,
        origin: PortOrigin::Accepted(7),
        link: DuplexLink::symmetric(delay(5)),
    }
}

#[test]
fn a_machine_is_connected_to_the_requested_door_or_refused() {
    let address = |port: u16| core::net::SocketAddr::from(([10, 0, 0, 1], port));
    let udp = |shared| Endpoint::Udp {
        remote: address(1).into(),
        shared,
    };
    let tcp = Endpoint::Tcp {
        remote: address(2).into(),
    };
    let ask = |token, endpoint| PortRequest::Open {
        token: PortToken(token),
        label: String::from("asked"),
        endpoint,
    };
    let mut sim = Simulator::new(1);
    let asking = sim.add_node("asking", Probe::default());
    let answering = sim.add_node("answering", Probe::default());
    sim.add_door(door(udp(false), answering));
    sim.add_door(door(tcp.clone(), answering));
    sim.with_node(asking, |probe, _| {
        probe.requests.push_back(ask(1, udp(true)));
        probe.requests.push_back(ask(2, tcp.clone()));
        let path = "/nowhere".into();
        probe.requests.push_back(ask(3, Endpoint::Unix { path }));
    });
    let origins = |sim: &Simulator<Probe>, node| -> Vec<PortOrigin> {
        let told = sim.node(node).told.iter();
        told.filter_map(|(_, told)| match told {
            Told::Up(_, info) => Some(info.origin),
            _ => None,
        })
        .collect()
    };
    let opened = |token| PortOrigin::Opened(PortToken(token));
    assert_eq!(origins(&sim, asking), [opened(1), opened(2)]);
    assert_eq!(origins(&sim, answering), [PortOrigin::Accepted(7); 2]);
    let refused = |sim: &Simulator<Probe>| sim.node(asking).refused.clone();
    assert_eq!(refused(&sim), [PortToken(3)]);

    // A connection needs a peer that accepts it.
    sim.crash(answering);
    sim.with_node(asking, |probe, _| probe.requests.push_back(ask(4, tcp)));
    assert_eq!(refused(&sim), [PortToken(3), PortToken(4)]);
}
