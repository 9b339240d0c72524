//! Peek, poke, ping and traffic against their servers, and what an [`AppFace`] does with its port.

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use support::{PORT, Pair, Path, Side, digest, name, port_up, register, transmit};
use whimbrel_core::{Deadline, Machine, PortEvent, PortId, PortRequest, SeededRng, Time};
use whimbrel_ndn_mgmt::ControlParameters;
use whimbrel_ndn_packet::lp::{self, LinkFields, Numbers};
use whimbrel_ndn_packet::{
    ContentType, Data, DataRef, DigestSigner, Interest, InterestRef, LpHeader, LpPacket, NackReason,
};
use whimbrel_transport::register::{
    RegisterFailure, Registrar, RegistrationEvent, RouteParameters,
};
use whimbrel_transport::traffic::{Append, TrafficPattern, TrafficRule};
use whimbrel_transport::{
    Answer, AppFace, Application, EchoProducer, FaceNumber, Gaps, Outgoing, Peek, PeekEvent,
    PeekOptions, Ping, PingEvent, PingOptions, PingServer, PingServerOptions, PingStats, Poke,
    PokeEvent, PokeOptions, Responder, Service, ServiceEvent, TrafficClient, TrafficEvent,
    TrafficOptions, TrafficServer,
};

const MS: Duration = Duration::from_millis(1);

fn rng() -> SeededRng {
    SeededRng::new(11)
}

fn echo(prefix: &str, payload: usize) -> EchoProducer {
    EchoProducer::echo(name(prefix), payload, MS, digest(), Some(register()), rng())
}

fn peek(text: &str, options: PeekOptions) -> Peek {
    Peek::new(name(text), options, rng(), Time::ZERO)
}

fn last<E: Clone>(events: &[(Time, E)]) -> E {
    events.last().expect("an event").1.clone()
}

#[test]
fn peek_gets_the_whole_data() {
    let mut pair = Pair::new(
        peek("/a/b", PeekOptions::default()),
        echo("/a", 3),
        Path::clean(),
        1,
    );
    pair.run(Time::from_secs(10), |_| false);
    let PeekEvent::Data { packet, rtt } = last(&pair.consumer_events) else {
        panic!("no Data")
    };
    let data = DataRef::decode(&packet).unwrap();
    assert_eq!(
        (data.name.to_name(), data.content),
        (name("/a/b"), &[0, 0, 0][..])
    );
    assert_eq!(rtt, 10 * MS);
    assert_eq!(pair.consumer_events.len(), 1);
}

#[test]
fn peek_writes_every_option_into_its_interest() {
    let options = PeekOptions {
        can_be_prefix: true,
        must_be_fresh: true,
        lifetime: 700 * MS,
        hop_limit: Some(3),
        forwarding_hint: vec![name("/isp")],
        parameters: Some(Bytes::from_static(b"parameters")),
        timeout: None,
    };
    let mut pair = Pair::new(peek("/a", options), echo("/a", 3), Path::clean(), 1);
    pair.run(Time::from_secs(10), |_| false);
    let interest = InterestRef::decode(&pair.sent_by_consumer[0]).unwrap();
    assert!(
        interest.can_be_prefix && interest.must_be_fresh && interest.parameters_digest_is_valid()
    );
    assert_eq!((interest.lifetime, interest.hop_limit), (700 * MS, Some(3)));
    assert_eq!(
        interest
            .delegations()
            .map(|name| name.to_name())
            .collect::<Vec<_>>(),
        [name("/isp")]
    );
    // The echo answers under the name with the digest.
    assert!(matches!(
        last(&pair.consumer_events),
        PeekEvent::Data { .. }
    ));
}

