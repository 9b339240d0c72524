//! Reads loads, and refuses keys that do not fit their plane or their kind.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use whimbrel_content::ChunkSize;
use whimbrel_core::units;
use whimbrel_mobilityfirst::local::{Delivery, Service, Storage};
use whimbrel_mobilityfirst::wire::Reliability;
use whimbrel_node::config::key_path::KeyPath;

use super::{
    Browser, Flows, Kind, Load, MulticastProgram, Page, Pings, Pipeline, Plane, Pushes, Requests,
    Timeout, WebPages,
};
use crate::browser::HttpVersion;
use crate::scenario::document::Document;
use crate::scenario::fault::{Fault, Faults, Found};
use crate::scenario::multipath::SeveralPaths;
use crate::scenario::network::{Network, node_at};
use crate::scenario::node::{Names, check_name};
use crate::scenario::proxies;
use crate::web::LARGEST;
use crate::{CongestionControl, TcpBuffers};

/// Accepted values of Linux's `net.ipv4.tcp_rto_max_ms`.
const RTO_MAX: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(120);

/// Accepted receive buffers of TCP, bytes.
const RECEIVE_BUFFER: RangeInclusive<u64> = 4096..=64 << 20;

/// Bounds of a page in a browser: its objects, and the bytes of each.
const MOST_OBJECTS: u32 = 2000;
const LARGEST_OBJECT: u64 = 10_000_000;
/// Bound of the connections of pages of a model.
const MOST_CONNECTIONS: u16 = 256;

/// Bytes of the longest message, as `whimbrel message` sends it.
const LONGEST_MESSAGE: u64 = 32 << 10;

/// Default octets of a segment of NDN: those of `ndn serve`.
const SEGMENT: usize = 8_000;
const SEGMENTS: RangeInclusive<u64> = 1..=SEGMENT as u64;

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
    reliability: Option<Reliability>,
    storage: Option<Storage>,
    service: Option<Service>,
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
    duplex: bool,
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
    browser: Option<Browser>,
    web: Option<WebPages>,
    #[serde(default)]
    bulk: bool,
    ping: Option<Pings>,
    push: Option<Pushes>,
    message: Option<Pushes>,
}

