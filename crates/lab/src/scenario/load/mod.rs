//! Loads: requests for content, with their receivers and times. To add one: a field of `Section`, a
//! variant of [`Kind`], an entry of `Section::kind`, and its implementation in each back end.

mod read;

use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_content::ChunkSize;
use whimbrel_core::{RttOptions, units};
use whimbrel_ndn_packet::Name;
use whimbrel_transport::Gaps;

use super::multipath::SeveralPaths;
use super::node::Role;
use super::proxies::Proxies;
use crate::browser::{HttpVersion, Site};
use crate::cbr::{BELRP, CbrConfig};
use crate::web::WebPage;
use crate::{CongestionControl, TcpBuffers};
use whimbrel_gnrs::{GroupAdmission, KeyPair};
use whimbrel_mobilityfirst::local::{Delivery, Service, TransferOptions};
use whimbrel_mobilityfirst::wire::Reliability;

pub(super) use read::loads;

/// The window control of an NDN consumer, with the names of `ndn get --pipeline-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pipeline {
    /// CUBIC.
    #[default]
    Cubic,
    /// Additive increase, multiplicative decrease.
    Aimd,
    /// RAAQM.
    Raaqm,
}

impl Pipeline {
    /// Returns its name in a scenario and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Pipeline::Cubic => "cubic",
            Pipeline::Aimd => "aimd",
            Pipeline::Raaqm => "raaqm",
        }
    }
}

/// The protocol that carries a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plane {
    /// From host to host, by content names.
    MobilityFirst,
    /// Interests and Data.
    Ndn,
    /// The kernel's TCP in namespaces, smoltcp's in the simulator.
    Tcp,
}

impl Plane {
    /// Returns its name in a scenario.
    pub const fn name(self) -> &'static str {
        match self {
            Plane::MobilityFirst => "mobility-first",
            Plane::Ndn => "ndn",
            Plane::Tcp => "tcp",
        }
    }

    /// Returns the role that forwards it; TCP's packets pass every node.
    pub const fn passes(self) -> Option<Role> {
        match self {
            Plane::MobilityFirst => Some(Role::Router),
            Plane::Ndn => Some(Role::NdnRouter),
            Plane::Tcp => None,
        }
    }

    /// Returns the role that a node needs to serve or receive on it.
    const fn role(self) -> Role {
        match self {
            Plane::MobilityFirst => Role::Host,
            Plane::Ndn => Role::NdnRouter,
            Plane::Tcp => Role::TcpHost,
        }
    }
}

/// A request for content.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// The node that has the content.
    pub from: usize,
    /// Further nodes that have it, over NDN.
    pub mirrors: Vec<usize>,
    /// The load whose content it requests, over NDN; `None`: one of its own.
    pub content: Option<String>,
    /// Over NDN, only so many segments of each file are requested, the first ones.
    pub segments: Option<NonZeroU64>,
    /// The nodes that request it.
    pub to: Vec<usize>,
    /// The time of their first request, counted from the run's origin.
    pub start: Duration,
    /// The first request comes at a random moment in this time after `start`, the same one in every
    /// setting.
    pub within: Duration,
    /// Time after which a receiver of MobilityFirst requests missing chunks again;
    /// `None` for the host's default.
    pub nack_timer: Option<Duration>,
    /// The size of the chunks of a load over MobilityFirst; `None` for such as the path affords.
    pub chunk: Option<ChunkSize>,
    /// What a receiver of MobilityFirst confirms or reports.
    pub reliability: Option<Reliability>,
    /// How the network treats its requests and chunks.
    pub delivery: Delivery,
    /// The congestion control of the kernel's TCP.
    pub congestion: CongestionControl,
    /// Octets of a segment over NDN.
    pub segment: usize,
    /// The window control of NDN consumers.
    pub pipeline: Pipeline,
    /// The options of NDN consumers that use several paths.
    pub multipath: Option<SeveralPaths>,
    /// Largest retransmission timeout of the kernel's TCP; `None` for its default.
    pub rto_max: Option<Duration>,
    /// Bytes of the receive buffer of TCP; `None` for 2 MB.
    pub receive_buffer: Option<u32>,
    /// The buffers of the kernel's TCP.
    pub buffers: TcpBuffers,
    /// True if each receiver sends as many bytes itself, on the same TCP connection at the same time.
    pub duplex: bool,
    /// True if the kernel's Multipath TCP carries it over all links of the receiver at once.
    pub mptcp: bool,
    /// The node with a proxy that splits the TCP connection.
    pub split: Option<usize>,
    /// The proxies that carry its TCP connections over NDN.
    pub proxies: Option<Proxies>,
    /// The protocol that carries it.
    pub plane: Plane,
    /// The request.
    pub kind: Kind,
}

