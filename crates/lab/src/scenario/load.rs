//! Loads: requests for content, with their receivers and times. To add one: a field of `Section`, a
//! variant of [`Kind`], an arm of `Section::kind`, and its implementation in each back end.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_content::ChunkSize;
use whimbrel_core::{RttOptions, units};
use whimbrel_ndn_packet::Name;
use whimbrel_node::config::key_path::KeyPath;
use whimbrel_transport::cbr::BELRP;
use whimbrel_transport::{CbrConfig, Gaps};

use super::document::Document;
use super::fault::{Fault, Faults, Found};
use super::multipath::SeveralPaths;
use super::network::{Network, node_at};
use super::node::{Names, Role, check_name};
use super::proxies::{self, Proxies};
use crate::{CongestionControl, TcpBuffers};

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

/// Accepted values of Linux's `net.ipv4.tcp_rto_max_ms`.
const RTO_MAX: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(120);

/// Accepted receive buffers of TCP, bytes.
const RECEIVE_BUFFER: RangeInclusive<u64> = 4096..=64 << 20;

/// Default octets of a segment of NDN: those of `ndn serve`.
const SEGMENT: usize = 8_000;
const SEGMENTS: RangeInclusive<u64> = 1..=SEGMENT as u64;

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
    /// The size of the chunks that a receiver of MobilityFirst asks for.
    pub chunk: ChunkSize,
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
    /// As many bytes as can be carried until the run ends, which does not wait for them.
    Bulk,
    /// Echo requests.
    Pings(Pings),
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

/// `loads.NAME`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    from: String,
    #[serde(default)]
    mirrors: Vec<String>,
    content: Option<String>,
    segments: Option<NonZeroU64>,
    to: Names,
    #[serde(default, with = "units::duration")]
    start: Duration,
    #[serde(default, with = "units::duration")]
    within: Duration,
    #[serde(default, with = "units::optional_duration")]
    nack_timer: Option<Duration>,
    #[serde(default, with = "units::optional_size")]
    chunk: Option<u64>,
    congestion: Option<CongestionControl>,
    #[serde(default, with = "units::optional_size")]
    segment: Option<u64>,
    pipeline: Option<Pipeline>,
    multipath: Option<SeveralPaths>,
    #[serde(default, with = "units::optional_duration")]
    rto_max: Option<Duration>,
    #[serde(default, with = "units::optional_size")]
    receive_buffer: Option<u64>,
    buffers: Option<TcpBuffers>,
    #[serde(default)]
    mptcp: bool,
    split: Option<String>,
    proxies: Option<proxies::Section>,
    over: Option<Plane>,
    #[serde(default, with = "units::optional_size")]
    file: Option<u64>,
    cbr: Option<Requests>,
    poisson: Option<Requests>,
    flows: Option<Flows>,
    page: Option<Page>,
    #[serde(default)]
    bulk: bool,
    ping: Option<Pings>,
}

impl Section {
    fn kind(self) -> Result<Kind, &'static str> {
        let Section {
            file,
            cbr,
            poisson,
            flows,
            page,
            bulk,
            ping,
            ..
        } = self;
        let poisson = poisson.map(|requests| Requests {
            random: true,
            ..requests
        });
        let kinds = [
            file.map(Kind::File),
            cbr.map(Kind::Requests),
            poisson.map(Kind::Requests),
            flows.map(Kind::Flows),
            page.map(Kind::Page),
            bulk.then_some(Kind::Bulk),
            ping.map(Kind::Pings),
        ];
        let mut kinds = kinds.into_iter().flatten();
        match (kinds.next(), kinds.next()) {
            (Some(kind), None) => Ok(kind),
            (None, _) => Err(
                "a load needs its request: file = \"10 MB\", or cbr, poisson, flows, page, bulk, ping",
            ),
            _ => Err("a load has only one of file, cbr, poisson, flows, page, bulk and ping"),
        }
    }
}

/// Reads `loads`.
pub(super) fn loads(document: &Document<'_>, network: &Network) -> Result<Vec<Load>, Faults> {
    let mut found = Found::default();
    let mut loads = Vec::new();
    for name in document.keys(&KeyPath::from(["loads"])) {
        loads.extend(found.keep(load(document, network, name)));
    }
    found.keep(proxies::check(document, network, &loads));
    found.or(Some(loads))
}

