//! Files on the nodes of a plan: made, served, fetched by the commands that users run, and
//! compared.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::daemons::{Daemons, socket_of};
use super::get::watch_get;
use super::groups::GroupFiles;
use super::observe::{Fetch, Observer};
use crate::scenario::Plan;
use crate::scenario::load::{Kind, Load, Pipeline, Plane};
use crate::scenario::run::{Exchanges, Pinged, Run, Schedule};
use crate::{LabError, Subflow, Supervisor, TcpBaseline, TcpRoute, Topology, TransferRecord};
use whimbrel_mobilityfirst::local::{Delivery, Service, Storage};

/// Seconds from a load's start to a request, and the record of its transfer.
pub(super) type Files = Vec<(f64, TransferRecord)>;

/// The results of one receiver of a load.
pub(super) enum Received {
    Files(Files),
    /// Those of all receivers of a group.
    Group(GroupFiles),
    Exchanges(Exchanges),
    Pings(Pinged),
}

/// A file that is served.
#[derive(Clone, Debug)]
pub struct Served {
    /// A content's name, or one of NDN; empty over TCP.
    pub name: String,
    /// The file.
    pub path: PathBuf,
}

/// One receiver of one load; of a group, one for all.
pub(super) struct Receiver<'a> {
    pub(super) plan: &'a Plan,
    pub(super) observer: &'a dyn Observer,
    /// The index in its load.
    pub(super) index: usize,
    pub(super) load: &'a Load,
    pub(super) node: usize,
    /// `None` for a load of Interests.
    pub(super) schedule: Option<Schedule>,
    /// The seed of everything random.
    pub(super) seed: u64,
    /// Set when all other receivers have ended.
    pub(super) over: &'a AtomicBool,
    /// The served files by number; a load without end repeats them.
    pub(super) served: &'a [Served],
    pub(super) origin: Instant,
    pub(super) program: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) topology: &'a Topology,
}

