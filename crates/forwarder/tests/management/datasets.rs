//! Datasets: versions, segments, contents.

use whimbrel_core::Time;
use whimbrel_forwarder::mgmt::ManagementConfig;
use whimbrel_forwarder::{FaceId, Scope};
use whimbrel_ndn_mgmt::client::{ClientError, DatasetFetch, Target, decode_items};
use whimbrel_ndn_mgmt::{
    ChannelStatus, FaceQueryFilter, FaceStatus, FibEntry, ForwarderStatus, RibEntry,
};
use whimbrel_ndn_packet::{DataRef, DigestSigner, Interest, Name, Signer};

use super::router::{Router, START_MILLIS, of_name, udp};

#[test]
fn an_interest_for_a_dataset_gets_the_first_segment_of_a_new_version() {
    let mut router = Router::new();
    let program = router.program();
    let mut interest = Interest::new(Target::Local.name("faces", "list"));
    (
        interest.can_be_prefix,
        interest.must_be_fresh,
        interest.nonce,
    ) = (true, true, Some([1; 4]));
    let packet = router.ask(program, &interest.encode()).unwrap();
    let data = DataRef::decode(&packet).unwrap();
    let micros = (START_MILLIS + 1_000) * 1_000;
    assert_eq!(
        data.name.to_string(),
        format!("/localhost/nfd/faces/list/v={micros}/seg=0")
    );
    assert_eq!(data.final_block_id.unwrap().to_string(), "seg=0");
    assert_eq!(data.freshness.as_millis(), 1_000);
    assert_eq!(
        data.signature_value,
        DigestSigner.sign(&[data.signed_portion])
    );
}

#[test]
fn python_ndn_asks_with_parameters_and_a_signature_and_gets_data_under_that_very_name() {
    let mut router = Router::new();
    let program = router.program();
    let mut interest = Interest::new(Target::Local.name("status", "general"));
    (
        interest.can_be_prefix,
        interest.must_be_fresh,
        interest.nonce,
    ) = (true, true, Some([1; 4]));
    let wire = interest.encode_signed(&DigestSigner, &DigestSigner.info());
    let packet = router.ask(program, &wire).unwrap();
    let data = DataRef::decode(&packet).unwrap();
    let asked = whimbrel_ndn_packet::InterestRef::decode(&wire)
        .unwrap()
        .name;
    assert!(asked.is_prefix_of(data.name));
    assert_eq!(data.name.len(), asked.len() + 2);
    assert_eq!(
        ForwarderStatus::decode(data.content).unwrap().nfd_version,
        ManagementConfig::default().version
    );
}

#[test]
fn faces_are_described_as_by_nfd() {
    let mut router = Router::new();
    let (program, neighbour) = (router.program(), router.neighbour(1));
    let faces: Vec<FaceStatus> = router.items(program, "faces/list");
    let ids: Vec<u64> = faces.iter().map(|face| face.face_id).collect();
    assert_eq!(ids, [1, program.0, neighbour.0]);
    assert_eq!(
        (faces[0].uri.as_str(), faces[0].local_uri.as_str()),
        ("internal://", "internal://")
    );
    assert_eq!(
        (faces[1].local_uri.as_str(), faces[1].scope),
        ("unix:///run/nfd/nfd.sock", Scope::Local)
    );
    assert_eq!(
        (faces[1].mtu, faces[2].mtu),
        (Some(8_800), Some(1_400)),
        "no limit is shown as the largest packet"
    );
    assert_eq!(
        (faces[2].uri.clone(), faces[2].scope),
        (udp(1), Scope::NonLocal)
    );
    assert_eq!(
        (faces[2].counters.in_bytes, faces[2].counters.out_bytes),
        (neighbour.0, neighbour.0 + 1)
    );
    assert!(faces[1].counters.in_interests > 0 && faces[2].counters.in_interests == 0);
}

#[test]
fn a_query_returns_the_matching_faces() {
    let mut router = Router::new();
    let (program, first, second) = (router.program(), router.neighbour(1), router.neighbour(2));
    let mut ask = |filter: FaceQueryFilter| {
        let content = router.fetch(program, DatasetFetch::face_query(Target::Local, &filter));
        let faces: Vec<FaceStatus> = decode_items(&content).unwrap();
        faces
            .iter()
            .map(|face| FaceId(face.face_id))
            .collect::<Vec<_>>()
    };
    let all = FaceQueryFilter::default();
    assert_eq!(
        ask(FaceQueryFilter {
            uri: Some(udp(2)),
            ..all.clone()
        }),
        [second]
    );
    let typed = udp(2).replace("udp4", "udp");
    assert_eq!(
        ask(FaceQueryFilter {
            uri: Some(typed),
            ..all.clone()
        }),
        [second],
        "not in its canonical form"
    );
    assert_eq!(
        ask(FaceQueryFilter {
            uri_scheme: Some("udp4".to_owned()),
            ..all.clone()
        }),
        [first, second]
    );
    assert_eq!(
        ask(FaceQueryFilter {
            uri_scheme: Some("unix".to_owned()),
            ..all.clone()
        }),
        [program]
    );
    assert_eq!(
        ask(FaceQueryFilter {
            face_id: Some(first.0),
            ..all.clone()
        }),
        [first]
    );
    assert_eq!(
        ask(FaceQueryFilter {
            scope: Some(Scope::NonLocal),
            ..all.clone()
        }),
        [first, second]
    );
    assert_eq!(
        ask(FaceQueryFilter {
            uri: Some(udp(9)),
            ..all.clone()
        }),
        []
    );
    assert_eq!(ask(all).len(), 4);
}

