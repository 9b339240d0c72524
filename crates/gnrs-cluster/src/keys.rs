//! Keys, values and arguments of the engine's functions.

use std::sync::LazyLock;

use whimbrel_core::Guid;
use whimbrel_gnrs::store::Put;
use whimbrel_gnrs::{Kind, Record};

/// The functions that do the work on the engine.
pub(crate) const FUNCTIONS: &str = include_str!("functions.lua");
pub(crate) const PUT: &str = "whimbrel_gnrs_1_put";
pub(crate) const READ: &str = "whimbrel_gnrs_1_read";
pub(crate) const DISCARD: &str = "whimbrel_gnrs_1_discard";

/// The number of slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;
/// The key that says which format the records have, and that format.
pub(crate) const FORMAT_KEY: &str = "whimbrel-gnrs-format";
pub(crate) const FORMAT: u64 = 1;

/// Bytes before the record in the value of a binding, and of a provider.
const BINDING_HEAD: usize = 40;
const PROVIDER_HEAD: usize = 73;

const CRC: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);

/// For each slot the least number whose decimal form falls into it.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut tags = vec![String::new(); SLOTS];
    let mut missing = SLOTS;
    for number in 0u64.. {
        let tag = number.to_string();
        let of = &mut tags[slot_of_tag(&tag)];
        if of.is_empty() {
            *of = tag;
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags
});

fn slot_of_tag(tag: &str) -> usize {
    usize::from(CRC.checksum(tag.as_bytes())) % SLOTS
}

/// Returns the slot of a key without a tag.
pub(crate) fn slot_of_key(key: &str) -> u16 {
    slot_of_tag(key) as u16
}

/// Returns the slot of all keys of a name. Names are hashes, so that their first bits spread evenly.
pub(crate) fn slot(subject: &Guid) -> u16 {
    u16::from_be_bytes([subject.0[0], subject.0[1]]) % SLOTS as u16
}

fn key(subject: &Guid, kind: u8) -> Vec<u8> {
    let tag = &TAGS[usize::from(slot(subject))];
    let mut key = Vec::with_capacity(tag.len() + 3 + Guid::LEN);
    key.push(b'{');
    key.extend(tag.as_bytes());
    key.extend([b'}', kind]);
    key.extend(subject.0);
    key
}

/// The key of a name's binding.
pub(crate) fn binding(subject: &Guid) -> Vec<u8> {
    key(subject, b'n')
}

/// The key of a name's providers.
pub(crate) fn providers(subject: &Guid) -> Vec<u8> {
    key(subject, b'p')
}

/// The channel on which a name's new records are published.
pub(crate) fn channel(subject: &Guid) -> Vec<u8> {
    key(subject, b'w')
}

/// The key and the field of a record; the field is empty for a binding.
pub(crate) fn place(record: &Record) -> (Vec<u8>, String) {
    let subject = record.subject();
    match record.kind() {
        Kind::Binding | Kind::Revocation => (binding(&subject), String::new()),
        Kind::Provider | Kind::Pointer | Kind::Member | Kind::Membership => {
            let field = record.filed_under().provider;
            (providers(&subject), field.to_string())
        }
    }
}

/// Numbers of the same length compare as strings, in the language of the functions too.
fn digits(number: u64) -> String {
    format!("{number:020}")
}

/// The arguments of [`PUT`] after its key.
pub(crate) fn arguments(now_ms: u64, put: &Put, field: &str, max_providers: usize) -> Vec<Vec<u8>> {
    let record = &put.record;
    let network = put.network.map(|network| format!("{network:032x}"));
    let flag = |set: bool| vec![b'0' + u8::from(set)];
    vec![
        digits(now_ms).into(),
        digits(record.version()).into(),
        digits(record.expires_ms()).into(),
        record.as_bytes().to_vec(),
        flag(put.may_create),
        field.into(),
        flag(record.is_removal()),
        network.unwrap_or_else(|| " ".repeat(32)).into(),
        max_providers.to_string().into(),
    ]
}

/// Returns the record of a binding's value.
pub(crate) fn record_of_binding(value: &[u8]) -> Option<Record> {
    parsed(value.get(BINDING_HEAD..)?)
}

/// Returns the record of a provider's value.
pub(crate) fn record_of_provider(value: &[u8]) -> Option<Record> {
    parsed(value.get(PROVIDER_HEAD..)?)
}

/// Returns the record in some bytes.
pub(crate) fn parsed(bytes: &[u8]) -> Option<Record> {
    Some(Record::parse(bytes).ok()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_of_a_name_are_in_its_slot() {
        for number in 0..=u16::MAX {
            let mut guid = Guid([7; 32]);
            guid.0[..2].copy_from_slice(&number.to_be_bytes());
            let tag = &TAGS[usize::from(slot(&guid))];
            assert_eq!(slot_of_tag(tag), usize::from(number) % SLOTS);
        }
        // As `CLUSTER KEYSLOT` says.
        assert_eq!(slot_of_key("foo"), 12_182);
        let key = binding(&Guid([b'}'; 32]));
        assert!(key.starts_with(b"{") && key.ends_with(&[b'}'; 32]));
    }
}