impl Receiver<'_> {
    /// Returns true if the run does not wait for it.
    pub(super) fn is_endless(&self) -> bool {
        self.schedule.as_ref().is_some_and(Schedule::is_endless)
    }

    /// Makes the load's requests.
    pub(super) fn run(&self) -> Result<Received, LabError> {
        if let Kind::Pings(pings) = &self.load.kind {
            return self.ping(pings).map(Received::Pings);
        }
        if let (Kind::Push(pushes), Some(schedule)) = (&self.load.kind, &self.schedule) {
            if self.load.is_for_group() {
                return self.push_to_group(schedule, pushes).map(Received::Group);
            }
            return self.push_all(schedule, pushes).map(Received::Files);
        }
        if let (Kind::Web(web), Some(schedule)) = (&self.load.kind, &self.schedule) {
            return self.load_pages(schedule, web).map(Received::Files);
        }
        match &self.schedule {
            Some(schedule) => self.fetch_all(schedule).map(Received::Files),
            None => self.request().map(Received::Exchanges),
        }
    }

    /// Adds its results.
    pub(super) fn add(&self, run: &mut Run, received: Received) {
        let network = &self.plan.network;
        let total = self.schedule.as_ref().and_then(Schedule::total);
        match received {
            Received::Files(files) => run.add_files(network, self.load, self.node, files, total),
            Received::Group(each) => {
                for (node, files) in each {
                    run.add_files(network, self.load, node, files, total);
                }
            }
            Received::Exchanges(exchanges) => {
                run.add_exchanges(network, self.load, self.node, &exchanges);
            }
            Received::Pings(pinged) => run.add_pings(network, self.load, self.node, &pinged),
        }
    }

    /// Returns true if the run has ended for a load without end.
    fn is_over(&self) -> bool {
        self.is_endless()
            && (self.over.load(Ordering::Relaxed)
                || Instant::now() >= self.origin + self.plan.limit)
    }

    /// Waits until a moment. Returns false if the run's limit comes first.
    pub(super) fn wait_until(&self, moment: Instant) -> bool {
        let end = self.origin + self.plan.limit;
        std::thread::sleep(moment.min(end).saturating_duration_since(Instant::now()));
        moment < end
    }

    fn fetch_all(&self, schedule: &Schedule) -> Result<Files, LabError> {
        let begun = schedule.at.len();
        // The next of the requests that wait for others.
        let next = AtomicUsize::new(begun);
        let start = self.origin + self.load.start;
        let slot = |number: usize, at: Duration| -> Result<Files, LabError> {
            if !self.wait_until(start + at) {
                return Ok(Files::new());
            }
            let mut files = vec![self.fetch(number, start)?];
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if self.is_over() || schedule.total().is_some_and(|total| number >= total) {
                    return Ok(files);
                }
                files.push(self.fetch(number, start)?);
            }
        };
        let slots = schedule.at.iter().map(|at| Duration::from_secs_f64(*at));
        let fetched = std::thread::scope(|scope| {
            let slot = &slot;
            let slots = slots.enumerate();
            let threads: Vec<_> = slots
                .map(|(number, at)| scope.spawn(move || slot(number, at)))
                .collect();
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(files) => files,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ended.collect::<Result<Vec<Files>, LabError>>()
        })?;
        Ok(fetched.into_iter().flatten().collect())
    }

    fn fetch(&self, number: usize, start: Instant) -> Result<(f64, TransferRecord), LabError> {
        let started = Instant::now();
        let end = self.origin + self.plan.limit;
        let patience = end.saturating_duration_since(started);
        let record = match (self.browser(), self.load.plane) {
            (Some(browser), _) => self.by_browser(browser, patience)?,
            (None, Plane::Tcp) => self.by_tcp(number, patience)?,
            _ => self.by_program(number, started, patience)?,
        };
        let asked = started.saturating_duration_since(start);
        Ok((asked.as_secs_f64(), record))
    }

    fn by_tcp(&self, number: usize, patience: Duration) -> Result<TransferRecord, LabError> {
        let network = &self.plan.network;
        let [server, client] =
            [self.load.from, self.node].map(|node| network.nodes[node].name.as_str());
        let defaults = TcpBaseline::default();
        let baseline = TcpBaseline {
            congestion: self.load.congestion,
            rto_max: self.load.rto_max,
            buffers: self.load.buffers,
            subflows: match self.load.mptcp {
                true => self.subflows()?,
                false => Vec::new(),
            },
            patience,
            receive_buffer: self.load.receive_buffer.unwrap_or(defaults.receive_buffer),
            ..defaults
        };
        let path = &self.served(number).path;
        if self.load.duplex {
            let address = self.topology.address_towards(server, client)?;
            let server = (self.topology.host(server)?, address);
            let client = self.topology.host(client)?;
            let exchanged = baseline.exchange(server, client, path)?;
            let hash = hash_of(path)?.to_hex();
            if exchanged.record.completed && exchanged.blake3.iter().any(|it| it != hash.as_str()) {
                return Err(changed(path));
            }
            return Ok(exchanged.record);
        }
        let towards_client = |node: &str| -> Result<_, LabError> {
            let address = self.topology.address_towards(node, client)?;
            Ok((self.topology.host(node)?, address))
        };
        let proxy = self
            .load
            .split
            .map(|node| network.nodes[node].name.as_str());
        let route = TcpRoute {
            server: towards_client(server)?,
            proxy: proxy.map(towards_client).transpose()?,
            client: self.topology.host(client)?,
        };
        let fetched = baseline.fetch(route, path, &mut self.followed())?;
        if fetched.record.completed && fetched.blake3 != hash_of(path)?.to_hex().as_str() {
            return Err(changed(path));
        }
        Ok(fetched.record)
    }

    /// Returns the receiver's ways to the source, one by each of its links.
    fn subflows(&self) -> Result<Vec<Subflow>, LabError> {
        let network = &self.plan.network;
        let node = |index: usize| network.nodes[index].name.as_str();
        let links = network.at(self.node);
        links
            .map(|(link, peer)| {
                let link = network.links[link].name.as_str();
                Ok(Subflow {
                    interface: self.topology.interface_of(node(self.node), link)?,
                    address: self.topology.address_of(node(self.node), link)?,
                    gateway: self.topology.address_of(node(peer), link)?,
                })
            })
            .collect()
    }

    fn by_program(
        &self,
        number: usize,
        started: Instant,
        patience: Duration,
    ) -> Result<TransferRecord, LabError> {
        let node = &self.plan.network.nodes[self.node].name;
        // Two programs cannot fetch one content into the same folder at a time.
        let own = self.folder.join(format!("arrived-{node}"));
        std::fs::create_dir_all(&own)
            .map_err(LabError::system(format!("make {}", own.display())))?;
        let output = own.join(format!("{}-{number}", self.load.name));
        let Served { name, path } = self.served(number);
        let mut command = get(
            self.program,
            self.folder,
            self.load.plane,
            node,
            name,
            &output,
        );
        if let Some(timer) = self.load.nack_timer {
            command.args(["--nack-timeout", &format!("{} ms", timer.as_millis())]);
        }
        if let Some(chunk) = self.load.chunk {
            command.args(["--chunk-size", &format!("{} B", chunk.bytes())]);
        }
        if let Some(reliability) = self.load.reliability {
            command.args(["--reliability", reliability.name()]);
        }
        let Delivery { storage, service } = self.load.delivery;
        if storage != Storage::Default {
            command.args(["--storage", &storage.words()]);
        }
        if service != Service::Default {
            command.args(["--service", service.name()]);
        }
        if self.load.pipeline != Pipeline::default() {
            command.args(["--pipeline-type", self.load.pipeline.name()]);
        }
        if let Some(several) = &self.load.multipath {
            command.args(several.arguments());
        }
        let supervisor = Supervisor::new(self.folder).on(self.topology.host(node)?);
        let log = format!("get of {}-{number} on {node}", self.load.name);
        let mut program = supervisor.speaker(&log, command)?;
        let record = watch_get(&mut program, started, patience, &mut self.followed())?
            .map_err(|failure| LabError::daemon("get", &failure, self.folder))?;
        if record.completed {
            compare(path, &output)?;
        }
        if self.is_endless() {
            // A load without end would fill the disk.
            let _ = std::fs::remove_file(&output);
        }
        Ok(record)
    }

    fn served(&self, number: usize) -> &Served {
        &self.served[number % self.served.len()]
    }

    fn followed(&self) -> Fetch<'_> {
        Fetch {
            observer: self.observer,
            load: self.index,
            over: self.is_endless().then_some(self.over),
        }
    }
}

