//! Inbound peers that speak for others, and routers that may.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, PortOrigin, Source};
use whimbrel_gnrs::{Address, KeyPair, Record, Statement};
use whimbrel_link::HopConfig;

use super::RouterConfig;
use super::holders::presence;
use super::tests::{Net, ROUTER, SOURCE, UNIX_MS, config, data, port};
use crate::chunk::Chunk;
use crate::wire::{
    ChunkRanges, Control, ControlCode, DropReason, NetworkHeader, Notice, Presence, PresenceCode,
    Reliability, Request, ServiceId, Transport, UpperProtocol,
};

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn keys(number: u8) -> KeyPair {
    KeyPair::from_secret(&[number; 32])
}

/// Returns the name of the node with the keys `number`.
pub(super) fn name(number: u8) -> Guid {
    keys(number).guid()
}

/// Returns the configuration of an unencrypted hop of the node with this [`name`].
pub(super) fn plain_hop(of: Guid) -> HopConfig {
    let number = (0..=u8::MAX).find(|number| name(*number) == of);
    let number = number.expect("a name of these tests");
    HopConfig::plain(&keys(number), [number; 32], 1472)
}

/// Returns a router with inbound peers of these names.
pub(super) fn net_of_callers(names: &[Guid], config: RouterConfig) -> Net {
    let callers = vec![PortOrigin::Accepted(0); names.len()];
    Net::with_origins(names, &callers, config)
}

pub(super) fn chunk_of(source: Guid, destination: Guid, message: &Transport) -> Chunk {
    let (service, upper) = (ServiceId::DELAY_TOLERANT, UpperProtocol::Transport);
    let mut header = NetworkHeader::new(service, upper, source, destination);
    header.extensions.request = Some(1);
    Chunk::of_transport(header, message)
}

/// Returns a control message of a neighbour to the router.
pub(super) fn control(from: Guid, message: &Control) -> Chunk {
    Chunk::to_neighbour(from, *ROUTER, message)
}

fn notice(source: Guid, destination: Guid) -> Notice {
    Notice {
        content: Guid([7; 32]),
        source,
        destination,
        chunks: ChunkRanges::default(),
        stored: 1,
        limit: 1,
    }
}

pub(super) fn request() -> Request {
    Request::new(
        Guid([7; 32]),
        20,
        Reliability::Nack,
        ChunkRanges::from(0..9),
    )
}

/// What ends, stalls or draws the transfers of others, by its message and by who it is said to come
/// from and goes to.
fn forgeries(client: Guid, server: Guid) -> Vec<Chunk> {
    let about = || notice(client, Guid([7; 32]));
    let dropped = |reason| Transport::Drop(about(), reason);
    vec![
        chunk_of(*ROUTER, client, &dropped(DropReason::NotServed)),
        chunk_of(server, client, &dropped(DropReason::NotServed)),
        chunk_of(server, client, &dropped(DropReason::NoSuchName)),
        chunk_of(server, client, &dropped(DropReason::TooLarge)),
        chunk_of(server, client, &Transport::Store(about())),
        chunk_of(server, client, &Transport::Lost(notice(server, client))),
        chunk_of(client, server, &Transport::Request(request())),
        chunk_of(client, server, &Transport::Nack(request())),
        chunk_of(client, server, &Transport::Resend(request())),
        chunk_of(client, server, &Transport::Ack(request())),
        data(ServiceId::UNICAST, client, 0, 100),
    ]
}

#[test]
fn a_caller_speaks_for_itself_and_for_what_it_has_attached_and_for_nobody_else() {
    let [attacker, client, server, guest] = [1, 2, 3, 4].map(|number| keys(number).guid());
    let mut net = net_of_callers(&[attacker, client, server], config());
    for (guid, at) in [(client, 2), (server, 3), (guest, 1)] {
        let at = port(at);
        assert!(net.with_router(|it, _| it.binding.attachments.insert(guid, at, 1)));
    }
    let forged = forgeries(client, server);
    let count = forged.len() as u64;
    for chunk in forged {
        net.send(1, chunk);
    }
    net.run(SECOND * 3);
    assert!(net.chunks(2).is_empty() && net.chunks(3).is_empty());
    let drops = &net.router().effects.counters.drops;
    assert_eq!(drops.get("source-not-proven"), Some(&count));
    assert_eq!(net.router().links.buffer().0, 0);
    // In its own names it is heard; where it says that it is, answers do not go.
    for own in [attacker, guest] {
        let mut chunk = chunk_of(own, server, &Transport::Request(request()));
        chunk.header.source_address = Guid([99; 32]);
        net.send(1, chunk);
    }
    net.run(SECOND);
    let heard: Vec<(Guid, Guid)> = net
        .chunks(3)
        .iter()
        .map(|it| (it.header.source, it.header.source_address))
        .collect();
    assert_eq!(heard, [(attacker, *ROUTER), (guest, *ROUTER)]);
}

