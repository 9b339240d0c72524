//! Hosts and emulated links, on real namespaces and the kernel's own network stack.
//!
//! Times are bounded only from below, by physics: a busy machine is slow, never early.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod baselines;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{SERVER_LINK, fig7};
use whimbrel_lab::scenario::netns;
use whimbrel_lab::{
    DirectionReport, LabError, LinkReport, Namespace, Scheduling, Topology, TopologyBuilder,
    lab_available,
};
use whimbrel_sim::link::{LinkSpec, Loss, Outage};

const PATIENCE: Duration = Duration::from_secs(5);

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn delayed(delay: Duration) -> LinkSpec {
    LinkSpec {
        delay,
        ..LinkSpec::default()
    }
}

fn pair(seed: u64, forward: LinkSpec, backward: LinkSpec) -> Topology {
    TopologyBuilder::new(seed)
        .host("a")
        .host("b")
        .link("ab", "a", "b", forward, backward)
        .build()
        .unwrap()
}

fn adds_up(report: &DirectionReport) {
    assert_eq!(
        report.offered + report.duplicated,
        report.delivered + report.dropped() + report.under_way,
        "{report:?}"
    );
}

/// Waits until no packet is under way. Returns the reports.
fn final_reports(topology: &Topology) -> Vec<LinkReport> {
    loop {
        let reports = topology.link_reports().unwrap();
        if reports
            .iter()
            .all(|link| link.forward.under_way == 0 && link.backward.under_way == 0)
        {
            return reports;
        }
        std::thread::sleep(millis(10));
    }
}

#[test]
fn a_ping_crosses_the_topology_of_figure_7_and_takes_at_least_the_configured_time() {
    if !lab_available() {
        return;
    }
    let plan = fig7(
        1,
        &[
            ("links.N2-N3.delay", "\"10 ms\""),
            ("links.N3-N4.delay", "\"3 ms\""),
        ],
    );
    let topology = netns::topology(&plan, plan.seed).unwrap();
    let server = topology.address_towards("N1", "N4").unwrap();
    assert_eq!(server, topology.address_of("N1", SERVER_LINK).unwrap());
    let report = topology
        .host("N4")
        .unwrap()
        .ping(server, 5, millis(10), PATIENCE)
        .unwrap();
    assert_eq!(report.received(), 5);
    assert!(report.min().unwrap() >= 0.026, "{report:?}");
    let reports = final_reports(&topology);
    assert_eq!(reports.len(), 3);
    for link in &reports {
        adds_up(&link.forward);
        adds_up(&link.backward);
        assert!(
            link.forward.delivered >= 5 && link.backward.delivered >= 5,
            "{link:?}"
        );
    }
}

