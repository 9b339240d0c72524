//! Frames of an NDN link: no panic, and what is read means the same when it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_ndn_packet::lp;
use whimbrel_ndn_packet::{LpPacket, tlv};

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut wire = Vec::new();
    tlv::write_element(&mut wire, 0x64, data);
    check(&wire);
});

fn check(wire: &[u8]) {
    let strict = LpPacket::decode(wire, false);
    let Ok(view) = LpPacket::decode(wire, true) else {
        assert!(strict.is_err(), "padding is only ever more");
        return;
    };
    let acks = view.link.acks.iter().count();
    assert!(acks <= view.fields().count() && view.fields().count() <= wire.len());
    let _ = view.to_string();
    let mut encoded = Vec::new();
    lp::encode(&mut encoded, &view.link, &view.to_header(), view.fragment);
    let read = LpPacket::decode(&encoded, false).expect("what was read can be written");
    assert_eq!(
        (read.link, read.header, read.fragment),
        (view.link, view.header, view.fragment)
    );
}