#[test]
fn peek_tells_silence_and_nacks_and_ignores_other_data() {
    let silent = Path {
        loss: 1.0,
        ..Path::clean()
    };
    let mut pair = Pair::new(peek("/a", PeekOptions::default()), echo("/a", 3), silent, 1);
    pair.run(Time::from_secs(10), |_| false);
    assert_eq!(
        pair.consumer_events,
        [(Time::from_secs(4), PeekEvent::Timeout)]
    );

    let options = PeekOptions {
        timeout: Some(50 * MS),
        ..PeekOptions::default()
    };
    let mut pair = Pair::new(peek("/a", options), echo("/a", 3), silent, 1);
    pair.run(Time::from_secs(10), |_| false);
    assert_eq!(
        pair.consumer_events,
        [(Time::from_millis(50), PeekEvent::Timeout)]
    );

    let mut pair = Pair::new(
        peek("/a", PeekOptions::default()),
        echo("/a", 3),
        Path::clean(),
        1,
    );
    pair.set_tamper(Box::new(|_, to, frame| {
        if to == Side::Producer {
            return vec![frame];
        }
        let mut nack = Vec::new();
        let header = LpHeader {
            nack: Some(NackReason::NoRoute),
            ..LpHeader::default()
        };
        let interest = Interest::new(name("/a")).encode();
        lp::encode(&mut nack, &LinkFields::default(), &header, Some(&interest));
        vec![
            Data::new(name("/a/b"), &b""[..]).encode(&DigestSigner),
            nack,
            frame,
        ]
    }));
    pair.run(Time::from_secs(10), |_| false);
    let nack = PeekEvent::Nack {
        reason: NackReason::NoRoute,
        rtt: 10 * MS,
    };
    assert_eq!(pair.consumer_events, [(Time::from_millis(10), nack)]);
}

fn poke(options: PokeOptions) -> Poke {
    let content = Bytes::from_static(b"content");
    Poke::new(
        name("/p/q"),
        content,
        &digest(),
        options,
        register(),
        rng(),
        Time::ZERO,
    )
}

#[test]
fn poke_answers_the_first_interest_that_asks_for_it() {
    let options = PokeOptions {
        freshness: 2000 * MS,
        final_block: true,
        ..PokeOptions::default()
    };
    let asked = PeekOptions {
        can_be_prefix: true,
        ..PeekOptions::default()
    };
    let mut pair = Pair::new(peek("/p", asked), poke(options), Path::clean(), 1);
    pair.run(Time::from_secs(10), |_| false);
    let PeekEvent::Data { packet, .. } = last(&pair.consumer_events) else {
        panic!("no Data")
    };
    let data = DataRef::decode(&packet).unwrap();
    assert_eq!((data.content, data.freshness), (&b"content"[..], 2000 * MS));
    assert_eq!(data.final_block_id, data.name.last());
    assert_eq!(last(&pair.producer_events), PokeEvent::Sent);
    let commands = pair.registered.lock().unwrap().clone();
    let verbs: Vec<_> = commands.iter().map(|(verb, _)| verb.as_str()).collect();
    assert_eq!(verbs, ["register", "unregister"]);
}

#[test]
fn poke_goes_unasked_or_gives_up() {
    let options = PokeOptions {
        unsolicited: true,
        ..PokeOptions::default()
    };
    let mut pair = Pair::new(
        peek("/x", PeekOptions::default()),
        poke(options),
        Path::clean(),
        1,
    );
    pair.run(Time::from_secs(10), |_| false);
    assert_eq!(pair.producer_events, [(Time::ZERO, PokeEvent::Sent)]);
    assert!(pair.registered.lock().unwrap().is_empty());

    let options = PokeOptions {
        timeout: Some(300 * MS),
        ..PokeOptions::default()
    };
    let mut pair = Pair::new(
        peek("/x", PeekOptions::default()),
        poke(options),
        Path::clean(),
        1,
    );
    pair.run(Time::from_secs(10), |_| false);
    assert_eq!(
        pair.producer_events.last(),
        Some(&(Time::from_millis(300), PokeEvent::Timeout))
    );
}

fn ping_stats(pair: &Pair<Ping, PingServer>) -> PingStats {
    match last(&pair.consumer_events) {
        PingEvent::Finished(stats) => stats,
        other => panic!("{other:?}"),
    }
}

