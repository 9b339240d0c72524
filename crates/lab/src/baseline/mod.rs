//! The rival: a file fetched over HTTP by the kernel's own TCP.
//!
//! [MFTP §5]: "default version of TCP [...], TCP Cubic" at both
//! ends, a receive buffer of 2 MB, and (section 5.2) "one HTTP GET request to retrieve one file".

mod client;
mod copy;
mod proxy;
mod server;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use client::HttpClient;
pub use copy::{BLOCK, receive, send_file};
pub use server::{HttpServer, KernelSample, SenderStats};

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

/// The settings of a fetch over the kernel's TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpBaseline {
    /// The congestion control of the sender. Default cubic.
    pub congestion: CongestionControl,
    /// The sender's largest retransmission timeout, from 1 s to 2 min; `None` for the kernel's
    /// default of 2 min. After an outage, TCP waits for up to as long again.
    pub rto_max: Option<Duration>,
    /// The client's receive buffer in bytes, fixed (no autotuning); the kernel offers a part of it
    /// as window. Default 2 MB, as in [MFTP §5].
    pub receive_buffer: u32,
    /// The client. Default: curl if it is installed.
    pub client: HttpClient,
    /// Time limit of the transfer. Default 10 minutes.
    pub patience: Duration,
}

impl Default for TcpBaseline {
    fn default() -> TcpBaseline {
        TcpBaseline {
            congestion: CongestionControl::Cubic,
            rto_max: None,
            receive_buffer: 2_000_000,
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
        for receiver in [Some(route.client), proxy_host].into_iter().flatten() {
            let buffer = self.receive_buffer;
            receiver.set_sysctl("net.ipv4.tcp_rmem", &format!("4096 {buffer} {buffer}"))?;
        }
        for sender in [Some(server_host), proxy_host].into_iter().flatten() {
            // The sender must be able to keep the receiver's whole window in flight, and as much
            // again unsent.
            let send_buffer = u64::from(self.receive_buffer)
                .saturating_mul(2)
                .max(4_194_304);
            sender.set_sysctl("net.ipv4.tcp_wmem", &format!("4096 65536 {send_buffer}"))?;
            if let Some(rto_max) = self.rto_max {
                let millis = rto_max.as_millis().to_string();
                sender.set_sysctl("net.ipv4.tcp_rto_max_ms", &millis)?;
            }
        }
        let server = HttpServer::start(
            server_host,
            SocketAddrV4::new(address, 0),
            file,
            self.congestion,
        )?;
        let proxy = route.proxy.map(|(host, address)| {
            let at = SocketAddrV4::new(address, 0);
            TcpProxy::start(host, at, server.address(), self.congestion)
        });
        let proxy = proxy.transpose()?;
        let deadline = Instant::now() + self.patience;
        let fetched = self.client.fetch(
            route.client,
            proxy
                .as_ref()
                .map_or_else(|| server.address(), TcpProxy::address),
            server.length(),
            deadline,
            observer,
        )?;
        let proxied = proxy.map(TcpProxy::stop).unwrap_or_default();
        let mut record = fetched.record;
        if proxy_host.is_none() {
            record.sender = since(record.started_unix_ms, &server.samples());
        }
        let sender = server.stop();
        record.retransmitted_segments =
            Some(sender.retransmitted_segments + proxied.retransmitted_segments);
        record.retransmitted_bytes = Some(sender.retransmitted_bytes + proxied.retransmitted_bytes);
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
