//! Rates and delays of real name servers over UDP on this machine, and what is missing after a primary of
//! the engine was killed under load.

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use whimbrel_core::{Guid, Time};
use whimbrel_gnrs::wire::Code;
use whimbrel_gnrs::{Address, KeyPair, Record, Statement};
use whimbrel_io::Clock;

use super::super::statistics::percentile;
use super::client::{LoadClient, Noted, PushWatcher, Work, run};
use super::parameters::{FailoverTrial, RateTrials};
use super::servers::{RedisCluster, RunningNameServer, SLOTS};
use crate::process::cpu_of_process;
use crate::{LabError, scratch};

/// Lifetime of the records, ms.
const LIFETIME: u64 = 3_600_000;
/// The time that pushes get after the last update.
const LAST_PUSHES: Duration = Duration::from_millis(500);
/// The window of reading what is left: as wide as a name server takes from one address.
const READING: usize = 256;

/// A store of a name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordStore {
    Memory,
    Disk,
    /// On this many primaries.
    Cluster(usize),
}

impl RecordStore {
    pub(super) fn name(self) -> String {
        match self {
            RecordStore::Memory => "memory".to_owned(),
            RecordStore::Disk => "disk".to_owned(),
            RecordStore::Cluster(1) => "cluster, 1 primary".to_owned(),
            RecordStore::Cluster(count) => format!("cluster, {count} primaries"),
        }
    }
}

/// Requests of one kind.
#[derive(Clone, Debug)]
pub(super) struct RequestRate {
    /// A second.
    pub(super) rate: f64,
    /// Milliseconds, sorted.
    latencies: Vec<f32>,
    /// Those that were refused or not answered.
    pub(super) failed: usize,
    /// Processor time of the name server, and of all nodes of the engine, in cores.
    pub(super) server_cores: f64,
    pub(super) engine_cores: f64,
}

impl RequestRate {
    pub(super) fn percentile(&self, percent: f64) -> f64 {
        percentile(&self.latencies, percent)
    }
}

/// What one store can do.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    pub(super) kept: RecordStore,
    pub(super) updates: RequestRate,
    pub(super) single_updates: RequestRate,
    pub(super) lookups: RequestRate,
    pub(super) single_lookups: RequestRate,
    /// Look-ups of names that the name server has not at hand; none of an embedded store.
    pub(super) cold: Option<RequestRate>,
    /// From the transmission of an update to its push at a watcher, ms, sorted; and of how many updates.
    pushes: Vec<f32>,
    pub(super) watched_updates: usize,
}

impl Rates {
    pub(super) fn push_percentile(&self, percent: f64) -> f64 {
        percentile(&self.pushes, percent)
    }

    pub(super) fn pushed(&self) -> usize {
        self.pushes.len()
    }
}

/// The owner of a name.
fn owner(number: usize) -> KeyPair {
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&(number as u64).to_be_bytes());
    KeyPair::from_secret(&secret)
}

fn signed(keys: &KeyPair, now_ms: u64, version: u64) -> Result<Record, LabError> {
    let address = Address::new(Guid([3; 32]));
    let statement = Statement {
        version,
        ..Statement::new(now_ms, LIFETIME, vec![address])
    };
    Record::binding(keys, &statement)
        .map_err(|why| LabError::system("sign a record")(std::io::Error::other(why)))
}

/// Records of `names` owners, in turn, with rising versions from `first` on.
struct RecordSigner<'a> {
    owners: &'a [KeyPair],
    now_ms: u64,
    next: u64,
}

impl RecordSigner<'_> {
    fn sign(&mut self, count: usize) -> Result<Vec<Record>, LabError> {
        let records = (0..count).map(|number| {
            self.next += 1;
            signed(
                &self.owners[number % self.owners.len()],
                self.now_ms,
                self.next,
            )
        });
        records.collect()
    }
}

/// A client's run, with the processor time of everybody else.
struct ServerRun<'a> {
    clock: Clock,
    server: &'a RunningNameServer,
    engine: &'a [u32],
}

impl ServerRun<'_> {
    fn cores_so_far(&self) -> (f64, f64) {
        let of = |pid: u32| cpu_of_process(pid).map_or(0.0, |it| it.as_secs_f64());
        let engine = self.engine.iter().map(|pid| of(*pid)).sum();
        (of(self.server.program.id()), engine)
    }

    fn run(&self, client: LoadClient) -> Result<RequestRate, LabError> {
        let (before, since) = (self.cores_so_far(), Instant::now());
        let noted = run(self.clock, self.server.address, client)?;
        let (after, seconds) = (self.cores_so_far(), since.elapsed().as_secs_f64());
        let done = noted.done();
        Ok(RequestRate {
            rate: done as f64 / noted.seconds(),
            latencies: noted.latencies(),
            failed: noted.answered.len() - done + noted.unanswered,
            server_cores: (after.0 - before.0) / seconds,
            engine_cores: (after.1 - before.1) / seconds,
        })
    }
}

