//! The rival: a file fetched over HTTP by the kernel's own TCP.
//!
//! [MFTP §5]: "default version of TCP [...], TCP Cubic" at both
//! ends, a receive buffer of 2 MB, and (section 5.2) "one HTTP GET request to retrieve one file".

mod client;
mod copy;
mod exchange;
mod multipath;
mod proxy;
mod server;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use client::HttpClient;
pub use copy::{BLOCK, receive, send_file};
pub use exchange::TcpExchange;
pub use multipath::Subflow;
pub(crate) use server::listen;
pub use server::{HttpServer, KernelSample, SenderStats};

use multipath::Counters;
use proxy::TcpProxy;

use crate::{LabError, Namespace, SenderSample, TransferObserver, TransferRecord};

/// A congestion control of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionControl {
    /// Linux's default, and that of [MFTP §5].
    #[default]
    Cubic,
    /// Model-based; does not treat a single loss as congestion.
    Bbr,
    /// The classic one.
    Reno,
}

impl CongestionControl {
    /// Returns the kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            CongestionControl::Cubic => "cubic",
            CongestionControl::Bbr => "bbr",
            CongestionControl::Reno => "reno",
        }
    }
}

/// The buffers of both ends of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpBuffers {
    /// A receive buffer of one size ([`TcpBaseline::receive_buffer`]) without autotuning, as in
    /// [MFTP §5]; the kernel offers a part of it as window.
    #[default]
    Fixed,
    /// The kernel's own defaults, with its autotuning.
    Kernel,
    /// As an expert sets them for long paths and for several at once: autotuning up to 64 MiB.
    Tuned,
}

/// Bytes of the receive buffer of [`TcpBuffers::Fixed`] in [MFTP §5].
pub(crate) const FIXED_BUFFER: u32 = 2_000_000;
/// Bytes up to which both buffers of [`TcpBuffers::Tuned`] grow.
const TUNED_BUFFER: u32 = 64 << 20;
/// Bytes of its receive buffer at first, so that no first round trip is wasted on growing.
const TUNED_FIRST: u32 = 4 << 20;

impl TcpBuffers {
    pub(crate) fn prepare(
        self,
        fixed: u32,
        senders: &[&Namespace],
        receivers: &[&Namespace],
    ) -> Result<(), LabError> {
        let (receive, send) = match self {
            TcpBuffers::Kernel => return Ok(()),
            // The sender must be able to keep the receiver's whole window in flight, and as much
            // again unsent.
            TcpBuffers::Fixed => (
                format!("4096 {fixed} {fixed}"),
                String::from("4096 65536 4194304"),
            ),
            TcpBuffers::Tuned => (
                format!("4096 {TUNED_FIRST} {TUNED_BUFFER}"),
                format!("4096 65536 {TUNED_BUFFER}"),
            ),
        };
        for receiver in receivers {
            receiver.set_sysctl("net.ipv4.tcp_rmem", &receive)?;
        }
        for sender in senders {
            sender.set_sysctl("net.ipv4.tcp_wmem", &send)?;
            if self == TcpBuffers::Tuned {
                sender.set_sysctl("net.ipv4.tcp_slow_start_after_idle", "0")?;
            }
        }
        Ok(())
    }
}

/// The settings of a fetch over the kernel's TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpBaseline {
    /// The congestion control of the sender. Default cubic.
    pub congestion: CongestionControl,
    /// The sender's largest retransmission timeout, from 1 s to 2 min; `None` for the kernel's
    /// default of 2 min. After an outage, TCP waits for up to as long again.
    pub rto_max: Option<Duration>,
    /// The buffers of both ends.
    pub buffers: TcpBuffers,
    /// Bytes of the receive buffer of [`TcpBuffers::Fixed`].
    pub receive_buffer: u32,
    /// The client's interfaces if it is to use all of them by Multipath TCP; empty for TCP.
    pub subflows: Vec<Subflow>,
    /// The client. Default: curl if it is installed; over Multipath TCP always the built-in one.
    pub client: HttpClient,
    /// Time limit of the transfer. Default 10 minutes.
    pub patience: Duration,
}

impl Default for TcpBaseline {
    fn default() -> TcpBaseline {
        TcpBaseline {
            congestion: CongestionControl::Cubic,
            rto_max: None,
            buffers: TcpBuffers::default(),
            receive_buffer: FIXED_BUFFER,
            subflows: Vec::new(),
            client: HttpClient::default(),
            patience: Duration::from_secs(600),
        }
    }
}

