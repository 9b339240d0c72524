//! Shared parts of all checks: collecting faults, and the bounds of plain values.

use core::fmt::Display;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use whimbrel_core::units::Span;

use super::{ConfigError, Draft, Fault, Faults};

/// The longest accepted time; longer ones are slips, which would never pass.
const LONGEST: Span = Span(Duration::from_secs(3650 * 86_400));
/// The shortest time of a hop's timers.
pub(super) const TICK: Span = Span(Duration::from_millis(1));
/// The shortest period of a quota.
pub(super) const HOUR: Span = Span(Duration::from_secs(3_600));
/// The shortest time where zero is not accepted.
pub(super) const ANY: Span = Span(Duration::from_nanos(1));
/// Longest path of a Unix socket, in bytes (unix(7): 108 with the zero that ends it).
const SOCKET_PATH: usize = 107;

/// Collects the faults of a draft, so that one check finds all of them.
pub(super) struct Found<'a> {
    draft: &'a Draft,
    faults: Vec<Fault>,
}

impl<'a> Found<'a> {
    pub(super) fn new(draft: &'a Draft) -> Found<'a> {
        Found {
            draft,
            faults: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, key: impl Into<String>, message: impl Into<String>) {
        let key = key.into();
        self.faults.push(Fault {
            place: self.draft.place_of(&key),
            key,
            message: message.into(),
        });
    }

    /// Returns the value, or records the fault and returns `None`.
    pub(super) fn keep<T, E: Display>(
        &mut self,
        key: impl Into<String>,
        result: Result<T, E>,
    ) -> Option<T> {
        result
            .map_err(|error| self.add(key, error.to_string()))
            .ok()
    }

    /// Returns `plan` if there was no fault.
    pub(super) fn or<T>(self, plan: T) -> Result<T, ConfigError> {
        self.all()
            .map_or(Ok(plan), |faults| Err(ConfigError::Faults(faults)))
    }

    /// Returns what was found.
    pub(super) fn all(self) -> Option<Faults> {
        Faults::of(self.faults)
    }

    /// Checks a count against its bounds.
    pub(super) fn count(
        &mut self,
        key: &str,
        value: impl TryInto<u64>,
        bounds: RangeInclusive<u64>,
        of: &str,
    ) {
        let value = value.try_into().unwrap_or(u64::MAX);
        if !bounds.contains(&value) {
            let (least, most) = bounds.into_inner();
            self.add(
                key,
                format!("{value} is out of bounds; write {least} to {most}{of}"),
            );
        }
    }

    /// Checks that a time is neither shorter than `least` nor so long that it would never pass.
    pub(super) fn time(&mut self, key: &str, value: Span, least: Span) {
        if value < least {
            let least = if least == ANY {
                String::from("more than 0 s")
            } else {
                format!("{least} or more")
            };
            self.add(key, format!("{value} is too short; write {least}"));
        } else if value > LONGEST {
            self.add(key, format!("{value} is too long; write at most {LONGEST}"));
        }
    }

    pub(super) fn socket_path(&mut self, key: &str, path: Option<&Path>) {
        let length = path.map_or(0, |path| path.as_os_str().len());
        if length > SOCKET_PATH {
            self.add(
                key,
                format!(
                    "the path of a socket has at most {SOCKET_PATH} bytes, and this one has {length}; write a shorter one"
                ),
            );
        }
    }

    /// Returns the number of a group that this machine has, by its name or number.
    pub(super) fn group(&mut self, key: &str, group: Option<&str>) -> Option<u32> {
        let group = group?;
        if let Ok(number) = group.parse() {
            return Some(number);
        }
        match nix::unistd::Group::from_name(group) {
            Ok(Some(found)) => Some(found.gid.as_raw()),
            Ok(None) => {
                let message = format!(
                    "this machine has no group \"{group}\"; make it (groupadd {group}), or write another"
                );
                self.add(key, message);
                None
            }
            Err(error) => {
                self.add(
                    key,
                    format!("cannot look up the group \"{group}\": {error}"),
                );
                None
            }
        }
    }

    /// Checks that no two sockets of one transport bind the same port.
    pub(super) fn distinct(&mut self, listeners: &[(String, SocketAddr)]) {
        for (index, (key, address)) in listeners.iter().enumerate() {
            let earlier = listeners[..index]
                .iter()
                .find(|(_, earlier)| overlap(*earlier, *address));
            if let Some((other, taken)) = earlier {
                self.add(
                    key,
                    format!(
                        "{address} is taken: {other} binds {taken} already; write another port"
                    ),
                );
            }
        }
    }
}

/// Returns true if both cannot be bound at a time. An IPv6 wildcard takes IPv4 as well.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let takes = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    let (one, other) = (a.ip(), b.ip());
    a.port() == b.port()
        && a.port() != 0
        && (one == other || takes(one, other) || takes(other, one))
}
