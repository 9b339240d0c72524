//! The proxy in its loop.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::process::Command;

use ipnet::IpNet;
use whimbrel_core::{Endpoint, OpenRefusal, SeededRng, Time};
use whimbrel_io::{Clock, EventLoop, IoError, LoopHandle};
use whimbrel_tcp_proxy::{Gateway, GatewayEvent, HoldsProxy, OptionsError, Proxy, ProxyEvent};

use super::config::{DevicePlan, Plan};
use crate::metrics::{self, Source};
use crate::ndn::client::{self, Uplink, UplinkError};
use crate::ndn::open::opened_limits;
use crate::ndn::program::ProgramFace;
use crate::run::{StartError, random_number};

pub(crate) type ProxyGateway = Gateway<ProgramFace<Proxy>>;
pub(crate) type ProxyEventLoop = EventLoop<ProxyGateway>;

impl HoldsProxy for ProgramFace<Proxy> {
    fn proxy(&self) -> &Proxy {
        self.application()
    }

    fn proxy_mut(&mut self) -> &mut Proxy {
        self.application_mut()
    }
}

/// What the program around a proxy is told.
pub type Told = GatewayEvent<client::Told<ProxyEvent>>;

/// Why a proxy does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The forwarder's address is wrong.
    #[error(transparent)]
    Uplink(#[from] UplinkError),
    /// The options are wrong.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// No random numbers.
    #[error(transparent)]
    System(#[from] StartError),
    /// The loop does not run.
    #[error(transparent)]
    Loop(#[from] IoError),
    /// The device cannot be created.
    #[error("{0}")]
    Device(OpenRefusal),
    /// The forwarder cannot be reached at the start.
    #[error(transparent)]
    Forwarder(client::ClientError),
    /// An address or route cannot be added.
    #[error("`ip {command}` failed: {reason}")]
    Ip {
        /// The arguments.
        command: String,
        /// What it said.
        reason: String,
    },
    /// The rules cannot be installed.
    #[error("`nft` refuses the rules: {0}; --nft=print shows them")]
    Nft(String),
    /// `nft` cannot be run.
    #[error("`nft`, of nftables, cannot be run: {0}; without --nft, routes lead to the proxy")]
    NoNft(io::Error),
    /// `ip` cannot be run.
    #[error("`ip`, of iproute2, cannot be run: {0}; without routes: --no-routes")]
    NoIp(io::Error),
}

/// A proxy that is ready to run.
pub struct ProxyLoop {
    event_loop: ProxyEventLoop,
    uplink: Uplink,
    device: DevicePlan,
    metrics: Option<SocketAddr>,
}

/// Another thread's way to the proxy while it runs.
#[derive(Clone)]
pub struct Inquirer(LoopHandle<ProxyGateway>);

impl Inquirer {
    /// Runs `question` with the proxy; not at all if it has ended.
    pub fn ask(&self, question: impl FnOnce(&Proxy, Time) + Send + 'static) {
        let _ = self
            .0
            .post(move |gateway, now| question(gateway.proxy(), now));
    }

    /// Ends the proxy, as Ctrl-C does.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl ProxyLoop {
    /// Prepares a proxy of `plan`.
    pub fn new(plan: Plan, clock: Clock) -> Result<ProxyLoop, RunError> {
        let uplink = Uplink::find(plan.transport.as_deref())?;
        let proxy = Proxy::new(plan.options, SeededRng::new(random_number()?))?;
        let face = match &uplink {
            Uplink::Udp(_) => {
                let rng = SeededRng::new(random_number()?);
                ProgramFace::on_datagrams(uplink.endpoint(), proxy, rng)
            }
            _ => ProgramFace::on_stream(uplink.endpoint(), proxy),
        };
        // The kernel's interface takes IPv4 addresses only; `ip` adds the others.
        let addresses = plan
            .device
            .addresses
            .iter()
            .filter(|it| it.addr().is_ipv4());
        let device = Endpoint::Tun {
            name: plan.device.name.clone(),
            addresses: addresses.map(|it| (it.addr(), it.prefix_len())).collect(),
            mtu: plan.device.mtu,
        };
        let mut event_loop = EventLoop::new(clock, Gateway::new(device, face))?;
        event_loop.sockets().set_opened_limits(opened_limits());
        event_loop.follow_wall_clock(|gateway: &mut ProxyGateway, _, wall| {
            use whimbrel_transport::Application;
            gateway.face_mut().proxy_mut().handle_wall_clock(wall);
        });
        let metrics = match plan.metrics {
            Some(address) => {
                let source = Source::tcp_proxy(event_loop.handle());
                Some(metrics::serve(address, vec![source])?)
            }
            None => None,
        };
        Ok(ProxyLoop {
            event_loop,
            uplink,
            device: plan.device,
            metrics,
        })
    }

    /// Returns the address at which `GET /metrics` is answered.
    pub const fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Returns its forwarder.
    pub const fn uplink(&self) -> &Uplink {
        &self.uplink
    }

    /// For other threads.
    pub fn inquirer(&self) -> Inquirer {
        Inquirer(self.event_loop.handle())
    }

    /// Runs until `on_event` breaks, or until Ctrl-C or SIGTERM. The device and its routes go with
    /// it.
    pub fn run<T>(
        &mut self,
        mut on_event: impl FnMut(&Proxy, Time, Told) -> ControlFlow<T>,
    ) -> Result<Option<T>, RunError> {
        self.event_loop.stop_on_signals()?;
        let handle = self.event_loop.handle();
        let (device, uplink) = (self.device.clone(), self.uplink.clone());
        let mut connected = false;
        let mut end = None;
        let redirect = device.redirect.clone();
        let ran = self.event_loop.run(|gateway, now, told| {
            if end.is_some() {
                return;
            }
            let fault = match &told {
                GatewayEvent::DeviceUp => configure(&device).err(),
                GatewayEvent::DeviceRefused(refusal) => Some(RunError::Device(refusal.clone())),
                GatewayEvent::Face(client::Told::Connected) => {
                    connected = true;
                    None
                }
                // Once it was there, it may be away for a while.
                GatewayEvent::Face(client::Told::Unreachable(refusal)) if !connected => {
                    let error = client::failed(&uplink, refusal.clone());
                    Some(RunError::Forwarder(error))
                }
                _ => None,
            };
            let ended = match fault {
                Some(fault) => Some(Err(fault)),
                None => match on_event(gateway.proxy(), now, told) {
                    ControlFlow::Break(value) => Some(Ok(value)),
                    ControlFlow::Continue(()) => None,
                },
            };
            if ended.is_some() {
                end = ended;
                handle.stop();
            }
        });
        if let Some(redirect) = redirect {
            redirect.remove();
        }
        ran?;
        end.transpose()
    }
}

/// Gives the device its IPv6 addresses and its routes.
fn configure(device: &DevicePlan) -> Result<(), RunError> {
    let name = device.name.as_str();
    for address in device.addresses.iter().filter(|it| it.addr().is_ipv6()) {
        let address = address.to_string();
        ip(&["-6", "address", "add", &address, "dev", name, "nodad"])?;
    }
    for route in &device.routes {
        let family = match route {
            IpNet::V4(_) => "-4",
            IpNet::V6(_) => "-6",
        };
        ip(&[
            family,
            "route",
            "replace",
            &route.trunc().to_string(),
            "dev",
            name,
        ])?;
    }
    match &device.redirect {
        Some(redirect) => redirect.install(),
        None => Ok(()),
    }
}

pub(super) fn ip(arguments: &[&str]) -> Result<(), RunError> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(RunError::NoIp)?;
    if output.status.success() {
        return Ok(());
    }
    Err(RunError::Ip {
        command: arguments.join(" "),
        reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