/// Returns the binding record of a host that is reached at `at`, made so long before now.
pub(super) fn record(host: &KeyPair, at: Guid, before_ms: u64) -> Bytes {
    let statement = Statement::new(UNIX_MS - before_ms, 60_000, vec![Address::new(at)]);
    let record = Record::binding(host, &statement).expect("a record");
    Bytes::copy_from_slice(record.as_bytes())
}

#[test]
fn a_router_that_calls_speaks_for_hosts_whose_records_name_it() {
    let (leaf, client, far) = (keys(1).guid(), keys(2).guid(), keys(3));
    let mut net = net_of_callers(&[leaf, client], config());
    assert!(net.with_router(|it, _| it.binding.attachments.insert(client, port(2), 1)));
    let from_far = |index| {
        let mut chunk = data(ServiceId::UNICAST, client, index, 1000);
        chunk.header.source = far.guid();
        chunk.header.source_address = leaf;
        chunk
    };
    let asked = |net: &mut Net| {
        let asks = |it: &Chunk| matches!(Control::decode(&it.message.head), Ok(Control::Ask { guid }) if guid == far.guid());
        net.neighbour(1, |it, _| it.received.drain(..).filter(asks).count())
    };
    let answer = |net: &mut Net, record| {
        net.send(1, control(leaf, &Control::Vouch { record }));
        net.run(SECOND / 2);
    };
    let counted = |net: &Net, what| net.router().effects.counters.drops.get(what).copied();
    // Nobody has asked: no signature is looked at.
    answer(&mut net, record(&far, leaf, 0));
    assert_eq!(counted(&net, "vouched-unasked"), Some(1));
    // It is asked once, however much it sends, and what came waits for the answer.
    for index in 0..3 {
        net.send(1, from_far(index));
    }
    net.run(SECOND / 2);
    assert_eq!((asked(&mut net), net.received(2).len()), (1, 0));
    answer(&mut net, record(&far, leaf, 0));
    assert_eq!(net.received(2).len(), 3);
    net.send(1, from_far(3));
    net.run(SECOND / 2);
    assert_eq!((asked(&mut net), net.received(2).len()), (0, 4));
    // Ten minutes later it is asked again. A record of another router proves nothing, nor does one
    // of last week; one of an hour ago does: its host may have left what it sent on the way.
    for (index, proof, is_good) in [
        (4, record(&far, Guid([9; 32]), 0), false),
        (5, record(&far, leaf, 7 * 24 * 3_600_000), false),
        (6, record(&keys(4), leaf, 0), false),
        (7, record(&far, leaf, 3_600_000), true),
    ] {
        net.run(SECOND * 601);
        let before = net.received(2).len();
        net.send(1, from_far(index));
        net.run(SECOND / 2);
        assert_eq!(asked(&mut net), 1);
        answer(&mut net, proof);
        net.run(SECOND * 3);
        let come = net.received(2).len() - before;
        assert_eq!(come, usize::from(is_good), "{index}");
    }
    assert_eq!(net.router().links.buffer().0, 0);
}

#[test]
fn a_caller_that_the_configuration_names_as_a_router_is_believed() {
    let (named, client) = (keys(1).guid(), keys(2).guid());
    let mut net = net_of_callers(&[named, client], config());
    net.with_router(|it, _| {
        it.believe(named);
        assert!(it.binding.attachments.insert(client, port(2), 1));
    });
    net.send(1, data(ServiceId::UNICAST, client, 0, 1000));
    net.run(SECOND);
    assert_eq!(net.received(2).len(), 1);
}

