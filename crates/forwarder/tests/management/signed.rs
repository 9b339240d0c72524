//! Signed commands in the forms of three clients: python-ndn 0.5.2 with both forms, and NDNts
//! 0.0.20250307.

use whimbrel_forwarder::mgmt::SignedCommand;
use whimbrel_ndn_packet::InterestRef;

fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// `rib/register` of /a/b as three clients sign it.
pub(crate) const REGISTRATIONS: [(&str, &str); 3] = [
    (
        "python-ndn, packet format v0.3",
        concat!(
            "0590074d08096c6f63616c686f737408036e6664080372696208087265676973746572080a680807060801610801620220363c0e",
            "16c5f8c180aa726eb7434eec0878b577338c96b85a07a68bfd85db3c2a0c0203e824002c171b010026089ce2112be451525e2808",
            "000001a2004a1ffa2e200385cbd876d61dbcafd959af1a24d0fe46548585ea70c1b07c195785999ae758",
        ),
    ),
    (
        "python-ndn, signature in the name",
        concat!(
            "0570076a08096c6f63616c686f737408036e6664080372696208087265676973746572080a680807060801610801620808000001",
            "a2004a1ffa0808a2c27a026104012f080516031b01000822172081237f71e7d314dad8b54de0be9ea225ad8152c044186600411a",
            "7b4732e5ff1a0c0203e8",
        ),
    ),
    (
        "NDNts",
        concat!(
            "0592074d08096c6f63616c686f737408036e6664080372696208087265676973746572080a68080706080161080162022051ee91",
            "24b77c96e5ea226e3e24969647898c78ead30bc0e049cc2df13ee865cb0a041a1c3f8524002c171b0100260835368c75bd0e3aaf",
            "2808000001a2004a21892e201f2ec5c80f7a9b54b52fc7c7f183cd1dd701a1ca24f481061552ff878bd421ff",
        ),
    ),
];

pub(crate) fn registrations() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    REGISTRATIONS
        .into_iter()
        .map(|(client, hex)| (client, octets(hex)))
}

#[test]
fn signatures_of_all_clients_are_found_and_their_digests_match() {
    for (client, wire) in registrations() {
        let interest = InterestRef::decode(&wire).unwrap();
        let signed =
            SignedCommand::of(&interest).unwrap_or_else(|| panic!("{client}: no signature found"));
        assert!(signed.has_right_digest(), "{client}");
        assert!(
            signed
                .time
                .is_some_and(|time| (1_795_000_000_000..1_800_000_000_000).contains(&time)),
            "{client}"
        );
        assert_eq!(signed.nonce.map(<[u8]>::len), Some(8), "{client}");
    }
}

#[test]
fn every_octet_of_a_signed_command_is_covered_or_checked() {
    for (client, wire) in registrations() {
        for at in 0..wire.len() {
            let mut changed = wire.clone();
            changed[at] ^= 1;
            let Ok(interest) = InterestRef::decode(&changed) else {
                continue;
            };
            let covers = |interest: &InterestRef<'_>| {
                interest.parameters_digest_is_valid()
                    && SignedCommand::of(interest).is_some_and(|signed| signed.has_right_digest())
            };
            let original = InterestRef::decode(&wire).unwrap();
            let same = original.name == interest.name && original.parameters == interest.parameters;
            assert!(
                !covers(&interest) || same,
                "{client}: octet {at} can be changed"
            );
        }
    }
}

/// "/localhost/nfd/rib/register/PARAMETERS/DIGEST/x" is another name for the same signed portions.
#[test]
fn nothing_follows_the_digest_of_a_signed_commands_parameters() {
    let (_, mut wire) = registrations().next().unwrap();
    let end = 4 + usize::from(wire[3]);
    wire.splice(end..end, [8, 1, b'x']);
    wire[1] += 3;
    wire[3] += 3;
    let interest = InterestRef::decode(&wire).unwrap();
    assert_eq!(interest.name.components().last().unwrap().value(), b"x");
    assert!(SignedCommand::of(&interest).is_none());
}
