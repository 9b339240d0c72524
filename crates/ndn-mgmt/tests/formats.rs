//! The formats, octet by octet: vectors written by python-ndn 0.5.2 and NDNts 0.0.20250307, and
//! round trips.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;

use proptest::prelude::*;
use whimbrel_ndn_mgmt::client::{DatasetItem, decode_items};
use whimbrel_ndn_mgmt::{
    ChannelStatus, ControlParameters, ControlResponse, CsInfo, FaceEventKind,
    FaceEventNotification, FaceQueryFilter, FaceStatus, FaceTraffic, FibEntry, ForwarderStatus,
    LinkType, NextHopRecord, Persistency, RibEntry, RouteStatus, Scope, StrategyChoice,
};
use whimbrel_ndn_packet::Name;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn remote() -> String {
    "udp4://192.0.2.1:6363".to_owned()
}

fn local() -> String {
    "udp4://192.0.2.2:6363".to_owned()
}

fn all_parameters() -> ControlParameters {
    ControlParameters {
        name: Some(name("/a/b")),
        face_id: Some(262),
        uri: Some(remote()),
        local_uri: Some(local()),
        origin: Some(255),
        cost: Some(10),
        capacity: Some(65_536),
        count: Some(3),
        flags: Some(2),
        mask: Some(6),
        strategy: Some(name("/s")),
        expiration_period: Some(Duration::from_secs(60)),
        persistency: Some(Persistency::Permanent),
        base_congestion_marking_interval: Some(Duration::from_millis(100)),
        default_congestion_threshold: Some(65_536),
        mtu: Some(1_400),
    }
}

#[test]
fn control_parameters_are_as_ndnts_writes_them() {
    let wire = octets(concat!(
        "686d0706080161080162690201067215756470343a2f2f3139322e302e322e313a363336338115756470343a2f2f3139322e302e",
        "322e323a363336336f01ff6a010a8304000100008401036c01027001066b0507030801736d02ea60850102870405f5e100880400",
        "01000089020578",
    ));
    assert_eq!(all_parameters().encode(), wire);
    assert_eq!(ControlParameters::decode(&wire).unwrap(), all_parameters());
}

#[test]
fn control_parameters_in_the_order_of_python_ndn_are_read_all_the_same() {
    // This one has Mtu before Flags.
    let wire =
        octets("68247215756470343a2f2f3139322e302e322e313a36333633890205786c0102700102850102");
    let parameters = ControlParameters::decode(&wire).unwrap();
    assert_eq!(
        (parameters.mtu, parameters.flag(2)),
        (Some(1_400), Some(true))
    );
    assert_eq!(parameters.persistency, Some(Persistency::Permanent));
}

#[test]
fn a_control_response_is_as_ndnts_writes_it() {
    let body = all_parameters().encode();
    let wire = [&octets("65776602019967026e6f")[..], &body].concat();
    let response = ControlResponse::new(409, "no").with(&all_parameters());
    assert_eq!(response.encode(), wire);
    assert_eq!(ControlResponse::decode(&wire).unwrap(), response);
    assert_eq!(response.parameters().unwrap(), Some(all_parameters()));
}

#[test]
fn face_status_is_as_python_ndn_writes_it() {
    let wire = octets(concat!(
        "8077690201067215756470343a2f2f3139322e302e322e313a363336338115756470343a2f2f3139322e302e322e323a36333633",
        "6d04000927c0840100850101860100870405f5e10088040001000089020578900101910201009701039204000100009301059801",
        "06940800000001000000009501086c0102",
    ));
    let status = FaceStatus {
        face_id: 262,
        uri: remote(),
        local_uri: local(),
        expiration_period: Some(Duration::from_secs(600)),
        scope: Scope::NonLocal,
        persistency: Persistency::OnDemand,
        link_type: LinkType::PointToPoint,
        base_congestion_marking_interval: Some(Duration::from_millis(100)),
        default_congestion_threshold: Some(65_536),
        mtu: Some(1_400),
        counters: FaceTraffic {
            in_interests: 1,
            in_data: 256,
            in_nacks: 3,
            out_interests: 65_536,
            out_data: 5,
            out_nacks: 6,
            in_bytes: 4_294_967_296,
            out_bytes: 8,
        },
        flags: 2,
    };
    assert_eq!(encoded(|out| status.encode(out)), wire);
    assert_eq!(decode_items::<FaceStatus>(&wire).unwrap(), [status]);
}