#[test]
fn a_malformed_filter_is_answered_by_a_nack_that_says_so() {
    let mut router = Router::new();
    let program = router.program();
    for name in [
        Target::Local.name("faces", "query"),
        Target::Local.name("faces", "query").child_generic(b"x"),
    ] {
        let mut fetch = DatasetFetch::new(name);
        let interest = fetch.poll_request([1; 4]).unwrap();
        let packet = router.ask(program, &interest).unwrap();
        let Err(ClientError::Refused(response)) = fetch.handle_data(&packet) else {
            panic!("not refused")
        };
        assert_eq!(response.status_code, 400);
    }
}

#[test]
fn a_large_dataset_has_many_segments_of_one_version_while_routes_change() {
    let mut router = Router::new();
    let program = router.program();
    for number in 0..3_000 {
        router.done(
            program,
            "rib/register",
            &of_name(&format!("/a/prefix/of/some/length/{number}")),
        );
    }
    let mut fetch = DatasetFetch::new(Target::Local.name("rib", "list"));
    let mut segments = 0u32;
    let content = loop {
        segments += 1;
        let interest = fetch.poll_request(router.nonce()).unwrap();
        let packet = router.ask(program, &interest).unwrap();
        if let Some(content) = fetch.handle_data(&packet).unwrap() {
            break content;
        }
        router.done(
            program,
            "rib/unregister",
            &of_name(&format!("/a/prefix/of/some/length/{segments}")),
        );
    };
    assert!(segments > 10, "{segments} segments");
    let entries: Vec<RibEntry> = decode_items(&content).unwrap();
    assert_eq!(
        entries.len(),
        3_000,
        "as it was when the first segment was asked for"
    );
    let now: Vec<RibEntry> = router.items(program, "rib/list");
    assert_eq!(
        now.len(),
        3_000,
        "a large one is repeated while it is fresh"
    );
    router.now = Time::from_secs(3);
    let later: Vec<RibEntry> = router.items(program, "rib/list");
    assert_eq!(later.len(), 3_000 - segments as usize + 1);
}

#[test]
fn a_small_dataset_is_always_current() {
    let mut router = Router::new();
    let program = router.program();
    for count in 1..5 {
        router.done(program, "rib/register", &of_name(&format!("/{count}")));
        let fib: Vec<FibEntry> = router.items(program, "fib/list");
        assert_eq!(fib.len(), count + 2, "and the two prefixes of management");
    }
}

#[test]
fn a_version_that_is_gone_and_a_segment_that_never_was_are_not_answered() {
    let mut router = Router::new();
    let program = router.program();
    let ask = |router: &mut Router, name: Name, nonce: u8| {
        let interest = Interest {
            nonce: Some([nonce; 4]),
            ..Interest::new(name)
        };
        router.ask(program, &interest.encode())
    };
    let base = "/localhost/nfd/faces/list";
    assert_eq!(
        ask(&mut router, format!("{base}/v=1/seg=0").parse().unwrap(), 1),
        None
    );
    router.dataset(program, "faces/list");
    let micros = (START_MILLIS + 1_000) * 1_000;
    assert_eq!(
        ask(
            &mut router,
            format!("{base}/v={micros}/seg=1").parse().unwrap(),
            2
        ),
        None
    );
    assert!(
        ask(
            &mut router,
            format!("{base}/v={micros}/seg=0").parse().unwrap(),
            3
        )
        .is_some()
    );
    let other = format!("/localhost/nfd/fib/list/v={micros}/seg=0");
    assert_eq!(
        ask(&mut router, other.parse().unwrap(), 4),
        None,
        "a version belongs to its dataset"
    );
}

#[test]
fn channels_are_the_listening_sockets_of_the_program() {
    let mut router = Router::new();
    let program = router.program();
    assert!(
        router
            .items::<ChannelStatus>(program, "faces/channels")
            .is_empty()
    );
    router.forwarder.set_channels(vec![
        "udp4://0.0.0.0:6363".to_owned(),
        "unix:///run/nfd/nfd.sock".to_owned(),
    ]);
    let channels: Vec<ChannelStatus> = router.items(program, "faces/channels");
    assert_eq!(channels.len(), 2);
    assert_eq!(channels[0].local_uri, "udp4://0.0.0.0:6363");
}

#[test]
fn data_beyond_nfd_s_is_given_as_json() {
    let mut router = Router::new();
    let (program, neighbour) = (router.program(), router.neighbour(1));
    let json = |content: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&content).unwrap();
    let counters = json(router.dataset(program, "whimbrel/counters"));
    assert_eq!(counters["faces"], 3);
    assert_eq!(counters["drops"]["no-route"], 0);
    assert!(counters["in"]["interests"].as_u64().unwrap() > 0);
    let links = json(router.dataset(program, "whimbrel/links"));
    let link = &links[2];
    assert_eq!(
        (link["face"].as_u64(), link["remote"].as_str()),
        (Some(neighbour.0), Some(udp(1).as_str()))
    );
    assert_eq!(link["link"]["retransmissions"], 7);
    assert!(json(router.dataset(program, "whimbrel/strategies")).is_array());
}
