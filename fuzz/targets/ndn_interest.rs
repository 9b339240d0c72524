//! Interests as anybody may send them: no panic, and what is read means the same when it is written
//! again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_ndn_packet::{DigestSigner, Interest, InterestRef, tlv};

fuzz_target!(|data: &[u8]| {
    check(data);
    // The same octets as the value of an Interest, so that lengths need not be guessed first.
    let mut wire = Vec::new();
    tlv::write_element(&mut wire, 5, data);
    check(&wire);
});

fn check(wire: &[u8]) {
    let Ok(view) = InterestRef::decode(wire) else {
        return;
    };
    let _ = (
        view.parameters_digest_is_valid(),
        view.verify(&DigestSigner),
    );
    assert!(
        view.signed_portions()
            .iter()
            .map(|portion| portion.len())
            .sum::<usize>()
            <= wire.len()
    );
    let with_nonce = view.with_nonce([1, 2, 3, 4]);
    let changed = InterestRef::decode(&with_nonce).expect("it stays an Interest");
    assert_eq!(
        (changed.nonce, changed.name, changed.lifetime),
        (Some([1, 2, 3, 4]), view.name, view.lifetime)
    );

    let again = Interest {
        name: view.name.to_name(),
        can_be_prefix: view.can_be_prefix,
        must_be_fresh: view.must_be_fresh,
        forwarding_hint: view.delegations().map(|name| name.to_name()).collect(),
        nonce: view.nonce,
        lifetime: Some(view.lifetime),
        hop_limit: view.hop_limit,
        parameters: view.parameters.map(|parameters| parameters.to_vec().into()),
    };
    let encoded = again.encode();
    let read = InterestRef::decode(&encoded).expect("what was read can be written");
    assert_eq!(read.delegations().count(), view.delegations().count());
    assert_eq!(
        (read.nonce, read.hop_limit, read.parameters),
        (view.nonce, view.hop_limit, view.parameters)
    );
    assert!(read.parameters_digest_is_valid());
}
