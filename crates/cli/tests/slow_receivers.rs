//! A fast receiver beside a slow one at the same router, with real programs: it gets its file about
//! as soon as alone.
//!
//! The bound is generous, because real time is not under the control of the test; the figures are
//! printed. The test needs network namespaces and is skipped without them.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::time::{Duration, Instant};

use crate::support::PATIENCE;
use crate::support::scene::{self, Scene};
use whimbrel_lab::Process;
use whimbrel_sim::link::{LinkSpec, QueueLimit};

/// Bytes of the file: some seconds of the fast link.
const LENGTH: u64 = 24 << 20;
/// Rate of the fast link, bit/s.
const FAST: u64 = 80_000_000;
const SLOW: u64 = 2_000_000;
/// Other programs may have the processors during one of two fetches; whoever is held up is held up
/// in each trial.
const TRIALS: u64 = 4;

fn spec(rate: u64) -> LinkSpec {
    LinkSpec {
        queue: QueueLimit::Bytes(64 << 10),
        ..LinkSpec::new(rate, Duration::from_millis(2))
    }
}

/// A server, a router and two clients, each with a host daemon.
fn build() -> Option<Scene> {
    let mut scene = Scene::build(|it| {
        (it.host("server").host("router").host("fast").host("slow"))
            .link("server", "server", "router", spec(FAST), spec(FAST))
            .link("fast", "fast", "router", spec(FAST), spec(FAST))
            .link("slow", "slow", "router", spec(SLOW), spec(SLOW))
    })?;
    scene.daemon("router", "router", "router", scene::LISTEN);
    for host in ["server", "fast", "slow"] {
        let remote = format!("{}:4711", scene.address("router", host));
        scene.daemon(host, "host", host, &scene::link("access", &remote));
    }
    Some(scene)
}

/// Serves noise. Returns its name.
fn serve(scene: &mut Scene, file: &str, seed: u64) -> String {
    let name = scene.file(file, LENGTH, seed);
    scene.serve("server", "server", file);
    name
}

fn get(scene: &Scene, host: &str, name: &str, output: &str) -> Process {
    let socket = format!("{host}.sock");
    let arguments = ["get", name, "--json", "-o", output, "--socket", &socket];
    scene.whimbrel(host, output, &arguments)
}

/// Returns the time that the fast client takes.
fn time_to_get(scene: &Scene, name: &str, output: &str) -> Duration {
    let start = Instant::now();
    let mut get = get(scene, "fast", name, output);
    let status = get.wait_for(PATIENCE).unwrap();
    let done = status.is_some_and(|it| it.success());
    assert!(done, "{status:?}\n{}", scene.logs());
    assert_eq!(fs::metadata(scene.path(output)).unwrap().len(), LENGTH);
    start.elapsed()
}

#[test]
fn a_fast_receiver_is_not_held_up_by_a_slow_one() {
    let Some(mut scene) = build() else {
        return;
    };
    let slow_name = serve(&mut scene, "slow-film", 99);
    let mut ratios = Vec::new();
    for trial in 1..=TRIALS {
        let [first, second] = [0, 1].map(|half| {
            let number = 2 * trial + half;
            serve(&mut scene, &format!("film-{number}"), number)
        });
        let alone = time_to_get(&scene, &first, &format!("alone-{trial}"));
        let slow = get(&scene, "slow", &slow_name, &format!("slow-{trial}"));
        std::thread::sleep(Duration::from_secs(1));
        let beside = time_to_get(&scene, &second, &format!("beside-{trial}"));
        drop(slow);
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        println!("alone {alone:.2?}, beside a slow receiver {beside:.2?}: {ratio:.2} times");
        if ratio <= 2.0 {
            return;
        }
        ratios.push(ratio);
    }
    panic!("a fast receiver takes {ratios:.2?} times as long beside a slow one");
}
