//! Packets written in hexadecimal, and the errors in them.

use whimbrel_ndn_packet::tlv::{self, DecodeError};
use whimbrel_ndn_packet::{DataRef, InterestRef, LpPacket, Name};

pub(crate) fn octets(digits: &str) -> Vec<u8> {
    hex::decode(digits.replace(' ', "")).expect("hexadecimal")
}

pub(crate) fn name(uri: &str) -> Name {
    uri.parse().unwrap_or_else(|error| panic!("{uri}: {error}"))
}

/// Returns a packet of type `typ` around `elements` in hexadecimal.
pub(crate) fn packet(typ: u64, elements: &str) -> Vec<u8> {
    let mut out = Vec::new();
    tlv::write_element(&mut out, typ, &octets(elements));
    out
}

/// `/a`
pub(crate) const NAME: &str = "0703 080161 ";
pub(crate) const DIGEST_INFO: &str = "1603 1b0100 ";
pub(crate) const DIGEST_VALUE: &str =
    "1720 0000000000000000 0000000000000000 0000000000000000 0000000000000000 ";

pub(crate) fn interest_error(elements: &str) -> Option<DecodeError> {
    InterestRef::decode(&packet(5, elements)).err()
}

pub(crate) fn data_error(elements: &str) -> Option<DecodeError> {
    DataRef::decode(&packet(6, elements)).err()
}

pub(crate) fn lp_error(fields: &str) -> Option<DecodeError> {
    LpPacket::decode(&packet(0x64, fields), false).err()
}