fn ping(options: PingOptions, server: PingServerOptions, path: Path) -> Pair<Ping, PingServer> {
    let server = PingServer::pings(server, register(), rng());
    let mut pair = Pair::new(Ping::new(options, rng()), server, path, 1);
    pair.run(Time::from_secs(1000), |_| false);
    pair
}

#[test]
fn pings_are_named_as_ndnping_names_them() {
    let options = PingOptions {
        count: Some(3),
        start: Some(u64::MAX - 1),
        identifier: Some(String::from("me")),
        ..PingOptions::new(name("/server"))
    };
    let server = PingServerOptions {
        payload: 20,
        ..PingServerOptions::new(name("/server"))
    };
    let pair = ping(options, server, Path::clean());
    let names: Vec<String> = pair
        .sent_by_consumer
        .iter()
        .map(|frame| InterestRef::decode(frame).unwrap())
        .inspect(|interest| assert!(interest.must_be_fresh))
        .map(|interest| interest.name.to_string())
        .collect();
    let expected = ["18446744073709551614", "18446744073709551615", "0"];
    assert_eq!(
        names,
        expected.map(|number| format!("/server/ping/me/{number}"))
    );
    let stats = ping_stats(&pair);
    assert_eq!((stats.sent, stats.received, stats.timeouts), (3, 3, 0));
    assert!((stats.rtt.mean_ms().unwrap() - 10.0).abs() < 1e-6 && stats.loss() == 0.0);
    assert_eq!(pair.producer().application().responder().answered(), 3);
    let registered = pair.registered.lock().unwrap().clone();
    assert_eq!(
        registered,
        [(String::from("register"), name("/server/ping"))]
    );
    // Two seconds between the three of them, and a round trip.
    assert_eq!(
        pair.consumer_events.last().unwrap().0,
        Time::from_millis(2010)
    );
}

#[test]
fn lost_pings_are_counted_after_their_time() {
    let options = PingOptions {
        count: Some(300),
        interval: 5 * MS,
        timeout: 100 * MS,
        ..PingOptions::new(name("/s"))
    };
    let pair = ping(
        options,
        PingServerOptions::new(name("/s")),
        Path::lossy(0.2),
    );
    let stats = ping_stats(&pair);
    assert_eq!(stats.received + stats.timeouts, 300);
    assert!((0.2..0.6).contains(&stats.loss()), "{stats:?}");
    let lost = pair
        .consumer_events
        .iter()
        .filter(|(_, event)| matches!(event, PingEvent::Timeout { .. }));
    assert_eq!(lost.count() as u64, stats.timeouts);
}

#[test]
fn a_ping_server_stops_after_its_count() {
    let options = PingOptions {
        count: Some(5),
        timeout: 100 * MS,
        ..PingOptions::new(name("/s"))
    };
    let server = PingServerOptions {
        count: Some(3),
        log: true,
        ..PingServerOptions::new(name("/s"))
    };
    let pair = ping(options, server, Path::clean());
    let stats = ping_stats(&pair);
    assert_eq!((stats.received, stats.timeouts), (3, 2));
    assert_eq!(
        pair.producer_events.len(),
        1 + 3 + 1,
        "registered, three pings, the end"
    );
}

fn rule(text: &str, content: &'static [u8], delay: Duration) -> TrafficRule {
    TrafficRule {
        name: name(text),
        delay,
        freshness: MS,
        content_type: ContentType::Blob,
        content: Bytes::from_static(content),
        signer: digest(),
    }
}