/// The other side of the question: a leaf that calls a hub, and a host that attaches after the hub has
/// asked about it. A router that calls the leaf asks as well, but its question does not wait.
#[test]
fn a_router_vouches_for_its_own_hosts_to_each_neighbour_that_asks() {
    let (hub, host, caller) = (keys(1).guid(), keys(2), keys(3).guid());
    let origins = [
        PortOrigin::Configured(0),
        PortOrigin::Accepted(0),
        PortOrigin::Accepted(0),
    ];
    let mut net = Net::with_origins(&[hub, host.guid(), caller], &origins, config());
    let ask = Control::Ask { guid: host.guid() };
    net.send(1, control(hub, &ask));
    net.send(3, control(caller, &ask));
    net.run(SECOND);
    let vouched = |net: &Net, neighbour| {
        let received = net.chunks(neighbour).iter();
        let all = received.filter_map(|it| match Control::decode(&it.message.head) {
            Ok(Control::Vouch { record }) => Some(record),
            _ => None,
        });
        all.collect::<Vec<_>>()
    };
    assert!(vouched(&net, 1).is_empty() && vouched(&net, 3).is_empty());
    let bytes = record(&host, *ROUTER, 0);
    let parsed = Record::parse(bytes.clone()).expect("a record");
    net.with_router(|it, now| {
        assert!(
            it.binding
                .attachments
                .insert(host.guid(), port(2), parsed.version())
        );
        it.register(now, port(2), parsed);
    });
    net.run(SECOND);
    assert_eq!((vouched(&net, 1).len(), vouched(&net, 3).len()), (1, 0));
    net.send(1, control(hub, &ask));
    net.send(3, control(caller, &ask));
    net.run(SECOND);
    assert_eq!(vouched(&net, 1), [bytes.clone(), bytes.clone()]);
    assert_eq!(vouched(&net, 3), [bytes]);
}

/// A flood of invented sources costs a question for each of the first, and no memory.
#[test]
fn invented_sources_are_asked_for_and_forgotten() {
    let (attacker, client) = (keys(1).guid(), keys(2).guid());
    let mut net = net_of_callers(&[attacker, client], config());
    assert!(net.with_router(|it, _| it.binding.attachments.insert(client, port(2), 1)));
    for number in 0..1000u32 {
        let mut chunk = data(ServiceId::UNICAST, client, 0, 1000);
        chunk.header.source.0[..4].copy_from_slice(&number.to_be_bytes());
        net.send(1, chunk);
    }
    net.run(SECOND);
    let questions = net.chunks(1).len();
    assert!(questions > 0 && questions <= 64, "{questions}");
    net.run(SECOND * 3);
    assert_eq!(net.router().links.buffer().0, 0);
    let dropped = net.router().effects.counters.drops.get("source-not-proven");
    assert_eq!(dropped, Some(&1000));
    assert!(net.received(2).is_empty());
}

pub(super) fn announcement(host: &KeyPair, content: Guid, lifetime_ms: u64) -> Record {
    let statement = Statement::new(UNIX_MS, lifetime_ms, Vec::new());
    Record::provider(host, content, &statement).expect("a record")
}

pub(super) fn register(
    net: &mut Net,
    neighbour: usize,
    from: Guid,
    record: &Record,
) -> Option<ControlCode> {
    net.neighbour(neighbour, |it, _| it.received.clear());
    let record = Bytes::copy_from_slice(record.as_bytes());
    net.send(neighbour, control(from, &Control::Register { record }));
    net.run(SECOND / 2);
    let received = net.chunks(neighbour).iter();
    let mut told = received.filter_map(|it| match Control::decode(&it.message.head) {
        Ok(Control::Outcome { code, .. }) => Some(code),
        _ => None,
    });
    told.next()
}

