//! `gnrs backup|restore|move`: all records of a name server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use whimbrel_gnrs::Record;
use whimbrel_node::config::{GNRS_PORT, Remote};
use whimbrel_node::name_client::{NameClient, NamePatience, Registered};
use whimbrel_node::name_copy::{ListError, RecordLister, RecordWriter, read_records};
use whimbrel_node::pointers::unix_ms;

use crate::exit::{Exit, Failure};
use crate::logging::note;
use crate::results::{Outcome, out, stop_flag};

/// A server that takes nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// Records that are read before they are registered.
const PART: usize = 1024;
/// Passes of a move: each takes over what has changed during the one before.
const MAX_PASSES: u32 = 8;

/// `gnrs backup`.
#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// The file to write, which must not exist
    file: PathBuf,
    /// The name server, on this machine
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = here())]
    server: SocketAddr,
}

/// `gnrs restore`.
#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// The file of `gnrs backup`
    file: PathBuf,
    /// The name server
    #[arg(long, value_name = "HOST:PORT", default_value_t = here())]
    server: SocketAddr,
}

/// `gnrs move`.
#[derive(Args, Debug)]
pub(crate) struct Move {
    /// The name server that has the records, on this machine
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = here())]
    from: SocketAddr,
    /// The name server to register them with, such as one on a cluster
    #[arg(long, value_name = "HOST:PORT")]
    to: Remote,
}

fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], GNRS_PORT))
}

impl From<ListError> for Failure {
    fn from(error: ListError) -> Failure {
        let exit = match error {
            ListError::Silent(_) => Exit::TimedOut,
            ListError::Refused(_) => Exit::Usage,
            ListError::Io(_) => Exit::Other,
        };
        Failure::new(exit, error)
    }
}

pub(super) fn backup(arguments: &Backup) -> Outcome {
    let stop = stop_flag()?;
    let file = arguments.file.display();
    let unwritten = |error| Failure::new(Exit::Write, format!("cannot write {file}: {error}"));
    let mut lister = RecordLister::new(arguments.server)?;
    // A server that does not answer leaves no file.
    let mut records = lister.next_part()?;
    let mut writer = RecordWriter::create(&arguments.file).map_err(unwritten)?;
    let (now_ms, mut count) = (unix_ms(), 0);
    while !records.is_empty() {
        for record in records.iter().filter(|it| !it.is_expired(now_ms)) {
            writer.write(record).map_err(unwritten)?;
            count += 1;
        }
        if stop.load(Ordering::Relaxed) {
            let _ = std::fs::remove_file(&arguments.file);
            return Ok(Exit::Interrupted);
        }
        records = lister.next_part()?;
    }
    writer.finish().map_err(unwritten)?;
    out(&format!("{file}: {count} records\n"));
    Ok(Exit::Done)
}

pub(super) fn restore(arguments: &Restore) -> Outcome {
    let stop = stop_flag()?;
    let path: &Path = &arguments.file;
    let records = read_records(path)
        .map_err(|error| Failure::new(Exit::Usage, format!("{}: {error}", path.display())))?;
    let server = arguments.server.to_string().parse::<Remote>();
    let server = server.map_err(|error| Failure::new(Exit::Usage, error))?;
    let mut client = NameClient::new(std::slice::from_ref(&server))?;
    let now_ms = unix_ms();
    let living: Vec<Record> = (records.into_iter())
        .filter(|it| !it.is_expired(now_ms))
        .collect();
    let mut all = Registered::default();
    for part in living.chunks(PART) {
        let Some(done) = register(&mut client, &server, part.to_vec(), &stop)? else {
            return Ok(Exit::Interrupted);
        };
        add(&mut all, done);
    }
    told(&all, &server)
}

pub(super) fn move_records(arguments: &Move) -> Outcome {
    let stop = stop_flag()?;
    let mut client = NameClient::new(std::slice::from_ref(&arguments.to))?;
    let mut versions = std::collections::BTreeMap::new();
    for pass in 1..=MAX_PASSES {
        let mut lister = RecordLister::new(arguments.from)?;
        let mut all = Registered::default();
        let mut part = Vec::new();
        let now_ms = unix_ms();
        loop {
            let records = lister.next_part()?;
            let is_end = records.is_empty();
            let mut is_new = |it: &Record| {
                !it.is_expired(now_ms)
                    && versions.insert(it.filed_under(), it.version()) != Some(it.version())
            };
            part.extend(records.into_iter().filter(|it| is_new(it)));
            if part.len() >= PART || (is_end && !part.is_empty()) {
                let moved = register(
                    &mut client,
                    &arguments.to,
                    core::mem::take(&mut part),
                    &stop,
                )?;
                let Some(done) = moved else {
                    return Ok(Exit::Interrupted);
                };
                add(&mut all, done);
            }
            if is_end {
                break;
            }
        }
        if pass == 1 || all.stored + all.refused > 0 {
            note(&format!("pass {pass}: {} records", all.stored));
        }
        if all.stored + all.refused == 0 || pass == MAX_PASSES {
            break;
        }
        if all.refused > 0 {
            return told(&all, &arguments.to);
        }
    }
    out(&format!(
        "{} records of {} are at {}; now name that server to the routers, and end the old one\n",
        versions.len(),
        arguments.from,
        arguments.to
    ));
    Ok(Exit::Done)
}

/// Registers records; `None` if the user has stopped the command.
fn register(
    client: &mut NameClient,
    server: &Remote,
    records: Vec<Record>,
    stop: &AtomicBool,
) -> Result<Option<Registered>, Failure> {
    let until = Instant::now() + PATIENCE;
    let done = client.register_all(records, NamePatience { until, stop })?;
    if done.is_none() && !stop.load(Ordering::Relaxed) {
        let text = format!(
            "the name server at {server} does not answer in time; repeat the command to continue"
        );
        return Err(Failure::new(Exit::TimedOut, text));
    }
    Ok(done)
}

fn add(all: &mut Registered, done: Registered) {
    all.stored += done.stored;
    all.refused += done.refused;
    all.last_refusal = done.last_refusal.or(all.last_refusal);
}

fn told(all: &Registered, server: &Remote) -> Outcome {
    out(&format!("{} records are at {server}\n", all.stored));
    let Some(why) = all.last_refusal else {
        return Ok(Exit::Done);
    };
    let text = format!(
        "{} records were refused, the last one because of {why:?}: newer ones may be there, or no room",
        all.refused
    );
    Err(Failure::new(Exit::Incomplete, text))
}