#[test]
fn a_face_query_filter_is_as_python_ndn_writes_it() {
    let wire = octets(concat!(
        "9641690201068304756470347215756470343a2f2f3139322e302e322e313a363336338115756470343a2f2f3139322e302e322e",
        "323a36333633840101850102860102",
    ));
    let filter = FaceQueryFilter {
        face_id: Some(262),
        uri_scheme: Some("udp4".to_owned()),
        uri: Some(remote()),
        local_uri: Some(local()),
        scope: Some(Scope::Local),
        persistency: Some(Persistency::Permanent),
        link_type: Some(LinkType::AdHoc),
    };
    assert_eq!(filter.encode(), wire);
    assert_eq!(FaceQueryFilter::decode(&wire).unwrap(), filter);
}

#[test]
fn rib_and_fib_entries_are_as_python_ndn_writes_them() {
    let rib = octets(
        "802b07060801610801628113690201066f01ff6a010a6c01016d040036ee80810c6901016f01006a01006c0101",
    );
    let hour = Some(Duration::from_secs(3_600));
    let routes = vec![
        RouteStatus {
            face_id: 262,
            origin: 255,
            cost: 10,
            flags: 1,
            expiration_period: hour,
        },
        RouteStatus {
            face_id: 1,
            origin: 0,
            cost: 0,
            flags: 1,
            expiration_period: None,
        },
    ];
    let entry = RibEntry {
        name: name("/a/b"),
        routes,
    };
    assert_eq!(encoded(|out| entry.encode(out)), rib);
    assert_eq!(decode_items::<RibEntry>(&rib).unwrap(), [entry]);

    let fib = octets("801207060801610801628108690201066a02012c");
    let next_hops = vec![NextHopRecord {
        face_id: 262,
        cost: 300,
    }];
    let entry = FibEntry {
        name: name("/a/b"),
        next_hops,
    };
    assert_eq!(encoded(|out| entry.encode(out)), fib);
    assert_eq!(decode_items::<FibEntry>(&fib).unwrap(), [entry]);
}

#[test]
fn strategy_choice_cs_info_and_channel_status_are_as_python_ndn_writes_them() {
    let wire = octets(
        "802f07006b2b072908096c6f63616c686f737408036e666408087374726174656779080a626573742d726f757465360105",
    );
    let strategy = name("/localhost/nfd/strategy/best-route/v=5");
    let choice = StrategyChoice {
        name: Name::root(),
        strategy,
    };
    assert_eq!(encoded(|out| choice.encode(out)), wire);
    assert_eq!(decode_items::<StrategyChoice>(&wire).unwrap(), [choice]);

    // python-ndn writes only the fields, ndn-cxx the container around them.
    let wire = octets("80128304000100006c0103870107810108820109");
    let info = CsInfo {
        capacity: 65_536,
        flags: 3,
        entries: 7,
        hits: 8,
        misses: 9,
    };
    assert_eq!(encoded(|out| info.encode(out)), wire);
    assert_eq!(decode_items::<CsInfo>(&wire).unwrap(), [info]);

    let channel = ChannelStatus {
        local_uri: "fd://7".to_owned(),
    };
    assert_eq!(
        encoded(|out| channel.encode(out)),
        octets("8208810666643a2f2f37")
    );
    assert_eq!(
        decode_items::<ChannelStatus>(&octets("8208810666643a2f2f37")).unwrap(),
        [channel]
    );
}