impl Daemons<'_> {
    /// Makes and serves the files of every load, and waits until their names are known.
    pub fn serve(&mut self, observer: &dyn Observer) -> Result<Vec<Vec<Served>>, LabError> {
        let plan = self.plan;
        let mut all = Vec::new();
        for (index, load) in plan.loads.iter().enumerate() {
            if let Kind::Requests(requests) = &load.kind {
                self.answer(load, requests)?;
            }
            if let Kind::Browser(browser) = &load.kind {
                self.serve_site(load, browser)?;
                all.push(Vec::new());
                continue;
            }
            if let Kind::Web(web) = &load.kind {
                self.serve_pages(load, web)?;
                all.push(Vec::new());
                continue;
            }
            let schedule = Schedule::of(load, self.seed);
            // A load without end repeats one file.
            let total = schedule
                .as_ref()
                .map_or(0, |schedule| schedule.total().unwrap_or(1));
            let endless = schedule.as_ref().is_some_and(Schedule::is_endless);
            let size = schedule.map_or(0, |schedule| schedule.size);
            let mut served = Vec::with_capacity(total);
            if matches!(load.kind, Kind::Pings(_)) && load.plane == Plane::MobilityFirst {
                let status = self.status("host", load.from);
                let name = status["guid"].as_str().unwrap_or_default().to_owned();
                let path = PathBuf::new();
                served.push(Served { name, path });
            }
            for number in 0..total {
                let given = observer.file(index).filter(|_| total == 1);
                let made = self.folder.join(format!("file-{}-{number}", load.name));
                let path = given.map_or(made, Path::to_owned);
                if endless && load.plane == Plane::Tcp {
                    make_endless(&path)?;
                } else if given.is_none() {
                    let seed = self.seed.wrapping_add((index as u64) << 32 | number as u64);
                    crate::demo::make_file(&path, size, seed)?;
                }
                let name = match load.plane {
                    Plane::Tcp => String::new(),
                    // It is announced to nobody.
                    Plane::MobilityFirst if matches!(load.kind, Kind::Push(_)) => String::new(),
                    Plane::Ndn => {
                        // Without a version, each mirror would give its copy one of its own, which a
                        // consumer that has found one of them never asks the others for.
                        let version = if load.mirrors.is_empty() { "" } else { "/v=1" };
                        let name = format!("/{}/{number}{version}", load.name);
                        for node in &load.mirrors {
                            self.serve_ndn(*node, name.clone(), &path, load.segment)?;
                        }
                        self.serve_ndn(load.from, name, &path, load.segment)?
                    }
                    Plane::MobilityFirst => self.serve_content(load.from, &path)?,
                };
                served.push(Served { name, path });
            }
            all.push(served);
        }
        Ok(all)
    }

    fn serve_content(&mut self, node: usize, file: &Path) -> Result<String, LabError> {
        let mut command = self.command(&["serve", "--socket"]);
        command
            .arg(socket_of(
                self.folder,
                Plane::MobilityFirst,
                self.name(node),
            ))
            .arg(file);
        self.serving(node, command, |line| {
            let mut words = line.split_whitespace();
            let (name, state) = (words.next()?, words.next()?);
            (state == "announced").then(|| name.to_owned())
        })
    }

    fn serve_ndn(
        &mut self,
        node: usize,
        name: String,
        file: &Path,
        segment: usize,
    ) -> Result<String, LabError> {
        let socket = socket_of(self.folder, Plane::Ndn, self.name(node));
        let mut command = self.command(&["ndn", "serve", "--json", &name]);
        let uri = format!("unix://{}", socket.display());
        command.arg(file).args(["--transport", &uri]);
        command.args(["--size", &segment.to_string()]);
        self.serving(node, command, |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["event"] == "registered").then(|| name.clone())
        })
    }
}

