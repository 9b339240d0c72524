//! The configuration of a TCP/ICN proxy.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::Deserialize;
use whimbrel_core::WallClock;
use whimbrel_ndn_packet::Name;
use whimbrel_tcp_proxy::{
    DuplexPolicy, Options, OptionsError, Permission, Policy, Protection, Protocol, Route,
    SealOptions, Target,
};

use super::key::{self, KeyFileError};
use super::redirect::Redirection;
use crate::keys::random_bytes;

/// The commented sample.
pub const SAMPLE: &str = include_str!("../../../../docs/config/tcp-proxy.toml");
/// The device's name by default.
pub const DEVICE: &str = "tcpicn0";

/// What a proxy does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Takes connections of local programs to remote addresses.
    Forward,
    /// Takes connections of remote programs to local addresses.
    Reverse,
    /// Both.
    Both,
}

/// A configuration file. Flags of the command override and add.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyConfig {
    /// The proxy's NDN prefix, which nothing else uses.
    pub prefix: Option<String>,
    /// `unreliable`, `reliable` or `basic`.
    pub protocol: Option<String>,
    /// The secret shared with the peers.
    pub key: Option<PathBuf>,
    /// `encrypt`, `authenticate` or `none`.
    pub protection: Option<String>,
    /// The forwarder, as a FaceUri.
    pub transport: Option<String>,
    /// Largest Data, bytes.
    pub icn_mtu: Option<usize>,
    /// Additional Interests when a connection opens.
    pub extra_interests: Option<u8>,
    /// Unreliable prefetching: `every`, a probability such as `0.5`, or a number of bytes.
    pub duplex: Option<String>,
    /// Paths to each peer that connections share, at most.
    pub paths: Option<usize>,
    /// Connections at a time.
    pub max_connections: Option<usize>,
    /// Address to listen on for Prometheus (http://ADDRESS/metrics).
    pub metrics: Option<SocketAddr>,
    /// The network device.
    pub device: DeviceSection,
    /// Addresses whose programs may open connections; by default those of the device.
    pub sources: Vec<IpNet>,
    /// Remote addresses, and their proxies.
    pub route: Vec<RouteSection>,
    /// Local addresses that remote programs may connect to.
    pub allow: Vec<AllowSection>,
}

/// `[device]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceSection {
    /// Its name, at most 15 characters.
    pub name: Option<String>,
    /// Its addresses, with the lengths of their prefixes.
    pub addresses: Vec<IpNet>,
    /// Largest IP packet, bytes.
    pub mtu: Option<usize>,
    /// Add the kernel's routes for the addresses of `[[route]]`.
    pub routes: Option<bool>,
    /// In place of routes, nftables rules that redirect TCP alone.
    pub nft: Option<bool>,
}

/// `[[route]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSection {
    /// The addresses.
    pub to: IpNet,
    /// The proxy's prefix.
    pub proxy: Option<String>,
    /// In place of it: the base of prefixes that follow from the address.
    pub mapped: Option<String>,
    /// With `mapped`: bits of the address in the prefix; by default the length of `to`.
    pub bits: Option<u8>,
    /// The protocol for these connections.
    pub protocol: Option<String>,
}

/// `[[allow]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowSection {
    /// The addresses.
    pub to: IpNet,
    /// A port, or a range such as `8000-8100`; all by default.
    pub ports: Option<String>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is not valid.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// A value is not possible.
    #[error("{what} = \"{value}\": {expected}")]
    Value {
        /// The key.
        what: &'static str,
        /// What it says.
        value: String,
        /// What is possible.
        expected: &'static str,
    },
    /// Something is missing.
    #[error("{0}")]
    Missing(&'static str),
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The proxy refuses the options.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// No random octets.
    #[error("the system has no random octets: {0}")]
    Random(std::io::Error),
}

/// What a start takes: checked.
#[derive(Clone)]
pub struct Plan {
    /// Of the proxy.
    pub options: Options,
    /// The device.
    pub device: DevicePlan,
    /// The forwarder, as a FaceUri; `None` for the usual places.
    pub transport: Option<String>,
    /// Where `GET /metrics` is answered.
    pub metrics: Option<SocketAddr>,
}

