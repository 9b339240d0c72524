//! The signature of ndnSIM's producer.

use whimbrel_ndn_packet::{SignatureInfo, SignatureType, Signer};

/// A signature of type 255 and one octet, as ndnSIM's producer writes it: it costs nothing and
/// proves nothing.
///
/// With it, with FreshnessPeriod 1 ms to 255 ms, 1,024 octets of payload and a name of 16 octets
/// (as `/prefix-a` and a number of 256 to 65,535 have), a Data has the paper's 1,061 octets: 4 for
/// the outermost type and length, 16 for the name, 5 for MetaInfo, 1,028 for the content, 5 for
/// SignatureInfo, 3 for SignatureValue.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlaceholderSigner;

impl Signer for PlaceholderSigner {
    fn info(&self) -> SignatureInfo {
        SignatureInfo::new(SignatureType::Other(255))
    }

    fn sign(&self, _portions: &[&[u8]]) -> Vec<u8> {
        vec![0]
    }
}