#[test]
fn traffic_keeps_its_shares_its_rate_and_its_counters() {
    let patterns = vec![
        TrafficPattern {
            share: 75.0,
            append: Append::SequenceNumber(10),
            expected_content: Some(Bytes::from_static(b"AAAA")),
            ..TrafficPattern::new(name("/example/A"))
        },
        TrafficPattern {
            share: 25.0,
            append: Append::RandomBytes(6),
            expected_content: Some(Bytes::from_static(b"something else")),
            can_be_prefix: true,
            ..TrafficPattern::new(name("/example/B"))
        },
    ];
    let options = TrafficOptions {
        patterns,
        interval: 10 * MS,
        gaps: Gaps::Exponential,
        count: Some(2000),
        log: true,
    };
    let rules = vec![
        rule("/example/A", b"AAAA", Duration::ZERO),
        rule("/example/B", b"BBBB", 30 * MS),
    ];
    let server = TrafficServer::rules(rules, None, register(), rng());
    let mut pair = Pair::new(TrafficClient::new(options, rng()), server, Path::clean(), 1);
    pair.run(Time::from_secs(1000), |_| false);
    let TrafficEvent::Finished(stats) = last(&pair.consumer_events) else {
        panic!("not finished")
    };
    let [a, b] = stats[..] else {
        panic!("two patterns")
    };
    assert_eq!(a.sent + b.sent, 2000);
    assert!((1400..1600).contains(&a.sent), "{}", a.sent);
    assert_eq!(
        (a.received, a.inconsistent, b.received, b.inconsistent),
        (a.sent, 0, b.sent, b.sent)
    );
    assert!((a.rtt.mean_ms().unwrap() - 10.0).abs() < 1e-6);
    assert!(
        (b.rtt.mean_ms().unwrap() - 40.0).abs() < 1e-6,
        "10 ms of path and 30 ms of delay"
    );
    assert_eq!(
        pair.producer().application().responder().answered(),
        [a.sent, b.sent]
    );
    let seconds = pair.consumer_events.last().unwrap().0.as_secs_f64();
    assert!(
        (18.0..22.0).contains(&seconds),
        "2000 Interests, 10 ms apart in the mean: {seconds}"
    );
}

#[test]
fn traffic_without_answers_is_bounded_and_counted() {
    let pattern = TrafficPattern {
        append: Append::SequenceNumber(0),
        lifetime: 3_600_000 * MS,
        next_hop_face_id: Some(300),
        ..TrafficPattern::new(name("/x"))
    };
    let options = TrafficOptions {
        patterns: vec![pattern],
        interval: Duration::from_micros(10),
        gaps: Gaps::Constant,
        count: Some(70_000),
        log: false,
    };
    let server = TrafficServer::rules(vec![], None, register(), rng());
    let path = Path {
        loss: 1.0,
        ..Path::clean()
    };
    let mut pair = Pair::new(TrafficClient::new(options, rng()), server, path, 1);
    pair.run(Time::from_secs(60), |_| false);
    let stats = pair.consumer().application().stats()[0];
    assert_eq!((stats.sent, stats.timeouts), (70_000, 70_000 - 65_536));
    let first = LpPacket::decode(&pair.sent_by_consumer[0], false).unwrap();
    assert_eq!(first.next_hop_face_id, Some(300));
}

#[test]
fn a_refused_registration_is_told_and_a_silent_one_repeated() {
    let registered = |code: Option<u64>, seconds: u64| {
        let mut pair = Pair::new(
            peek("/none", PeekOptions::default()),
            echo("/a", 1),
            Path::clean(),
            1,
        );
        pair.face(Side::Producer, false);
        pair.registered.lock().unwrap().clear();
        pair.management.set(code);
        pair.face(Side::Producer, true);
        pair.run(Time::from_secs(seconds), |_| false);
        let count = pair.registered.lock().unwrap().len();
        let events: Vec<_> = pair
            .producer_events
            .into_iter()
            .map(|(_, event)| event)
            .collect();
        (count, events)
    };
    let (count, events) = registered(Some(403), 100);
    assert_eq!(count, 1, "what is refused for good is not repeated");
    match &events[..] {
        [
            ..,
            ServiceEvent::Registration(RegistrationEvent::Failed {
                reason,
                retry_in: None,
                prefix,
            }),
        ] => {
            assert_eq!(*prefix, name("/a"));
            assert!(matches!(
                reason,
                RegisterFailure::Response { code: 403, .. }
            ));
            assert!(reason.to_string().contains("said the forwarder"));
        }
        other => panic!("{other:?}"),
    }
    // After 4 s of patience and waits of 0.5, 1, 2, 4, 8, 16 and 30 s: at 0, 4.5, 9.5, 15.5, 23.5,
    // 35.5, 55.5, 89.5 s.
    let (count, events) = registered(None, 100);
    assert_eq!(count, 8, "{events:?}");
    let timeouts = events.iter().filter(|event| {
        matches!(
            event,
            ServiceEvent::Registration(RegistrationEvent::Failed {
                reason: RegisterFailure::Timeout,
                retry_in: Some(_),
                ..
            })
        )
    });
    assert!(timeouts.count() >= 6);
    let (count, _) = registered(Some(503), 10);
    assert!(count > 3, "the forwarder's own trouble may pass: {count}");
}