/// A finished fetch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpTransfer {
    /// The receiver's measurements; retransmissions are the sender's count.
    pub record: TransferRecord,
    /// BLAKE3 hash of the received bytes, in hexadecimal: equal to the file's if it arrived intact.
    pub blake3: String,
    /// The client that fetched: "curl" or "built-in".
    pub client: String,
    /// The sender's view of the connection.
    pub sender: SenderStats,
}

/// The route of a fetch over the kernel's TCP.
#[derive(Clone, Copy, Debug)]
pub struct TcpRoute<'a> {
    /// The host that has the file, and its address towards the client.
    pub server: (&'a Namespace, Ipv4Addr),
    /// A host in between that ends the client's connection and opens one of its own, and its address
    /// towards the client; `None` for one connection from end to end.
    pub proxy: Option<(&'a Namespace, Ipv4Addr)>,
    /// The host that fetches.
    pub client: &'a Namespace,
}

impl<'a> TcpRoute<'a> {
    /// Returns the route of one connection from end to end.
    pub fn direct(server: &'a Namespace, address: Ipv4Addr, client: &'a Namespace) -> TcpRoute<'a> {
        TcpRoute {
            server: (server, address),
            proxy: None,
            client,
        }
    }
}

impl TcpBaseline {
    /// Serves `file` at one end of `route` and fetches it from the other.
    pub fn fetch(
        &self,
        route: TcpRoute<'_>,
        file: &Path,
        observer: &mut dyn TransferObserver,
    ) -> Result<TcpTransfer, LabError> {
        let (server_host, address) = route.server;
        let proxy_host = route.proxy.map(|(host, _)| host);
        let ends = |end| [Some(end), proxy_host].into_iter().flatten();
        let senders: Vec<&Namespace> = ends(server_host).collect();
        let receivers: Vec<&Namespace> = ends(route.client).collect();
        self.buffers
            .prepare(self.receive_buffer, &senders, &receivers)?;
        if let Some(rto_max) = self.rto_max {
            let millis = rto_max.as_millis().to_string();
            for sender in &senders {
                sender.set_sysctl("net.ipv4.tcp_rto_max_ms", &millis)?;
            }
        }
        let is_multipath = !self.subflows.is_empty();
        if is_multipath {
            multipath::prepare(server_host, route.client, &self.subflows)?;
        }
        let before = is_multipath
            .then(|| Counters::of(route.client))
            .transpose()?;
        let server = HttpServer::start(
            server_host,
            SocketAddrV4::new(address, 0),
            file,
            self.congestion,
            is_multipath,
        )?;
        let proxy = route.proxy.map(|(host, address)| {
            let at = SocketAddrV4::new(address, 0);
            TcpProxy::start(host, at, server.address(), self.congestion)
        });
        let proxy = proxy.transpose()?;
        let deadline = Instant::now() + self.patience;
        let client = if is_multipath {
            HttpClient::Multipath
        } else {
            self.client
        };
        let fetched = client.fetch(
            route.client,
            proxy
                .as_ref()
                .map_or_else(|| server.address(), TcpProxy::address),
            server.length(),
            deadline,
            observer,
        )?;
        if let Some(before) = before {
            let fault = Counters::of(route.client)?.fault_since(&before, self.subflows.len());
            if let Some(reason) = fault {
                let transfer = file.display().to_string();
                return Err(LabError::TransferFailed { transfer, reason });
            }
        }
        let proxied = proxy.map(TcpProxy::stop).unwrap_or_default();
        let mut record = fetched.record;
        if proxy_host.is_none() {
            record.sender = since(record.started_unix_ms, &server.samples());
        }
        let sender = server.stop();
        // The counters of a connection over several paths are those of its first one only.
        if !is_multipath {
            record.retransmitted_segments =
                Some(sender.retransmitted_segments + proxied.retransmitted_segments);
            record.retransmitted_bytes =
                Some(sender.retransmitted_bytes + proxied.retransmitted_bytes);
        }
        Ok(TcpTransfer {
            record,
            blake3: fetched.blake3,
            client: fetched.client,
            sender,
        })
    }
}

/// Returns the samples with their times counted from the request.
fn since(started_unix_ms: u64, samples: &[KernelSample]) -> Vec<SenderSample> {
    let samples = samples.iter().map(|sample| SenderSample {
        at: sample.unix_ms.saturating_sub(started_unix_ms) as f64 / 1e3,
        window: f64::from(sample.window),
        timeout: f64::from(sample.timeout_micros) / 1e6,
        retransmitted: u64::from(sample.retransmitted),
    });
    samples.collect()
}
