//! The testbed of [MFTP §5] in virtual time: every transfer moves real bytes through the production
//! machines.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use crate::support::fig7;
use whimbrel_lab::TransferRecord;
use whimbrel_lab::scenario::{Plan, sim};

const MIB: u64 = 1 << 20;

/// Returns the keys of a transfer of `len` bytes with `rtt_ms` between the routers.
fn keys(rtt_ms: u64, len: u64) -> [(&'static str, String); 2] {
    [
        ("links.N2-N3.delay", format!("\"{} us\"", rtt_ms * 500)),
        ("loads.film.file", format!("\"{len} B\"")),
    ]
}

fn plan(seed: u64, rtt_ms: u64, len: u64, changes: &[(&str, &str)]) -> Plan {
    let keys = keys(rtt_ms, len);
    let keys = keys.iter().map(|(key, value)| (*key, value.as_str()));
    let changes: Vec<_> = keys.chain(changes.iter().copied()).collect();
    fig7(seed, &changes)
}

/// Fetches the whole file.
fn fetch(plan: &Plan) -> TransferRecord {
    let record = sim::run(plan, plan.seed).unwrap().transfers[0]
        .record
        .clone();
    assert!(record.completed, "only {} bytes arrived", record.bytes);
    record
}

#[test]
fn a_content_crosses_two_routers() {
    let record = fetch(&plan(1, 50, 10 * MIB, &[]));
    assert_eq!(record.bytes, 10 * MIB);
    assert!(record.goodput() > 18e6, "{}", record.goodput());
}

#[test]
fn a_small_content_and_an_empty_one_arrive() {
    for len in [0, 1, 100, 40_000, 70_000] {
        assert_eq!(fetch(&plan(2, 10, len, &[])).bytes, len);
    }
}

/// One chunk over hops that have not measured their paths yet. The test bounds the cost of each
/// millisecond of round trip.
#[test]
fn a_first_chunk_takes_few_round_trips() {
    let took = |rtt_ms| fetch(&plan(1, rtt_ms, MIB, &[])).finished;
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
        let goodput = |loss| {
            let changes = [("links.N3-N4.loss", loss)];
            fetch(&plan(3, rtt, 30 * MIB, &changes)).goodput()
        };
        let (clean, lossy) = (goodput("\"0 %\""), goodput("\"1 %\""));
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
fn an_outage_costs_hardly_more_than_its_length() {
    let outage = "[{ start = \"3 s\", duration = \"10 s\" }]";
    let record = fetch(&plan(5, 50, 20 * MIB, &[("links.N3-N4.outages", outage)]));
    println!(
        "{:.3} s, longest stall {:.3} s",
        record.finished, record.longest_stall
    );
    assert!(
        (10.0..10.0 + 0.15 + 1.0).contains(&record.longest_stall),
        "{}",
        record.longest_stall
    );
}

/// A flow fills its storage during an outage: the source pauses, and resumes before the storage has
/// drained.
#[test]
fn a_source_that_was_told_to_pause_is_told_to_resume() {
    let outage = "[{ start = \"1 s\", duration = \"20 s\" }]";
    let storage = "{ role = \"router\", storage = \"16 MiB\" }";
    let [record, undisturbed] = [outage, "[]"].map(|outages| {
        let changes = [
            ("nodes.N2", storage),
            ("nodes.N3", storage),
            ("links.N3-N4.outages", outages),
        ];
        fetch(&plan(7, 50, 80 * MIB, &changes))
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
    for victim in ["N1", "N2", "N3"] {
        let crash = format!("[{{ at = \"3 s\", crash = \"{victim}\", duration = \"0 s\" }}]");
        let seed = 6 + u64::from(victim.as_bytes()[1] - b'0');
        let record = fetch(&plan(seed, 20, 20 * MIB, &[("events", &crash)]));
        println!(
            "{victim} killed: {:.3} s, longest stall {:.3} s",
            record.finished, record.longest_stall
        );
        assert!(record.finished > 3.0, "it ended before {victim} was killed");
        // Virtual time, so this repeats. Without Lost and Resend, only the receiver's timer (5 s)
        // would detect the loss.
        assert!(
            record.longest_stall < 2.0,
            "{victim} killed: a stall of {} s",
            record.longest_stall
        );
    }
}

/// Enables the hash of all frames.
struct Hashing;

impl sim::observe::Observer for Hashing {
    fn hashes(&self) -> bool {
        true
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |seed| {
        let changes = [
            ("links.N3-N4.loss", "\"2 %\""),
            ("links.N3-N4.jitter", "\"300 us\""),
        ];
        let plan = plan(seed, 20, 3 * MIB, &changes);
        let observed = sim::observe(&plan, seed, &mut Hashing).unwrap();
        assert!(observed.run.transfers[0].record.completed);
        observed.hash.unwrap()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}
