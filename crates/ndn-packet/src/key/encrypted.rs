//! Private keys under a passphrase.

use der::asn1::{AnyRef, OctetStringRef};
use der::{Decode, Encode, SliceReader};
use pkcs5::EncryptionScheme;
use pkcs5::pbes2::{self, Kdf};
use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::spki::AlgorithmIdentifierRef;
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::KeyError;

/// Iterations of PBKDF2, which cost about 50 ms for each guess on a core of 2020.
const ITERATIONS: u32 = 200_000;
/// Maximum of iterations in a key to decrypt: about 5 s.
const MAX_ITERATIONS: u32 = 20_000_000;
/// Maximum memory of scrypt for a key to decrypt, in bytes.
const MAX_SCRYPT_MEMORY: u64 = 256 << 20;
/// Maximum parallelism of scrypt for a key to decrypt.
const MAX_SCRYPT_LANES: u16 = 16;

pub(super) fn encrypt(
    private_key_info: &[u8],
    passphrase: &[u8],
    rng: &mut impl CryptoRng,
) -> Result<Vec<u8>, KeyError> {
    let (mut salt, mut iv) = ([0; 16], [0; 16]);
    rng.fill_bytes(&mut salt);
    rng.fill_bytes(&mut iv);
    let scheme = pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(ITERATIONS, &salt, iv)
        .map_err(|_| KeyError::UnsupportedEncryption)?;
    let encrypted_data = scheme
        .encrypt(passphrase, private_key_info)
        .map_err(|_| KeyError::UnsupportedEncryption)?;
    let encrypted_data =
        OctetStringRef::new(&encrypted_data).map_err(|_| KeyError::UnsupportedEncryption)?;
    EncryptedPrivateKeyInfoRef {
        encryption_algorithm: scheme.into(),
        encrypted_data,
    }
    .to_der()
    .map_err(|_| KeyError::UnsupportedEncryption)
}

/// Decrypts the PrivateKeyInfo.
pub(super) fn decrypt(der: &[u8], passphrase: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let info = EncryptedPrivateKeyInfoRef::from_der(der).map_err(|_| why_not(der))?;
    let EncryptionScheme::Pbes2(scheme) = &info.encryption_algorithm else {
        return Err(KeyError::UnsupportedEncryption);
    };
    check_cost(&scheme.kdf)?;
    match scheme.decrypt(passphrase, info.encrypted_data.as_bytes()) {
        Ok(plain) => Ok(Zeroizing::new(plain)),
        Err(
            pkcs5::Error::UnsupportedAlgorithm { .. }
            | pkcs5::Error::AlgorithmParametersInvalid { .. },
        ) => Err(KeyError::UnsupportedEncryption),
        Err(_) => Err(KeyError::Passphrase),
    }
}

/// Why this is not an EncryptedPrivateKeyInfo of a known scheme: the scheme is unknown, or the
/// structure is a different one.
fn why_not(der: &[u8]) -> KeyError {
    let parts = |der| {
        let mut reader = SliceReader::new(AnyRef::from_der(der)?.value())?;
        AlgorithmIdentifierRef::decode(&mut reader)?;
        <&OctetStringRef>::decode(&mut reader)
    };
    if parts(der).is_ok() {
        KeyError::UnsupportedEncryption
    } else {
        KeyError::Malformed
    }
}

fn check_cost(kdf: &Kdf) -> Result<(), KeyError> {
    let bearable = match kdf {
        Kdf::Pbkdf2(parameters) => parameters.iteration_count <= MAX_ITERATIONS,
        Kdf::Scrypt(parameters) => {
            let memory = parameters
                .cost_parameter
                .saturating_mul(128 * u64::from(parameters.block_size));
            memory <= MAX_SCRYPT_MEMORY && parameters.parallelization <= MAX_SCRYPT_LANES
        }
        _ => return Err(KeyError::UnsupportedEncryption),
    };
    if bearable {
        Ok(())
    } else {
        Err(KeyError::TooCostly)
    }
}
