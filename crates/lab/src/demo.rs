//! The demonstration: one file, one bad path, kernel TCP with each of its congestion controls beside
//! Whimbrel; or two links at once, with the kernel's Multipath TCP beside Whimbrel.
//!
//! Copies of the topology of [MFTP §5], Fig. 7, or of [MF-5G §V], run at the same time, with the
//! same link model, the same seed and the same outage counted from each request, so that no transfer
//! disturbs another.

mod picture;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use whimbrel_core::SeededRng;
use whimbrel_core::units;

use crate::scenario::{Overrides, Scenario, netns};
use crate::study::Backend;
use crate::{CongestionControl, LabError, LinkReport, TransferRecord};

pub use picture::Branch;

/// The network and both sides; the path is the options'.
const ONE_LINK: &str = include_str!("demo/one-link.toml");
const TWO_LINKS: &str = include_str!("demo/two-links.toml");
/// Interval of the samples of the links' counters.
const LOOK: Duration = Duration::from_millis(500);

/// The demonstrated path and file.
#[derive(Clone, Debug, Serialize)]
pub struct DemoOptions {
    /// The file; by default one is made.
    pub file: Option<PathBuf>,
    /// Last links of the client, one or two.
    pub links: usize,
    /// Round-trip time added before the last router.
    pub rtt: Duration,
    /// Probability of losing a packet on the last hop, each way.
    pub loss: f64,
    /// Length of the outage of the last hop, or of the first of two; zero for no outage.
    pub outage: Duration,
    /// Start of the outage, counted from the request.
    pub outage_after: Duration,
    /// Rate of each last link in bits per second.
    pub rate: u64,
    /// Seed of everything random in the link model.
    pub seed: u64,
    /// Congestion controls of the kernel's TCP, which has a copy of the path for each.
    pub congestions: Vec<CongestionControl>,
    /// Time limit of a transfer: TCP alone would often take minutes.
    pub patience: Duration,
}

impl Default for DemoOptions {
    fn default() -> DemoOptions {
        DemoOptions {
            file: None,
            links: 1,
            rtt: Duration::from_millis(50),
            loss: 0.01,
            outage: Duration::from_secs(10),
            outage_after: Duration::from_secs(5),
            rate: 25_000_000,
            seed: 1,
            congestions: vec![CongestionControl::Cubic, CongestionControl::Bbr],
            patience: Duration::from_secs(60),
        }
    }
}

impl DemoOptions {
    /// Returns the length of the file that is made if none is given, in bytes: with two links, so
    /// long that the first one is back before the end.
    pub fn made_len(&self) -> u64 {
        if self.links == 1 {
            40_000_000
        } else {
            80_000_000
        }
    }

    /// Returns the name of a side.
    pub fn name_of(&self, side: Side) -> String {
        let protocol = if self.links == 1 { "TCP" } else { "MPTCP" };
        match side {
            Side::Whimbrel => String::from("Whimbrel"),
            Side::Tcp(congestion) => format!("kernel {protocol} ({})", congestion.name()),
        }
    }

    /// Returns the names of the last links in the scenario, the one with the outage first.
    fn last_links(&self) -> &'static [&'static str] {
        if self.links == 1 {
            &["N3-N4"]
        } else {
            &["wifi", "lte"]
        }
    }
}

/// One side of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The kernel's TCP, or Multipath TCP, with this congestion control.
    Tcp(CongestionControl),
    /// Whimbrel.
    Whimbrel,
}

/// The results of one side.
#[derive(Clone, Debug, Serialize)]
pub struct DemoRun {
    /// The side.
    pub side: Side,
    /// The transfer.
    pub record: TransferRecord,
    /// The counters of each link.
    pub links: Vec<LinkReport>,
    /// What each last link had brought, over the time.
    pub branches: Vec<Branch>,
    /// True if the received file equals the sent one, byte for byte.
    pub intact: bool,
}

/// All sides.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    /// The options.
    pub options: DemoOptions,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Kernel TCP, in the order of [`DemoOptions::congestions`].
    pub tcp: Vec<DemoRun>,
    /// Whimbrel.
    pub whimbrel: DemoRun,
}

impl DemoReport {
    /// Returns a run's time over Whimbrel's; a lower bound if the run was cut off, `None` if Whimbrel
    /// was.
    pub fn speedup(&self, run: &DemoRun) -> Option<f64> {
        let own = &self.whimbrel.record;
        own.completed.then(|| run.record.finished / own.finished)
    }

    /// Returns all runs, Whimbrel's first.
    pub fn runs(&self) -> impl Iterator<Item = &DemoRun> {
        core::iter::once(&self.whimbrel).chain(&self.tcp)
    }

    /// Draws what arrives over the last links as SVG and PNG.
    pub fn draw(&self, stem: &Path) -> Result<(), LabError> {
        picture::draw(self, stem)
    }
}

