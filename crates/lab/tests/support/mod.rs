//! The testbed of [MFTP §5] for tests.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::Path;

use whimbrel_lab::scenario::{Overrides, Plan, Scenario};
use whimbrel_lab::study::Backend;

/// The names of its links on the path.
pub(crate) const SERVER_LINK: &str = "N1-N2";
pub(crate) const LAST_HOP: &str = "N3-N4";

/// Returns the testbed with other values of some keys, which are TOML: `("links.N3-N4.loss", "\"1
/// %\"")`.
pub(crate) fn fig7(seed: u64, changes: &[(&str, &str)]) -> Plan {
    let mut text = String::from(include_str!("fig7.toml"));
    for backend in Backend::ALL {
        text += &format!("[{}]\n", backend.name());
        for (key, value) in changes {
            text += &format!("\"{key}\" = {value}\n");
        }
    }
    let overrides = Overrides {
        seed: Some(seed),
        backend: Some(Backend::Sim),
        ..Overrides::default()
    };
    let read = Scenario::parse(Path::new("fig7.toml"), &text, overrides);
    let mut read = read.unwrap_or_else(|faults| panic!("{faults}"));
    read.settings.swap_remove(0).plan
}