impl Load {
    /// Returns the options of its transfers over MobilityFirst.
    pub fn options(&self) -> TransferOptions {
        TransferOptions {
            reliability: self.reliability,
            delivery: self.delivery,
            ..TransferOptions::default()
        }
        .with_nack_timeout(self.nack_timer)
        .with_chunk_size(self.chunk)
    }

    /// Returns true if its receivers are a group, to which each content is sent once.
    pub fn is_for_group(&self) -> bool {
        match &self.kind {
            Kind::Push(pushes) => {
                pushes.by.is_some() || self.delivery.service == Service::Multicast
            }
            _ => false,
        }
    }

    /// Returns the keys of the group of its receivers.
    pub fn group_keys(&self) -> KeyPair {
        KeyPair::from_secret(blake3::hash(self.name.as_bytes()).as_bytes())
    }

    /// Returns the signed statement by which any host may join this group.
    pub fn admission(&self) -> GroupAdmission {
        GroupAdmission::sign(&self.group_keys(), None, u64::MAX)
    }

    /// Returns the load that names its content.
    pub fn content_name(&self) -> &str {
        self.content.as_deref().unwrap_or(&self.name)
    }

    /// Returns the nodes that have the content.
    pub fn sources(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.from).chain(self.mirrors.iter().copied())
    }
}

/// A kind of request.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// One file of this many bytes.
    File(u64),
    /// Interests at a rate, each for its own Data.
    Requests(Requests),
    /// Files requested at random moments, however many are under way.
    Flows(Flows),
    /// Files of which several are requested at a time.
    Page(Page),
    /// A page with its objects in a real browser.
    Browser(Browser),
    /// Pages of a model, one after the other, in a browser emulator.
    Web(WebPages),
    /// As many bytes as can be carried until the run ends, which does not wait for them.
    Bulk,
    /// Echo requests.
    Pings(Pings),
    /// Contents that the receivers have not requested, at fixed intervals.
    Push(Pushes),
}

/// `push = { size = "5 kB", count = 10, every = "1 min" }`, and `message` likewise.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pushes {
    /// Bytes of each.
    #[serde(with = "units::size")]
    pub size: u64,
    /// Their number.
    pub count: u32,
    /// The time between two of them.
    #[serde(default = "lifetime", with = "units::duration")]
    pub every: Duration,
    /// The program of IP multicast that sends the only one, instead of Whimbrel.
    #[serde(default)]
    pub by: Option<MulticastProgram>,
    /// The rate that it is told, bits per second; its own congestion control finds one otherwise.
    #[serde(default)]
    pub rate: Option<units::Rate>,
    /// True if they are short texts rather than files.
    #[serde(skip)]
    pub message: bool,
}

/// A program of others that sends a file to many receivers by IP multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MulticastProgram {
    /// NORM (RFC 5740), by a program that `scripts/setup --multicast` builds.
    Norm,
    /// UFTP.
    Uftp,
    /// udpcast, which has no congestion control.
    Udpcast,
}

/// The wait for the answer to the last echo request.
pub(super) const PING_PATIENCE: Duration = Duration::from_secs(5);

/// `ping = { count = 100, interval = "100 ms", size = 56 }`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pings {
    /// Number of requests.
    pub count: u16,
    /// The time between two of them.
    #[serde(default = "lifetime", with = "units::duration")]
    pub interval: Duration,
    /// Extra bytes that each carries; ICMP's requests always have 56.
    #[serde(default = "ping_size")]
    pub size: u16,
}

fn ping_size() -> u16 {
    56
}

/// `cbr = { rate = 900, count = 20000 }`, and `poisson` likewise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// Interests per second, including repeated ones.
    pub rate: f64,
    /// Number of Data.
    pub count: u64,
    /// Bytes of content in each.
    #[serde(default = "payload")]
    pub payload: usize,
    /// InterestLifetime.
    #[serde(default = "lifetime", with = "units::duration")]
    pub lifetime: Duration,
    /// The retransmission timeout of Interests.
    #[serde(default)]
    pub timeout: Timeout,
    /// True if gaps are exponential, rather than all equal.
    #[serde(skip)]
    pub random: bool,
}