fn load(document: &Document<'_>, network: &Network, name: String) -> Result<Load, Fault> {
    let at = KeyPath::from(["loads", &name]);
    check_name(document, &at, &name)?;
    let section: Section = document.read(&at)?;
    let from = node_at(document, network, &at.key("from"), &section.from)?;
    let to = section.to.at(&at.key("to"));
    let to = to
        .iter()
        .map(|(at, name)| node_at(document, network, at, name));
    let to: Vec<usize> = to.collect::<Result<_, _>>()?;
    let mirrors = section.mirrors.iter().enumerate();
    let mirrors = mirrors
        .map(|(index, name)| node_at(document, network, &at.key("mirrors").index(index), name));
    let mirrors: Vec<usize> = mirrors.collect::<Result<_, _>>()?;
    if let Some(index) = mirrors
        .iter()
        .position(|node| *node == from || to.contains(node))
    {
        let message = "a mirror is neither the source nor a receiver";
        return Err(document.fault(&at.key("mirrors").index(index), message));
    }
    if to.is_empty() || to.contains(&from) {
        let message = format!("'{}' must be requested by another node", section.from);
        return Err(document.fault(&at.key("to"), message));
    }
    if let Some(other) = &section.content {
        let shared = document.get(&KeyPath::from(["loads", other, "content"]));
        if document.get(&KeyPath::from(["loads", other])).is_none() || shared.is_some() {
            let message = format!("there is no load '{other}' with a content of its own");
            return Err(document.fault(&at.key("content"), message));
        }
    }
    let content = section.content.clone();
    let Section {
        start,
        within,
        segments,
        nack_timer,
        chunk,
        congestion,
        segment,
        pipeline,
        multipath,
        rto_max,
        buffers,
        mptcp,
        over,
        ..
    } = section;
    let split = section
        .split
        .as_deref()
        .map(|node| node_at(document, network, &at.key("split"), node));
    let split = split.transpose()?;
    let receive_buffer = section.receive_buffer;
    let proxies = section
        .proxies
        .as_ref()
        .map(|proxies| proxies.read(document, network, &at.key("proxies")))
        .transpose()?;
    let kind = section.kind().map_err(|why| document.fault(&at, why))?;
    let plane = plane(document, network, &at, over, from, &to)?;
    check(&kind, plane).map_err(|(key, why)| document.fault(&at.key(key), why))?;
    if matches!(kind, Kind::Requests(_)) && !within.is_zero() {
        let message = "Interests at a rate begin at `start`";
        return Err(document.fault(&at.key("within"), message));
    }
    if chunk.is_some() && plane != Plane::MobilityFirst {
        let message = format!("{} has no chunks; mobility-first has them", plane.name());
        return Err(document.fault(&at.key("chunk"), message));
    }
    let chunk = chunk.map(ChunkSize::from_bytes).transpose();
    let chunk = chunk.map_err(|fault| document.fault(&at.key("chunk"), fault.to_string()))?;
    if congestion.is_some() && plane != Plane::Tcp {
        let message = format!("{} has a congestion control of its own", plane.name());
        return Err(document.fault(&at.key("congestion"), message));
    }
    let fetches = plane == Plane::Ndn && !matches!(kind, Kind::Requests(_));
    if pipeline.is_some() && !fetches {
        let message = "this is the window of a load over NDN other than Interests at a rate";
        return Err(document.fault(&at.key("pipeline"), message));
    }
    if (content.is_some() || segments.is_some()) && !fetches {
        let key = if content.is_some() {
            "content"
        } else {
            "segments"
        };
        let message = "it is for files over NDN";
        return Err(document.fault(&at.key(key), message));
    }
    if !mirrors.is_empty() && !fetches {
        let message = "only files over NDN have mirrors";
        return Err(document.fault(&at.key("mirrors"), message));
    }
    if segment.is_some_and(|octets| !fetches || !SEGMENTS.contains(&octets)) {
        let message = "segments of files over NDN have 1 to 8,000 B";
        return Err(document.fault(&at.key("segment"), message));
    }
    if multipath.is_some() && (!fetches || pipeline.is_some()) {
        let message = "this is for loads over NDN other than Interests at a rate, and its law replaces a pipeline";
        return Err(document.fault(&at.key("multipath"), message));
    }
    if let Some((key, why)) = multipath.as_ref().and_then(SeveralPaths::fault) {
        return Err(document.fault(&at.key("multipath").key(key), why));
    }
    if rto_max.is_some() && plane != Plane::Tcp {
        let message = format!("{} has no TCP timeout", plane.name());
        return Err(document.fault(&at.key("rto_max"), message));
    }
    if rto_max.is_some_and(|longest| !RTO_MAX.contains(&longest)) {
        let message = "the kernel's largest TCP timeout is from 1 s to 120 s";
        return Err(document.fault(&at.key("rto_max"), message));
    }
    if receive_buffer.is_some_and(|bytes| plane != Plane::Tcp || !RECEIVE_BUFFER.contains(&bytes)) {
        let message = "this is for loads over TCP, and has 4 KiB to 64 MiB";
        return Err(document.fault(&at.key("receive_buffer"), message));
    }
    if receive_buffer.is_some() && buffers.is_some_and(|buffers| buffers != TcpBuffers::Fixed) {
        let message = "only fixed buffers have a size";
        return Err(document.fault(&at.key("receive_buffer"), message));
    }
    if proxies.is_some() && plane != Plane::Tcp {
        let message = format!("{} has no connections for TCP proxies", plane.name());
        return Err(document.fault(&at.key("proxies"), message));
    }
    if (buffers.is_some() || mptcp) && plane != Plane::Tcp {
        let key = if mptcp { "mptcp" } else { "buffers" };
        let message = format!("{} is not the kernel's TCP", plane.name());
        return Err(document.fault(&at.key(key), message));
    }
    if mptcp && split.is_some() {
        let message = "a proxy ends the connection, so that it has one path";
        return Err(document.fault(&at.key("mptcp"), message));
    }
    if split.is_some() && plane != Plane::Tcp {
        let message = format!("{} has no connections to split", plane.name());
        return Err(document.fault(&at.key("split"), message));
    }
    if split.is_some_and(|node| node == from || to.contains(&node)) {
        let message = "the proxy must be at a node between the two ends";
        return Err(document.fault(&at.key("split"), message));
    }
    if nack_timer.is_some() && plane != Plane::MobilityFirst {
        let message = format!("{} has no NACK timer; mobility-first has one", plane.name());
        return Err(document.fault(&at.key("nack_timer"), message));
    }
    Ok(Load {
        name,
        from,
        mirrors,
        content,
        segments,
        to,
        start,
        within,
        nack_timer,
        chunk: chunk.unwrap_or(ChunkSize::DEFAULT),
        congestion: congestion.unwrap_or_default(),
        segment: segment.map_or(SEGMENT, |octets| octets as usize),
        pipeline: pipeline.unwrap_or_default(),
        multipath,
        rto_max,
        receive_buffer: receive_buffer.and_then(|bytes| u32::try_from(bytes).ok()),
        buffers: buffers.unwrap_or_default(),
        mptcp,
        split,
        proxies,
        plane,
        kind,
    })
}

