//! Data as anybody may send them: no panic, and what is read means the same when it is written
//! again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_ndn_packet::{Data, DataRef, DigestSigner, PrefixAnnouncementRef, tlv};

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut wire = Vec::new();
    tlv::write_element(&mut wire, 6, data);
    check(&wire);
});

fn check(wire: &[u8]) {
    if let Ok(announcement) = PrefixAnnouncementRef::decode(wire) {
        let lifetime = announcement.lifetime(Some(1_700_000_000));
        assert!(lifetime.is_none_or(|lifetime| lifetime <= announcement.expiration));
    }
    let Ok(view) = DataRef::decode(wire) else {
        return;
    };
    let _ = view.verify(&DigestSigner);
    assert_eq!(view.full_name().len(), view.name.len() + 1);
    let again = Data {
        name: view.name.to_name(),
        content_type: view.content_type,
        freshness: view.freshness,
        final_block_id: view.final_block_id.map(|component| component.to_owned()),
        content: view.content.to_vec().into(),
    };
    let encoded = again.encode(&DigestSigner);
    let read = DataRef::decode(&encoded).expect("what was read can be written");
    assert_eq!(
        (read.name, read.content, read.final_block_id),
        (view.name, view.content, view.final_block_id)
    );
    assert_eq!(
        (read.content_type, read.freshness),
        (view.content_type, view.freshness)
    );
    assert_eq!(read.verify(&DigestSigner), Ok(()));
}