#[test]
fn content_is_announced_by_those_who_are_there_and_for_an_hour() {
    let content = Guid([7; 32]);
    let (attacker, other) = (keys(1), keys(2));
    let mut net = net_of_callers(&[attacker.guid()], config());
    let mut told = |host: &KeyPair, lifetime_ms| {
        let record = announcement(host, content, lifetime_ms);
        register(&mut net, 1, attacker.guid(), &record)
    };
    assert_eq!(told(&other, 60_000), Some(ControlCode::Invalid));
    assert_eq!(told(&attacker, 3_600_001), Some(ControlCode::Invalid));
    assert_eq!(told(&attacker, 3_600_000), Some(ControlCode::Registered));
    // It can be several hosts, but not all that announce a content.
    let guests: Vec<KeyPair> = (10..16).map(keys).collect();
    for guest in &guests {
        let guid = guest.guid();
        assert!(net.with_router(|it, _| it.binding.attachments.insert(guid, port(1), 1)));
    }
    assert!(net.with_router(|it, _| it.binding.attachments.insert(attacker.guid(), port(1), 1)));
    let outcomes = guests.iter().map(|guest| {
        register(
            &mut net,
            1,
            attacker.guid(),
            &announcement(guest, content, 60_000),
        )
    });
    let outcomes: Vec<Option<ControlCode>> = outcomes.collect();
    let (ok, full) = (Some(ControlCode::Registered), Some(ControlCode::Full));
    assert_eq!(outcomes, [ok, ok, ok, full, full, full]);
}

#[test]
fn a_full_content_keeps_those_who_are_here_and_forgets_those_who_left() {
    let content = Guid([7; 32]);
    let mut net = net_of_callers(&[], config());
    let hosts: Vec<KeyPair> = (0..66).map(keys).collect();
    let keep = |net: &mut Net, host: &KeyPair, here: usize| {
        let record = announcement(host, content, 60_000);
        // Each at a port of its own.
        let place = |guid: &Guid| {
            let at = hosts[..here].iter().position(|it| it.guid() == *guid)?;
            Some(Source::Port(PortId(at as u32)))
        };
        net.with_router(|it, now| it.binding.names.keep(now, port(1), record, place))
    };
    for host in &hosts[..64] {
        assert_eq!(keep(&mut net, host, 64), Ok(ControlCode::Registered));
    }
    // All that have announced it are here: one more is one too many.
    assert_eq!(keep(&mut net, &hosts[64], 65), Ok(ControlCode::Full));
    assert_eq!(keep(&mut net, &hosts[65], 1), Ok(ControlCode::Registered));
    let known = net.with_router(|it, now| it.binding.names.look_up_own(now, &content).providers);
    let signers: Vec<Guid> = known.iter().map(Record::signer).collect();
    assert!(signers.contains(&hosts[0].guid()) && signers.contains(&hosts[65].guid()));
    assert_eq!(signers.len(), 64);
}

/// "The network will route the request to the location of a copy" [MFTP §2]: a copy that is claimed
/// and not there is passed over.
#[test]
fn a_request_that_is_repeated_goes_to_the_next_provider() {
    let content = Guid([7; 32]);
    let providers = [keys(1), keys(2), keys(3)];
    let client = keys(4).guid();
    let mut names: Vec<Guid> = providers.iter().map(KeyPair::guid).collect();
    names.push(client);
    let mut net = net_of_callers(&names, config());
    for (number, host) in (1..).zip(&providers) {
        let (guid, at) = (host.guid(), port(number));
        assert!(net.with_router(|it, _| it.binding.attachments.insert(guid, at, 1)));
        let record = announcement(host, content, 600_000);
        assert_eq!(
            register(&mut net, number, guid, &record),
            Some(ControlCode::Registered)
        );
    }
    // Which provider gets a request with this id.
    let asked = |net: &mut Net, id| {
        (1..=3).for_each(|number| net.neighbour(number, |it, _| it.received.clear()));
        let mut chunk = chunk_of(client, content, &Transport::Request(request()));
        chunk.header.service = chunk.header.service.with(ServiceId::CONTENT_REQUEST);
        chunk.header.extensions.request = Some(id);
        net.send(4, chunk);
        net.run(SECOND / 2);
        let got: Vec<usize> = (1..=3).filter(|it| !net.chunks(*it).is_empty()).collect();
        got
    };
    let mut first: Vec<usize> = (0..3).flat_map(|_| asked(&mut net, 1)).collect();
    let again = asked(&mut net, 1);
    assert_eq!(again.len(), 1);
    let best = first[0];
    first.sort_unstable();
    assert_eq!(first, [1, 2, 3]);
    assert_eq!(asked(&mut net, 2), [best]);
    // It says that it does not serve the content: it is not asked again.
    let dropped = Transport::Drop(notice(client, content), DropReason::NotServed);
    net.send(best, chunk_of(names[best - 1], client, &dropped));
    net.run(SECOND / 2);
    for id in 3..9 {
        assert!(!asked(&mut net, id).contains(&best));
    }
}