/// Returns the plane that `over` names, or else the first plane that all the nodes support.
fn plane(
    document: &Document<'_>,
    network: &Network,
    at: &KeyPath,
    over: Option<Plane>,
    from: usize,
    to: &[usize],
) -> Result<Plane, Fault> {
    let all = || core::iter::once(&from).chain(to);
    // Every node of a network is an IP host: TCP asks for no role.
    let fits = |plane: Plane| all().all(|node| network.nodes[*node].is(plane.role()));
    let name = |node: &usize| network.nodes[*node].name.as_str();
    match over {
        Some(Plane::Tcp) => Ok(Plane::Tcp),
        Some(plane) => {
            let odd = all().find(|node| !network.nodes[**node].is(plane.role()));
            odd.map_or(Ok(plane), |node| {
                let message = format!(
                    "'{}' lacks the role '{}' that {} needs",
                    name(node),
                    plane.role().name(),
                    plane.name()
                );
                Err(document.fault(&at.key("over"), message))
            })
        }
        None => {
            let planes = [Plane::MobilityFirst, Plane::Ndn, Plane::Tcp];
            planes.into_iter().find(|plane| fits(*plane)).ok_or_else(|| {
                let message = format!(
                    "{} have no common role that could carry a load: host, ndn-router or tcp-host",
                    all().map(name).collect::<Vec<_>>().join(", ")
                );
                document.fault(at, message)
            })
        }
    }
}

fn check(kind: &Kind, plane: Plane) -> Result<(), (&'static str, String)> {
    let positive = |key, name: &str, value: f64| match value > 0.0 && value.is_finite() {
        true => Ok(()),
        false => Err((key, format!("{name} = {value} is not above 0"))),
    };
    match kind {
        Kind::Requests(requests) => {
            let key = if requests.random { "poisson" } else { "cbr" };
            if plane != Plane::Ndn {
                let message = format!("Interests go over ndn, not over {}", plane.name());
                return Err((key, message));
            }
            positive(key, "rate", requests.rate)?;
            let Timeout {
                variation_factor,
                check,
                ..
            } = requests.timeout;
            positive(key, "timeout.variation_factor", variation_factor)?;
            positive(key, "timeout.check", check.as_secs_f64())?;
            positive(key, "count", requests.count as f64)
        }
        Kind::Flows(flows) => {
            positive("flows", "per_second", flows.per_second)?;
            positive("flows", "count", f64::from(flows.count))
        }
        Kind::Page(page) => {
            positive("page", "objects", f64::from(page.objects))?;
            positive("page", "parallel", f64::from(page.parallel))
        }
        Kind::Pings(_) if plane == Plane::Ndn => {
            let message = String::from("use cbr: NDN has no echo requests");
            Err(("ping", message))
        }
        Kind::Pings(pings) => positive("ping", "count", f64::from(pings.count)),
        Kind::File(_) | Kind::Bulk => Ok(()),
    }
}
