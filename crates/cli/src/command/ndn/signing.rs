//! `--signing`: the signer of served Data.

use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use whimbrel_core::WallClock;
use whimbrel_keychain::{Keychain, KeychainError, SignBy};
use whimbrel_ndn_packet::{
    DigestSigner, HmacKey, KeyLocator, Name, SignatureInfo, SignatureType, Signer,
};
use whimbrel_transport::{RegisterOptions, SharedSigner};

use crate::command::keys::KeychainPlace;
use crate::exit::Failure;

/// The name of a key given on the command line.
pub(super) const HMAC_NAME: &str = "/localhost/hmac";

/// A choice of signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signing {
    /// The keychain's default key, or a digest if there is none.
    Auto,
    /// A SHA-256 digest.
    Digest,
    /// No signature.
    Null,
    /// A shared secret.
    Hmac(Vec<u8>),
    /// A key of the keychain.
    Key(SignBy),
}

impl FromStr for Signing {
    type Err = String;

    fn from_str(text: &str) -> Result<Signing, String> {
        let (kind, rest) = text
            .split_once(':')
            .map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        let named = |rest: &str| super::name(rest);
        match (kind, rest) {
            ("auto", None) => Ok(Signing::Auto),
            ("digest", None) => Ok(Signing::Digest),
            ("none", None) => Ok(Signing::Null),
            ("key", None) => Ok(Signing::Key(SignBy::Default)),
            ("key", Some(rest)) => Ok(Signing::Key(SignBy::Key(named(rest)?))),
            // As ndn-cxx writes a digest.
            ("id", Some("/localhost/identity/digest-sha256")) => Ok(Signing::Digest),
            ("id", Some(rest)) => Ok(Signing::Key(SignBy::Identity(named(rest)?))),
            ("cert", Some(rest)) => Ok(Signing::Key(SignBy::Certificate(named(rest)?))),
            ("hmac", Some(secret)) => hmac_secret(secret).map(Signing::Hmac),
            _ => Err(String::from(
                "one of: auto, digest, key, key:KEY-NAME, id:IDENTITY, cert:CERTIFICATE-NAME, hmac:HEX, none",
            )),
        }
    }
}

/// Returns the secret of `hmac:HEX`.
pub(super) fn hmac_secret(text: &str) -> Result<Vec<u8>, String> {
    match hex::decode(text) {
        Ok(secret) if !secret.is_empty() => Ok(secret),
        _ => Err(String::from(
            "hmac:HEX takes the secret in hexadecimal digits, preferably 64 or more",
        )),
    }
}

/// Arguments of programs that sign.
#[derive(Args, Debug, Clone)]
pub(crate) struct SigningArguments {
    /// The signer: auto (the keychain's default key, or a digest if there is none), digest, key,
    /// key:NAME, id:IDENTITY, cert:NAME, hmac:HEX or none
    #[arg(short = 'S', long, value_name = "WHO", default_value = "auto")]
    pub(crate) signing: Signing,
    #[command(flatten)]
    pub(crate) keychain: KeychainPlace,
}

/// A signer and its description.
pub(crate) struct Chosen {
    pub(crate) signer: SharedSigner,
    /// For people.
    pub(crate) description: String,
    /// The name of its key, if it is one of the keychain.
    pub(crate) key: Option<Name>,
    pub(crate) keychain: Option<Keychain>,
}

impl Chosen {
    fn without_key(signer: SharedSigner, description: &str) -> Chosen {
        Chosen {
            signer,
            description: description.to_owned(),
            key: None,
            keychain: None,
        }
    }

    /// Registers prefixes with commands signed by the keychain's key, as some routers require;
    /// without such a key signed by a digest, which routers accept from programs on their machine.
    pub(crate) fn registration(&self, clock: WallClock) -> RegisterOptions {
        let options = RegisterOptions::new(clock);
        if self.key.is_some() {
            RegisterOptions {
                signer: self.signer.clone(),
                ..options
            }
        } else {
            options
        }
    }
}

impl SigningArguments {
    /// Returns the keychain's default key, or a digest if there is none: for programs without the
    /// option.
    pub(crate) fn auto(keychain: &KeychainPlace) -> SigningArguments {
        SigningArguments {
            signing: Signing::Auto,
            keychain: keychain.clone(),
        }
    }

    /// Resolves the option to a signer.
    pub(crate) fn choose(&self) -> Result<Chosen, Failure> {
        match &self.signing {
            Signing::Digest => Ok(digest()),
            Signing::Null => Ok(Chosen::without_key(Arc::new(NullSigner), "not signed")),
            Signing::Hmac(secret) => {
                let name: Name = HMAC_NAME.parse().unwrap_or_default();
                Ok(Chosen::without_key(
                    Arc::new(HmacKey::new(secret, name)),
                    "signed with HMAC",
                ))
            }
            Signing::Key(by) => self.with_key(by),
            Signing::Auto => match self.keychain.open_if_there()? {
                Some(keychain) if keychain.default_identity().is_some() => {
                    self.with_key(&SignBy::Default)
                }
                _ => Ok(digest()),
            },
        }
    }

    fn with_key(&self, by: &SignBy) -> Result<Chosen, Failure> {
        let keychain = self.keychain.open_if_there()?.ok_or(KeychainError::Empty)?;
        let signer = keychain.signer(by)?;
        let key = match signer.info().key_locator {
            Some(KeyLocator::Name(name)) => Some(name),
            _ => None,
        };
        let by = key.as_ref().map(|key| format!("signed by {key}"));
        Ok(Chosen {
            signer: Arc::new(signer),
            description: by.unwrap_or_else(|| String::from("signed")),
            key,
            keychain: Some(keychain),
        })
    }
}

fn digest() -> Chosen {
    Chosen::without_key(Arc::new(DigestSigner), "signed with a digest")
}

/// Produces Data without a signature.
struct NullSigner;

impl Signer for NullSigner {
    fn info(&self) -> SignatureInfo {
        SignatureInfo::new(SignatureType::Null)
    }

    fn sign(&self, _portions: &[&[u8]]) -> Vec<u8> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_signs_is_written_as_in_ndn_tools_or_shorter() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        for (text, expected) in [
            ("auto", Signing::Auto),
            ("digest", Signing::Digest),
            ("id:/localhost/identity/digest-sha256", Signing::Digest),
            ("none", Signing::Null),
            ("key", Signing::Key(SignBy::Default)),
            ("id:/a", Signing::Key(SignBy::Identity(name("/a")))),
            ("key:/a/KEY/1", Signing::Key(SignBy::Key(name("/a/KEY/1")))),
            (
                "cert:/a/KEY/1/self/v=1",
                Signing::Key(SignBy::Certificate(name("/a/KEY/1/self/v=1"))),
            ),
            ("hmac:00ff", Signing::Hmac(vec![0, 255])),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "rsa",
            "hmac:",
            "hmac:xy",
            "id:a",
            "digest:1",
            "key:/a//b",
        ] {
            assert!(text.parse::<Signing>().is_err(), "{text}");
        }
    }
}
