//! The search for a program's forwarder.
//!
//! As in ndn-cxx's client configuration: `NDN_CLIENT_TRANSPORT`, then `transport=` in the first of
//! `~/.ndn/client.conf` and `/etc/ndn/client.conf` that exists, then `unix:///run/nfd/nfd.sock`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use whimbrel_core::{Endpoint, Peer};
use whimbrel_io::Interface;
use whimbrel_keychain::ownership::ForeignPath;
use whimbrel_ndn_mgmt::{FaceUri, face_uri};

use super::open::NFD_SOCKET;
use whimbrel_client::place::{Places, check_own};

/// The environment variable that all NDN programs read.
const VARIABLE: &str = "NDN_CLIENT_TRANSPORT";
/// Configuration for all users.
const SYSTEM_FILES: [&str; 2] = ["/etc/ndn/client.conf", "/usr/local/etc/ndn/client.conf"];

/// A way to a forwarder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Uplink {
    /// A socket on this machine.
    Unix(PathBuf),
    /// A TCP connection.
    Tcp(SocketAddr),
    /// UDP datagrams, with NDNLPv2 fragmentation.
    Udp(SocketAddr),
}

impl fmt::Display for Uplink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uplink::Unix(path) => write!(f, "unix://{}", path.display()),
            Uplink::Tcp(address) => FaceUri::tcp(*address).fmt(f),
            Uplink::Udp(address) => FaceUri::udp(*address).fmt(f),
        }
    }
}

/// The reason why no forwarder can be found.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// Programs cannot use the FaceUri.
    #[error(
        "{origin} says \"{text}\": {reason}; programs reach a forwarder by unix:///PATH, tcp://HOST[:PORT] or udp://HOST[:PORT]"
    )]
    Uri {
        /// The source of the FaceUri.
        origin: String,
        /// The FaceUri.
        text: String,
        /// The fault.
        reason: String,
    },
    /// Another user could listen there in the forwarder's stead.
    #[error("the forwarder's socket is not used: {0}")]
    Foreign(#[from] ForeignPath),
    /// A configuration file is there but cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Uplink {
    /// Returns the endpoint of the port that a program requests.
    pub(crate) fn endpoint(&self) -> Endpoint {
        match self {
            Uplink::Unix(path) => Endpoint::Unix { path: path.clone() },
            Uplink::Tcp(address) => Endpoint::Tcp {
                remote: Peer::Address(*address),
            },
            Uplink::Udp(address) => Endpoint::Udp {
                remote: Peer::Address(*address),
                shared: false,
            },
        }
    }

    /// Returns the forwarder that `asked` (of a command line) names, or else the one of the
    /// environment, of the configuration files, at NFD's socket, or this user's router.
    pub fn find(asked: Option<&str>) -> Result<Uplink, UplinkError> {
        if let Some(text) = asked {
            return Uplink::parse(text, "--transport");
        }
        if let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
            return Uplink::parse(&text.to_string_lossy(), VARIABLE);
        }
        let of_user =
            std::env::var_os("HOME").map(|home| Path::new(&home).join(".ndn/client.conf"));
        for path in of_user.into_iter().chain(SYSTEM_FILES.map(PathBuf::from)) {
            match whimbrel_keychain::small_file::read_text(&path) {
                Ok(text) => match transport_of(&text) {
                    Some(uri) => return Uplink::parse(uri, &path.display().to_string()),
                    // As with ndn-cxx, the first file is the only one.
                    None => break,
                },
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(UplinkError::File { path, source }),
            }
        }
        let own = Places::of_this_user().run.join("nfd.sock");
        let nfd = PathBuf::from(NFD_SOCKET);
        let found = if !nfd.exists() && own.exists() {
            own
        } else {
            nfd
        };
        check_own(&found)?;
        Ok(Uplink::Unix(found))
    }

    /// Parses a FaceUri and looks up its host name. `origin` names its source, for errors.
    pub fn parse(text: &str, origin: &str) -> Result<Uplink, UplinkError> {
        let wrong = |reason: String| UplinkError::Uri {
            origin: origin.to_owned(),
            text: text.to_owned(),
            reason,
        };
        let uri = text
            .parse::<FaceUri>()
            .map_err(|fault| wrong(fault.to_string()))?;
        let uri = canonical(&uri).map_err(|fault| wrong(fault.to_string()))?;
        if let Some(why) = uri.unreachable() {
            return Err(wrong(why.to_owned()));
        }
        match uri {
            FaceUri::Unix(path) => {
                check_own(Path::new(&path))?;
                Ok(Uplink::Unix(path.into()))
            }
            FaceUri::Tcp(endpoint) => socket_address(&endpoint).map(Uplink::Tcp).map_err(wrong),
            FaceUri::Udp(endpoint) if !endpoint.address.is_multicast() => {
                socket_address(&endpoint).map(Uplink::Udp).map_err(wrong)
            }
            _ => Err(wrong(String::from(
                "programs cannot reach a forwarder by it",
            ))),
        }
    }
}