#[test]
fn forwarder_status_is_as_python_ndn_writes_it() {
    let wire = octets(concat!(
        "800532342e303781080000018bcfe5680082080000018bcfe56be883010184010285010386010487010590010691010797010892",
        "010993010a98010b99010c9a010d",
    ));
    let status = ForwarderStatus {
        nfd_version: "24.07".to_owned(),
        start_timestamp: 1_700_000_000_000,
        current_timestamp: 1_700_000_001_000,
        name_tree_entries: 1,
        fib_entries: 2,
        pit_entries: 3,
        measurements_entries: 4,
        cs_entries: 5,
        in_interests: 6,
        in_data: 7,
        in_nacks: 8,
        out_interests: 9,
        out_data: 10,
        out_nacks: 11,
        satisfied_interests: 12,
        unsatisfied_interests: 13,
    };
    assert_eq!(status.encode(), wire);
    assert_eq!(ForwarderStatus::decode(&wire).unwrap(), status);
}

#[test]
fn a_face_event_is_as_python_ndn_writes_it() {
    let wire = octets(concat!(
        "c035c1010269020106720666643a2f2f378118756e69783a2f2f2f72756e2f6e66642f6e66642e736f636b840101850101860100",
        "6c0101",
    ));
    let event = FaceEventNotification {
        kind: FaceEventKind::Destroyed,
        face_id: 262,
        uri: "fd://7".to_owned(),
        local_uri: "unix:///run/nfd/nfd.sock".to_owned(),
        scope: Scope::Local,
        persistency: Persistency::OnDemand,
        link_type: LinkType::PointToPoint,
        flags: 1,
    };
    assert_eq!(event.encode(), wire);
    assert_eq!(FaceEventNotification::decode(&wire).unwrap(), event);
}

fn uri() -> impl Strategy<Value = String> {
    "[a-z0-9]{1,8}://[a-z0-9.:/]{0,30}"
}

fn any_parameters() -> impl Strategy<Value = ControlParameters> {
    let number = || prop::option::of(any::<u64>());
    let text = || prop::option::of(uri());
    let prefix = || prop::option::of("(/[a-z]{1,5}){0,4}".prop_map(|text| name(&text)));
    let persistency = prop::option::of(prop::sample::select(vec![
        Persistency::OnDemand,
        Persistency::Persistent,
        Persistency::Permanent,
    ]));
    (
        (
            prefix(),
            number(),
            text(),
            text(),
            number(),
            number(),
            number(),
            number(),
        ),
        (
            number(),
            number(),
            prefix(),
            number(),
            persistency,
            number(),
            number(),
            number(),
        ),
    )
        .prop_map(|(first, second)| ControlParameters {
            name: first.0,
            face_id: first.1,
            uri: first.2,
            local_uri: first.3,
            origin: first.4,
            cost: first.5,
            capacity: first.6,
            count: first.7,
            flags: second.0,
            mask: second.1,
            strategy: second.2,
            expiration_period: second.3.map(Duration::from_millis),
            persistency: second.4,
            base_congestion_marking_interval: second.5.map(Duration::from_nanos),
            default_congestion_threshold: second.6,
            mtu: second.7,
        })
}

proptest! {
    #[test]
    fn control_parameters_survive_being_written_and_read(parameters in any_parameters()) {
        prop_assert_eq!(ControlParameters::decode(&parameters.encode()).unwrap(), parameters);
    }

    #[test]
    fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        // A decoded value can be encoded, and decoded again.
        if let Ok(parameters) = ControlParameters::decode(&octets) {
            prop_assert_eq!(ControlParameters::decode(&parameters.encode()).unwrap(), parameters);
        }
        let _ = ControlResponse::decode(&octets);
        let _ = ForwarderStatus::decode(&octets);
        let _ = FaceEventNotification::decode(&octets);
        let _ = FaceStatus::decode_item(&octets);
        let _ = decode_items::<RibEntry>(&octets);
    }

    #[test]
    fn unknown_elements_are_ignored(extra in 200u64..60_000, value in prop::collection::vec(any::<u8>(), 0..20)) {
        let mut wire = vec![];
        whimbrel_ndn_packet::tlv::write_element(&mut wire, extra, &value);
        let inner = &all_parameters().encode()[2..];
        let mut whole = vec![];
        whimbrel_ndn_packet::tlv::write_element(&mut whole, 104, &[&wire[..], inner, &wire[..]].concat());
        prop_assert_eq!(ControlParameters::decode(&whole).unwrap(), all_parameters());
    }
}
