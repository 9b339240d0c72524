//! Options and keys as texts and numbers, for programs that have no types for them: C, Python, a command line.

use std::path::Path;
use std::time::Duration;

use serde::de::{DeserializeOwned, IntoDeserializer, value};
use whimbrel_content::ChunkSize;
use whimbrel_core::KeyPair;
use whimbrel_gnrs::GroupAdmission;
use whimbrel_keychain::small_file::read_text;
use whimbrel_mobilityfirst::local::{Delivery, ServiceKey, Storage, TransferOptions};

use crate::error::ProgramError;
use crate::place::check_own;

/// The options of a transfer. `None` and empty texts are unspecified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatedOptions<'a> {
    /// The chunk size in bytes: a power of two from 16 KiB to 4 MiB.
    pub chunk_size: Option<u64>,
    /// "nack", "ack" or "dont-care".
    pub reliability: &'a str,
    /// How long a chunk may be missing before it is requested again.
    pub nack_timeout: Option<Duration>,
    /// "default", "never" or a time such as "2 h".
    pub storage: &'a str,
    /// "default", "unicast", "multihoming", "anycast" or "multicast".
    pub service: &'a str,
}

/// Reads a value in the words of a configuration.
pub fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let text: value::StrDeserializer<'_, value::Error> = text.into_deserializer();
    T::deserialize(text).map_err(|error| error.to_string())
}

fn argument(what: &str, why: &dyn std::fmt::Display) -> ProgramError {
    ProgramError::Argument(format!("{what}: {why}"))
}

fn stated<T: DeserializeOwned>(what: &str, text: &str) -> Result<Option<T>, ProgramError> {
    let chosen = Some(text).filter(|text| !text.is_empty()).map(word);
    chosen.transpose().map_err(|error| argument(what, &error))
}

impl StatedOptions<'_> {
    /// Returns the options as values.
    pub fn transfer(&self) -> Result<TransferOptions, ProgramError> {
        let size = self.chunk_size.map(ChunkSize::from_bytes).transpose();
        let size = size.map_err(|error| argument("chunk_size", &error))?;
        let storage: Option<Storage> = stated("storage", self.storage)?;
        let options = TransferOptions {
            reliability: stated("reliability", self.reliability)?,
            delivery: Delivery {
                storage: storage.unwrap_or_default(),
                service: stated("service", self.service)?.unwrap_or_default(),
            },
            ..TransferOptions::default()
        };
        Ok(options
            .with_nack_timeout(self.nack_timeout)
            .with_chunk_size(size))
    }
}

/// Reads the key of a service from a file, as `whimbrel id new` makes it. Refuses one that another user could have
/// prepared.
pub fn read_service_key(path: &Path) -> Result<ServiceKey, ProgramError> {
    let failed =
        |why: &dyn std::fmt::Display| argument(&format!("the key {}", path.display()), why);
    check_own(path).map_err(|error| failed(&error))?;
    let text = read_text(path).map_err(|error| failed(&error))?;
    let keys = KeyPair::from_pem(&text).map_err(|error| failed(&error))?;
    Ok(ServiceKey(keys.secret()))
}

/// Reads the admission of a group, as `whimbrel group admit` prints it.
pub fn read_admission(text: &str) -> Result<GroupAdmission, ProgramError> {
    let admission: Option<GroupAdmission> = text.trim().parse().ok();
    let admission = admission.filter(GroupAdmission::is_signed);
    admission.ok_or_else(|| {
        let why = "the text is not an admission signed by a group (whimbrel group admit)";
        ProgramError::Argument(why.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_mobilityfirst::local::Service;
    use whimbrel_mobilityfirst::wire::Reliability;

    #[test]
    fn options_are_those_that_are_stated_and_others_stay_open() {
        let none = StatedOptions::default().transfer().unwrap();
        assert_eq!(none, TransferOptions::default());
        let stated = StatedOptions {
            chunk_size: Some(65_536),
            reliability: "dont-care",
            nack_timeout: Some(Duration::from_millis(1500)),
            storage: "2 h",
            service: "multihoming",
        };
        let options = stated.transfer().unwrap();
        let size = Some(ChunkSize::from_bytes(65_536).unwrap());
        let expected = TransferOptions {
            reliability: Some(Reliability::DontCare),
            nack_timeout_ms: 1500,
            delivery: Delivery {
                storage: Storage::Lifetime(7_200_000),
                service: Service::Multihoming,
            },
            ..TransferOptions::default()
        };
        assert_eq!(options, expected.with_chunk_size(size));
    }

    #[test]
    fn a_wrong_option_is_named() {
        let none = StatedOptions::default();
        let chunk_size = Some(65_537);
        for (options, what) in [
            (StatedOptions { chunk_size, ..none }, "chunk_size"),
            (
                StatedOptions {
                    reliability: "maybe",
                    ..none
                },
                "reliability",
            ),
            (
                StatedOptions {
                    storage: "long",
                    ..none
                },
                "storage",
            ),
            (
                StatedOptions {
                    service: "best",
                    ..none
                },
                "service",
            ),
        ] {
            let text = options.transfer().unwrap_err().to_string();
            assert!(text.starts_with(what), "{text}");
        }
        assert!(read_admission("00").is_err());
        assert!(read_service_key(Path::new("/nowhere/key")).is_err());
    }
}
