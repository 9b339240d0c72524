//! The sides in turns, and the comparison.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use whimbrel_lab::scenario::Plan;
use whimbrel_lab::scenario::load::Kind;
use whimbrel_lab::study::Backend;
use whimbrel_lab::{Program, Supervisor, scratch};

use super::places::{Places, Side};
use crate::processes::{Programs, Ready};
use crate::usage::{cpu_of_ended_children, cpu_of_machine, cpu_of_process};
use crate::{Bench, BenchError, BenchOptions, Part, Quantity, Row, Target, plans};

const QUICK_FILE_BYTES: u64 = 200_000_000;
const ROUNDS: usize = 3;
/// Time limit of a transfer.
const PATIENCE: Duration = Duration::from_secs(300);
/// Processor time of other work, in cores, above which the numbers are marked as unreliable. It
/// includes the kernel's own unaccounted work for the transfer.
const BUSY_CORES: f64 = 0.5;
/// The MTUs of `peer.toml`; the target applies to the first.
const MTUS: [u16; 2] = [1500, 9000];
/// The network and its file.
const SCENARIO: &str = include_str!("peer.toml");

/// The sides in turns. quinn's authors measure it with one thread (`perf` and `bench` in its
/// repository); some machines are faster with two.
const SIDES: [Side; 5] = [
    Side::Whimbrel,
    Side::Plain,
    Side::Quinn(1),
    Side::Quinn(2),
    Side::KernelTcp,
];

/// One transfer.
#[derive(Clone, Debug, Serialize)]
struct Run {
    took_ns: u64,
    bit_per_s: f64,
    /// Of all the side's processes while the file moved.
    cpu_s_per_gb: f64,
    /// The same for each process.
    processes_cpu_s_per_gb: BTreeMap<&'static str, f64>,
    /// Of all the side's processes before the request.
    preparation_cpu_s_per_gb: f64,
    /// Cores that other work on this machine kept busy in that time: the larger, the less reliable
    /// the run.
    others_cores: f64,
}

pub(crate) fn run(bench: &mut Bench<'_>) {
    if !cfg!(feature = "peers") {
        return bench.fault("everything", &BenchError::NoPeers);
    }
    for mtu in MTUS {
        bench.measure(&format!("MTU {mtu}"), |options, tell| {
            contest(options, mtu, tell)
        });
    }
}

fn plan(options: &BenchOptions, mtu: u16) -> Result<Plan, BenchError> {
    let wanted = [("links.A-B.mtu", mtu.to_string())];
    plans::plan("peer.toml", SCENARIO, options, Backend::Netns, &wanted)
}