impl Section {
    fn kind(&self) -> Result<Kind, &'static str> {
        let poisson = self.poisson.clone().map(|requests| Requests {
            random: true,
            ..requests
        });
        let message = self.message.clone().map(|message| Pushes {
            message: true,
            ..message
        });
        // A file beside pages is one of them.
        let file = self.file.map(|size| match self.web {
            Some(_) => Kind::Web(WebPages::of_file(u32::try_from(size).unwrap_or(u32::MAX))),
            None => Kind::File(size),
        });
        let web = self.web.clone().filter(|_| self.file.is_none());
        let kinds = [
            file,
            self.cbr.clone().map(Kind::Requests),
            poisson.map(Kind::Requests),
            self.flows.clone().map(Kind::Flows),
            self.page.clone().map(Kind::Page),
            self.browser.clone().map(Kind::Browser),
            web.map(Kind::Web),
            self.bulk.then_some(Kind::Bulk),
            self.ping.clone().map(Kind::Pings),
            self.push.clone().map(Kind::Push),
            message.map(Kind::Push),
        ];
        let mut kinds = kinds.into_iter().flatten();
        match (kinds.next(), kinds.next()) {
            (Some(kind), None) => Ok(kind),
            (None, _) => Err(
                "a load needs its request: file = \"10 MB\", or cbr, poisson, flows, page, browser, web, bulk, ping, push, message",
            ),
            _ => Err(
                "a load has only one of file, cbr, poisson, flows, page, browser, web, bulk, ping, push and message",
            ),
        }
    }

    fn check_times(&self, kind: &Kind) -> CheckResult {
        let message = "Interests at a rate begin at `start`";
        let at_once = matches!(kind, Kind::Requests(_)) && !self.within.is_zero();
        refuse(at_once, "within", message)
    }

    /// Checks the keys that a page in a browser lacks: browser and server use the kernel's defaults.
    fn check_browser(&self, kind: &Kind) -> CheckResult {
        let is_browser = matches!(kind, Kind::Browser(_));
        let given = [
            ("congestion", self.congestion.is_some()),
            ("rto_max", self.rto_max.is_some()),
            ("receive_buffer", self.receive_buffer.is_some()),
            ("buffers", self.buffers.is_some()),
            ("mptcp", self.mptcp),
            ("split", self.split.is_some()),
            ("duplex", self.duplex),
        ];
        let message = "a browser and its server use the kernel's defaults";
        let mut given = given.into_iter().filter(|(_, given)| *given);
        given.try_for_each(|(key, _)| refuse(is_browser, key, message))
    }

    /// Checks the keys that pages in an emulator lack.
    fn check_web(&self, kind: &Kind) -> CheckResult {
        let is_web = matches!(kind, Kind::Web(_));
        let given = [
            ("rto_max", self.rto_max.is_some()),
            ("mptcp", self.mptcp),
            ("split", self.split.is_some()),
            ("duplex", self.duplex),
            ("chunk", self.chunk.is_some()),
            ("nack_timer", self.nack_timer.is_some()),
            ("reliability", self.reliability.is_some()),
            ("storage", self.storage.is_some()),
            ("service", self.service.is_some()),
        ];
        let message = "what HTTP carries has no such option";
        let mut given = given.into_iter().filter(|(_, given)| *given);
        given.try_for_each(|(key, _)| refuse(is_web, key, message))
    }

    /// Checks the keys that only a load over MobilityFirst has.
    fn check_mobility_first(&self, plane: Plane) -> CheckResult {
        let other = plane != Plane::MobilityFirst;
        let name = plane.name();
        let message = format!("{name} has no chunks; mobility-first has them");
        refuse(other && self.chunk.is_some(), "chunk", message)?;
        let message = format!("{name} has no NACK timer; mobility-first has one");
        refuse(other && self.nack_timer.is_some(), "nack_timer", message)?;
        let message = format!("{name} has no such option; mobility-first has it");
        for (key, given) in [
            ("reliability", self.reliability.is_some()),
            ("storage", self.storage.is_some()),
            ("service", self.service.is_some()),
        ] {
            refuse(other && given, key, message.clone())?;
        }
        Ok(())
    }

    /// Checks the keys that only a load over NDN has, most of them for files alone.
    fn check_ndn(&self, plane: Plane, kind: &Kind) -> CheckResult {
        let fetches = plane == Plane::Ndn && !matches!(kind, Kind::Requests(_));
        let message = "this is the window of a load over NDN other than Interests at a rate";
        refuse(self.pipeline.is_some() && !fetches, "pipeline", message)?;
        let message = "it is for files over NDN";
        refuse(self.content.is_some() && !fetches, "content", message)?;
        refuse(self.segments.is_some() && !fetches, "segments", message)?;
        let message = "only files over NDN have mirrors";
        refuse(!self.mirrors.is_empty() && !fetches, "mirrors", message)?;
        let odd = |octets| !fetches || !SEGMENTS.contains(&octets);
        let message = "segments of files over NDN have 1 to 8,000 B";
        refuse(self.segment.is_some_and(odd), "segment", message)?;
        let message = "this is for loads over NDN other than Interests at a rate, and its law replaces a pipeline";
        let alone = fetches && self.pipeline.is_none();
        refuse(self.multipath.is_some() && !alone, "multipath", message)
    }

    /// Checks the keys that only a load over TCP has.
    fn check_tcp(&self, plane: Plane) -> CheckResult {
        let other = plane != Plane::Tcp;
        let name = plane.name();
        let message = format!("{name} has a congestion control of its own");
        refuse(other && self.congestion.is_some(), "congestion", message)?;
        let message = format!("{name} has no TCP timeout");
        refuse(other && self.rto_max.is_some(), "rto_max", message)?;
        let odd = |longest| !RTO_MAX.contains(&longest);
        let message = "the kernel's largest TCP timeout is from 1 s to 120 s";
        refuse(self.rto_max.is_some_and(odd), "rto_max", message)?;
        let odd = |bytes| other || !RECEIVE_BUFFER.contains(&bytes);
        let message = "this is for loads over TCP, and has 4 KiB to 64 MiB";
        refuse(
            self.receive_buffer.is_some_and(odd),
            "receive_buffer",
            message,
        )?;
        let unfixed = self
            .buffers
            .is_some_and(|buffers| buffers != TcpBuffers::Fixed);
        let message = "only fixed buffers have a size";
        refuse(
            self.receive_buffer.is_some() && unfixed,
            "receive_buffer",
            message,
        )?;
        let message = format!("{name} has no connections for TCP proxies");
        refuse(other && self.proxies.is_some(), "proxies", message)?;
        let message = format!("{name} is not the kernel's TCP");
        refuse(other && self.buffers.is_some(), "buffers", message.clone())?;
        refuse(other && self.mptcp, "mptcp", message)?;
        let message = format!("{name} has no connections with two directions");
        refuse(other && self.duplex, "duplex", message)?;
        let message =
            "a load in both directions has one connection of the simplest kind for each file";
        let special = self.mptcp || self.split.is_some() || self.rto_max.is_some();
        let endless = self.bulk || self.ping.is_some();
        refuse(self.duplex && (special || endless), "duplex", message)?;
        let message = format!("{name} has no connections to split");
        refuse(other && self.split.is_some(), "split", message)?;
        let message = "a proxy ends the connection, so that it has one path";
        refuse(self.mptcp && self.split.is_some(), "mptcp", message)
    }
}