/// A neighbour that takes nothing keeps no message from the others.
#[test]
fn messages_for_one_neighbour_leave_room_for_those_for_others() {
    let names = [keys(1).guid(), keys(2).guid()];
    let mut net = net_of_callers(&names, config());
    let outcome = |version| Control::Outcome {
        guid: Guid([9; 32]),
        version,
        code: ControlCode::Invalid,
    };
    let bytes = net.with_router(|it, _| {
        (0..20_000).for_each(|version| it.tell(port(1), &outcome(version)));
        it.memory().said_bytes
    });
    assert!(bytes > 2 << 20 && bytes < 3 << 20, "{bytes}");
    net.with_router(|it, _| it.tell(port(2), &outcome(1)));
    net.run(SECOND);
    assert_eq!(net.chunks(2).len(), 1);
    assert_eq!(net.router().memory().said_bytes, 0);
    let dropped = net.with_router(|it, now| it.status(now).counters);
    assert!(dropped.drops["own-message-for-one"] > 15_000);
}

/// A control message is the neighbour's own, and crosses one hop; only that a host has left goes
/// further, by its own signature.
#[test]
fn control_messages_of_others_than_the_neighbour_end_at_the_first_router() {
    let [attacker, client, host] = [1, 2, 3].map(|number| keys(number).guid());
    let mut net = net_of_callers(&[attacker, client], config());
    let at = port(2);
    assert!(net.with_router(|it, _| it.binding.attachments.insert(client, at, 1)));
    let record = record(&keys(3), Guid([9; 32]), 0);
    let nonce = [7; 16];
    let unix_ms = UNIX_MS;
    let (guid, version, code) = (client, 1, ControlCode::Stale);
    let forged = [
        Control::Challenge { nonce, unix_ms },
        Control::Outcome {
            guid,
            version,
            code,
        },
        Control::Ask { guid: host },
        Control::Vouch {
            record: record.clone(),
        },
        Control::Register {
            record: record.clone(),
        },
    ];
    let send = |net: &mut Net, to: Guid, message: &Control| {
        let mut chunk = control(attacker, message);
        chunk.header.service = ServiceId::UNICAST;
        (chunk.header.destination, chunk.header.destination_address) = (to, *ROUTER);
        net.send(1, chunk);
    };
    for message in &forged {
        for to in [*ROUTER, client] {
            send(&mut net, to, message);
        }
    }
    net.run(SECOND);
    assert!(net.chunks(2).is_empty());
    let dropped = |net: &Net| {
        net.router()
            .effects
            .counters
            .drops
            .get("bad-control")
            .copied()
    };
    assert_eq!(dropped(&net), Some(2 * forged.len() as u64));
    send(&mut net, client, &Control::Left { record });
    net.run(SECOND);
    assert_eq!(net.chunks(2).len(), 1, "it passes on");
    assert_eq!(dropped(&net), Some(2 * forged.len() as u64));
}

/// Checking a signature is work: who sends bad ones is looked at less, and answered less.
#[test]
fn bad_signatures_of_one_neighbour_cost_little() {
    let (attacker, honest) = (keys(1), keys(2));
    let names = [attacker.guid(), honest.guid()];
    let mut net = net_of_callers(&names, config());
    let good = announcement(&attacker, Guid([7; 32]), 60_000);
    let mut bad = good.as_bytes().to_vec();
    *bad.last_mut().expect("a byte") ^= 1;
    let bad = Record::parse(Bytes::from(bad)).expect("a record");
    for _ in 0..1000 {
        let record = Bytes::copy_from_slice(bad.as_bytes());
        net.send(1, control(names[0], &Control::Register { record }));
    }
    net.run(SECOND * 2);
    let answered = net.chunks(1).len();
    assert!((32..40).contains(&answered), "{answered}");
    let own = announcement(&honest, Guid([7; 32]), 60_000);
    let ok = Some(ControlCode::Registered);
    assert_eq!(register(&mut net, 2, names[1], &own), ok);
    // It gets another chance.
    net.run(SECOND * 3);
    assert_eq!(register(&mut net, 1, names[0], &good), ok);
}

