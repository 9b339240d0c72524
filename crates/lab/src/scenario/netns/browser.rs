//! Loads of a page in a real browser: its server on one node, Chromium on another.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::daemons::Daemons;
use super::files::Receiver;
use crate::browser::{Loaded, chromium};
use crate::scenario::load::{Browser, Kind, Load};
use crate::{LabError, Supervisor, TransferMeter, TransferRecord};

impl Daemons<'_> {
    /// Starts the web server of a load.
    pub(super) fn serve_site(&mut self, load: &Load, browser: &Browser) -> Result<(), LabError> {
        let folder = self.folder.join(format!("site-{}", load.name));
        std::fs::create_dir_all(&folder)
            .map_err(LabError::system(format!("make {}", folder.display())))?;
        let server = browser.site().prepare(&folder)?;
        let command = server.command(Path::new("node"));
        let is_ready = |line: &str| line.contains("ready").then(String::new);
        self.serving(load.from, command, is_ready).map(drop)
    }
}

impl Receiver<'_> {
    /// Loads the page in a new browser, which knows nothing and is connected to nothing. Its own start is
    /// not part of the time.
    pub(super) fn by_browser(
        &self,
        browser: &Browser,
        patience: Duration,
    ) -> Result<TransferRecord, LabError> {
        let network = &self.plan.network;
        let [server, client] =
            [self.load.from, self.node].map(|node| network.nodes[node].name.as_str());
        let address = self.topology.address_towards(server, client)?;
        let profile = self
            .folder
            .join(format!("browser-{}-{client}", self.load.name));
        let site = browser.site();
        self.browse(
            chromium(address, &profile, browser.http),
            patience,
            u64::from(site.total()) * u64::from(site.size),
            |loaded| {
                (loaded.objects, loaded.protocol.as_str())
                    == (site.total(), browser.http.protocol())
            },
        )
    }

    /// Loads a page of this many octets with this command of a browser. `whole` tells whether all of it is there.
    pub(super) fn browse(
        &self,
        command: Command,
        patience: Duration,
        octets: u64,
        whole: impl Fn(&Loaded) -> bool,
    ) -> Result<TransferRecord, LabError> {
        let client = self.plan.network.nodes[self.node].name.as_str();
        let supervisor = Supervisor::new(self.folder).on(self.topology.host(client)?);
        let name = format!("browser of {} on {client}", self.load.name);
        let started = Instant::now();
        let mut program = supervisor.speaker(&name, command)?;
        let lines = program.lines_until(started + patience);
        let page = lines.map(|line| line.text).collect::<Vec<_>>().join("\n");
        let meter = TransferMeter::new(started);
        if page.is_empty() && started.elapsed() >= patience {
            program.process().kill()?;
            return Ok(meter.finish(started + patience, false));
        }
        let loaded = Loaded::parse(&page).filter(whole);
        let loaded = loaded.ok_or_else(|| {
            let title = page.split("</title>").next().unwrap_or_default();
            program.fault(&format!("did not load the whole page: {title:.200}"))
        })?;
        let mut meter = meter;
        let end = started + loaded.time;
        meter.arrived(end, octets);
        Ok(meter.finish(end, true))
    }

    /// Returns the page of a load that is one.
    pub(super) fn browser(&self) -> Option<&Browser> {
        match &self.load.kind {
            Kind::Browser(browser) => Some(browser),
            _ => None,
        }
    }
}
