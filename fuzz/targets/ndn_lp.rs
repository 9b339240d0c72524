//! Frames of an NDN link: no panic, and what is read means the same when it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_ndn_packet::lp::{self, LinkFields};
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
    let acks: Vec<u64> = view.acks().collect();
    assert!(acks.len() <= view.fields().count() && view.fields().count() <= wire.len());
    let link = LinkFields {
        sequence: view.sequence,
        fragment: Some((view.frag_index, view.frag_count)),
        tx_sequence: view.tx_sequence,
        acks: &acks,
        extension: None,
    };
    let mut encoded = Vec::new();
    lp::encode(&mut encoded, &link, &view.header(), view.fragment);
    let read = LpPacket::decode(&encoded, false).expect("what was read can be written");
    assert_eq!(read.header(), view.header());
    assert_eq!(
        (read.sequence, read.tx_sequence, read.fragment),
        (view.sequence, view.tx_sequence, view.fragment)
    );
    assert!(read.acks().eq(acks));
}
