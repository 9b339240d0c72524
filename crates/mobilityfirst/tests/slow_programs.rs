//! Programs that stop or read slowly harm nobody but themselves.

use core::time::Duration;

use whimbrel_core::Machine;
use whimbrel_mobilityfirst::host::HostEvent;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

use crate::world::{self, Content, World};

/// Of a host's back-pressure buffer, in packets: room for 22 of the smallest chunks.
const BUFFER: usize = 1_024;
const MIB: usize = 1 << 20;
/// Far longer than any transfer here takes.
const LONG: Duration = Duration::from_secs(60);

/// Two hosts; a program of host 1 serves these contents.
fn serving(lens: &[usize]) -> (World, Vec<Content>) {
    let mut world = World::with_buffers(BUFFER);
    let server = world.attach(1);
    let contents: Vec<_> = lens
        .iter()
        .zip(0..)
        .map(|(len, seed)| Content::new(*len, seed))
        .collect();
    contents
        .iter()
        .for_each(|content| world.serve(server, content));
    (world, contents)
}

/// The host that has stopped programs still fetches, serves and answers.
fn assert_host_is_well(world: &mut World, content: &Content) {
    let (reader, pinger) = (world.attach(0), world.attach(1));
    let own = Content::new(3 * MIB, 99);
    world.serve(reader, &own);
    world.get(reader, 1, content, false);
    world.get(pinger, 2, &own, true);
    let ping = LocalRequest::Ping {
        request: 3,
        destination: world.hosts[0].guid(),
        sequence: 0,
        padding: 0,
    };
    world.say(pinger, &ping);
    let well = world.run_until(Duration::from_secs(4), |world| {
        world.has(reader, 1) && world.has(pinger, 2) && world.programs[pinger].pongs == 1
    });
    assert!(
        well,
        "fetches: {}, serves: {}, answers: {}, {:?}",
        world.has(reader, 1),
        world.has(pinger, 2),
        world.programs[pinger].pongs,
        world.hosts[0].status(world.now).counters
    );
}

#[test]
fn a_stopped_program_leaves_its_host_to_the_others_and_goes_on_where_it_was() {
    for in_order in [false, true] {
        let (mut world, contents) = serving(&[8 * MIB, 3 * MIB]);
        let stopped = world.attach(0);
        world.get(stopped, 1, &contents[0], in_order);
        world.run_until(LONG, |world| world.programs[stopped].got.len() == 1);
        world.stop(stopped, true);
        world.run(Duration::from_secs(10));
        assert_host_is_well(&mut world, &contents[1]);
        world.stop(stopped, false);
        assert!(world.run_until(LONG, |world| world.has(stopped, 1)));
        world.run(Duration::from_secs(1));
        assert_eq!(world.hosts[0].buffer().0, 0, "memory is given back");
    }
}

/// As values: it is told not to be given more than it has taken.
#[test]
fn a_program_in_the_hosts_process_is_stopped_like_one_behind_a_socket() {
    const APP: u32 = 7;
    let (mut world, contents) = serving(&[8 * MIB, 3 * MIB]);
    let request = LocalRequest::Get(world::get_request(1, &contents[0], true));
    world.hosts[0].request(world.now, APP, request);
    world.hosts[0].set_blocked(APP, true);
    world.run(Duration::from_secs(10));
    assert_eq!(world.hosts[0].poll_event(), None);
    assert_host_is_well(&mut world, &contents[1]);
    world.hosts[0].set_blocked(APP, false);
    let (mut got, mut complete) = (0, false);
    for _ in 0..20_000 {
        while let Some(HostEvent { event, .. }) = world.hosts[0].poll_event() {
            match event {
                LocalEvent::Chunk(chunk) => {
                    got += chunk.data.len();
                    let consumed = LocalRequest::Consumed { request: 1 };
                    world.hosts[0].request(world.now, APP, consumed);
                }
                LocalEvent::Complete { .. } => complete = true,
                _ => {}
            }
        }
        world.run(Duration::from_millis(1));
    }
    assert_eq!((got, complete), (8 * MIB, true));
    // One that leaves takes nothing along.
    let request = LocalRequest::Get(world::get_request(2, &contents[0], true));
    world.hosts[0].request(world.now, APP, request);
    world.hosts[0].set_blocked(APP, true);
    world.run(Duration::from_secs(1));
    assert!(world.hosts[0].buffer().0 > 0);
    world.hosts[0].leave(APP);
    world.run(Duration::from_secs(1));
    assert_eq!(world.hosts[0].buffer().0, 0);
    assert_eq!(world.hosts[0].status(world.now).downloads, 0);
}

#[test]
fn however_many_programs_are_stopped_their_host_is_well() {
    let (mut world, contents) = serving(&[8 * MIB, 3 * MIB]);
    let stopped: Vec<usize> = (0..40).map(|_| world.attach(0)).collect();
    for (number, program) in stopped.iter().enumerate() {
        world.get(*program, 1, &contents[0], number % 2 == 0);
        world.stop(*program, true);
        world.run(Duration::from_millis(500));
    }
    assert_host_is_well(&mut world, &contents[1]);
    for program in &stopped {
        world.stop(*program, false);
    }
    let all_have = |world: &World| stopped.iter().all(|program| world.has(*program, 1));
    assert!(world.run_until(5 * LONG, all_have));
}