/// Measures a name server with this store.
pub(super) fn measure(
    trials: &RateTrials,
    kept: RecordStore,
    whimbrel: &Path,
) -> Result<Rates, LabError> {
    let folder = scratch::folder("whimbrel-gnrs-scale-")?;
    let folder = folder.path();
    let engine = match kept {
        RecordStore::Cluster(primaries) => Some(RedisCluster::start(folder, primaries, 0)?),
        RecordStore::Memory | RecordStore::Disk => None,
    };
    let store = match (&engine, kept) {
        (Some(engine), _) => engine.address(),
        (None, RecordStore::Disk) => folder.join("names.redb").display().to_string(),
        (None, _) => "memory".to_owned(),
    };
    let server = RunningNameServer::start(whimbrel, folder, "names", &store)?;
    let clock = Clock::start();
    let processes = engine
        .as_ref()
        .map_or_else(Vec::new, RedisCluster::processes);
    let measurement = ServerRun {
        clock,
        server: &server,
        engine: &processes,
    };
    let owners: Vec<KeyPair> = (0..trials.names).map(owner).collect();
    let names: Vec<Guid> = owners.iter().map(KeyPair::guid).collect();
    let now_ms = clock.wall_clock().unix_millis(clock.now());
    let mut signer = RecordSigner {
        owners: &owners,
        now_ms,
        next: now_ms * 1000,
    };
    let update = |signer: &mut RecordSigner<'_>, count, window| {
        let records = signer.sign(count)?;
        measurement.run(LoadClient::new(Work::Update(records), window, None))
    };
    let all = trials.names * trials.versions as usize;
    let updates = update(&mut signer, all, trials.window)?;
    let single_updates = update(&mut signer, trials.single.min(trials.names), 1)?;

    let look_up = |count: usize, window| {
        let asked = (0..count).map(|number| names[number % names.len()]);
        measurement.run(LoadClient::new(Work::LookUp(asked.collect()), window, None))
    };
    // A name that is read again is at hand.
    look_up(2 * names.len(), trials.window)?;
    let lookups = look_up(trials.lookups, trials.window)?;
    let single_lookups = look_up(trials.single, 1)?;

    // Watchers hear of updates at another server of the cluster.
    let other = match kept {
        RecordStore::Cluster(_) => {
            Some(RunningNameServer::start(whimbrel, folder, "other", &store)?)
        }
        _ => None,
    };
    let cold = other.as_ref().map(|other| {
        let measurement = ServerRun {
            clock,
            server: other,
            engine: &processes,
        };
        measurement.run(LoadClient::new(
            Work::LookUp(names.clone()),
            trials.window,
            None,
        ))
    });
    let cold = cold.transpose()?;
    let watched_at = other.as_ref().map_or(server.address, |it| it.address);
    let watched = names[..names.len().min(trials.watched_updates)].to_vec();
    let watcher = PushWatcher::start(clock, watched_at, watched.clone())?;
    let mut of_watched = RecordSigner {
        owners: &owners[..watched.len()],
        ..signer
    };
    let records = of_watched.sign(trials.watched_updates)?;
    let versions: Vec<u64> = records.iter().map(Record::version).collect();
    let rate = Some(trials.watched_updates_per_s);
    let client = LoadClient::new(Work::Update(records), trials.window, rate);
    let updated = run(clock, server.address, client)?;
    std::thread::sleep(LAST_PUSHES);
    let heard = watcher.end()?;
    Ok(Rates {
        kept,
        updates,
        single_updates,
        lookups,
        single_lookups,
        cold,
        pushes: delays(&versions, &updated, &heard),
        watched_updates: trials.watched_updates,
    })
}

/// Returns the times from the transmission of updates to their pushes, ms, sorted.
fn delays(versions: &[u64], updated: &Noted, heard: &Noted) -> Vec<f32> {
    let mut pushed: BTreeMap<u64, Time> = BTreeMap::new();
    for (version, at) in &heard.pushed {
        pushed.entry(*version).or_insert(*at);
    }
    let sent = updated.answered.iter();
    let delays = sent.filter_map(|it| {
        let at = pushed.get(&versions[it.number])?;
        Some(at.since(it.sent).as_secs_f32() * 1e3)
    });
    let mut delays: Vec<f32> = delays.collect();
    delays.sort_by(f32::total_cmp);
    delays
}

