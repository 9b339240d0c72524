//! Where a peer is, as a configuration writes it.

use core::fmt;
use core::str::FromStr;
use std::net::{SocketAddr, ToSocketAddrs};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_core::Guid;
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

/// A peer whose host name leads nowhere.
#[derive(Debug, thiserror::Error)]
#[error("cannot find out the address of '{remote}': {reason}")]
pub struct ResolveError {
    remote: Remote,
    reason: String,
}

impl Remote {
    /// Its first address. Asks the system's resolver, which may take seconds if it is a name.
    pub fn resolve(&self) -> Result<SocketAddr, ResolveError> {
        let failed = |reason: String| ResolveError {
            remote: self.clone(),
            reason,
        };
        let mut found = self
            .0
            .to_socket_addrs()
            .map_err(|error| failed(error.to_string()))?;
        found
            .next()
            .ok_or_else(|| failed("the name has no address".to_owned()))
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
    /// As the router takes it.
    pub fn next_hop(&self) -> NextHop {
        match self.0.parse::<Guid>() {
            Ok(guid) => NextHop::Neighbour(guid),
            Err(_) => NextHop::Label(self.0.clone()),
        }
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
            "127.0.0.1:9".parse::<Remote>().unwrap().resolve().unwrap(),
            "127.0.0.1:9".parse().unwrap()
        );
    }

    #[test]
    fn a_way_is_a_guid_or_a_label() {
        assert_eq!(
            Via("ab".repeat(32)).next_hop(),
            NextHop::Neighbour(Guid([0xab; 32]))
        );
        assert_eq!(
            Via("north".into()).next_hop(),
            NextHop::Label("north".into())
        );
    }
}
