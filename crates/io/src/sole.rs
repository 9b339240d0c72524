//! One program per carrier. The kernel gives every raw and packet socket its own copy of what
//! arrives, so two programs on one carrier would each take the other's frames for damaged ones of
//! its own neighbours, and answer them.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::IoError;

/// What the names of all claims begin with.
const PREFIX: &str = "whimbrel ";

/// The claim to a carrier in this network namespace. It ends with the process, however that ends:
/// it is a Unix socket with an abstract name (unix(7)), on which nothing is ever received.
#[derive(Debug)]
pub(crate) struct Sole {
    _held: Option<UnixDatagram>,
}

impl Sole {
    /// Claims `what` for link `label`. `overlaps` tells of another's claim whether it is of some of the
    /// same frames.
    pub(crate) fn claim(
        label: &str,
        what: &str,
        overlaps: impl Fn(&str) -> bool,
    ) -> Result<Sole, IoError> {
        let in_use = |what: &str| IoError::CarrierInUse {
            label: label.to_owned(),
            what: what.to_owned(),
        };
        let name = SocketAddr::from_abstract_name(format!("{PREFIX}{what}"));
        match name.and_then(|name| UnixDatagram::bind_addr(&name)) {
            // Two that claim at the same time both see the other's.
            Ok(held) => match claims().iter().find(|it| *it != what && overlaps(it)) {
                Some(other) => Err(in_use(other)),
                None => Ok(Sole { _held: Some(held) }),
            },
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(in_use(what)),
            // A sandbox may forbid Unix sockets; the link works without the claim.
            Err(error) => {
                tracing::debug!(label, what, %error, "cannot claim a carrier");
                Ok(Sole { _held: None })
            }
        }
    }
}

/// Returns what is claimed in this thread's network namespace; nothing where a sandbox hides it.
fn claims() -> Vec<String> {
    let sockets = std::fs::read("/proc/thread-self/net/unix").unwrap_or_default();
    let sockets = String::from_utf8_lossy(&sockets);
    let names = sockets.lines().filter_map(|line| line.split_once(" @"));
    names
        .filter_map(|(_, name)| name.strip_prefix(PREFIX).map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_belongs_to_one_until_it_ends() {
        let what = format!("test of {}", std::process::id());
        let claim = |label, what: &str| Sole::claim(label, what, |_| false);
        let first = claim("north", &what).unwrap();
        let error = claim("south", &what).unwrap_err().to_string();
        assert!(
            error.contains("'south'") && error.contains(&what),
            "{error}"
        );
        let another = format!("another {what}");
        let overlaps = |other: &str| other == what;
        let error = Sole::claim("south", &another, overlaps)
            .unwrap_err()
            .to_string();
        assert!(error.contains(&what), "{error}");
        claim("south", &another).unwrap();
        drop(first);
        claim("south", &what).unwrap();
    }
}
