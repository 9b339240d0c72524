//! Elliptic-curve keys with explicit curve parameters in place of a named curve. The trust anchor
//! of the NDN testbed and other certificates made by old versions of OpenSSL have them.

use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier, OctetStringRef, UintRef};
use der::{Decode, Reader, SliceReader, Tag, Tagged};
use zeroize::Zeroizing;

use super::KeyError;

const PRIME_FIELD: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.1.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");

/// Domain parameters of P-256 (SEC 2, secp256r1).
const PRIME: &str = "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff";
const A: &str = "ffffffff00000001000000000000000000000000fffffffffffffffffffffffc";
const B: &str = "5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b";
const BASE_X: &str = "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296";
const BASE_Y: &str = "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";
const ORDER: &str = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";

/// Fails unless the parameters of an algorithm identifier are those of P-256.
pub(super) fn check_p256(parameters: Option<AnyRef<'_>>) -> Result<(), KeyError> {
    let parameters = parameters.ok_or(KeyError::Unsupported)?;
    if parameters.tag() == Tag::Sequence {
        let is_p256 = explicit_is_p256(parameters.value()).map_err(|_| KeyError::Malformed)?;
        return if is_p256 {
            Ok(())
        } else {
            Err(KeyError::Unsupported)
        };
    }
    match parameters.decode_as::<ObjectIdentifier>() {
        Ok(P256) => Ok(()),
        _ => Err(KeyError::Unsupported),
    }
}

fn explicit_is_p256(value: &[u8]) -> der::Result<bool> {
    let mut reader = SliceReader::new(value)?;
    let _version: u8 = reader.decode()?;
    let field = AnyRef::decode(&mut reader)?;
    let curve = AnyRef::decode(&mut reader)?;
    let base = <&OctetStringRef>::decode(&mut reader)?;
    let order = UintRef::decode(&mut reader)?;
    // A cofactor may follow; P-256 has only 1.

    let mut inner = SliceReader::new(field.value())?;
    let field_is = inner.decode::<ObjectIdentifier>()? == PRIME_FIELD
        && same(inner.decode::<UintRef<'_>>()?.as_bytes(), PRIME);
    let mut inner = SliceReader::new(curve.value())?;
    let curve_is = same(<&OctetStringRef>::decode(&mut inner)?.as_bytes(), A)
        && same(<&OctetStringRef>::decode(&mut inner)?.as_bytes(), B);
    // The seed, which may follow, only records the choice of the curve.
    let _seed: Option<BitStringRef<'_>> = inner.decode()?;

    let base_is = match base.as_bytes() {
        [4, point @ ..] if point.len() == 64 => {
            same(point.get(..32).unwrap_or_default(), BASE_X)
                && same(point.get(32..).unwrap_or_default(), BASE_Y)
        }
        // Compressed; the base point's y is odd.
        [3, x @ ..] => same(x, BASE_X),
        _ => false,
    };
    Ok(field_is && curve_is && base_is && same(order.as_bytes(), ORDER))
}

/// Returns true if the octets are these hexadecimal digits.
fn same(octets: &[u8], digits: &str) -> bool {
    octets.len() * 2 == digits.len()
        && octets
            .iter()
            .zip(digits.as_bytes().chunks_exact(2))
            .all(|(octet, pair)| {
                core::str::from_utf8(pair)
                    .ok()
                    .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                    == Some(*octet)
            })
}

/// Returns the private number of an ECPrivateKey (RFC 5915), whose own parameters, named or
/// explicit, repeat those of the algorithm identifier.
pub(super) fn private_scalar(der: &[u8]) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let key = AnyRef::from_der(der).map_err(|_| KeyError::Malformed)?;
    let octets = private_octets(key).map_err(|_| KeyError::Malformed)?;
    let leading = octets.len().saturating_sub(32);
    let (zeros, octets) = octets.split_at(leading);
    if key.tag() != Tag::Sequence || zeros.iter().any(|octet| *octet != 0) {
        return Err(KeyError::Malformed);
    }
    let mut scalar = Zeroizing::new([0; 32]);
    scalar
        .iter_mut()
        .rev()
        .zip(octets.iter().rev())
        .for_each(|(place, octet)| *place = *octet);
    Ok(scalar)
}

fn private_octets(key: AnyRef<'_>) -> der::Result<&[u8]> {
    let mut reader = SliceReader::new(key.value())?;
    let _version: u8 = reader.decode()?;
    Ok(<&OctetStringRef>::decode(&mut reader)?.as_bytes())
}