/// Receives the progress of all sides, each from a thread of its own.
pub trait DemoObserver: Send + Sync {
    /// `bytes` of `len` have arrived on this side.
    fn progress(&self, side: Side, bytes: u64, len: u64);
    /// A step of the preparation begins.
    fn preparing(&self, what: &str);
}

/// Runs the demonstration. `program` is the whimbrel binary, `folder` holds keys, sockets, logs and
/// received files.
pub fn run(
    options: &DemoOptions,
    program: &Path,
    folder: &Path,
    observer: &dyn DemoObserver,
) -> Result<DemoReport, LabError> {
    observer.preparing("making the file");
    let file = match &options.file {
        Some(file) => file.clone(),
        None => {
            let file = folder.join("demo.bin");
            make_file(&file, options.made_len(), options.seed)?;
            file
        }
    };
    let described = format!("read {}", file.display());
    let file_len = std::fs::metadata(&file)
        .map_err(LabError::system(described))?
        .len();
    observer.preparing("building a network for each side");
    let scenario = scenario(options, file_len)?;
    let plan = |side: Side| {
        let mut settings = scenario.settings.iter();
        let setting = settings.find(|setting| setting.value("by") == Some(key_of(side)));
        setting.map(|setting| &setting.plan)
    };
    let side = |side| -> Result<DemoRun, LabError> {
        let Some(plan) = plan(side) else {
            unreachable!("the scenario's text has all sides");
        };
        let branches = options.last_links().iter().map(|link| Branch {
            link: String::from(*link),
            samples: vec![(0.0, 0)],
        });
        let watch = Watch {
            side,
            file: &file,
            len: file_len,
            observer,
            branches: Mutex::new(branches.collect()),
        };
        let observed = netns::observe(plan, options.seed, program, &watch)?;
        let fetched = observed.run.transfers.first().ok_or_else(|| {
            LabError::daemon("get", "fetched nothing within its time limit", folder)
        })?;
        let mut record = fetched.record.clone();
        if side == Side::Whimbrel {
            record.retransmitted_segments = observed.run.resent(plan, &plan.loads[0]);
        }
        let is_path = |link: &LinkReport| !link.link.contains("GNRS");
        Ok(DemoRun {
            side,
            // A file that arrives with other bytes is an error of the run.
            intact: record.completed,
            record,
            links: observed.links.into_iter().filter(is_path).collect(),
            branches: watch
                .branches
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
        })
    };
    let (tcp, whimbrel) = std::thread::scope(|scope| {
        let rivals = options.congestions.iter();
        let side = &side;
        let tcp = rivals.map(|congestion| scope.spawn(move || side(Side::Tcp(*congestion))));
        let tcp: Vec<_> = tcp.collect();
        let whimbrel = side(Side::Whimbrel);
        let ended = tcp.into_iter().map(|thread| thread.join());
        (ended.collect::<Vec<_>>(), whimbrel)
    });
    let panicked = |_| LabError::daemon("the TCP transfer", "panicked", folder);
    let tcp = tcp.into_iter().map(|it| it.map_err(panicked)?);
    Ok(DemoReport {
        options: options.clone(),
        file_len,
        tcp: tcp.collect::<Result<_, _>>()?,
        whimbrel: whimbrel?,
    })
}

/// Returns the name of a side in the scenario.
fn key_of(side: Side) -> &'static str {
    match side {
        Side::Whimbrel => "whimbrel",
        Side::Tcp(congestion) => congestion.name(),
    }
}

/// Returns the scenario with the options' path.
fn scenario(options: &DemoOptions, file_len: u64) -> Result<Scenario, LabError> {
    let duration = units::format_duration;
    let (network, wire) = match options.links {
        1 => (ONE_LINK, "N2-N3"),
        _ => (TWO_LINKS, "wire"),
    };
    let mut text = format!(
        "{network}\n[netns]\n\
         limit = \"{}\"\n\
         \"loads.film.file\" = \"{file_len} B\"\n\
         \"links.{wire}.delay\" = \"{}\"\n",
        duration(options.patience),
        duration(options.rtt / 2),
    );
    for link in options.last_links() {
        text += &format!(
            "\"links.{link}.rate\" = \"{}\"\n\"links.{link}.loss\" = \"{} %\"\n",
            units::format_rate(options.rate),
            options.loss * 100.0,
        );
    }
    if !options.outage.is_zero() {
        text += &format!(
            "\"links.{}.outages\" = [{{ start = \"{}\", duration = \"{}\" }}]\n",
            options.last_links()[0],
            duration(options.outage_after),
            duration(options.outage)
        );
    }
    let overrides = Overrides {
        seed: Some(options.seed),
        backend: Some(Backend::Netns),
        ..Overrides::default()
    };
    Ok(Scenario::parse(Path::new("demo.toml"), &text, overrides)?)
}

