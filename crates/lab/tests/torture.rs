//! Networks of hosts and routers keep their promise under random faults.

use core::time::Duration;
use std::num::NonZeroUsize;

use whimbrel_lab::torture::{Act, Features, Layout, Schedule, run_batch};
use whimbrel_sim::testbed::{Fault, Step};

/// `whimbrel lab torture --schedules N --seed S` runs more.
const SCHEDULES: u64 = 80;

fn site(hosts: usize, steps: Vec<Step<Act>>) -> Schedule {
    Schedule {
        seed: 1,
        layout: Layout::Site,
        routers: 1,
        hosts,
        features: Features::default(),
        steps,
    }
}

fn after(seconds: u64, act: Act) -> Step<Act> {
    Step {
        after: Duration::from_secs(seconds),
        act,
    }
}

/// An attached server is silent, and a host requests its content. The router must neither stop
/// answering others nor forget the request.
#[test]
fn a_request_for_content_of_a_silent_host_does_not_occupy_the_router() {
    let lasts = Duration::from_secs(20);
    let silent = Act::Fault(Fault::Outage {
        link: 0,
        directions: 3,
        lasts,
    });
    let get = |host, content| Act::Get { host, content };
    // Host 0 serves content 3, host 2 content 5.
    let schedule = site(
        3,
        vec![
            after(0, silent),
            after(5, get(1, 3)),
            after(1, get(1, 5)),
            after(4, get(2, 3)),
        ],
    );
    let report = schedule.run().expect("the promise is kept");
    assert_eq!((report.requests, report.completed), (3, 3));
}

/// A host moves while its link loses frames, and its router's clock is set: the router's two
/// challenges overtook each other, and the host could attach nowhere from then on.
#[test]
fn a_host_that_moves_while_its_routers_clock_is_set_attaches_again() {
    let schedule = Schedule::draw(316_899);
    let report = schedule.run().expect("the promise is kept");
    assert!(report.completed > 0);
}

/// A host that has crashed is sent a content that it had requested, and takes that request back. What had left of
/// the other one went with it, and its sender neither sent it again nor asked.
#[test]
fn a_request_that_is_taken_back_ends_no_push_of_the_same_content() {
    let report = Schedule::draw(1_718).run().expect("the promise is kept");
    assert!(report.received > 0);
}

#[test]
fn every_transfer_survives_random_faults() {
    let workers = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let (report, broken) = run_batch(0..SCHEDULES, workers, &mut |_, _, _| {}).expect("threads");
    for broken in &broken {
        println!("{}\n{}", broken.breach, broken.smallest);
    }
    assert!(broken.is_empty(), "{} schedules, see above", broken.len());
    // The schedules do put transfers and pushes to the test.
    assert!(report.pushed > SCHEDULES / 2, "{report:?}");
    assert!(
        report.requests > 2 * SCHEDULES && report.completed > SCHEDULES,
        "{report:?}"
    );
}