#[test]
fn both_directions_keep_their_own_delay_and_order() {
    if !lab_available() {
        return;
    }
    let topology = pair(2, delayed(millis(30)), delayed(Duration::ZERO));
    let (a, b) = (topology.host("a").unwrap(), topology.host("b").unwrap());
    let address = topology.address_of("b", "ab").unwrap();
    let receiver = b.enter(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let sender = a
        .enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
        .unwrap()
        .unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let sent = Instant::now();
    for number in 0u32..50 {
        sender.send(&number.to_be_bytes()).unwrap();
    }
    let mut buffer = [0; 4];
    for number in 0u32..50 {
        receiver.recv(&mut buffer).unwrap();
        assert_eq!(u32::from_be_bytes(buffer), number);
    }
    assert!(sent.elapsed() >= millis(30));
    let back = sender.local_addr().unwrap();
    receiver.send_to(b"back", back).unwrap();
    sender.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(sender.recv(&mut buffer).unwrap(), 4);
}

#[test]
fn an_outage_loses_packets_and_its_end_lets_them_through_again() {
    if !lab_available() {
        return;
    }
    let topology = pair(3, LinkSpec::default(), LinkSpec::default());
    let (a, target) = (
        topology.host("a").unwrap(),
        topology.address_of("b", "ab").unwrap(),
    );
    let ping = |count, patience| {
        a.ping(target, count, millis(1), patience)
            .unwrap()
            .received()
    };
    assert_eq!(ping(3, PATIENCE), 3);
    topology.set_outage("ab", true).unwrap();
    assert_eq!(ping(3, millis(50)), 0);
    topology.set_outage("ab", false).unwrap();
    assert_eq!(ping(3, PATIENCE), 3);
    let reports = final_reports(&topology);
    assert_eq!(reports[0].forward.dropped_outage, 3);
    adds_up(&reports[0].forward);
}

#[test]
fn a_schedule_begins_when_it_is_armed_and_at_no_other_time() {
    if !lab_available() {
        return;
    }
    let forever = Outage::Once {
        start: Duration::ZERO,
        duration: Duration::from_secs(3600),
    };
    let spec = LinkSpec {
        outages: vec![forever],
        ..LinkSpec::default()
    };
    let topology = pair(4, spec, LinkSpec::default());
    let (a, target) = (
        topology.host("a").unwrap(),
        topology.address_of("b", "ab").unwrap(),
    );
    assert_eq!(
        a.ping(target, 2, millis(1), PATIENCE).unwrap().received(),
        2
    );
    topology.arm(Instant::now()).unwrap();
    assert_eq!(
        a.ping(target, 2, millis(1), millis(50)).unwrap().received(),
        0
    );
    topology.set_spec("ab", "a", &LinkSpec::default()).unwrap();
    assert_eq!(
        a.ping(target, 2, millis(1), PATIENCE).unwrap().received(),
        2
    );
    let report = &final_reports(&topology)[0];
    assert_eq!(
        (report.forward.dropped_outage, report.forward.delivered),
        (2, 2)
    );
    assert_eq!(
        report.backward.delivered, 2,
        "counters start with the arming"
    );
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    if !lab_available() {
        return;
    }
    let lossy = LinkSpec::default().with_loss(Loss::Independent(0.3));
    let arrivals = |topology: &Topology| {
        topology.arm(Instant::now()).unwrap();
        let address = topology.address_of("b", "ab").unwrap();
        let (a, b) = (topology.host("a").unwrap(), topology.host("b").unwrap());
        let receiver = b.enter(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
        let sender = a
            .enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
            .unwrap()
            .unwrap();
        (0u8..100).for_each(|number| {
            sender
                .send_to(&[number], receiver.local_addr().unwrap())
                .unwrap();
        });
        while topology.link_reports().unwrap()[0].forward.offered < 100 {
            std::thread::sleep(millis(5));
        }
        let delivered = final_reports(topology)[0].forward.delivered;
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = [0];
        (0..delivered)
            .map(|_| receiver.recv(&mut buffer).map(|_| buffer[0]).unwrap())
            .collect::<Vec<u8>>()
    };
    let topology = pair(5, lossy.clone(), LinkSpec::default());
    let first = arrivals(&topology);
    assert!(first.len() > 40 && first.len() < 95, "{first:?}");
    assert_eq!(arrivals(&topology), first);
    assert_eq!(
        arrivals(&pair(5, lossy.clone(), LinkSpec::default())),
        first
    );
    assert_ne!(arrivals(&pair(6, lossy, LinkSpec::default())), first);
}

#[test]
fn corrupted_packets_reach_the_kernel_or_are_counted_as_refused() {
    if !lab_available() {
        return;
    }
    let corrupting = LinkSpec {
        corrupt: 1.0,
        ..LinkSpec::default()
    };
    let topology = pair(10, corrupting, LinkSpec::default());
    let target = topology.address_of("b", "ab").unwrap();
    let a = topology.host("a").unwrap();
    let sender = a
        .enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
        .unwrap()
        .unwrap();
    for _ in 0..1000 {
        sender.send_to(b"x", (target, 9)).unwrap();
    }
    while topology.link_reports().unwrap()[0].forward.offered < 1000 {
        std::thread::sleep(millis(5));
    }
    let forward = &final_reports(&topology)[0].forward;
    assert_eq!((forward.corrupted, forward.delivered), (1000, 1000));
    // Three of the 232 bits of such a packet make its version neither 4 nor 6.
    assert!(forward.refused > 0 && forward.refused < 100, "{forward:?}");
    topology.set_spec("ab", "a", &LinkSpec::default()).unwrap();
    assert_eq!(
        a.ping(target, 1, Duration::ZERO, PATIENCE)
            .unwrap()
            .received(),
        1
    );
}

#[test]
fn settings_interfaces_and_processes_belong_to_one_host_alone() {
    if !lab_available() {
        return;
    }
    let (a, b) = (Namespace::new("a").unwrap(), Namespace::new("b").unwrap());
    let outside = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
    a.set_sysctl("net.ipv4.tcp_rmem", "4096 50000 60000")
        .unwrap();
    assert_eq!(a.sysctl("net.ipv4.tcp_rmem").unwrap(), "4096\t50000\t60000");
    assert_ne!(b.sysctl("net.ipv4.tcp_rmem").unwrap(), "4096\t50000\t60000");
    assert_eq!(
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap(),
        outside
    );
    assert_eq!(
        a.run("cat", &["/proc/sys/net/ipv4/tcp_rmem"])
            .unwrap()
            .trim(),
        "4096\t50000\t60000"
    );
    let devices = a.run("cat", &["/proc/self/net/dev"]).unwrap();
    let interfaces: Vec<_> = devices
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next())
        .collect();
    assert!(
        interfaces.iter().any(|name| name.trim() == "lo"),
        "{devices}"
    );
    assert!(!devices.contains("eth0"), "{devices}");
    assert_eq!(
        a.ping(Ipv4Addr::LOCALHOST, 1, millis(1), PATIENCE)
            .unwrap()
            .received(),
        1
    );
    let thread = a.spawn_thread("inside", || {
        std::fs::read_link("/proc/thread-self/ns/net").unwrap()
    });
    let here = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let inside = thread.unwrap().join().unwrap();
    assert_ne!(inside, here);
    assert_eq!(
        a.enter(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap())
            .unwrap(),
        inside
    );
    assert_eq!(
        std::fs::read_link("/proc/thread-self/ns/net").unwrap(),
        here
    );
}

#[test]
fn errors_say_which_step_failed_and_why() {
    if !lab_available() {
        return;
    }
    let host = Namespace::new("a").unwrap();
    let error = host
        .run("ip", &["link", "set", "nothing", "up"])
        .unwrap_err();
    assert!(matches!(error, LabError::CommandFailed { .. }));
    let text = error.to_string();
    assert!(
        text.contains("ip link set nothing up") && text.contains("Cannot find device"),
        "{text}"
    );
    let error = host
        .spawn(Command::new("whimbrel-no-such-program"))
        .unwrap_err();
    assert!(matches!(error, LabError::MissingProgram { .. }), "{error}");
    assert!(host.set_sysctl("net.ipv4.no_such_setting", "1").is_err());
    host.shut_down();
    let error = host.spawn(Command::new("true")).unwrap_err();
    assert!(error.to_string().contains("shut down"), "{error}");
    let zero = LinkSpec::new(0, Duration::ZERO);
    let built = TopologyBuilder::new(1)
        .host("a")
        .host("b")
        .link("ab", "a", "b", zero.clone(), zero)
        .build();
    assert!(matches!(built, Err(LabError::BadTopology(_))));
}

#[test]
fn programs_can_be_waited_for_signalled_and_ended() {
    if !lab_available() {
        return;
    }
    let host = Namespace::new("a").unwrap();
    let sleeper = || {
        let mut command = Command::new("sleep");
        command.arg("1000");
        host.spawn(command).unwrap()
    };
    let mut process = sleeper();
    assert_eq!(process.wait_for(millis(20)).unwrap(), None);
    assert!(!process.terminate(PATIENCE).unwrap().success());
    assert!(process.try_wait().unwrap().is_some());
    let mut process = sleeper();
    assert_eq!(process.kill().unwrap().code(), None);
    let mut stubborn = Command::new("sh");
    stubborn
        .args(["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
        .stdout(Stdio::piped());
    let mut process = host.spawn(stubborn).unwrap();
    let mut ready = [0; 5];
    std::io::Read::read_exact(&mut process.take_stdout().unwrap(), &mut ready).unwrap();
    assert!(process.wait_for(Duration::ZERO).unwrap().is_none());
    process.terminate(millis(50)).unwrap();
    assert!(process.try_wait().unwrap().is_some());
}

#[test]
fn dropping_a_topology_leaves_no_process_no_namespace_and_no_device() {
    if !lab_available() {
        return;
    }
    let topology = netns::topology(&fig7(11, &[]), 11).unwrap();
    let host = topology.host("N2").unwrap().clone();
    let mut command = Command::new("sh");
    // A grandchild that has left its group and its parent.
    command
        .args(["-c", "setsid sleep 4242 & echo $!; sleep 4242"])
        .stdout(Stdio::piped());
    let mut process = host.spawn(command).unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(process.take_stdout().unwrap()),
        &mut line,
    )
    .unwrap();
    let inside = host
        .enter(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap())
        .unwrap();
    assert!(
        processes_in(&inside) >= 3,
        "the first process, the shell and its children"
    );
    let scheduling = topology.link_reports().unwrap()[0].scheduling;
    eprintln!("the emulator runs as {scheduling:?}");
    assert!(matches!(
        scheduling,
        Scheduling::RealTime | Scheduling::Raised | Scheduling::Ordinary
    ));
    drop(topology);
    assert!(
        process.wait().unwrap().code().is_none(),
        "killed with its host"
    );
    drop(process);
    drop(host);
    assert_eq!(processes_in(&inside), 0);
    let held = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    assert!(
        held.filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .all(|target| target != inside)
    );
    // The namespace is gone, and with it all its devices: they could only be here, and are not.
    let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    assert!(
        !devices.contains("link0") && !devices.contains("link1"),
        "{devices}"
    );
}

fn processes_in(namespace: &std::path::Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| {
            std::fs::read_link(entry.path().join("ns/net")).is_ok_and(|ns| ns == namespace)
        })
        .count()
}
