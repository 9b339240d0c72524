//! The testbed of [MFTP §5] in virtual time: every transfer here moves real bytes through the
//! machines that ship.

use core::time::Duration;

use whimbrel_core::Guid;
use whimbrel_lab::{Fig7, RepeatingContent, SimulatedFig7, SimulatedFig7Options, TransferRecord};
use whimbrel_mobilityfirst::local::FailReason;
use whimbrel_mobilityfirst::router::store::StoreLimits;
use whimbrel_sim::link::{LinkSpec, Loss, Outage};

const MIB: u64 = 1 << 20;

fn wifi() -> LinkSpec {
    LinkSpec {
        delay: Duration::from_millis(1),
        ..LinkSpec::new(25_000_000, Duration::from_millis(1))
    }
}

fn world(rtt_ms: u64, last_hop: LinkSpec, seed: u64) -> SimulatedFig7 {
    let fig7 = Fig7::new(Duration::from_millis(rtt_ms), last_hop);
    SimulatedFig7::new(&fig7, SimulatedFig7Options::default(), seed)
}

fn fetch(world: &mut SimulatedFig7, len: u64) -> TransferRecord {
    let content = RepeatingContent::new(len, 1);
    let name = content.name();
    world.publish(content);
    let transfer = world.get(name);
    let limit = world.sim.now() + Duration::from_secs(600);
    let record = world.finish(transfer, limit).expect("a transfer");
    assert!(
        record.completed,
        "only {} of {len} bytes arrived",
        record.bytes
    );
    assert_eq!(record.bytes, len);
    record
}

#[test]
fn a_content_crosses_two_routers() {
    let mut world = world(50, wifi(), 1);
    let record = fetch(&mut world, 10 * MIB);
    println!(
        "{:.3} s, {:.2} Mbit/s",
        record.finished,
        record.goodput() / 1e6
    );
    assert!(record.goodput() > 18e6, "{}", record.goodput());
}

#[test]
fn a_small_content_and_an_empty_one_arrive() {
    for len in [0, 1, 100, 40_000, 70_000] {
        let mut world = world(10, wifi(), 2);
        fetch(&mut world, len);
    }
}

/// One chunk over hops that know nothing of their paths yet: what each millisecond of round trip
/// costs.
#[test]
fn a_first_chunk_pays_for_few_round_trips() {
    let took = |rtt_ms| fetch(&mut world(rtt_ms, wifi(), 1), MIB).finished;
    let (near, far) = (took(10), took(110));
    println!(
        "1 MiB: RTT 10 ms {near:.3} s, RTT 110 ms {far:.3} s: {:.1} round trips",
        (far - near) / 0.1
    );
    assert!((far - near) / 0.1 < 6.0, "{near} s, {far} s");
}

#[test]
fn loss_on_the_last_hop_hardly_matters() {
    for rtt in [10, 50, 100] {
        let clean = fetch(&mut world(rtt, wifi(), 3), 30 * MIB).goodput();
        let lossy_hop = LinkSpec {
            loss: Loss::Independent(0.01),
            ..wifi()
        };
        let lossy = fetch(&mut world(rtt, lossy_hop, 3), 30 * MIB).goodput();
        println!(
            "RTT {rtt}: {:.2} Mbit/s, with 1 % loss {:.2} ({:.1} %)",
            clean / 1e6,
            lossy / 1e6,
            100.0 * lossy / clean
        );
        assert!(lossy > 0.95 * clean, "RTT {rtt}: {lossy} of {clean}");
    }
}

#[test]
fn an_unknown_name_fails_at_once() {
    let mut world = world(50, wifi(), 4);
    let transfer = world.get(Guid([42; 32]));
    let limit = world.sim.now() + Duration::from_secs(30);
    assert_eq!(world.finish(transfer, limit), Err(FailReason::NoSuchName));
}

#[test]
fn an_outage_costs_hardly_more_than_its_length() {
    let outage = Outage::Once {
        start: Duration::from_secs(5),
        duration: Duration::from_secs(10),
    };
    let mut world = world(
        50,
        LinkSpec {
            outages: vec![outage],
            ..wifi()
        },
        5,
    );
    let record = fetch(&mut world, 20 * MIB);
    println!(
        "{:.3} s, longest stall {:.3} s",
        record.finished, record.longest_stall
    );
    assert!(
        record.longest_stall < 10.0 + 0.15 + 1.0,
        "{}",
        record.longest_stall
    );
}

/// A flow that fills its storage during an outage: the source pauses, and goes on before the
/// storage has run dry.
#[test]
fn a_source_that_was_told_to_stop_is_told_to_go_on() {
    let outage = Outage::Once {
        start: Duration::from_secs(3),
        duration: Duration::from_secs(20),
    };
    let store = StoreLimits {
        total: 1 << 30,
        per_flow: 16 << 20,
        lifetime: Duration::from_secs(3600),
    };
    let options = SimulatedFig7Options {
        store,
        ..SimulatedFig7Options::default()
    };
    let [record, undisturbed] = [vec![outage], Vec::new()].map(|outages| {
        let fig7 = Fig7::new(Duration::from_millis(50), LinkSpec { outages, ..wifi() });
        fetch(&mut SimulatedFig7::new(&fig7, options.clone(), 7), 80 * MIB)
    });
    println!(
        "{:.3} s, without an outage {:.3} s",
        record.finished, undisturbed.finished
    );
    assert!(
        record.finished < undisturbed.finished + 20.0 + 1.5,
        "{} s",
        record.finished
    );
}

#[test]
fn routers_and_the_server_may_be_killed_at_any_time() {
    for victim in [1, 2, 3] {
        let mut world = world(20, wifi(), 6 + victim as u64);
        let content = RepeatingContent::new(20 * MIB, 1);
        let name = content.name();
        world.publish(content);
        let transfer = world.get(name);
        let soon = world.sim.now() + Duration::from_secs(3);
        world.run_until(soon);
        assert!(world.received(transfer) > 0);
        world.restart(victim);
        let limit = world.sim.now() + Duration::from_secs(300);
        let record = world.finish(transfer, limit).expect("a transfer");
        assert!(
            record.completed,
            "N{victim} killed: only {} bytes arrived",
            record.bytes
        );
        println!(
            "N{victim} killed: {:.3} s, longest stall {:.3} s",
            record.finished, record.longest_stall
        );
        // Virtual time, so this repeats: without Lost and Resend the receiver's timer (5 s) would
        // find out.
        assert!(
            record.longest_stall < 2.0,
            "N{victim} killed: a stall of {} s",
            record.longest_stall
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |seed| {
        let lossy = LinkSpec {
            loss: Loss::Independent(0.02),
            jitter: Duration::from_micros(300),
            ..wifi()
        };
        let mut world = world(20, lossy, seed);
        world.sim.enable_trace_hash();
        fetch(&mut world, 3 * MIB);
        world.sim.trace_hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}
