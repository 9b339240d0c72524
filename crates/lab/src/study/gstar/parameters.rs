//! `scenario.toml` of the study: three scenarios, and the contacts of the model.

use std::time::Duration;

use serde::Deserialize;
use whimbrel_core::units::{self, ByteSize, Rate};

use crate::mobility::Drive;

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct GstarParameters {
    /// Messages over contacts.
    pub(super) contacts: Contacts,
    /// Scenarios: files across a mesh, ...
    pub(super) mesh: toml::Table,
    /// ... across one of equal radios, ...
    pub(super) mild: toml::Table,
    /// ... files between vehicles, ...
    pub(super) vehicles: toml::Table,
    /// ... and echo requests along a path that fails.
    pub(super) failures: toml::Table,
}

/// Messages between nodes that drive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contacts {
    /// The nodes.
    pub(super) drive: Drive,
    /// The number of messages.
    pub(super) messages: usize,
    /// They are sent within this time from the start.
    #[serde(with = "units::duration")]
    pub(super) within: Duration,
    /// The size of a message.
    pub(super) size: ByteSize,
    /// What a node stores.
    pub(super) buffer: ByteSize,
    /// The rate of a contact, each way.
    pub(super) rate: Rate,
    /// How long a message lives.
    #[serde(with = "units::duration")]
    pub(super) lifetime: Duration,
    /// Copies of spray and wait.
    pub(super) copies: u32,
}

impl GstarParameters {
    /// Reads the file.
    pub(in super::super) fn parse(text: &str) -> Result<GstarParameters, String> {
        let parameters: GstarParameters =
            toml::from_str(text).map_err(|fault| fault.to_string())?;
        parameters.check().map(|()| parameters)
    }

    fn check(&self) -> Result<(), String> {
        let contacts = &self.contacts;
        let bounds = [
            (
                (1..=10_000).contains(&contacts.messages),
                "contacts.messages is 1 to 10,000",
            ),
            (
                contacts.size.0 > 0 && contacts.size.0 <= contacts.buffer.0,
                "contacts.size is above 0, and not above contacts.buffer",
            ),
            (contacts.copies > 0, "contacts.copies is above 0"),
            (
                contacts.within <= contacts.drive.lasts,
                "contacts.within is not above contacts.drive.lasts",
            ),
        ];
        match bounds.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err((*rule).to_owned()),
            None => Ok(()),
        }
    }

    /// Returns the scenarios with their names.
    #[cfg(test)]
    pub(in super::super) fn scenarios(&self) -> [(&'static str, &toml::Table); 4] {
        [
            ("mesh", &self.mesh),
            ("mild", &self.mild),
            ("vehicles", &self.vehicles),
            ("failures", &self.failures),
        ]
    }
}