struct Mute;

impl Responder for Mute {
    type Event = ();

    fn respond(&mut self, _now: Time, _interest: &InterestRef<'_>) -> Answer {
        Answer::Nack(NackReason::None)
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

#[test]
fn pit_tokens_come_back_and_too_many_answers_are_dropped() {
    let mut service = Service::new(Mute, Registrar::new(register(), []), rng());
    service.handle_face(Time::ZERO, FaceNumber::FIRST, true);
    let interest = Interest {
        nonce: Some([1; 4]),
        ..Interest::new(name("/a"))
    }
    .encode();
    let mut frame = Vec::new();
    let header = LpHeader {
        pit_token: Some(Bytes::from_static(b"tok")),
        ..LpHeader::default()
    };
    lp::encode(&mut frame, &LinkFields::default(), &header, Some(&interest));
    for _ in 0..20_000 {
        service.handle_packet(
            Time::ZERO,
            FaceNumber::FIRST,
            &LpPacket::decode(&frame, false).unwrap(),
        );
    }
    assert_eq!(service.counters().interests, 20_000);
    assert_eq!(service.counters().dropped, 20_000 - 16_384);
    let (packet, header) = service.poll_packet(Time::ZERO, FaceNumber::FIRST).unwrap();
    let header = header.unwrap();
    assert_eq!(header.pit_token.as_deref(), Some(&b"tok"[..]));
    assert_eq!(
        (header.nack, &packet[..]),
        (Some(NackReason::None), &interest[..])
    );
}

/// Answers with a header field that says what the Interest's header said.
struct Labelling;

impl Responder for Labelling {
    type Event = ();

    fn respond(&mut self, _now: Time, interest: &InterestRef<'_>) -> Answer {
        Answer::Data(Bytes::copy_from_slice(interest.wire))
    }

    fn set_header(&mut self, asked: &LpPacket<'_>, header: &mut LpHeader) {
        header.congestion_mark = asked.congestion_mark.map(|mark| mark + 1);
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

#[test]
fn a_producer_sees_the_link_header_and_sets_fields_of_its_answers() {
    let mut service = Service::new(Labelling, Registrar::new(register(), []), rng());
    service.handle_face(Time::ZERO, FaceNumber::FIRST, true);
    let interest = Interest::new(name("/a")).encode();
    let header = LpHeader {
        pit_token: Some(Bytes::from_static(b"tok")),
        congestion_mark: Some(6),
        ..LpHeader::default()
    };
    let mut frame = Vec::new();
    lp::encode(&mut frame, &LinkFields::default(), &header, Some(&interest));
    for frame in [&frame, &interest] {
        let packet = LpPacket::decode(frame, false).unwrap();
        service.handle_packet(Time::ZERO, FaceNumber::FIRST, &packet);
    }
    let mut answer = || {
        let (_, header) = service.poll_packet(Time::ZERO, FaceNumber::FIRST)?;
        Some(header.map(|header| *header))
    };
    let expected = LpHeader {
        congestion_mark: Some(7),
        ..header.clone()
    };
    assert_eq!(answer(), Some(Some(expected)));
    assert_eq!(answer(), Some(None), "nothing to say, no header");
    assert_eq!(answer(), None);
}

#[test]
fn routes_are_registered_with_what_the_program_says() {
    let route = RouteParameters {
        cost: Some(10),
        ..RouteParameters::new(name("/r"))
    };
    let mut registrar = Registrar::new(register(), [route.clone()]);
    registrar.handle_face(Time::ZERO, true);
    let first = registrar.poll(Time::ZERO, &mut rng()).unwrap();
    let interest = InterestRef::decode(&first).unwrap();
    let parameters = ControlParameters::from(&route).encode();
    let command = name("/localhost/nfd/rib/register").child_generic(&parameters);
    assert!(command.as_ref().is_prefix_of(interest.name));
    registrar.add(Time::ZERO, RouteParameters::new(name("/s")));
    let second = registrar.poll(Time::ZERO, &mut rng()).unwrap();
    let times = [&first, &second].map(|wire| {
        InterestRef::decode(wire)
            .unwrap()
            .signature_info
            .unwrap()
            .time
    });
    assert!(
        times[1] > times[0],
        "times increase even within a millisecond"
    );
}

/// Sends packets of given sizes.
struct Sizes(Vec<usize>);

impl Application for Sizes {
    type Event = ();

    fn handle_face(&mut self, _now: Time, _face: FaceNumber, _up: bool) {}
    fn handle_packet(&mut self, _now: Time, _face: FaceNumber, _packet: &LpPacket<'_>) {}
    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_packet(&mut self, _now: Time, _face: FaceNumber) -> Option<Outgoing> {
        let size = self.0.pop()?;
        // Type and length take four octets.
        let mut packet = vec![0x06, 0xfd, ((size - 4) >> 8) as u8, (size - 4) as u8];
        packet.resize(size, 0);
        Some((packet.into(), Some(Box::default())))
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

fn sizes_of_transmits(sizes: &[usize], stream: bool, mtu: usize) -> (Vec<Vec<usize>>, u64) {
    let mut face = AppFace::new(Sizes(sizes.iter().rev().copied().collect()));
    let mut buffer = Vec::new();
    assert_eq!(
        face.poll_transmit(Time::ZERO, 4, &mut buffer),
        None,
        "no port"
    );
    face.handle_port(Time::ZERO, PORT, port_up(stream, mtu));
    let mut transmits = Vec::new();
    while let Some((_, frames)) = transmit(&mut face, Time::ZERO, stream) {
        transmits.push(frames.iter().map(Vec::len).collect());
    }
    (transmits, face.counters().dropped_too_large)
}

#[test]
fn a_face_puts_packets_of_one_size_into_one_transmit() {
    let (transmits, dropped) =
        sizes_of_transmits(&[500, 500, 300, 300, 400, 2000, 500], false, 1400);
    assert_eq!(
        transmits,
        [vec![500, 500, 300], vec![300], vec![400], vec![500]]
    );
    assert_eq!(dropped, 1);
}

#[test]
fn a_face_puts_whole_packets_up_to_64_kib_on_a_stream() {
    let sizes: Vec<usize> = (0..50).map(|n| 5000 + n).collect();
    let (transmits, dropped) = sizes_of_transmits(&sizes, true, 8800);
    assert_eq!(transmits.concat(), sizes);
    assert!(
        transmits
            .iter()
            .all(|sizes| sizes.iter().sum::<usize>() <= 65_536)
    );
    assert_eq!((transmits.len(), dropped), (4, 0));
}

/// Keeps what its faces bring, and sends a packet by each face as often as it is told.
#[derive(Default)]
struct Switchboard {
    states: Vec<(u8, bool)>,
    arrived: Vec<u8>,
    to_send: [u32; 3],
    first: FaceNumber,
}

impl Application for Switchboard {
    type Event = ();

    fn handle_face(&mut self, _now: Time, face: FaceNumber, up: bool) {
        self.states.push((face.0, up));
    }

    fn handle_packet(&mut self, _now: Time, face: FaceNumber, _packet: &LpPacket<'_>) {
        self.arrived.push(face.0);
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_packet(&mut self, _now: Time, face: FaceNumber) -> Option<Outgoing> {
        let left = self.to_send.get_mut(usize::from(face.0))?;
        *left = left.checked_sub(1)?;
        Some((Interest::new(name("/a")).encode().into(), None))
    }

    fn first_face(&self) -> FaceNumber {
        self.first
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

/// The ports that have something to send, in their order.
fn ports_of_transmits(face: &mut AppFace<Switchboard>) -> Vec<u32> {
    let mut buffer = Vec::new();
    core::iter::from_fn(|| face.poll_transmit(Time::ZERO, 44, &mut buffer))
        .map(|transmit| transmit.port.0)
        .collect()
}

#[test]
fn an_application_has_several_faces_and_each_is_a_port_of_its_own() {
    // The ports 12, 11 and 10 are the faces 2, 1 and 0, in the order in which they come up.
    let mut numbers = [2, 1, 0].into_iter().map(FaceNumber);
    let mut face = AppFace::with_faces(Switchboard::default(), move |_| numbers.next());
    for port in [12, 11, 10, 9] {
        face.handle_port(Time::ZERO, PortId(port), port_up(true, 8800));
    }
    let refused = face.poll_port_request();
    assert_eq!(refused, Some(PortRequest::Close(PortId(9))));
    let interest = Interest::new(name("/a")).encode();
    for port in [11, 12, 10, 9] {
        face.handle_frames(Time::ZERO, PortId(port), &[&interest]);
    }
    let application = face.application_mut();
    assert_eq!(application.states, [(2, true), (1, true), (0, true)]);
    assert_eq!(application.arrived, [1, 2, 0]);
    (application.to_send, application.first) = ([3, 3, 3], FaceNumber(1));
    assert_eq!(ports_of_transmits(&mut face), [11, 10, 12]);
    // What blocks one face does not hold up the others.
    face.handle_port(Time::ZERO, PortId(11), PortEvent::Blocked);
    face.application_mut().to_send = [1, 1, 1];
    assert_eq!(ports_of_transmits(&mut face), [10, 12]);
    face.handle_port(Time::ZERO, PortId(11), PortEvent::Writable);
    assert_eq!(ports_of_transmits(&mut face), [11]);
    face.handle_port(Time::ZERO, PortId(12), PortEvent::Down);
    assert_eq!(face.application().states.last(), Some(&(2, false)));
    face.application_mut().to_send = [1, 1, 1];
    assert_eq!(ports_of_transmits(&mut face), [11, 10]);
    assert!(face.is_up());
}

#[test]
fn a_face_counts_what_it_cannot_use_and_keeps_one_port() {
    let mut face = AppFace::new(echo("/a", 1));
    face.handle_port(Time::ZERO, PORT, port_up(true, 8800));
    face.handle_port(Time::ZERO, PortId(9), port_up(true, 8800));
    assert_eq!(
        face.poll_port_request(),
        Some(PortRequest::Close(PortId(9)))
    );
    let interest = Interest::new(name("/a")).encode();
    let mut fragment = Vec::new();
    let fields = LinkFields {
        sequence: Some(1),
        frag_count: Some(2),
        ..LinkFields::default()
    };
    lp::encode(
        &mut fragment,
        &fields,
        &LpHeader::default(),
        Some(&interest),
    );
    let mut idle = Vec::new();
    lp::encode(
        &mut idle,
        &LinkFields {
            acks: Numbers::Listed(&[1]),
            ..LinkFields::default()
        },
        &LpHeader::default(),
        None,
    );
    for frame in [&fragment[..], &idle, b"\x99\x00", b"", &interest] {
        face.handle_frames(Time::ZERO, PORT, &[frame]);
    }
    face.handle_frames(Time::ZERO, PortId(9), &[&interest]);
    let counters = *face.counters();
    assert_eq!(
        (
            counters.dropped_fragments,
            counters.idle,
            counters.dropped_malformed,
            counters.in_packets
        ),
        (1, 1, 2, 1)
    );
    assert_eq!(counters.dropped_other_port, 1);
    face.handle_port(Time::ZERO, PortId(9), PortEvent::Down);
    assert!(face.is_up());
    face.handle_port(Time::ZERO, PORT, PortEvent::Down);
    assert!(!face.is_up());
    let _: Arc<DigestSigner> = Arc::default();
}