/// Takes what a neighbour has received; returns the last question about a host among it.
fn asked(net: &mut Net, neighbour: usize) -> Option<Presence> {
    let received = net.neighbour(neighbour, |it, _| core::mem::take(&mut it.received));
    let questions = received
        .iter()
        .filter_map(|it| match Control::decode(&it.message.head) {
            Ok(Control::Presence(about)) => Some(about),
            _ => None,
        });
    questions.last()
}

/// A neighbour of this name answers a question.
fn answer(net: &mut Net, (from, name): (usize, Guid), about: Presence, code: PresenceCode) {
    let answer = Presence { code, ..about };
    net.send(from, presence(name, (*ROUTER, *ROUTER), answer));
}

/// A host's record may name anyone. Answers go where it says that it is only once the router there has
/// answered that it is.
#[test]
fn answers_go_to_another_router_only_when_that_has_the_host() {
    let (host, server) = (keys(1), keys(2).guid());
    let (its_router, stranger, guest) = (keys(3).guid(), keys(4).guid(), keys(5).guid());
    let origins = [
        PortOrigin::Accepted(0),
        PortOrigin::Accepted(0),
        PortOrigin::Configured(0),
        PortOrigin::Configured(1),
        PortOrigin::Accepted(0),
    ];
    let names = [host.guid(), server, its_router, stranger, guest];
    let mut net = Net::with_origins(&names, &origins, config());
    let addresses = [*ROUTER, its_router, stranger, guest].map(Address::new);
    let statement = Statement::new(UNIX_MS, 60_000, addresses.to_vec());
    let record = Record::binding(&host, &statement).expect("a record");
    net.with_router(|it, now| {
        for (guid, at) in [(host.guid(), 1), (server, 2), (guest, 5)] {
            assert!(
                it.binding
                    .attachments
                    .insert(guid, port(at), record.version())
            );
        }
        it.register(now, port(1), record);
    });
    let mut answered_at = |claimed: Guid| {
        let mut chunk = chunk_of(host.guid(), server, &Transport::Request(request()));
        chunk.header.source_address = claimed;
        net.neighbour(2, |it, _| it.received.clear());
        net.send(1, chunk);
        net.run(SECOND / 2);
        let questions = [3, 4, 5].map(|neighbour| asked(&mut net, neighbour));
        // The router that has it says so, and says the same of a question to another one.
        for about in questions[..2].iter().flatten() {
            assert_eq!((about.guid, about.code), (host.guid(), PresenceCode::Asked));
            answer(&mut net, (3, its_router), *about, PresenceCode::Here);
        }
        net.run(SECOND / 2);
        (
            net.chunks(2)[0].header.source_address,
            questions[2].is_some(),
        )
    };
    assert_eq!(answered_at(its_router), (*ROUTER, false));
    assert_eq!(answered_at(its_router), (its_router, false));
    for _ in 0..3 {
        assert_eq!(answered_at(stranger), (*ROUTER, false));
        // It is attached here: nobody asks it for another host.
        assert_eq!(answered_at(guest), (*ROUTER, false));
    }
}