/// The buffer fills ahead of what the reader needs next, which a router's restart has lost.
#[test]
fn a_reader_in_order_that_pauses_while_a_router_restarts_goes_on() {
    let (mut world, contents) = serving(&[24 * MIB]);
    let reader = world.attach(0);
    world.get(reader, 1, &contents[0], true);
    let begun = |world: &World| world.programs[reader].got.get(&1) > Some(&MIB);
    assert!(world.run_until(LONG, begun));
    for _ in 0..3 {
        world.stop(reader, true);
        world.run(Duration::from_millis(40));
        world.restart_router();
        world.run(Duration::from_secs(3));
        world.stop(reader, false);
        let before = world.programs[reader].got[&1];
        let goes_on = |world: &World| world.programs[reader].got[&1] > before + 2 * MIB;
        // The source hears of what is missing after 5 s.
        assert!(world.run_until(Duration::from_secs(8), goes_on));
    }
    assert!(world.run_until(2 * LONG, |world| world.has(reader, 1)));
}

/// It takes its chunks at a tenth of the rate at which they come.
#[test]
fn a_slow_reader_costs_the_network_little_more_than_its_content() {
    let (mut world, contents) = serving(&[16 * MIB]);
    let reader = world.attach(0);
    world.get(reader, 1, &contents[0], false);
    let (mut turns, chunks) = (0, (16 * MIB) >> world::CHUNK_LOG2);
    while !world.has(reader, 1) {
        // One frame in 20 ms.
        world.stop(reader, true);
        world.run(Duration::from_millis(19));
        world.stop(reader, false);
        world.run(Duration::from_millis(1));
        turns += 1;
        assert!(turns < 20 * chunks, "{:?}", world.programs[reader].got);
    }
    let received = world.hosts[0].status(world.now).counters.chunks_received as usize;
    assert!(
        received <= chunks * 3 / 2,
        "{received} chunks came for {chunks}"
    );
}

#[test]
fn a_program_that_does_not_read_what_it_serves_holds_up_no_other() {
    let (mut world, contents) = serving(&[3 * MIB, 3 * MIB]);
    let (stopped, reader) = (world.attach(1), world.attach(0));
    let unread = Content::new(8 * MIB, 77);
    world.serve(stopped, &unread);
    world.stop(stopped, true);
    world.get(reader, 1, &unread, false);
    world.run(Duration::from_secs(2));
    for (request, content) in [(2, &contents[0]), (3, &contents[1])] {
        world.get(reader, request, content, false);
        let has = world.run_until(Duration::from_secs(4), |world| world.has(reader, request));
        assert!(has, "{:?}", world.hosts[1].status(world.now).counters);
    }
    world.run(LONG);
    let drops = world.hosts[1].status(world.now).counters.drops;
    assert!(drops.contains_key("unanswered-read"), "{drops:?}");
    world.stop(stopped, false);
    assert!(world.run_until(LONG, |world| world.has(reader, 1)));
}

#[test]
fn another_program_that_serves_the_same_takes_over_from_one_that_does_not_answer() {
    let (mut world, contents) = serving(&[8 * MIB]);
    let (stopped, reader) = (world.attach(1), world.attach(0));
    world.serve(stopped, &contents[0]);
    world.stop(stopped, true);
    world.get(reader, 1, &contents[0], false);
    assert!(world.run_until(LONG, |world| world.has(reader, 1)));
}

#[test]
fn what_was_fetched_a_moment_ago_is_fetched_again_at_once() {
    let (mut world, contents) = serving(&[3 * MIB]);
    let at_once = Duration::from_millis(1_500);
    for request in 1..4 {
        let reader = world.attach(0);
        world.get(reader, request, &contents[0], false);
        // Of the last ones, a part has come when the next one asks.
        assert!(
            world.run_until(at_once, |world| world.has(reader, request)),
            "{request}"
        );
    }
    let readers = [world.attach(0), world.attach(0)];
    world.get(readers[0], 1, &contents[0], false);
    world.run_until(LONG, |world| world.programs[readers[0]].got.len() == 1);
    world.get(readers[1], 1, &contents[0], false);
    assert!(world.run_until(at_once, |world| {
        readers.iter().all(|reader| world.has(*reader, 1))
    }));
}

#[test]
fn more_contents_than_transfers_at_one_time_are_fetched_one_after_the_other() {
    // A host serves 4,096 at one time, and forgets an idle one after five minutes.
    let (mut world, _) = serving(&[]);
    let (server, reader) = (world.attach(1), world.attach(0));
    for number in 0..4_200_u32 {
        let content = Content::new(100, 1_000 + u64::from(number));
        world.serve_now(server, &content);
        world.run(Duration::from_millis(10));
        world.get(reader, number, &content, false);
        let has = world.run_until(LONG, |world| world.has(reader, number));
        assert!(has, "content {number}");
    }
    assert!(world.now.as_secs_f64() < 120.0, "{:?}", world.now);
}
