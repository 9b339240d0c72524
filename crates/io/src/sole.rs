//! One program per carrier. The kernel gives every raw and packet socket its own copy of what
//! arrives, so two programs on one carrier would each take the other's frames for damaged ones of
//! its own neighbours, and answer them.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::IoError;

/// The claim to a carrier in this network namespace. It ends with the process, however that ends:
/// it is a Unix socket with an abstract name (unix(7)), on which nothing is ever received.
#[derive(Debug)]
pub(crate) struct Sole {
    _held: Option<UnixDatagram>,
}

impl Sole {
    /// Claims `what` for link `label`.
    pub(crate) fn claim(label: &str, what: &str) -> Result<Sole, IoError> {
        let name = SocketAddr::from_abstract_name(format!("whimbrel {what}"));
        match name.and_then(|name| UnixDatagram::bind_addr(&name)) {
            Ok(held) => Ok(Sole { _held: Some(held) }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(IoError::CarrierInUse {
                label: label.to_owned(),
                what: what.to_owned(),
            }),
            // A sandbox may forbid Unix sockets; the link works without the claim.
            Err(error) => {
                tracing::debug!(label, what, %error, "cannot claim a carrier");
                Ok(Sole { _held: None })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_belongs_to_one_until_it_ends() {
        let what = format!("test of {}", std::process::id());
        let first = Sole::claim("north", &what).unwrap();
        let error = Sole::claim("south", &what).unwrap_err().to_string();
        assert!(
            error.contains("'south'") && error.contains(&what),
            "{error}"
        );
        Sole::claim("south", &format!("another {what}")).unwrap();
        drop(first);
        Sole::claim("south", &what).unwrap();
    }
}