fn contest(
    options: &BenchOptions,
    mtu: u16,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, BenchError> {
    let folder = in_memory()?;
    let file = folder.path().join("file");
    let plan = plan(options, mtu)?;
    let (bytes, rounds) = match &plan.loads[0].kind {
        Kind::File(bytes) if !options.quick => (*bytes, ROUNDS),
        _ => (QUICK_FILE_BYTES, 1),
    };
    whimbrel_lab::demo::make_file(&file, bytes, options.seed)?;
    let places = Places::build(
        Programs {
            program: &options.program,
            folder: folder.path(),
        },
        file,
        &plan,
    )?;
    reserve_memory(&places)?;
    let mut runs: [Vec<Run>; SIDES.len()] = Default::default();
    for round in 0..rounds {
        // A different side begins each time.
        for turn in 0..SIDES.len() {
            let index = (round + turn) % SIDES.len();
            tell(&format!(
                "MTU {mtu}, round {} of {rounds}: {}",
                round + 1,
                SIDES[index].name()
            ));
            runs[index].push(transfer(&places, SIDES[index], bytes)?);
        }
    }
    let [ours, plain, quinn, threaded_quinn, tcp] = &runs;
    // The faster of quinn's configurations on this machine.
    let rate = |runs: &[Run]| median(runs, |run| run.bit_per_s);
    let quinn = if rate(threaded_quinn) > rate(quinn) {
        threaded_quinn
    } else {
        quinn
    };
    let what = format!("{:.1} GB, MTU {mtu}", bytes as f64 / 1e9);
    let at_least = |ratio| (mtu == MTUS[0]).then_some(Target::AtLeast(ratio));
    let mut rows = compared(&what, ours, Side::Quinn(1), quinn, at_least(1.0));
    rows.extend(compared(&what, ours, Side::Plain, plain, at_least(0.8)));
    rows.extend(compared(&what, ours, Side::KernelTcp, tcp, None));
    Ok(rows)
}

/// Writes as much as a transfer does, so that the first one does not pay for fresh memory.
fn reserve_memory(places: &Places<'_>) -> Result<(), BenchError> {
    let reserve = places.reserve();
    let copied = std::fs::copy(&places.file, &reserve);
    copied.map_err(BenchError::system(format!("write {}", reserve.display())))?;
    Ok(())
}

/// Memory for what arrives, held until the moment that it is needed: a virtual machine returns free
/// memory to its host within a second, and pays a multiple of the transfer's time to get it back.
struct Reserve {
    releasing: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl Reserve {
    /// Released this far ahead of the transfer, in bytes, and looked at this often.
    const AHEAD: u64 = 256 << 20;
    const EVERY: Duration = Duration::from_millis(10);

    fn start(places: &Places<'_>, bytes: u64) -> Reserve {
        let is_over = Arc::new(AtomicBool::new(false));
        let (folder, served) = (places.programs.folder.to_owned(), places.file.clone());
        let (reserve, over) = (places.reserve(), Arc::clone(&is_over));
        let releasing = std::thread::spawn(move || {
            let Ok(held) = OpenOptions::new().write(true).open(&reserve) else {
                return;
            };
            while !over.load(Ordering::Relaxed) {
                let arrived = allocated(&folder, &[&served, &reserve]);
                let _ = held.set_len(bytes.saturating_sub(arrived + Reserve::AHEAD));
                std::thread::sleep(Reserve::EVERY);
            }
            let _ = std::fs::remove_file(&reserve);
        });
        Reserve {
            releasing: Some(releasing),
            is_over,
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(releasing) = self.releasing.take() {
            let _ = releasing.join();
        }
    }
}

/// Returns the bytes that the files of a folder take, but for these.
fn allocated(folder: &Path, without: &[&Path]) -> u64 {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !without.contains(&entry.path().as_path()))
        .filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512))
        .sum()
}

/// Rate and processor time compared with a peer's.
fn compared(
    what: &str,
    ours: &[Run],
    peer: Side,
    theirs: &[Run],
    target: Option<Target>,
) -> Vec<Row> {
    let row =
        |what: String, quantity: fn(f64) -> Quantity, value: fn(&Run) -> f64, target, details| {
            Row {
                part: Part::Peer,
                backend: None,
                what,
                ours: quantity(median(ours, value)),
                peer: Some((String::from(peer.name()), quantity(median(theirs, value)))),
                target,
                note: None,
                details,
            }
        };
    let details = json!({
        "ours_preparation_cpu_s_per_gb": median(ours, |run| run.preparation_cpu_s_per_gb),
        "ours_rounds": ours,
        "peer_rounds": theirs,
    });
    let mut rate = row(
        what.to_owned(),
        Quantity::BitPerS,
        |run| run.bit_per_s,
        target,
        details,
    );
    let others = median(ours, |run| run.others_cores).max(median(theirs, |run| run.others_cores));
    rate.note = (others > BUSY_CORES)
        .then(|| format!("other work kept {others:.1} processors busy: repeat on a quiet machine"));
    vec![
        rate,
        row(
            format!("{what}, CPU"),
            Quantity::CpuSPerGb,
            |run| run.cpu_s_per_gb,
            None,
            json!({}),
        ),
    ]
}

/// Returns a folder in memory, if there is one.
fn in_memory() -> Result<tempfile::TempDir, BenchError> {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    Ok(scratch::folder_in(&place, "whimbrel-bench-")?)
}