fn socket_address(endpoint: &face_uri::Endpoint) -> Result<SocketAddr, String> {
    let mut address = SocketAddr::new(endpoint.address, endpoint.port);
    if let (SocketAddr::V6(v6), Some(zone)) = (&mut address, &endpoint.zone) {
        let interface = Interface::find(zone).map_err(|error| error.to_string())?;
        v6.set_scope_id(interface.index);
    }
    Ok(address)
}

/// The reason why a FaceUri has no canonical form.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// The name could not be looked up.
    #[error("cannot look up {host}: {source}")]
    Lookup {
        /// The name.
        host: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// It has addresses, but none that the FaceUri allows.
    #[error("{host} has no address that {uri} allows")]
    NoAddress {
        /// The name.
        host: String,
        /// The FaceUri.
        uri: String,
    },
}

/// Returns the canonical form, in which the first suitable address replaces a host name.
pub fn canonical(uri: &FaceUri) -> Result<FaceUri, CanonicalError> {
    let FaceUri::Named { host, .. } = uri else {
        return Ok(uri.clone());
    };
    let addresses =
        (host.as_str(), 0)
            .to_socket_addrs()
            .map_err(|source| CanonicalError::Lookup {
                host: host.clone(),
                source,
            })?;
    for address in addresses {
        if let Ok(resolved) = uri.resolved(address.ip()) {
            return Ok(resolved);
        }
    }
    Err(CanonicalError::NoAddress {
        host: host.clone(),
        uri: uri.to_string(),
    })
}

/// Returns the value of `transport` in a client configuration.
fn transport_of(text: &str) -> Option<&str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with([';', '#']))
        .filter_map(|line| line.split_once('='))
        .find_map(|(key, value)| {
            (key.trim() == "transport").then(|| value.trim().trim_matches('"'))
        })
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_configuration_names_its_transport() {
        let text = "; what NFD installs\n# transport=unix:///old\n transport = tcp4://192.0.2.1:7 \npib=pib-sqlite3\n";
        assert_eq!(transport_of(text), Some("tcp4://192.0.2.1:7"));
        assert_eq!(
            transport_of("transport=\"unix:///run/nfd/nfd.sock\""),
            Some("unix:///run/nfd/nfd.sock")
        );
        assert_eq!(
            transport_of("pib=pib-sqlite3\n;transport=unix:///x\ntransport="),
            None
        );
    }

    #[test]
    fn a_face_uri_is_a_way_to_a_forwarder_or_says_why_not() {
        for (text, expected) in [
            ("unix:///tmp/x.sock", "unix:///tmp/x.sock"),
            ("tcp://192.0.2.1", "tcp4://192.0.2.1:6363"),
            ("udp4://192.0.2.1:7", "udp4://192.0.2.1:7"),
            ("udp://[2001:db8::1]", "udp6://[2001:db8::1]:6363"),
            ("tcp://localhost:1", "tcp4://127.0.0.1:1"),
        ] {
            let uplink = Uplink::parse(text, "a test").map(|uplink| uplink.to_string());
            // A lookup of localhost may give either.
            let uplink = uplink.unwrap().replace("tcp6://[::1]", "tcp4://127.0.0.1");
            assert_eq!(uplink, expected);
        }
        for text in [
            "",
            "/run/nfd/nfd.sock",
            "ether://[01:00:5e:00:17:aa]",
            "udp://224.0.23.170",
            "internal://",
            "tcp://[fe80::1%no-such]",
            "udp://0.0.0.0",
            "tcp://192.0.2.1:0",
        ] {
            let error = Uplink::parse(text, "a test").unwrap_err().to_string();
            assert!(
                error.starts_with("a test says") && error.contains("unix:///PATH"),
                "{error}"
            );
        }
    }
}
