//! The formats of NFD Management, and a router to which a program sends anything under its prefix.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_core::{SeededRng, Time, WallClock};
use whimbrel_forwarder::mgmt::{FaceHost, FaceRequest, LinkCounters};
use whimbrel_forwarder::{FaceId, FaceSpec, Forwarder, ForwarderConfig};
use whimbrel_ndn_mgmt::client::{DatasetFetch, decode_items, response};
use whimbrel_ndn_mgmt::{
    ChannelStatus, ControlParameters, ControlResponse, CsInfo, FaceEventNotification,
    FaceQueryFilter, FaceStatus, FaceUri, FibEntry, ForwarderStatus, RibEntry, StrategyChoice,
};
use whimbrel_ndn_packet::{Component, DigestSigner, Interest, LpPacket, Name, Signer};

fuzz_target!(|data: &[u8]| {
    formats(data);
    answers(data);
    commands(data);
});

struct NoLinks;

impl FaceHost for NoLinks {
    fn link_counters(&self, _face: FaceId) -> LinkCounters {
        LinkCounters::default()
    }

    fn request(&mut self, _request: FaceRequest) {}
}

/// What can be read can be written, and read again as the same.
fn formats(data: &[u8]) {
    if let Ok(read) = ControlParameters::decode(data) {
        assert_eq!(ControlParameters::decode(&read.encode()), Ok(read));
    }
    if let Ok(read) = ControlResponse::decode(data) {
        let _ = (read.parameters(), read.to_string());
        assert_eq!(
            ControlResponse::decode(&read.encode()).map(|again| again.body),
            Ok(read.body)
        );
    }
    if let Ok(read) = ForwarderStatus::decode(data) {
        assert_eq!(ForwarderStatus::decode(&read.encode()), Ok(read));
    }
    if let Ok(read) = FaceEventNotification::decode(data) {
        assert_eq!(FaceEventNotification::decode(&read.encode()), Ok(read));
    }
    if let Ok(read) = FaceQueryFilter::decode(data) {
        assert_eq!(FaceQueryFilter::decode(&read.encode()), Ok(read));
    }
    macro_rules! items {
        ($($item:ty),*) => { $(
            if let Ok(read) = decode_items::<$item>(data) {
                let mut written = Vec::new();
                read.iter().for_each(|item| item.encode(&mut written));
                assert_eq!(decode_items::<$item>(&written), Ok(read));
            }
        )* };
    }
    items!(
        FaceStatus,
        ChannelStatus,
        FibEntry,
        RibEntry,
        StrategyChoice,
        CsInfo
    );
    if let Some(uri) = core::str::from_utf8(data)
        .ok()
        .and_then(|text| text.parse::<FaceUri>().ok())
    {
        assert_eq!(uri.to_string().parse(), Ok(uri));
    }
}

/// What a router may answer to our own client.
fn answers(data: &[u8]) {
    let _ = response(data);
    let mut fetch = DatasetFetch::new("/localhost/nfd/faces/list".parse().unwrap_or_default());
    let _ = (
        fetch.poll_request([1; 4]),
        fetch.handle_data(data),
        fetch.poll_request([2; 4]),
    );
}

/// The data are components under the prefix of management: a selector, a length, octets, and so on.
fn commands(data: &[u8]) {
    const WORDS: [&str; 20] = [
        "faces",
        "fib",
        "rib",
        "cs",
        "strategy-choice",
        "status",
        "whimbrel",
        "create",
        "update",
        "destroy",
        "register",
        "unregister",
        "announce",
        "add-nexthop",
        "set",
        "config",
        "erase",
        "list",
        "query",
        "events",
    ];
    let mut router = Forwarder::new(
        ForwarderConfig::default(),
        WallClock::new(0),
        SeededRng::new(1),
    );
    let now = Time::from_secs(1);
    let program = router.add_face(now, FaceSpec::local("fd://3", "unix:///run/nfd/nfd.sock"));
    let mut rest = data;
    for number in 0u8..8 {
        let mut name = Name::root()
            .child_generic(b"localhost")
            .child_generic(b"nfd");
        while let [selector, after @ ..] = rest {
            rest = after;
            let octets = |rest: &mut &[u8]| {
                let len = rest
                    .first()
                    .map_or(0, |len| usize::from(*len))
                    .min(rest.len().saturating_sub(1));
                let taken = rest.get(1..=len).unwrap_or_default().to_vec();
                *rest = rest.get(len + 1..).unwrap_or_default();
                taken
            };
            name = match *selector {
                word @ 0..=19 => name.child_generic(WORDS[usize::from(word)].as_bytes()),
                20 => {
                    let mut parameters = vec![];
                    whimbrel_ndn_packet::tlv::write_element(
                        &mut parameters,
                        104,
                        &octets(&mut rest),
                    );
                    name.child_generic(&parameters)
                }
                21 => name.child(Component::version(u64::from(number)).as_ref()),
                22 => name.child(Component::segment(u64::from(number)).as_ref()),
                23 => break,
                _ => name.child_generic(&octets(&mut rest)),
            };
        }
        let mut interest = Interest::new(name);
        interest.can_be_prefix = number % 2 == 0;
        interest.nonce = Some([number; 4]);
        let wire = if number % 3 == 0 {
            interest.encode_signed(&DigestSigner, &DigestSigner.info())
        } else {
            interest.encode()
        };
        if let Ok(packet) = LpPacket::decode(&wire, false) {
            router.handle_packet(now, program, &packet);
        }
        router.run_management(now, &mut NoLinks);
        while router.poll_send().is_some() {}
    }
}
