//! Private keys: created, shown, made default, deleted, exported and imported.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use rand::TryRng;
use rand::rngs::SysRng;
use serde_json::{Value, json};
use whimbrel_keychain::{Keychain, KeychainError, text};
use whimbrel_ndn_packet::certificate::identity_of_key;
use whimbrel_ndn_packet::{CertificateDraft, Component, KeyType, Name, SafeBag, ValidityPeriod};

use super::passphrase::PassphraseArguments;
use super::{KeychainPlace, key_of, name, read_file, unix_micros, write_text};
use crate::command::{Outcome, json_line, out};
use crate::exit::{Exit, Failure};

/// Validity of a request's own certificate: it is meant to be replaced within days (`ndnsec
/// sign-req`: 10 days).
const REQUEST_VALIDITY: u64 = 10 * 86_400;

/// `--type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind(KeyType);

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let wrong = || String::from("one of: ecdsa, rsa, rsa:BITS (1024 to 4096), ed25519");
        let typ = match text {
            "ecdsa" | "e" => KeyType::EcdsaP256,
            "rsa" | "r" => KeyType::Rsa(2048),
            "ed25519" => KeyType::Ed25519,
            _ => {
                let bits = text.strip_prefix("rsa:").and_then(|bits| bits.parse().ok());
                KeyType::Rsa(
                    bits.filter(|bits| (1024..=4096).contains(bits))
                        .ok_or_else(wrong)?,
                )
            }
        };
        Ok(Kind(typ))
    }
}

