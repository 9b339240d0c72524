//! Where the cluster is.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use percent_encoding::percent_decode_str;

const PORT: u16 = 6379;

/// The address of a cluster: `redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]`, or `rediss://` for
/// TLS. The hosts are some of its nodes; it tells of the others.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterAddress {
    /// True for `rediss`.
    pub tls: bool,
    /// The user of the engine's access lists.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// Host and port of some nodes.
    pub nodes: Vec<(String, u16)>,
}

/// Why text is not the address of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClusterAddressError {
    /// No known beginning.
    #[error("the address of a cluster begins with redis:// or rediss://")]
    Scheme,
    /// A host is missing or a port is not a number.
    #[error("{0:?} is no HOST[:PORT] of a node")]
    Node(String),
    /// Something follows the hosts.
    #[error("{0:?} follows the nodes: a cluster has no databases or options")]
    Rest(String),
}

impl ClusterAddress {
    /// Returns true if `text` means a cluster, not a file.
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with("redis://") || text.starts_with("rediss://")
    }
}

impl FromStr for ClusterAddress {
    type Err = ClusterAddressError;

    fn from_str(text: &str) -> Result<ClusterAddress, ClusterAddressError> {
        let (tls, rest) = match (
            text.strip_prefix("redis://"),
            text.strip_prefix("rediss://"),
        ) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(ClusterAddressError::Scheme),
        };
        let (credentials, hosts) = match rest.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, rest),
        };
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if let Some(at) = hosts.find(['/', '?', '#']) {
            return Err(ClusterAddressError::Rest(hosts[at..].to_owned()));
        }
        let nodes: Result<Vec<_>, _> = hosts.split(',').map(node).collect();
        let said = |text: &str| {
            let text = percent_decode_str(text).decode_utf8_lossy().into_owned();
            Some(text).filter(|text| !text.is_empty())
        };
        let (user, password) = match credentials.map(|it| it.split_once(':').unwrap_or(("", it))) {
            Some((user, password)) => (said(user), said(password)),
            None => (None, None),
        };
        Ok(ClusterAddress {
            tls,
            user,
            password,
            nodes: nodes?,
        })
    }
}

fn node(text: &str) -> Result<(String, u16), ClusterAddressError> {
    let fault = || ClusterAddressError::Node(text.to_owned());
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(fault)?;
            (
                host,
                port.strip_prefix(':')
                    .or_else(|| port.is_empty().then_some("")),
            )
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port).filter(|it| !it.is_empty())),
            None => (text, Some("")),
        },
    };
    let port = match port.ok_or_else(fault)? {
        "" => PORT,
        port => port.parse().ok().filter(|it| *it != 0).ok_or_else(fault)?,
    };
    let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
    is_host.then(|| (host.to_owned(), port)).ok_or_else(fault)
}

/// Without the password.
impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "rediss://" } else { "redis://" })?;
        for (index, (host, port)) in self.nodes.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match host.contains(':') {
                true => write!(f, "{comma}[{host}]:{port}")?,
                false => write!(f, "{comma}{host}:{port}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A cluster and how it is used.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Where it is.
    pub address: ClusterAddress,
    /// Certificates (PEM) that sign those of the nodes; without them, those of the system.
    pub root_certificates: Option<Vec<u8>>,
    /// Maximum of providers per content.
    pub max_providers: usize,
    /// Maximum of names in use whose records are kept at hand, besides the followed ones.
    pub max_at_hand: usize,
    /// Time after which a node that does not answer counts as lost.
    pub patience: Duration,
    /// Time within which a write is tried again, at another node if need be, before it fails.
    pub write_patience: Duration,
    /// Time for which accepted writes are kept, to be written again after a failover.
    pub replay_window: Duration,
    /// Maximum of writes that are kept.
    pub max_replayed: usize,
}

impl ClusterConfig {
    /// Returns the default use of a cluster.
    pub fn new(address: ClusterAddress) -> ClusterConfig {
        ClusterConfig {
            address,
            root_certificates: None,
            max_providers: whimbrel_gnrs::StoreLimits::default().max_providers,
            max_at_hand: 65_536,
            patience: Duration::from_secs(1),
            write_patience: Duration::from_secs(3),
            replay_window: Duration::from_secs(60),
            max_replayed: 1 << 18,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_the_password() {
        let address: ClusterAddress = "rediss://names:a%40b:c@a.example,[::1]:7000,10.0.0.1:7001/"
            .parse()
            .unwrap_or_else(|fault| panic!("{fault}"));
        assert!(address.tls);
        assert_eq!(address.user.as_deref(), Some("names"));
        assert_eq!(address.password.as_deref(), Some("a@b:c"));
        let shown = "rediss://a.example:6379,[::1]:7000,10.0.0.1:7001";
        assert_eq!(format!("{address} {address:?}"), format!("{shown} {shown}"));
        let only_password: ClusterAddress = "redis://secret@h"
            .parse()
            .unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(
            (only_password.user, only_password.password.as_deref()),
            (None, Some("secret"))
        );
        for bad in [
            "http://a",
            "redis://",
            "redis://a,",
            "redis://a:b",
            "redis://a:0",
            "redis://a/3",
            "redis://[::1",
            "redis://a:",
        ] {
            assert!(bad.parse::<ClusterAddress>().is_err(), "{bad}");
        }
    }
}
