//! `--verify`: verification of fetched Data.

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use clap::Args;
use whimbrel_io::Clock;
use whimbrel_keychain::{Rule, ValidationError, Validator};
use whimbrel_ndn_packet::{Certificate, Component, DataRef, HmacKey, Name};
use whimbrel_node::ndn::client::seeded;
use whimbrel_transport::fetch::Verifier;
use whimbrel_transport::{Discovery, Peek, PeekEvent, PeekOptions, Verify};

use super::signing::{HMAC_NAME, hmac_secret};
use super::{Loss, Reach, converse, note};
use crate::exit::{Exit, Failure};

/// Maximum number of certificates from the content's signer up to the anchor.
const MAX_CHAIN_LEN: usize = 8;

/// What to verify, apart from anchors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    None,
    Digest,
    Hmac(Vec<u8>),
}

impl std::str::FromStr for Check {
    type Err = String;

    fn from_str(text: &str) -> Result<Check, String> {
        match (text, text.strip_prefix("hmac:")) {
            ("none", _) => Ok(Check::None),
            ("digest", _) => Ok(Check::Digest),
            (_, Some(secret)) => hmac_secret(secret).map(Check::Hmac),
            _ => Err(String::from(
                "one of: none, digest, hmac:HEX; or --anchor FILE instead",
            )),
        }
    }
}

/// Arguments of programs that verify signatures.
#[derive(Args, Debug, Clone)]
pub(crate) struct VerifyArguments {
    /// How to verify each Data: none, digest (integrity, not origin) or hmac:HEX
    #[arg(
        long,
        value_name = "HOW",
        default_value = "none",
        conflicts_with = "anchor"
    )]
    verify: Check,
    /// Accept only Data whose signing key chains to this certificate (a file as `whimbrel key cert
    /// show` or ndnsec prints it) and whose name begins with the signer's identity; may be given
    /// several times
    #[arg(long, value_name = "FILE")]
    anchor: Vec<PathBuf>,
}

impl VerifyArguments {
    /// Returns the fetcher's verification. For anchors, fetches the intermediate certificates
    /// first.
    pub(crate) fn prepare(
        &self,
        reach: &Reach,
        name: &Name,
        discovery: Discovery,
        lifetime: Duration,
    ) -> Result<Verify, Failure> {
        if !self.anchor.is_empty() {
            let anchors = self
                .anchor
                .iter()
                .map(|path| read_certificate(path))
                .collect::<Result<Vec<_>, _>>()?;
            let mut chain = Chain {
                validator: Validator::new(anchors),
                reach,
                lifetime,
            };
            chain.complete(name, discovery)?;
            return Ok(Verify::With(Box::new(ByAnchor(chain.validator))));
        }
        Ok(match &self.verify {
            Check::None => Verify::None,
            Check::Digest => Verify::Digest,
            Check::Hmac(secret) => Verify::With(Box::new(ByHmac(HmacKey::new(
                secret,
                HMAC_NAME.parse().unwrap_or_default(),
            )))),
        })
    }
}

/// Reads the certificate in a file.
pub(crate) fn read_certificate(path: &std::path::Path) -> Result<Certificate, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("{}: {why}", path.display()))
    };
    let mut file = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin()
            .read_to_end(&mut file)
            .map_err(|error| wrong(&error))?;
    } else {
        file = std::fs::read(path).map_err(|error| wrong(&error))?;
    }
    let octets = whimbrel_keychain::text::decode(&file).map_err(|error| wrong(&error))?;
    Certificate::decode(Bytes::from(octets)).map_err(|error| wrong(&error))
}

struct ByHmac(HmacKey);

impl Verifier for ByHmac {
    fn verify(&mut self, data: &DataRef<'_>) -> Result<(), String> {
        data.verify(&self.0).map_err(|error| error.to_string())
    }
}

struct ByAnchor(Validator);

impl Verifier for ByAnchor {
    fn verify(&mut self, data: &DataRef<'_>) -> Result<(), String> {
        let validated = self
            .0
            .validate_data(data, Rule::Hierarchical, unix_seconds());
        validated.map(|_| ()).map_err(|error| error.to_string())
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Certificates between content and an anchor.
struct Chain<'a> {
    validator: Validator,
    reach: &'a Reach,
    lifetime: Duration,
}

impl Chain<'_> {
    /// Fetches one packet of the content, and the missing certificates of its chain.
    fn complete(&mut self, name: &Name, discovery: Discovery) -> Result<(), Failure> {
        let metadata = name.child(Component::keyword("metadata").as_ref());
        let is_versioned = name.as_ref().last().is_some_and(|last| last.is_version());
        let first = name.child(Component::segment(0).as_ref());
        let sample = match discovery {
            Discovery::Metadata if !is_versioned => self.ask(&metadata, true)?,
            Discovery::Metadata | Discovery::None => self.ask(&first, false)?,
            Discovery::Prefix => self.ask(name, true)?,
        };
        // Without an answer the fetch itself reports the error.
        let Some(sample) = sample else { return Ok(()) };
        let Ok(data) = DataRef::decode(&sample) else {
            return Ok(());
        };
        for _ in 0..MAX_CHAIN_LEN {
            match self
                .validator
                .validate_data(&data, Rule::Hierarchical, unix_seconds())
            {
                Err(ValidationError::NeedsCertificate(missing)) => {
                    let Some(found) = self.ask(&missing, true)? else {
                        let text = format!(
                            "the certificate {missing}, needed to verify {name}, cannot be fetched"
                        );
                        return Err(Failure::new(Exit::NotVerified, text));
                    };
                    if let Err(error) = self.validator.add_certificate(found) {
                        let text = format!("the certificate {missing}: {error}");
                        return Err(Failure::new(Exit::NotVerified, text));
                    }
                }
                Ok(_) => return Ok(()),
                Err(error) => {
                    return Err(Failure::new(Exit::NotVerified, format!("{name}: {error}")));
                }
            }
        }
        Ok(())
    }

    fn ask(&self, name: &Name, can_be_prefix: bool) -> Result<Option<Bytes>, Failure> {
        tracing::info!(%name, "asking");
        let options = PeekOptions {
            can_be_prefix,
            must_be_fresh: can_be_prefix,
            lifetime: self.lifetime,
            timeout: Some(self.lifetime),
            ..PeekOptions::default()
        };
        let clock = Clock::start();
        let mut client = self.reach.client(
            clock,
            Peek::new(name.clone(), options, seeded()?, clock.now()),
        )?;
        let answer = converse(&mut client, Loss::Ends, |_, _, event| {
            std::ops::ControlFlow::Break(Ok(event))
        })?;
        match answer {
            Some(PeekEvent::Data { packet, .. }) => Ok(Some(packet)),
            Some(PeekEvent::Nack { .. } | PeekEvent::Timeout) => Ok(None),
            None => {
                note("interrupted");
                Err(Failure::new(Exit::Interrupted, ""))
            }
        }
    }
}
