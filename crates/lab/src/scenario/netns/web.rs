//! Loads of pages from a model: their server on one node, a browser emulator on others; over MobilityFirst with
//! `whimbrel http-proxy` at both ends, as in [MFTP §5.3].

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::daemons::Daemons;
use super::files::{Files, Receiver};
use crate::baseline::FIXED_BUFFER;
use crate::browser::chromium_by_http;
use crate::scenario::load::{Load, Plane, WebPages};
use crate::scenario::run::Schedule;
use crate::web::{
    PROXY_PORT, PageRoute, WEB_PORT, WebEmulator, WebServer, WebServerPlan, document_path,
};
use crate::{LabError, Namespace, TransferRecord};

/// Returns the certificate of a load's server.
fn certificate(folder: &Path, load: &Load) -> PathBuf {
    folder.join(format!("web-{}.der", load.name))
}

/// Returns an address of the host itself.
fn here(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

impl Daemons<'_> {
    /// Starts the web server of a load and, over MobilityFirst, the proxies.
    pub(super) fn serve_pages(&mut self, load: &Load, web: &WebPages) -> Result<(), LabError> {
        let host = |node: usize| self.topology.host(self.name(node));
        let server = host(load.from)?;
        let plan = WebServerPlan {
            http: web.http,
            congestion: load.congestion,
            certificate: certificate(self.folder, load),
        };
        if load.plane == Plane::Tcp {
            let clients: Vec<&Namespace> = load
                .to
                .iter()
                .map(|node| host(*node))
                .collect::<Result<_, _>>()?;
            let buffer = load.receive_buffer.unwrap_or(FIXED_BUFFER);
            load.buffers.prepare(buffer, &[server], &clients)?;
        }
        let server = WebServer::start(server, &plan)?;
        self.web_servers.push(server);
        if load.plane != Plane::MobilityFirst {
            return Ok(());
        }
        let told = |key: &'static str| {
            move |line: &str| {
                let line: Value = serde_json::from_str(line).ok()?;
                let is_ready = line["event"] == "listening";
                is_ready.then(|| line[key].as_str().unwrap_or_default().to_owned())
            }
        };
        let mut command = self.command(&["http-proxy", "server", "--json", "--from", "anyone"]);
        command.args(["--only", "--allow", "127.0.0.1", "--socket"]);
        command.arg(self.socket(load.from));
        let name = self.serving(load.from, command, told("name"))?;
        for node in &load.to {
            let mut command = self.command(&["http-proxy", "client", "--json", "--to", &name]);
            command.args(["--listen", &here(PROXY_PORT).to_string(), "--socket"]);
            command.arg(self.socket(*node));
            self.serving(*node, command, told("proxy"))?;
        }
        Ok(())
    }
}

impl Receiver<'_> {
    /// Loads the pages, one after the other, in one emulator.
    pub(super) fn load_pages(
        &self,
        schedule: &Schedule,
        web: &WebPages,
    ) -> Result<Files, LabError> {
        let network = &self.plan.network;
        let [server, client] =
            [self.load.from, self.node].map(|node| network.nodes[node].name.as_str());
        let address = self.topology.address_towards(server, client)?;
        let is_proxied = self.load.plane == Plane::MobilityFirst;
        let route = PageRoute {
            http: web.http,
            server: match is_proxied {
                true => here(WEB_PORT),
                false => SocketAddr::from((address, WEB_PORT)),
            },
            proxy: is_proxied.then(|| here(PROXY_PORT)),
            connections: usize::from(web.connections),
            certificate: certificate(self.folder, self.load),
        };
        let first = schedule.at.first().copied().unwrap_or_default();
        let start = self.origin + self.load.start;
        let end = self.origin + self.plan.limit;
        if !self.wait_until(start + Duration::from_secs_f64(first)) {
            return Ok(Files::new());
        }
        let each = |load: &mut dyn FnMut(usize, Duration) -> Result<TransferRecord, LabError>| {
            let mut files = Files::new();
            for number in 0..usize::from(web.pages) {
                let asked = Instant::now();
                let left = end.saturating_duration_since(asked);
                if left.is_zero() {
                    break;
                }
                let record = load(number, left)?;
                files.push((asked.saturating_duration_since(start).as_secs_f64(), record));
            }
            Ok(files)
        };
        if web.chromium {
            return each(&mut |number, patience| {
                self.load_by_chromium(&route, web, number, patience)
            });
        }
        self.topology.host(client)?.enter(|| {
            let mut emulator = WebEmulator::new(route)?;
            each(&mut |number, patience| emulator.load(number, &web.page(number), patience))
        })?
    }

    /// Loads a page in a new Chromium, whose own start is not part of the time.
    fn load_by_chromium(
        &self,
        route: &PageRoute,
        web: &WebPages,
        number: usize,
        patience: Duration,
    ) -> Result<TransferRecord, LabError> {
        let page = web.page(number);
        let url = format!("http://{}{}", route.server, document_path(web.set, number));
        let profile = self
            .folder
            .join(format!("browser-{}-{number}", self.load.name));
        let command = chromium_by_http(&url, &profile, route.proxy);
        let record = self.browse(command, patience, page.octets(), |loaded| {
            loaded.objects as usize == page.objects.len() - 1
        });
        // It has megabytes.
        let _ = std::fs::remove_dir_all(&profile);
        record
    }
}