impl Requests {
    /// Returns the configuration of the consumer that sends them below `prefix`.
    pub(super) fn consumer(&self, prefix: Name) -> CbrConfig {
        CbrConfig {
            count: self.count,
            rate: self.rate,
            gaps: if self.random {
                Gaps::Exponential
            } else {
                Gaps::Constant
            },
            lifetime: self.lifetime,
            check: self.timeout.check,
            timeout: RttOptions {
                initial: self.timeout.initial,
                min: self.timeout.min,
                k: self.timeout.variation_factor,
                ..BELRP
            },
            ..CbrConfig::belrp(prefix)
        }
    }
}

/// `timeout = { initial = "20 ms", min = "20 ms", variation_factor = 8, check = "5 ms" }`: a
/// consumer's timeout is ndnSIM's, `multiplier x max(min, SRTT + variation_factor x RTTVAR)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeout {
    /// The timeout before the first measurement.
    #[serde(with = "units::duration")]
    pub initial: Duration,
    /// Its minimum.
    #[serde(with = "units::duration")]
    pub min: Duration,
    /// Factor of the variation.
    pub variation_factor: f64,
    /// Interval of the checks.
    #[serde(with = "units::duration")]
    pub check: Duration,
}

impl Default for Timeout {
    /// Returns the timeout of [BELRP §IV], with frequent checks.
    fn default() -> Timeout {
        Timeout {
            initial: BELRP.initial,
            min: BELRP.min,
            variation_factor: BELRP.k,
            check: Duration::from_millis(5),
        }
    }
}

fn payload() -> usize {
    1024
}

fn lifetime() -> Duration {
    Duration::from_secs(1)
}

/// `flows = { size = "100 kB", per_second = 2, count = 50 }`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// Bytes of each file.
    #[serde(with = "units::size")]
    pub size: u64,
    /// Mean rate of the Poisson process of requests.
    pub per_second: f64,
    /// Number of files.
    pub count: u32,
}

/// `page = { objects = 30, size = "20 kB", parallel = 6 }`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Number of files.
    pub objects: u32,
    /// Bytes of each file.
    #[serde(with = "units::size")]
    pub size: u64,
    /// Number of parallel requests; six, as in browsers.
    #[serde(default = "parallel")]
    pub parallel: u32,
}

fn parallel() -> u32 {
    6
}

/// `browser = { hosts = 3, objects = 16, size = "20 kB", http = "2" }`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Browser {
    /// Number of hosts, all on one node.
    #[serde(default = "hosts")]
    pub hosts: u16,
    /// Objects on each.
    #[serde(default = "objects")]
    pub objects: u16,
    /// Bytes of each object.
    #[serde(with = "units::size")]
    pub size: u64,
    /// The version of HTTP.
    #[serde(default)]
    pub http: HttpVersion,
}

impl Browser {
    /// Returns the page.
    pub fn site(&self) -> Site {
        Site {
            hosts: self.hosts,
            objects: self.objects,
            size: u32::try_from(self.size).unwrap_or(u32::MAX),
        }
    }
}

/// `web = { pages = 40, http = "1.1", connections = 6 }`, and `file` beside `web = { pages = 1 }`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebPages {
    /// Number of pages.
    pub pages: u16,
    /// The set from which they are.
    #[serde(default)]
    pub set: u64,
    /// The version of HTTP.
    #[serde(default = "http")]
    pub http: HttpVersion,
    /// Connections of HTTP/1.1; six, as in browsers.
    #[serde(default = "connections")]
    pub connections: u16,
    /// True if Chromium loads them, rather than an emulator.
    #[serde(default)]
    pub chromium: bool,
    /// The octets of the only object of each page, if they are none of the model's.
    #[serde(skip)]
    pub file: Option<u32>,
}

impl WebPages {
    /// Returns the page that is one file of this many octets.
    pub(super) fn of_file(size: u32) -> WebPages {
        WebPages {
            pages: 1,
            set: 0,
            http: HttpVersion::One,
            connections: 1,
            chromium: false,
            file: Some(size),
        }
    }

    /// Returns page `number`.
    pub fn page(&self, number: usize) -> WebPage {
        match self.file {
            Some(size) => WebPage::of_one(size),
            None => WebPage::draw(self.set, number),
        }
    }
}

fn http() -> HttpVersion {
    HttpVersion::One
}

fn connections() -> u16 {
    6
}

fn hosts() -> u16 {
    3
}

fn objects() -> u16 {
    16
}
