//! Where a peer is, as a configuration writes it.

use core::fmt;
use core::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_core::{Guid, Peer};
use whimbrel_mobilityfirst::router::NextHop;

/// `host:port`, where the host is an address or a name of the domain name system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Remote(String);

/// Not `host:port`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{0}' is no address; write host:port, as in \"192.0.2.7:4711\", \"[2001:db8::7]:4711\" or \"a.example:4711\""
)]
pub struct RemoteError(String);

impl Remote {
    /// For a port, which looks a host name up without holding up anything else.
    pub fn peer(&self) -> Peer {
        if let Ok(address) = self.0.parse() {
            return Peer::Address(address);
        }
        // What was parsed has a colon and a port after it.
        let (host, port) = self.0.rsplit_once(':').unwrap_or((&self.0, "0"));
        Peer::Named {
            host: host.to_owned(),
            port: port.parse().unwrap_or_default(),
            family: None,
        }
    }
}

impl FromStr for Remote {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Remote, RemoteError> {
        let valid = text.rsplit_once(':').is_some_and(|(host, port)| {
            let bracketed = host.starts_with('[') && host.ends_with(']');
            let plain = !host.is_empty() && !host.contains([':', ' ', '/']);
            (bracketed || plain) && port.parse::<u16>().is_ok_and(|port| port != 0)
        });
        if valid {
            Ok(Remote(text.to_owned()))
        } else {
            Err(RemoteError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Remote {
    type Error = RemoteError;
    fn try_from(text: String) -> Result<Remote, RemoteError> {
        text.parse()
    }
}

impl From<Remote> for String {
    fn from(remote: Remote) -> String {
        remote.0
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A neighbour by its GUID or by the label of the link to it: 64 hexadecimal digits are a GUID.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Via(pub String);

impl Via {
    /// As the router takes it; `labels` are those of the configured links, in order. `None` if it
    /// is neither a GUID nor one of them.
    pub fn next_hop<'a>(&self, labels: impl IntoIterator<Item = &'a str>) -> Option<NextHop> {
        if let Ok(guid) = self.0.parse::<Guid>() {
            return Some(NextHop::Neighbour(guid));
        }
        let link = labels.into_iter().position(|label| label == self.0)?;
        Some(NextHop::Link(link as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["127.0.0.1:1", "[::1]:65535", "a.example:80"] {
            assert!(good.parse::<Remote>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "host",
            ":80",
            "host:0",
            "host:65536",
            "::1:80",
            "ho st:80",
            "http://host:80",
        ] {
            assert!(bad.parse::<Remote>().is_err(), "{bad}");
        }
        assert_eq!(
            "127.0.0.1:9".parse::<Remote>().unwrap().peer(),
            Peer::Address("127.0.0.1:9".parse().unwrap())
        );
        assert!(matches!(
            "a.example:80".parse::<Remote>().unwrap().peer(),
            Peer::Named { host, port: 80, .. } if host == "a.example"
        ));
    }

    #[test]
    fn a_way_is_a_guid_or_a_label() {
        assert_eq!(
            Via("ab".repeat(32)).next_hop([]),
            Some(NextHop::Neighbour(Guid([0xab; 32])))
        );
        let labels = ["south", "north"];
        assert_eq!(Via("north".into()).next_hop(labels), Some(NextHop::Link(1)));
        assert_eq!(Via("nroth".into()).next_hop(labels), None);
    }
}