/// Reports progress to the observer.
struct Watch<'a> {
    side: Side,
    file: &'a Path,
    len: u64,
    observer: &'a dyn DemoObserver,
    branches: Mutex<Vec<Branch>>,
}

impl netns::observe::Observer for Watch<'_> {
    fn file(&self, _load: usize) -> Option<&Path> {
        Some(self.file)
    }

    fn links_every(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn links(&self, elapsed: Duration, links: &[LinkReport]) {
        let mut branches = self.branches.lock().unwrap_or_else(PoisonError::into_inner);
        for branch in branches.iter_mut() {
            // The client is the second end of each last link.
            let known = links.iter().find(|link| link.link == branch.link);
            let bytes = known.map_or(0, |link| link.forward.delivered_bytes);
            branch.samples.push((elapsed.as_secs_f64(), bytes));
        }
    }

    fn progress(&self, _load: usize, bytes: u64) {
        self.observer.progress(self.side, bytes, self.len);
    }
}

/// Writes a file of `len` random bytes (rounded down to a multiple of 8).
pub fn make_file(path: &Path, len: u64, seed: u64) -> Result<(), LabError> {
    let failed = |source| LabError::System {
        action: format!("write {}", path.display()),
        source,
    };
    let mut rng = SeededRng::stream(seed, "demo file");
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    for _ in 0..len / 8 {
        file.write_all(&rng.next_word().to_le_bytes())
            .map_err(failed)?;
    }
    let rest = (len % 8) as usize;
    file.write_all(&rng.next_word().to_le_bytes()[..rest])
        .map_err(failed)?;
    file.flush().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_sim::link::{Loss, Outage, Rate};

    #[test]
    fn both_sides_have_the_path_that_is_asked_for() {
        let options = DemoOptions {
            rtt: Duration::from_millis(80),
            loss: 0.02,
            rate: 10_000_000,
            ..DemoOptions::default()
        };
        let read = scenario(&options, 1234).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(read.settings.len(), 4);
        for setting in &read.settings {
            let (network, load) = (&setting.plan.network, &setting.plan.loads[0]);
            let link = |name: &str| &network.links[network.link(name).unwrap()];
            let (core, last) = (link("N2-N3"), link("N3-N4"));
            assert_eq!(core.forward.delay, Duration::from_millis(40));
            assert_eq!(last.forward.rate, Rate::Fixed(10_000_000));
            assert_eq!(last.backward.loss, Loss::Independent(0.02));
            let outage = Outage::Once {
                start: options.outage_after,
                duration: options.outage,
            };
            assert_eq!(last.forward.outages, [outage]);
            assert_eq!(load.kind, crate::scenario::load::Kind::File(1234));
            assert_eq!(setting.plan.limit, options.patience);
        }
        for congestion in [CongestionControl::Bbr, CongestionControl::Cubic] {
            let key = key_of(Side::Tcp(congestion));
            let mut settings = read.settings.iter();
            let setting = settings.find(|it| it.value("by") == Some(key)).unwrap();
            assert_eq!(setting.plan.loads[0].congestion, congestion);
        }
    }

    #[test]
    fn of_two_links_the_first_goes_out_and_the_other_side_is_multipath_tcp() {
        let options = DemoOptions {
            links: 2,
            loss: 0.0,
            rate: 10_000_000,
            ..DemoOptions::default()
        };
        let read = scenario(&options, 1234).unwrap_or_else(|faults| panic!("{faults}"));
        let [whimbrel, tcp] = [0, 1].map(|index| &read.settings[index].plan);
        for plan in [whimbrel, tcp] {
            let links = options.last_links().iter();
            let links: Vec<_> = links
                .map(|name| &plan.network.links[plan.network.link(name).unwrap()])
                .collect();
            for link in &links {
                assert_eq!(link.forward.rate, Rate::Fixed(10_000_000));
                assert_eq!(plan.network.nodes[link.ends.1].name, "client");
            }
            assert_eq!(links[0].forward.outages.len(), 1);
            assert!(links[1].forward.outages.is_empty());
        }
        assert!(tcp.loads[0].mptcp && !whimbrel.loads[0].mptcp);
        let name = options.name_of(Side::Tcp(CongestionControl::Cubic));
        assert_eq!(name, "kernel MPTCP (cubic)");
    }

    #[test]
    fn a_path_without_an_outage_has_none() {
        let options = DemoOptions {
            outage: Duration::ZERO,
            ..DemoOptions::default()
        };
        let read = scenario(&options, 1).unwrap();
        let links = &read.settings[0].plan.network.links;
        assert!(links.iter().all(|link| link.forward.outages.is_empty()));
    }
}