/// What a killed primary has cost.
#[derive(Clone, Debug)]
pub(super) struct Failover {
    /// Updates a second that were sent.
    pub(super) offered: f64,
    pub(super) acknowledged: usize,
    /// Updates that were answered with "busy", and not at all.
    pub(super) refused: usize,
    pub(super) unanswered: usize,
    /// Acknowledged updates that the new primary had not: without the replay they would be missing.
    pub(super) lost_by_failover: u64,
    /// Names whose newest acknowledged version is missing in the end.
    pub(super) missing: usize,
    pub(super) names: usize,
    /// The longest time without an acknowledgement for a name of the killed primary, s.
    pub(super) pause_s: f64,
}

/// Kills a primary under load.
pub(super) fn fail_over(trial: &FailoverTrial, whimbrel: &Path) -> Result<Failover, LabError> {
    let folder = scratch::folder("whimbrel-gnrs-scale-")?;
    let folder = folder.path();
    let mut engine = RedisCluster::start(folder, trial.primaries, 1)?;
    let server = RunningNameServer::start(whimbrel, folder, "names", &engine.address())?;
    let clock = Clock::start();
    let owners: Vec<KeyPair> = (0..trial.names).map(owner).collect();
    let now_ms = clock.wall_clock().unix_millis(clock.now());
    let mut signer = RecordSigner {
        owners: &owners,
        now_ms,
        next: now_ms * 1000,
    };
    let count = (trial.updates_per_s * (trial.before_s + trial.after_s)) as usize;
    let records = signer.sign(count)?;
    let versions: Vec<u64> = records.iter().map(Record::version).collect();
    // Nothing waits for what hangs: each update is sent when it is due.
    let window = (trial.updates_per_s * 10.0) as usize;
    let client = LoadClient::new(Work::Update(records), window, Some(trial.updates_per_s));
    let address = server.address;
    let updating = std::thread::Builder::new()
        .name("updates".to_owned())
        .spawn(move || run(clock, address, client))
        .map_err(LabError::system("start a thread"))?;
    std::thread::sleep(Duration::from_secs_f64(trial.before_s));
    engine.kill_a_primary()?;
    let killed = Instant::now();
    let panicked = || LabError::system("run a client")(std::io::Error::other("it panicked"));
    let noted = updating.join().unwrap_or_else(|_| Err(panicked()))?;
    let rest = Duration::from_secs_f64(trial.count_after_s);
    std::thread::sleep(rest.saturating_sub(killed.elapsed()));

    // A server that has seen nothing of it reads what the engine has.
    let other = RunningNameServer::start(whimbrel, folder, "other", &engine.address())?;
    let names: Vec<Guid> = owners.iter().map(KeyPair::guid).collect();
    let newest = newest(&noted, &versions, names.len());
    let client = LoadClient::new(Work::LookUp(names.clone()), READING, None);
    let found = run(clock, other.address, client)?;
    let mut left = vec![0; names.len()];
    found
        .answered
        .iter()
        .for_each(|it| left[it.number] = it.version);
    let missing = newest.iter().zip(&left);
    let restored = server.status()?["engine"]["restored"].as_u64();
    let ok = noted.done();
    Ok(Failover {
        offered: trial.updates_per_s,
        acknowledged: ok,
        refused: noted.answered.len() - ok,
        unanswered: noted.unanswered,
        lost_by_failover: restored.unwrap_or(0),
        missing: missing.filter(|(newest, left)| left < newest).count(),
        names: names.len(),
        pause_s: longest_pause(&noted, &names, trial.primaries),
    })
}

/// Returns the newest acknowledged version of each name; 0 without one.
fn newest(noted: &Noted, versions: &[u64], names: usize) -> Vec<u64> {
    let mut newest = vec![0; names];
    for it in noted.answered.iter().filter(|it| it.code == Code::Ok) {
        let known = &mut newest[it.number % names];
        *known = versions[it.number].max(*known);
    }
    newest
}

/// Returns the longest time without an acknowledgement for the names of the first primary, s.
fn longest_pause(noted: &Noted, names: &[Guid], primaries: usize) -> f64 {
    // `redis-cli --cluster create` gives the slots to the primaries in order.
    let is_first = |name: &Guid| {
        let slot = usize::from(u16::from_be_bytes([name.0[0], name.0[1]])) % SLOTS;
        slot < SLOTS / primaries
    };
    let of_first = noted.answered.iter();
    let of_first = of_first.filter(|it| it.code == Code::Ok);
    let of_first = of_first.filter(|it| is_first(&names[it.number % names.len()]));
    let mut times: Vec<Time> = of_first.map(|it| it.at).collect();
    times.sort();
    let pauses = times.windows(2).map(|pair| pair[1].since(pair[0]));
    pauses.max().unwrap_or_default().as_secs_f64()
}