/// Returns the command with which a user on `node` fetches `name`.
fn get(
    program: &Path,
    folder: &Path,
    plane: Plane,
    node: &str,
    name: &str,
    output: &Path,
) -> Command {
    let mut command = Command::new(program);
    let socket = socket_of(folder, plane, node);
    match plane {
        Plane::Ndn => command
            .args(["ndn", "get", "--json", name, "--transport"])
            .arg(format!("unix://{}", socket.display())),
        _ => command
            .args(["get", "--json", name, "--socket"])
            .arg(socket),
    };
    command.arg("-o").arg(output);
    command
}

/// Makes a file of zeros that no transfer comes to the end of; it takes no disk space.
fn make_endless(path: &Path) -> Result<(), LabError> {
    const LENGTH: u64 = 1 << 40;
    std::fs::File::create(path)
        .and_then(|file| file.set_len(LENGTH))
        .map_err(LabError::system(format!("make {}", path.display())))
}

/// Refuses a file that arrived with wrong bytes.
pub(super) fn compare(sent: &Path, arrived: &Path) -> Result<(), LabError> {
    if hash_of(sent)? == hash_of(arrived)? {
        return Ok(());
    }
    Err(changed(arrived))
}

fn changed(file: &Path) -> LabError {
    LabError::TransferFailed {
        transfer: file.display().to_string(),
        reason: "it arrived with wrong bytes".to_owned(),
    }
}

fn hash_of(path: &Path) -> Result<blake3::Hash, LabError> {
    let failed = || LabError::system(format!("read {}", path.display()));
    let mut hasher = blake3::Hasher::new();
    hasher
        .update_reader(std::fs::File::open(path).map_err(failed())?)
        .map_err(failed())?;
    Ok(hasher.finalize())
}
