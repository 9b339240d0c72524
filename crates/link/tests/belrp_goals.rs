//! The goals of the adaptive profile: at every loss rate of the paper it sends fewer bytes than the
//! paper's protocol, with no more delay; from 2 % loss on it sends no more bytes than without
//! recovery on the links.
//!
//! `WHIMBREL_BELRP_INTERESTS=20000 cargo test -p whimbrel-link --test all belrp_goals:: -- --nocapture`
//! prints the table of `docs/protocols/belrp.md`.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use crate::chain::{Chain, DATA_LEN, INTEREST_LEN, Outcome, PPP, Scenario};
use whimbrel_link::ndnlp::{PaperOptions, Reliability};

const PAPER: Reliability = Reliability::Paper(PaperOptions::retransmitting(3));

fn interests() -> u64 {
    std::env::var("WHIMBREL_BELRP_INTERESTS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(3_000)
}

fn run(reliability: Reliability, loss: f64) -> Outcome {
    Chain::new(Scenario {
        interests: interests(),
        ..Scenario::new(reliability, loss)
    })
    .run()
}

fn print(name: &str, loss: f64, outcome: &Outcome) {
    let frames = outcome.sum(|l| l.frames_sent);
    let header: i64 = outcome.links.iter().map(|l| l.header_bytes()).sum();
    let detection: f64 = outcome
        .links
        .iter()
        .filter_map(|l| l.detection.mean())
        .map(|d| d.as_secs_f64())
        .sum::<f64>()
        / outcome.links.len() as f64;
    println!(
        "{:4.1} % {name:9} {:8.3} MB  delay {:6.2} p95 {:6.2} ms  consumer retx {:5}  link retx {:5} spurious {:3} dup {:3} \
         given up {:3} timeouts {:3} alone {:5} carried {:6} asks {:3}  header {:6.2} B/frame  detection {:5.2} ms buffer {:3} drops {}",
        loss * 100.0,
        outcome.bytes as f64 / 1e6,
        outcome.mean_delay() * 1e3,
        outcome.percentile(0.95) * 1e3,
        outcome.consumer_retransmissions,
        outcome.sum(|l| l.retransmissions),
        outcome.sum(|l| l.spurious),
        outcome.sum(|l| l.duplicates),
        outcome.sum(|l| l.given_up),
        outcome.sum(|l| l.timeouts),
        outcome.sum(|l| l.ack_frames),
        outcome.sum(|l| l.acks_carried),
        outcome.sum(|l| l.asks_sent),
        header as f64 / frames as f64,
        detection * 1e3,
        outcome
            .links
            .iter()
            .map(|l| l.buffer_high_water)
            .max()
            .unwrap(),
        outcome.sum(|l| l.drops.total()),
    );
}

#[test]
fn adaptive_costs_less_than_the_paper_and_than_no_recovery_and_is_no_slower() {
    for loss in [0.005, 0.01, 0.02, 0.03, 0.04, 0.05] {
        let none = run(Reliability::Off, loss);
        let paper = run(PAPER, loss);
        let ndnlpv2 = run(Reliability::Ndnlpv2, loss);
        let adaptive = run(Reliability::Adaptive, loss);
        print("none", loss, &none);
        print("paper", loss, &paper);
        print("ndnlpv2", loss, &ndnlpv2);
        print("adaptive", loss, &adaptive);
        for outcome in [&none, &paper, &ndnlpv2, &adaptive] {
            // Five hops of 5 ms each way, and an Interest and its Data on each wire; `adaptive` leaves
            // out at most two octets of a frame.
            let octets = INTEREST_LEN + DATA_LEN + 2 * PPP as usize - 4;
            let wires = octets as f64 * 8.0 / 10e6;
            let fastest = outcome.delays.iter().min().unwrap().as_secs_f64();
            assert!(fastest >= 5.0 * (0.010 + wires), "{fastest} s");
            assert_eq!(
                (outcome.unsatisfied, outcome.delays.len() as u64),
                (0, interests())
            );
        }
        assert!(adaptive.bytes < paper.bytes);
        assert!(adaptive.mean_delay() <= paper.mean_delay());
        if loss >= 0.02 {
            assert!(adaptive.bytes <= none.bytes);
        }
    }
}