#[test]
fn what_waits_because_a_host_is_not_there_leaves_when_its_router_says_that_it_is() {
    let (sender, its_router, host) = (keys(1).guid(), keys(2).guid(), keys(3));
    let origins = [PortOrigin::Accepted(0), PortOrigin::Configured(0)];
    let mut net = Net::with_origins(&[sender, its_router], &origins, config());
    let at = Record::parse(record(&host, its_router, 0)).expect("a record");
    net.with_router(|it, now| assert!(it.binding.names.keep(now, port(1), at, |_| None).is_ok()));
    let step = |net: &mut Net, index| {
        let mut chunk = data(ServiceId::UNICAST, host.guid(), index, 1000);
        chunk.header.source = sender;
        net.send(1, chunk);
        net.run(SECOND / 5);
        let arrived: Vec<u32> = net.received(2).into_keys().collect();
        (arrived, asked(net, 2))
    };
    // Nothing is known yet.
    let (arrived, question) = step(&mut net, 0);
    assert_eq!(arrived, [0]);
    let to = (2, its_router);
    answer(
        &mut net,
        to,
        question.expect("a question"),
        PresenceCode::Absent,
    );
    net.run(SECOND / 10);
    let (arrived, question) = step(&mut net, 1);
    let stored = net.router().proxy.store().ids_for(&host.guid()).len();
    assert_eq!((arrived, stored), (vec![], 1));
    // The timer of what is stored takes a second.
    answer(
        &mut net,
        to,
        question.expect("another one"),
        PresenceCode::Here,
    );
    net.run(SECOND / 5);
    assert_eq!(net.received(2).into_keys().collect::<Vec<_>>(), [1]);
}

/// Whoever made the binding: a chunk that is bound to a host goes to no other one.
#[test]
fn a_host_gets_nothing_that_is_bound_to_it_for_another_one() {
    let [sender, host, other] = [1, 2, 3].map(|number| keys(number).guid());
    let mut net = net_of_callers(&[sender, host, other], config());
    assert!(net.with_router(|it, _| it.binding.attachments.insert(host, port(2), 1)));
    for (index, destination) in [(0, other), (1, host)] {
        let mut chunk = data(ServiceId::UNICAST, destination, index, 1000);
        chunk.header.source = sender;
        chunk.header.destination_address = host;
        net.send(1, chunk);
    }
    net.run(SECOND);
    let indexes: Vec<u32> = net.received(2).into_keys().collect();
    assert_eq!(indexes, [1]);
}

#[test]
fn a_router_says_whether_a_host_is_attached_to_it() {
    let (asking, host) = (keys(1).guid(), keys(2).guid());
    let mut net = Net::with_origins(&[asking], &[PortOrigin::Configured(0)], config());
    let told = |net: &mut Net| {
        net.neighbour(1, |it, _| it.received.clear());
        let (guid, code) = (host, PresenceCode::Asked);
        let question = Presence {
            guid,
            nonce: 7,
            code,
        };
        net.send(1, presence(asking, (*ROUTER, *ROUTER), question));
        net.run(SECOND);
        let answer = Control::decode(&net.chunks(1)[0].message.head);
        answer.expect("an answer")
    };
    let is = |code| {
        Control::Presence(Presence {
            guid: host,
            nonce: 7,
            code,
        })
    };
    assert_eq!(told(&mut net), is(PresenceCode::Absent));
    assert!(net.with_router(|it, _| it.binding.attachments.insert(host, port(1), 1)));
    assert_eq!(told(&mut net), is(PresenceCode::Here));
}

/// A next hop's word is no room.
#[test]
fn credit_without_bounds_lets_in_no_more_than_the_part_of_a_flow() {
    let (client, beyond) = (name(9), name(3));
    let mut net = Net::new(&[*SOURCE, beyond]);
    for (guid, neighbour) in [(*SOURCE, 1), (client, 2)] {
        assert!(net.with_router(|it, _| it.binding.attachments.insert(guid, port(neighbour), 1)));
    }
    net.hold_back(2, beyond, client, 0);
    net.run(SECOND);
    for index in 0..3 {
        net.send(1, data(ServiceId::CONTENT_RESPONSE, client, index, 500_000));
        net.run(Duration::from_millis(100));
    }
    assert!(net.received(2).is_empty());
    net.hold_back(2, beyond, client, u32::MAX);
    net.run(SECOND);
    assert_eq!(net.received(2).len(), 3);
    let received = net.chunks(1).iter();
    let credits = received.filter_map(|it| match Control::decode(&it.message.head) {
        Ok(Control::Credit(credit)) => Some(credit.octets),
        _ => None,
    });
    // 100 Mbit/s for a second, and three round trips.
    let most = credits.max().expect("a hold");
    assert!(most > 0 && most < 20_000_000, "{most}");
}