/// The network device of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePlan {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Largest packet, bytes.
    pub mtu: usize,
    /// What the kernel routes to it.
    pub routes: Vec<IpNet>,
    /// What nftables redirect to it, in place of routes.
    pub redirect: Option<Redirection>,
}

impl ProxyConfig {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<ProxyConfig, PlanError> {
        let text =
            whimbrel_keychain::small_file::read_text(path).map_err(|source| PlanError::Read {
                path: path.to_owned(),
                source,
            })?;
        ProxyConfig::parse(path, &text)
    }

    /// Reads a text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<ProxyConfig, PlanError> {
        toml::from_str(text).map_err(|source| PlanError::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// Returns true if a text is a proxy's configuration rather than a node's: it has a prefix, or
    /// routes to proxies, at its root.
    pub fn looks_like(text: &str) -> bool {
        let table: Option<toml::Table> = toml::from_str(text).ok();
        table.is_some_and(|table| {
            ["prefix", "protocol", "allow", "sources", "duplex", "device"]
                .iter()
                .any(|key| table.contains_key(*key))
        })
    }

    /// Returns the role that it is complete for: without `[[allow]]` it can only be a forward proxy.
    pub const fn role(&self) -> Role {
        match self.allow.is_empty() {
            true => Role::Forward,
            false => Role::Both,
        }
    }

    /// Checks it for a proxy in this role.
    pub fn plan(&self, role: Role, clock: WallClock) -> Result<Plan, PlanError> {
        let prefix = self.prefix.as_deref().ok_or(PlanError::Missing(
            "the proxy needs an NDN prefix of its own: --prefix /site/tcp, or prefix = in the configuration",
        ))?;
        let prefix = name("prefix", prefix)?;
        let mut options = Options::new(prefix, self.policy(role)?, self.seal(clock)?);
        if let Some(text) = &self.protocol {
            options.protocol = protocol(text)?;
        }
        if let Some(text) = &self.duplex {
            options.duplex = duplex(text)?;
        }
        options.icn_mtu = self.icn_mtu.unwrap_or(options.icn_mtu);
        options.paths = self.paths.unwrap_or(options.paths);
        options.extra_interests = self.extra_interests.unwrap_or(options.extra_interests);
        options.limits.connections = self.max_connections.unwrap_or(options.limits.connections);
        options.largest_packet = self.device.mtu.unwrap_or(options.largest_packet);
        options.check()?;
        let routes = self.route.iter().map(|route| route.to);
        let nft = self.device.nft.unwrap_or(false);
        let wanted = self.device.routes.unwrap_or(true) && !nft;
        let name = self.device.name.clone().unwrap_or_else(|| DEVICE.into());
        let redirect = nft.then(|| Redirection {
            device: name.clone(),
            to: self.route.iter().map(|route| route.to).collect(),
            from: self.near(role),
        });
        let device = DevicePlan {
            name,
            addresses: self.device.addresses.clone(),
            mtu: options.clamp(),
            routes: routes.filter(|_| wanted).collect(),
            redirect,
        };
        let transport = self.transport.clone();
        Ok(Plan {
            options,
            device,
            transport,
            metrics: self.metrics,
        })
    }

    fn policy(&self, role: Role) -> Result<Policy, PlanError> {
        if self.route.is_empty() {
            return Err(PlanError::Missing(
                "no route: --route 10.2.0.0/16=/other/tcp, or [[route]] in the configuration, says which proxy is \
                 responsible for which addresses",
            ));
        }
        let routes = self.route.iter().map(RouteSection::checked);
        let routes = routes.collect::<Result<Vec<_>, _>>()?;
        let allowed = self.allow.iter().map(AllowSection::checked);
        let allowed = allowed.collect::<Result<Vec<_>, _>>()?;
        if role == Role::Reverse && allowed.is_empty() {
            return Err(PlanError::Missing(
                "a reverse proxy lets nobody connect unless it is told where: --allow 10.2.0.1:80, or [[allow]]",
            ));
        }
        let sources = self.sources_of(role);
        let allowed = match role {
            Role::Forward => Vec::new(),
            Role::Reverse | Role::Both => allowed,
        };
        Ok(Policy::new(routes, sources, allowed))
    }

    fn sources_of(&self, role: Role) -> Vec<IpNet> {
        match (role, self.sources.is_empty()) {
            (Role::Reverse, _) => Vec::new(),
            (_, false) => self.sources.clone(),
            // The programs of this machine.
            (_, true) => {
                let addresses = self.device.addresses.iter();
                addresses.map(|it| host(it.addr())).collect()
            }
        }
    }

    /// Returns the addresses on this side whose packets the proxy carries.
    fn near(&self, role: Role) -> Vec<IpNet> {
        let mut near = self.sources_of(role);
        if role != Role::Forward {
            near.extend(self.allow.iter().map(|allow| allow.to));
        }
        near
    }

    fn seal(&self, clock: WallClock) -> Result<SealOptions, PlanError> {
        let protection = match (self.protection.as_deref(), &self.key) {
            (Some("none"), _) => Protection::None,
            (None | Some("encrypt"), Some(_)) => Protection::Encrypted,
            (Some("authenticate"), Some(_)) => Protection::Authenticated,
            (None | Some("encrypt" | "authenticate"), None) => {
                return Err(PlanError::Missing(
                    "no key: without one anybody could inject segments. `whimbrel tcp-proxy key > FILE` makes one for \
                     both proxies: --key FILE; for a closed network, --protection none",
                ));
            }
            (Some(value), _) => {
                return Err(PlanError::Value {
                    what: "protection",
                    value: value.to_owned(),
                    expected: "encrypt, authenticate or none",
                });
            }
        };
        let secret = match (&self.key, protection) {
            (Some(path), Protection::Encrypted | Protection::Authenticated) => key::read(path)?,
            _ => Vec::new(),
        };
        let session = random_bytes().map_err(PlanError::Random)?;
        Ok(SealOptions {
            protection,
            secret,
            ..SealOptions::unprotected(session, clock)
        })
    }
}

/// One address.
fn host(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

fn name(what: &'static str, text: &str) -> Result<Name, PlanError> {
    text.parse().map_err(|_| PlanError::Value {
        what,
        value: text.to_owned(),
        expected: "an NDN name such as /site/tcp",
    })
}

fn protocol(text: &str) -> Result<Protocol, PlanError> {
    let found = Protocol::ALL.into_iter().find(|it| it.name() == text);
    found.ok_or_else(|| PlanError::Value {
        what: "protocol",
        value: text.to_owned(),
        expected: "unreliable, reliable or basic",
    })
}

fn duplex(text: &str) -> Result<DuplexPolicy, PlanError> {
    text.parse().map_err(|_| PlanError::Value {
        what: "duplex",
        value: text.to_owned(),
        expected: "every, a probability such as 0.5, or a number of bytes such as 2920",
    })
}

impl RouteSection {
    fn checked(&self) -> Result<Route, PlanError> {
        let target = match (&self.proxy, &self.mapped) {
            (Some(proxy), None) => Target::Prefix(name("proxy", proxy)?),
            (None, Some(base)) => Target::Mapped {
                base: name("mapped", base)?,
                bits: self.bits.unwrap_or_else(|| self.to.prefix_len()),
            },
            _ => {
                return Err(PlanError::Missing(
                    "a [[route]] needs either proxy or mapped",
                ));
            }
        };
        Ok(Route {
            to: self.to,
            target,
            protocol: self.protocol.as_deref().map(protocol).transpose()?,
        })
    }

    /// From `NET=PREFIX` or `NET=PREFIX,PROTOCOL`.
    pub fn parse(text: &str) -> Result<RouteSection, String> {
        let wrong = || format!("{text}: a route is NETWORK=PREFIX, such as 10.2.0.0/16=/other/tcp");
        let (to, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (proxy, protocol) = match rest.rsplit_once(',') {
            Some((proxy, protocol)) => (proxy, Some(protocol.to_owned())),
            None => (rest, None),
        };
        Ok(RouteSection {
            to: network(to)?,
            proxy: Some(proxy.to_owned()),
            mapped: None,
            bits: None,
            protocol,
        })
    }
}

/// Returns a network, or a single address.
pub fn network(text: &str) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().map(host);
    text.parse::<IpNet>()
        .or(address)
        .map_err(|_| format!("{text} is neither an IP network such as 10.2.0.0/16 nor an address"))
}

impl AllowSection {
    fn checked(&self) -> Result<Permission, PlanError> {
        let Some(text) = &self.ports else {
            return Ok(Permission::all_ports(self.to));
        };
        let ports = ports(text).ok_or_else(|| PlanError::Value {
            what: "ports",
            value: text.clone(),
            expected: "a port such as 80, or a range such as 8000-8100",
        })?;
        Ok(Permission { to: self.to, ports })
    }

    /// From `NETWORK`, `NETWORK:PORT` or `NETWORK:FIRST-LAST`; IPv6 in brackets if ports follow.
    pub fn parse(text: &str) -> Result<AllowSection, String> {
        if let Ok(to) = network(text) {
            return Ok(AllowSection { to, ports: None });
        }
        let (to, ports) = text
            .rsplit_once(':')
            .ok_or_else(|| format!("{text} is neither a network nor NETWORK:PORT"))?;
        let to = to
            .strip_prefix('[')
            .and_then(|to| to.strip_suffix(']'))
            .unwrap_or(to);
        Ok(AllowSection {
            to: network(to)?,
            ports: Some(ports.to_owned()),
        })
    }
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> ProxyConfig {
        toml::from_str(text).unwrap()
    }

    fn planned(text: &str, role: Role) -> Result<Plan, String> {
        let plan = config(text).plan(role, WallClock::new(0));
        plan.map_err(|error| error.to_string())
    }

    const ROUTED: &str =
        "prefix = \"/a\"\nprotection = \"none\"\n[[route]]\nto = \"10.2.0.0/16\"\nproxy = \"/b\"\n";

    #[test]
    fn the_example_is_valid() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config/tcp-proxy.toml");
        let mut example = ProxyConfig::read(&path).unwrap();
        example.key = None;
        example.protection = Some("none".into());
        let plan = example.plan(Role::Both, WallClock::new(0)).unwrap();
        assert!(!plan.device.addresses.is_empty() && !plan.device.routes.is_empty());
    }

    #[test]
    fn a_proxy_without_a_key_says_what_to_do() {
        let text = ROUTED.replace("protection = \"none\"\n", "");
        let error = planned(&text, Role::Forward).err().unwrap();
        assert!(error.contains("whimbrel tcp-proxy key"), "{error}");
    }

    #[test]
    fn a_reverse_proxy_must_be_told_what_it_opens() {
        let error = planned(ROUTED, Role::Reverse).err().unwrap();
        assert!(error.contains("--allow"), "{error}");
        let text = format!("{ROUTED}[[allow]]\nto = \"10.1.0.1/32\"\nports = \"80-79\"\n");
        let error = planned(&text, Role::Reverse).err().unwrap();
        assert!(error.contains("80-79"), "{error}");
    }

    #[test]
    fn unknown_keys_and_values_are_refused() {
        assert!(toml::from_str::<ProxyConfig>("prefixes = 1").is_err());
        let text = format!("protocol = \"fast\"\n{ROUTED}");
        assert!(
            planned(&text, Role::Forward)
                .err()
                .unwrap()
                .contains("basic")
        );
    }

    #[test]
    fn by_default_the_programs_of_this_machine_may_use_it() {
        let text = format!("{ROUTED}[device]\naddresses = [\"10.1.0.1/24\"]\n");
        let policy = planned(&text, Role::Forward).unwrap().options.policy;
        let allows = |address: &str| policy.allows_source(address.parse().unwrap());
        assert!(allows("10.1.0.1") && !allows("10.1.0.2"));
    }

    #[test]
    fn flags_are_parsed() {
        let route = RouteSection::parse("10.2.0.0/16=/b/tcp,basic").unwrap();
        assert_eq!(route.checked().unwrap().protocol, Some(Protocol::Basic));
        let allow = AllowSection::parse("[2001:db8::/32]:80").unwrap();
        assert_eq!(allow.checked().unwrap().ports, 80..=80);
        assert_eq!(
            AllowSection::parse("10.0.0.1:1-9")
                .unwrap()
                .checked()
                .unwrap()
                .ports,
            1..=9
        );
        assert!(AllowSection::parse("host:80").is_err());
        assert_eq!(duplex("3000").unwrap(), DuplexPolicy::Advance(3000));
        assert!(duplex("2.5").is_err());
    }
}