#[derive(Args, Debug)]
pub(crate) struct Generate {
    /// The identity that owns the key, as /example/alice
    #[arg(value_parser = name)]
    identity: Name,
    /// ecdsa (P-256, supported by all NDN programs), rsa, rsa:BITS or ed25519
    #[arg(short, long = "type", value_name = "TYPE", default_value = "ecdsa")]
    kind: Kind,
    /// Make it the identity's default key, and the identity the default
    #[arg(long)]
    default: bool,
    #[command(flatten)]
    place: KeychainPlace,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Also list their certificates
    #[arg(short, long)]
    certificates: bool,
    #[command(flatten)]
    place: KeychainPlace,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// An identity or a key; by default the default identity
    #[arg(value_parser = name)]
    name: Option<Name>,
    #[command(flatten)]
    place: KeychainPlace,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Choose {
    /// An identity, a key or a certificate
    #[arg(value_parser = name)]
    name: Name,
    #[command(flatten)]
    place: KeychainPlace,
}

#[derive(Args, Debug)]
pub(crate) struct Delete {
    /// A key, or an identity
    #[arg(value_parser = name)]
    name: Name,
    #[command(flatten)]
    place: KeychainPlace,
}

#[derive(Args, Debug)]
pub(crate) struct Export {
    /// An identity, a key or a certificate; by default the default identity
    #[arg(value_parser = name)]
    name: Option<Name>,
    /// The file to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    passphrase: PassphraseArguments,
    #[command(flatten)]
    place: KeychainPlace,
}

#[derive(Args, Debug)]
pub(crate) struct Import {
    /// The safe bag, as `whimbrel key export` and ndnsec write it; - for standard input
    file: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArguments,
    #[command(flatten)]
    place: KeychainPlace,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Request {
    /// An identity or a key; by default the default identity
    #[arg(value_parser = name)]
    name: Option<Name>,
    /// The file to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    place: KeychainPlace,
}

/// Returns the system's randomness; draws from it once here, so that a system without any is an
/// error, not a panic.
fn randomness() -> Result<impl rand::CryptoRng, Failure> {
    SysRng.try_next_u64().map_err(|error| {
        Failure::new(
            Exit::Other,
            format!("the system has no random bytes: {error}"),
        )
    })?;
    Ok(rand::rand_core::UnwrapErr(SysRng))
}

pub(super) fn generate(arguments: &Generate) -> Outcome {
    let mut keychain = arguments.place.open()?;
    let key = keychain.generate(
        &arguments.identity,
        arguments.kind.0,
        unix_micros(),
        &mut randomness()?,
    )?;
    if arguments.default {
        keychain.set_default_key(&key)?;
        keychain.set_default_identity(&arguments.identity)?;
    }
    let certificate = keychain
        .default_certificate(&key)
        .map(|certificate| certificate.name().to_string());
    if arguments.json {
        json_line(&json!({
            "identity": arguments.identity.to_string(),
            "key": key.to_string(),
            "certificate": certificate,
            "type": arguments.kind.0.to_string(),
        }));
    } else {
        out(&format!("{key}\n"));
    }
    Ok(Exit::Done)
}

pub(super) fn list(arguments: &List) -> Outcome {
    let Some(keychain) = arguments.place.open_if_there()? else {
        if arguments.json {
            json_line(&Value::Array(Vec::new()));
        }
        return Ok(Exit::Done);
    };
    let default = keychain.default_identity();
    let mut text = String::new();
    let mut identities = Vec::new();
    for identity in keychain.identities() {
        let is_default = default.as_ref() == Some(&identity);
        text += &format!("{} {identity}\n", mark(is_default));
        let mut keys = Vec::new();
        for key in keychain.keys_of(&identity) {
            let is_default = keychain.default_key(&identity) == Some(key);
            text += &format!("  {} {key}\n", mark(is_default));
            let chosen = keychain
                .default_certificate(key)
                .map(|certificate| certificate.name().clone());
            let mut certificates = Vec::new();
            for certificate in keychain.certificates_of(key) {
                let is_default = chosen.as_ref() == Some(certificate.name());
                if arguments.certificates {
                    text += &format!("    {} {}\n", mark(is_default), certificate.name());
                }
                certificates.push(
                    json!({ "certificate": certificate.name().to_string(), "default": is_default }),
                );
            }
            keys.push(json!({ "key": key.to_string(), "default": is_default, "certificates": certificates }));
        }
        identities
            .push(json!({ "identity": identity.to_string(), "default": is_default, "keys": keys }));
    }
    if arguments.json {
        json_line(&identities)
    } else {
        out(&text)
    }
    Ok(Exit::Done)
}

const fn mark(is_default: bool) -> char {
    if is_default { '*' } else { ' ' }
}

pub(super) fn show(arguments: &Show) -> Outcome {
    let keychain = arguments.place.open()?;
    let key = key_of(&keychain, arguments.name.as_ref())?;
    let public = keychain.private_key(&key)?.public_key();
    let spki = public
        .to_spki()
        .map_err(|error| Failure::new(Exit::Other, error))?;
    let certificates: Vec<String> = keychain
        .certificates_of(&key)
        .map(|certificate| certificate.name().to_string())
        .collect();
    if arguments.json {
        json_line(&json!({
            "key": key.to_string(),
            "type": public.key_type().to_string(),
            "public_key": text::encode(&spki).replace('\n', ""),
            "certificates": certificates,
        }));
        return Ok(Exit::Done);
    }
    let mut shown = format!("{key}\n  type: {}\n", public.key_type());
    for certificate in certificates {
        shown += &format!("  certificate: {certificate}\n");
    }
    shown += &format!(
        "-----BEGIN PUBLIC KEY-----\n{}-----END PUBLIC KEY-----\n",
        text::encode(&spki)
    );
    out(&shown);
    Ok(Exit::Done)
}

pub(super) fn choose(arguments: &Choose) -> Outcome {
    let mut keychain = arguments.place.open()?;
    let name = &arguments.name;
    if keychain.certificate(name).is_ok() {
        keychain.set_default_certificate(name)?;
    } else if identity_of_key(name.as_ref()).is_some() {
        keychain.set_default_key(name)?;
    } else {
        keychain.set_default_identity(name)?;
    }
    Ok(Exit::Done)
}

pub(super) fn delete(arguments: &Delete) -> Outcome {
    let mut keychain = arguments.place.open()?;
    let name = &arguments.name;
    if identity_of_key(name.as_ref()).is_some() {
        keychain.delete_key(name)?;
    } else {
        keychain.delete_identity(name)?;
    }
    Ok(Exit::Done)
}

/// Returns the certificate that `name` denotes: itself, or that of a key or identity.
pub(super) fn certificate_of(keychain: &Keychain, name: Option<&Name>) -> Result<Name, Failure> {
    if let Some(certificate) = name.and_then(|name| keychain.certificate(name).ok()) {
        return Ok(certificate.name().clone());
    }
    let key = key_of(keychain, name)?;
    let certificate = keychain.default_certificate(&key);
    let name = certificate.map(|certificate| certificate.name().clone());
    Ok(name.ok_or(KeychainError::UnknownCertificate(key))?)
}

pub(super) fn export(arguments: &Export) -> Outcome {
    let keychain = arguments.place.open()?;
    let certificate = certificate_of(&keychain, arguments.name.as_ref())?;
    let passphrase = arguments.passphrase.choose()?;
    let bag = keychain.export(&certificate, passphrase.as_bytes(), &mut randomness()?)?;
    write_text(
        arguments.output.as_deref(),
        &text::encode(&bag.encode()),
        true,
    )?;
    Ok(Exit::Done)
}

pub(super) fn import(arguments: &Import) -> Outcome {
    let file = read_file(&arguments.file)?;
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("{}: {why}", arguments.file.display()))
    };
    let octets = text::decode(&file).map_err(|error| wrong(&error))?;
    let bag = SafeBag::decode(&octets).map_err(|error| wrong(&error))?;
    let passphrase = arguments.passphrase.read()?;
    let mut keychain = arguments.place.open()?;
    let key = keychain
        .import(&bag, passphrase.as_bytes())
        .map_err(|error| match error {
            KeychainError::SafeBag(error) => wrong(&error),
            error => error.into(),
        })?;
    if arguments.json {
        let certificate = bag.certificate().name().to_string();
        json_line(&json!({ "key": key.to_string(), "certificate": certificate }));
    } else {
        out(&format!("{key}\n"));
    }
    Ok(Exit::Done)
}

pub(super) fn request(arguments: &Request) -> Outcome {
    let keychain = arguments.place.open()?;
    let key = key_of(&keychain, arguments.name.as_ref())?;
    let now = unix_micros();
    let validity = ValidityPeriod::starting(now / 1_000_000, REQUEST_VALIDITY);
    let draft = CertificateDraft::new(
        key.clone(),
        Component::generic("cert-request"),
        now,
        validity,
    );
    let certificate = draft
        .self_sign(&keychain.private_key(&key)?)
        .map_err(|error| Failure::new(Exit::Other, error))?;
    write_text(
        arguments.output.as_deref(),
        &text::encode(certificate.wire()),
        false,
    )?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_keys_are_named_as_in_ndnsec_or_in_full() {
        for (text, expected) in [
            ("e", KeyType::EcdsaP256),
            ("ecdsa", KeyType::EcdsaP256),
            ("r", KeyType::Rsa(2048)),
            ("rsa:3072", KeyType::Rsa(3072)),
            ("ed25519", KeyType::Ed25519),
        ] {
            assert_eq!(text.parse(), Ok(Kind(expected)));
        }
        for text in ["", "dsa", "rsa:512", "rsa:99999999999999999999", "rsa:x"] {
            assert!(text.parse::<Kind>().is_err(), "{text}");
        }
    }
}