/// A fault, with its key in the load.
type CheckResult = Result<(), (&'static str, String)>;

fn refuse(is_fault: bool, key: &'static str, why: impl Into<String>) -> CheckResult {
    if is_fault {
        return Err((key, why.into()));
    }
    Ok(())
}

/// Reads `loads`.
pub(in crate::scenario) fn loads(
    document: &Document<'_>,
    network: &Network,
) -> Result<Vec<Load>, Faults> {
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
    let ends = Ends::of(document, network, &at, &section)?;
    check_content(document, &at, &section)?;
    let proxies = section.proxies.as_ref();
    let proxies = proxies.map(|proxies| proxies.read(document, network, &at.key("proxies")));
    let proxies = proxies.transpose()?;
    let kind = section.kind().map_err(|why| document.fault(&at, why))?;
    let plane = plane(document, network, &at, section.over, ends.from, &ends.to)?;
    let checked = check(&kind, plane)
        .and_then(|()| section.check_times(&kind))
        .and_then(|()| section.check_mobility_first(plane))
        .and_then(|()| section.check_ndn(plane, &kind))
        .and_then(|()| section.check_tcp(plane))
        .and_then(|()| section.check_browser(&kind))
        .and_then(|()| section.check_web(&kind));
    checked.map_err(|(key, why)| document.fault(&at.key(key), why))?;
    if let Some((key, why)) = section.multipath.as_ref().and_then(SeveralPaths::fault) {
        return Err(document.fault(&at.key("multipath").key(key), why));
    }
    let chunk = section.chunk.map(ChunkSize::from_bytes).transpose();
    let chunk = chunk.map_err(|fault| document.fault(&at.key("chunk"), fault.to_string()))?;
    let receive_buffer = section.receive_buffer;
    Ok(Load {
        name,
        from: ends.from,
        mirrors: ends.mirrors,
        content: section.content,
        segments: section.segments,
        to: ends.to,
        start: section.start,
        within: section.within,
        nack_timer: section.nack_timer,
        chunk,
        reliability: section.reliability,
        delivery: Delivery {
            storage: section.storage.unwrap_or_default(),
            service: section.service.unwrap_or_default(),
        },
        congestion: section.congestion.unwrap_or_default(),
        segment: section.segment.map_or(SEGMENT, |octets| octets as usize),
        pipeline: section.pipeline.unwrap_or_default(),
        multipath: section.multipath,
        rto_max: section.rto_max,
        receive_buffer: receive_buffer.and_then(|bytes| u32::try_from(bytes).ok()),
        buffers: section.buffers.unwrap_or_default(),
        duplex: section.duplex,
        mptcp: section.mptcp,
        split: ends.split,
        proxies,
        plane,
        kind,
    })
}

/// The nodes of a load.
struct Ends {
    from: usize,
    mirrors: Vec<usize>,
    to: Vec<usize>,
    split: Option<usize>,
}

impl Ends {
    fn of(
        document: &Document<'_>,
        network: &Network,
        at: &KeyPath,
        section: &Section,
    ) -> Result<Ends, Fault> {
        let node = |at: &KeyPath, name: &str| node_at(document, network, at, name);
        let from = node(&at.key("from"), &section.from)?;
        let to = section.to.at(&at.key("to"));
        let to = to.iter().map(|(at, name)| node(at, name.as_ref()));
        let to: Vec<usize> = to.collect::<Result<_, _>>()?;
        if to.is_empty() || to.contains(&from) {
            let message = format!("'{}' must be requested by another node", section.from);
            return Err(document.fault(&at.key("to"), message));
        }
        let mirror_at = |index| at.key("mirrors").index(index);
        let mirrors = section.mirrors.iter().enumerate();
        let mirrors = mirrors.map(|(index, name)| node(&mirror_at(index), name));
        let mirrors: Vec<usize> = mirrors.collect::<Result<_, _>>()?;
        let is_end = |node: &usize| *node == from || to.contains(node);
        if let Some(index) = mirrors.iter().position(is_end) {
            let message = "a mirror is neither the source nor a receiver";
            return Err(document.fault(&mirror_at(index), message));
        }
        let split = section.split.as_deref();
        let split = split.map(|name| node(&at.key("split"), name)).transpose()?;
        if split.as_ref().is_some_and(is_end) {
            let message = "the proxy must be at a node between the two ends";
            return Err(document.fault(&at.key("split"), message));
        }
        Ok(Ends {
            from,
            mirrors,
            to,
            split,
        })
    }
}

/// Checks that a load whose content is borrowed exists and has one of its own.
fn check_content(document: &Document<'_>, at: &KeyPath, section: &Section) -> Result<(), Fault> {
    let Some(other) = &section.content else {
        return Ok(());
    };
    let borrows = document.get(&KeyPath::from(["loads", other, "content"]));
    if document.get(&KeyPath::from(["loads", other])).is_none() || borrows.is_some() {
        let message = format!("there is no load '{other}' with a content of its own");
        return Err(document.fault(&at.key("content"), message));
    }
    Ok(())
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

/// Checks a push by another program.
fn check_program(pushes: &Pushes, plane: Plane) -> CheckResult {
    let key = if pushes.message { "message" } else { "push" };
    let message = "rate is what another program is told: by = \"norm\", \"uftp\" or \"udpcast\"";
    refuse(pushes.by.is_none(), key, message)?;
    let message = "a program of IP multicast sends one file: push = { count = 1, ... }";
    refuse(pushes.message || pushes.count != 1, key, message)?;
    let message = "udpcast has no congestion control; it needs a rate";
    let unpaced = pushes.by == Some(MulticastProgram::Udpcast) && pushes.rate.is_none();
    refuse(unpaced, key, message)?;
    let message = format!(
        "a program of IP multicast runs over tcp, not over {}",
        plane.name()
    );
    refuse(plane != Plane::Tcp, key, message)
}

/// Checks the values of a request.
fn check(kind: &Kind, plane: Plane) -> CheckResult {
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
        Kind::Browser(_) if plane != Plane::Tcp => {
            let message = format!("a browser speaks over tcp, not over {}", plane.name());
            Err(("browser", message))
        }
        Kind::Browser(browser) => {
            positive("browser", "hosts", f64::from(browser.hosts))?;
            positive("browser", "objects", f64::from(browser.objects))?;
            let odd = browser.site().total() > MOST_OBJECTS || browser.size > LARGEST_OBJECT;
            let message = "a page has at most 2000 objects, of at most 10 MB each";
            refuse(odd, "browser", message)?;
            let quic = browser.http == HttpVersion::Three;
            refuse(quic, "browser", "its server speaks HTTP/1.1 and HTTP/2")
        }
        Kind::Web(_) if plane == Plane::Ndn => {
            Err(("web", String::from("no HTTP proxies speak over ndn")))
        }
        Kind::Web(web) => {
            let odd = web.file.is_some_and(|size| size > LARGEST);
            refuse(odd, "file", "HTTP carries files of at most 16 MiB here")?;
            let odd = web.chromium && web.http != HttpVersion::One;
            let message = "Chromium speaks HTTP/1.1 to a server without TLS";
            refuse(odd, "web", message)?;
            let several = web.http != HttpVersion::One;
            let proxied = plane == Plane::MobilityFirst && several;
            refuse(proxied, "web", "proxies for programs speak HTTP/1.1")?;
            let odd = web.connections == 0 || web.connections > MOST_CONNECTIONS;
            let message = "there are 1 to 256 connections";
            refuse(odd, "web", message)?;
            positive("web", "pages", f64::from(web.pages))
        }
        Kind::Pings(_) if plane == Plane::Ndn => {
            let message = String::from("use cbr: NDN has no echo requests");
            Err(("ping", message))
        }
        Kind::Pings(pings) => positive("ping", "count", f64::from(pings.count)),
        Kind::Push(pushes) => {
            let key = if pushes.message { "message" } else { "push" };
            if pushes.by.is_some() || pushes.rate.is_some() {
                return check_program(pushes, plane);
            }
            if plane != Plane::MobilityFirst {
                let message = format!("{} has no receivers that did not ask", plane.name());
                return Err((key, message));
            }
            let odd = pushes.message && pushes.size > LONGEST_MESSAGE;
            refuse(odd, key, "a message has at most 32 KiB")?;
            positive(key, "size", pushes.size as f64)?;
            positive(key, "count", f64::from(pushes.count))
        }
        Kind::File(_) | Kind::Bulk => Ok(()),
    }
}