fn transfer(places: &Places<'_>, side: Side, bytes: u64) -> Result<Run, BenchError> {
    let ended_before = cpu_of_ended_children()?;
    let Ready { mut servers, fetch } = places.start(side)?;
    let prepared = server_times(&servers)?;
    let machine_before = cpu_of_machine()?;
    let reserve = Reserve::start(places, bytes);
    let took = run_to_end(places, side, fetch)?;
    drop(reserve);
    let machine = cpu_of_machine()?.saturating_sub(machine_before);
    let served = server_times(&servers)?;
    // Each is waited for as it is dropped, and only then accounted as ended.
    servers.clear();
    let ended = cpu_of_ended_children()?.saturating_sub(ended_before);
    compare(&places.file, &places.output(), side)?;
    std::fs::rename(places.output(), places.reserve()).map_err(BenchError::system(format!(
        "rename {}",
        places.output().display()
    )))?;

    let (prepared_all, served_all): (Duration, Duration) =
        (prepared.values().sum(), served.values().sum());
    let used = ended.saturating_sub(prepared_all);
    let per_gb = |time: Duration| time.as_secs_f64() * 1e9 / bytes as f64;
    let while_it_moved = |(name, time): (&&'static str, &Duration)| {
        (
            *name,
            per_gb(time.saturating_sub(prepared.get(name).copied().unwrap_or_default())),
        )
    };
    let mut processes: BTreeMap<_, _> = served.iter().map(while_it_moved).collect();
    processes.insert("fetch", per_gb(ended.saturating_sub(served_all)));
    Ok(Run {
        took_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
        bit_per_s: bytes as f64 * 8.0 / took.as_secs_f64(),
        cpu_s_per_gb: per_gb(used),
        processes_cpu_s_per_gb: processes,
        preparation_cpu_s_per_gb: per_gb(prepared_all),
        others_cores: machine.saturating_sub(used).as_secs_f64() / took.as_secs_f64(),
    })
}

/// Runs the fetching process; returns its duration.
fn run_to_end(places: &Places<'_>, side: Side, fetch: Command) -> Result<Duration, BenchError> {
    let supervisor = Supervisor::new(places.programs.folder).on(places.fetching_host()?);
    let started = Instant::now();
    let mut client = supervisor.daemon(&format!("fetch of {}", side.name()), fetch)?;
    let status = client.process().wait_for(PATIENCE)?;
    let took = started.elapsed();
    let what = match status {
        Some(status) if status.success() => return Ok(took),
        Some(status) => format!("ended with {status}"),
        None => format!("did not finish within {} s", PATIENCE.as_secs()),
    };
    Err(client.fault(&what).into())
}

/// Processor time of each server so far.
fn server_times(
    servers: &[(&'static str, Program)],
) -> Result<BTreeMap<&'static str, Duration>, BenchError> {
    servers
        .iter()
        .map(|(name, process)| Ok((*name, cpu_of_process(process.id())?)))
        .collect()
}

fn compare(served: &Path, arrived: &Path, side: Side) -> Result<(), BenchError> {
    const BLOCK: usize = 1 << 20;
    let open = |path: &Path| {
        File::open(path).map_err(BenchError::system(format!("read {}", path.display())))
    };
    let (mut served, mut arrived) = (open(served)?, open(arrived)?);
    let (mut expected, mut found) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
    loop {
        for (file, block) in [(&mut served, &mut expected), (&mut arrived, &mut found)] {
            block.clear();
            let read = file.take(BLOCK as u64).read_to_end(block);
            read.map_err(BenchError::system("compare the files"))?;
        }
        if expected != found {
            return Err(BenchError::Corrupted {
                side: side.name().to_owned(),
            });
        }
        if expected.is_empty() {
            return Ok(());
        }
    }
}

fn median(runs: &[Run], value: impl Fn(&Run) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mtu_has_its_network_and_a_file_of_two_gigabytes() {
        let options = BenchOptions {
            backends: Vec::new(),
            quick: false,
            seed: 1,
            program: "whimbrel".into(),
            ndnd: None,
        };
        for mtu in MTUS {
            let plan = plan(&options, mtu).unwrap();
            assert_eq!(plan.network.mtu(), usize::from(mtu));
            assert!(!plan.network.links[0].emulated);
            assert_eq!(plan.loads[0].kind, Kind::File(2_000_000_000));
        }
    }
}
