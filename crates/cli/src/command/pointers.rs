//! `publish`, and what `serve --as` and `get OWNER/ALIAS` have in common with it: pointers of a key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use whimbrel_client::place::Places;
use whimbrel_core::Guid;
use whimbrel_core::units::{Span, format_duration};
use whimbrel_gnrs::alias::Alias;
use whimbrel_gnrs::record::Pointer;
use whimbrel_gnrs::wire::Code;
use whimbrel_gnrs::{KeyPair, Record, Rejection, ResolverEvent};
use whimbrel_node::config::{GNRS_PORT, Remote};
use whimbrel_node::directory::DirectoryFile;
use whimbrel_node::keys;
use whimbrel_node::name_client::{NameClient, NamePatience, Resolution};
use whimbrel_node::pointers::{self, FoundPointer, KnownPointers, PointerError, RENEWAL, unix_ms};
use whimbrel_node::shelf::{Shelf, Shelved};

use super::directory;
use crate::exit::{Exit, Failure};
use crate::logging::note;
use crate::results::{Outcome, out, stop_flag, tell, tell_json};

/// Time between two tries to publish, while `serve` runs.
const RETRY: Duration = Duration::from_secs(5);
/// How long one try may take.
const TRY: Duration = Duration::from_secs(10);
/// Longest wait for the answer whether a name has a successor; the command continues without one.
const CHECK: Duration = Duration::from_secs(2);
/// Interval at which the stop flag is checked.
const LOOK: Duration = Duration::from_millis(200);

/// The name servers that a command asks itself.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct NameServers {
    /// Name servers to ask for pointers (OWNER/ALIAS) and successors of revoked names, the preferred one
    /// first; for pointers by default port 4720 of this machine
    #[arg(
        long = "name-server",
        env = "WHIMBREL_NAME_SERVER",
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    servers: Vec<Remote>,
}

impl NameServers {
    /// Returns true if the user has named any.
    pub(super) fn are_given(&self) -> bool {
        !self.servers.is_empty()
    }

    pub(super) fn new(servers: Vec<Remote>) -> NameServers {
        NameServers { servers }
    }

    /// Returns the servers to ask: by default that of this machine.
    fn all(&self) -> Vec<Remote> {
        let mut servers = self.servers.clone();
        if servers.is_empty() {
            let local = format!("127.0.0.1:{GNRS_PORT}");
            servers.extend(local.parse::<Remote>().ok());
        }
        servers
    }

    pub(super) fn client(&self) -> Result<NameClient, Failure> {
        Ok(NameClient::new(&self.all())?)
    }

    /// Returns whom a command asks, for messages.
    pub(super) fn asked(&self) -> String {
        let asked: Vec<String> = self.all().iter().map(Remote::to_string).collect();
        asked.join(", ")
    }
}

/// A pointer to what is offered.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct Pointing {
    /// Publish a pointer to it: others `get OWNER/ALIAS`, whatever its content is at that time
    #[arg(long = "as", value_name = "ALIAS")]
    alias: Option<Alias>,
    /// The key whose pointer it is; it is created if it does not exist. Default: --key, or one key of this
    /// user for all pointers
    #[arg(long = "as-key", value_name = "FILE", requires = "alias")]
    as_key: Option<PathBuf>,
    #[command(flatten)]
    servers: NameServers,
}

/// `publish`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  whimbrel publish --as films films/\n  whimbrel publish --as films --remove\n\n\
                  It publishes the pointer and ends; `whimbrel serve --as films films/` serves the content as well."
)]
pub(crate) struct PublishPointer {
    /// A file or a folder, or a content's name
    #[arg(required_unless_present = "remove", conflicts_with = "remove")]
    what: Option<PathBuf>,
    #[command(flatten)]
    pointing: Pointing,
    /// Remove the pointer
    #[arg(long)]
    remove: bool,
    /// How long to wait for a name server
    #[arg(long, value_name = "DURATION", default_value = "10 s", value_parser = Span::with_unit)]
    timeout: Span,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn publish(arguments: PublishPointer) -> Outcome {
    let stop = stop_flag()?;
    let pointing = &arguments.pointing;
    let alias = pointing.alias.clone();
    let alias = alias.ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "a pointer has an alias: add `--as ALIAS`, such as `--as films`",
        )
    })?;
    let (content, size) = match &arguments.what {
        None => (Guid::NONE, 0),
        Some(what) => match what.to_str().map(directory::name) {
            Some(Ok(name)) if !what.exists() => (name, 0),
            _ => hashed(what)?,
        },
    };
    let patience = NamePatience {
        until: Instant::now() + arguments.timeout.0,
        stop: &stop,
    };
    let work = PublishedPointer {
        keys: pointing.keys(None)?,
        pointer: Pointer {
            alias,
            content,
            size,
        },
        servers: pointing.servers.clone(),
        json: arguments.json,
    };
    let mut client = work.servers.client()?;
    match pointers::publish(
        &mut client,
        &work.keys,
        &work.pointer,
        arguments.remove,
        patience,
    )? {
        Some(Ok(_)) if arguments.remove => {
            note(&format!("{} is removed", work.shown()));
            Ok(Exit::Done)
        }
        Some(Ok(record)) => {
            work.tell(&record, &out);
            Ok(Exit::Done)
        }
        Some(Err(rejection)) => Err(work.refused(rejection)),
        None if stop.load(Ordering::Relaxed) => Ok(Exit::Interrupted),
        None => Err(work.refused(Rejection::Unreachable)),
    }
}

fn hashed(path: &Path) -> Result<(Guid, u64), Failure> {
    let cache = Places::of_this_user().cache.join("trees");
    let mut shelf = Shelf::new(Some(cache));
    let shelved = shelf.add(path, &mut |_, _| {})?;
    Ok((shelved.name, shelved.length))
}

impl Pointing {
    /// Returns the key that signs. `of_host` is that of the host in this process.
    fn keys(&self, of_host: Option<&Path>) -> Result<KeyPair, Failure> {
        let path = self.as_key.as_deref().or(of_host);
        let path = path.map_or_else(
            || {
                DirectoryFile::of_this_user()
                    .path()
                    .with_file_name("publisher.pem")
            },
            Path::to_owned,
        );
        match path.exists() {
            true => Ok(keys::load(&path)?),
            false => Ok(keys::create(&path)?),
        }
    }

    /// Publishes the pointer to the one thing that is offered, if there is to be one, and keeps it
    /// published until `stop` is set.
    pub(super) fn begin(
        &self,
        offered: &[Shelved],
        of_host: Option<&Path>,
        json: bool,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), Failure> {
        let Some(alias) = self.alias.clone() else {
            return Ok(());
        };
        let [one] = offered else {
            let text = "a pointer leads to one file or folder: serve a folder that holds them, or run a command for each";
            return Err(Failure::new(Exit::Usage, text));
        };
        let work = PublishedPointer {
            keys: self.keys(of_host)?,
            pointer: Pointer {
                alias,
                content: one.name,
                size: one.length,
            },
            servers: self.servers.clone(),
            json,
        };
        // What is wrong with the servers is said now; a client is used where it was made.
        drop(work.servers.client()?);
        let stop = Arc::clone(stop);
        let keep = move || match work.servers.client() {
            Ok(client) => work.keep(client, &stop),
            Err(failure) => note(&failure.to_string()),
        };
        let thread = std::thread::Builder::new().name("pointer".into());
        thread.spawn(keep)?;
        Ok(())
    }
}

/// A pointer that is being published.
struct PublishedPointer {
    keys: KeyPair,
    pointer: Pointer,
    servers: NameServers,
    json: bool,
}

impl PublishedPointer {
    fn shown(&self) -> String {
        format!("{}/{}", self.keys.guid(), self.pointer.alias)
    }

    fn tell(&self, record: &Record, print: &dyn Fn(&str)) {
        if self.json {
            return tell_json(&json!({
                "event": "pointer", "owner": self.keys.guid(), "alias": self.pointer.alias,
                "name": self.pointer.content, "version": record.version(), "age_s": 0, "current": true,
            }));
        }
        print(&format!("{}  {}\n", self.pointer.content, self.shown()));
    }

    fn refused(&self, rejection: Rejection) -> Failure {
        let (exit, why) = match rejection {
            Rejection::Unreachable => (
                Exit::TimedOut,
                format!(
                    "no name server responds; asked: {}; --name-server names others",
                    self.servers.asked()
                ),
            ),
            Rejection::Server {
                code: Code::Full, ..
            } => (
                Exit::Other,
                "the name server has no room for it; a key has at most 64 pointers: remove one"
                    .into(),
            ),
            Rejection::Server {
                code: Code::Revoked,
                ..
            } => (
                Exit::Other,
                "the name of this key was revoked: publish with another key".into(),
            ),
            Rejection::Server {
                code: Code::Expired | Code::FromTheFuture,
                ..
            } => (
                Exit::Other,
                "the clocks of this machine and of the name server differ".into(),
            ),
            Rejection::Server { code, .. } => (
                Exit::Other,
                format!("the name server refuses it ({code:?})"),
            ),
            Rejection::Busy => (Exit::Other, "the name server is busy; try again".into()),
        };
        Failure::new(exit, format!("{} is not published: {why}", self.shown()))
    }

    /// Publishes it, tries again if that fails, and renews it before it is forgotten. A newer version of
    /// another program ends that.
    fn keep(&self, mut client: NameClient, stop: &AtomicBool) {
        let mut told_failure = String::new();
        let mut version = None;
        while !stop.load(Ordering::Relaxed) {
            let patience = NamePatience {
                until: Instant::now() + TRY,
                stop,
            };
            if let Some(version) = version
                && self.is_overtaken(&mut client, version, patience)
            {
                return note(&format!(
                    "{} has a newer version, and is not renewed here",
                    self.shown()
                ));
            }
            let published =
                pointers::publish(&mut client, &self.keys, &self.pointer, false, patience);
            let pause = match published {
                Ok(Some(Ok(record))) => {
                    if version.replace(record.version()).is_none() {
                        self.tell(&record, &tell);
                    }
                    RENEWAL
                }
                Ok(outcome) => {
                    let rejection = outcome
                        .and_then(Result::err)
                        .unwrap_or(Rejection::Unreachable);
                    let failure = self.refused(rejection).to_string();
                    if failure != told_failure {
                        note(&format!("{failure}; trying again"));
                        told_failure = failure;
                    }
                    RETRY
                }
                Err(error) => return note(&format!("{} is not published: {error}", self.shown())),
            };
            let until = Instant::now() + pause;
            while Instant::now() < until && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
        }
    }

    fn is_overtaken(
        &self,
        client: &mut NameClient,
        version: u64,
        patience: NamePatience<'_>,
    ) -> bool {
        let subject = Pointer::subject_of(&self.keys.guid());
        let Ok(Resolution::Found(answer)) = client.resolve(subject, patience) else {
            return false;
        };
        let newest = answer.pointer(&self.pointer.alias);
        newest.is_some_and(|(record, it)| record.version() > version && it != self.pointer)
    }
}

/// A pointer as people write it: `OWNER/ALIAS`.
#[derive(Clone, Debug)]
pub(super) struct PointerName {
    owner: Guid,
    alias: Alias,
}

impl PointerName {
    /// Reads one; `None` if the text is something else.
    pub(super) fn read(text: &str) -> Option<Result<PointerName, Failure>> {
        let (owner, alias) = text.split_once('/')?;
        let wrong = |error: &dyn std::fmt::Display| Failure::new(Exit::Usage, error);
        let read = || {
            let owner = directory::name(owner).map_err(|error| wrong(&error))?;
            let alias = alias
                .parse()
                .map_err(|error| wrong(&format!("'{text}': {error}")))?;
            Ok(PointerName { owner, alias })
        };
        Some(read())
    }

    /// Finds the newest version, and says what it is.
    pub(super) fn find(
        &self,
        servers: &NameServers,
        timeout: Duration,
        stop: &AtomicBool,
        json: Option<&dyn Fn(&Value)>,
    ) -> Result<FoundPointer, Failure> {
        let patience = NamePatience {
            until: Instant::now() + timeout,
            stop,
        };
        let known = KnownPointers::of_this_user();
        let mut client = servers.client()?;
        let found = pointers::find(
            &mut client,
            &known,
            self.owner,
            &self.alias,
            patience,
            &mut succeeded,
        );
        let found = found.map_err(|error| of_pointer(error, servers))?;
        let age = Duration::from_millis(unix_ms().saturating_sub(found.issued_ms));
        if let Some(json) = json {
            json(&json!({
                "event": "pointer", "owner": found.owner, "alias": self.alias, "name": found.pointer.content,
                "version": found.version, "age_s": age.as_secs(), "current": found.is_current,
            }));
            return Ok(found);
        }
        let age = format_duration(Duration::from_secs(age.as_secs()));
        let owner = directory::shown(&found.owner);
        let from = match found.is_current {
            true => String::new(),
            false => format!(
                "; that is the newest version known here: no name server has one ({} asked)",
                servers.asked()
            ),
        };
        note(&format!(
            "{} of {owner} is {}, signed {age} ago{from}",
            self.alias, found.pointer.content
        ));
        Ok(found)
    }

    /// Waits for a version after this one. Returns false if the user does not want to wait any longer.
    pub(super) fn await_newer(
        &self,
        found: &FoundPointer,
        servers: &NameServers,
        stop: &AtomicBool,
    ) -> Result<bool, Failure> {
        let mut client = servers.client()?;
        let subject = Pointer::subject_of(&found.owner);
        if !client.watch(subject)? {
            return Err(Failure::new(
                Exit::Other,
                "the name server has too many watches",
            ));
        }
        while !stop.load(Ordering::Relaxed) {
            for event in client.events(LOOK)? {
                let ResolverEvent::Changed { answer, .. } = event else {
                    continue;
                };
                let newest = answer.pointer(&self.alias);
                let is_newer = |(record, it): &(&Record, Pointer)| {
                    record.version() > found.version && it.content != found.pointer.content
                };
                if newest.is_some_and(|it| is_newer(&it)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Returns the name that the owner of `name` uses now, if the user has named servers that know.
pub(super) fn current_name(
    name: Guid,
    servers: &NameServers,
    stop: &AtomicBool,
) -> Result<Guid, Failure> {
    if !servers.are_given() {
        return Ok(name);
    }
    let patience = NamePatience {
        until: Instant::now() + CHECK,
        stop,
    };
    let current = pointers::current_name(&mut servers.client()?, name, patience, &mut succeeded);
    current.map_err(|error| of_pointer(error, servers))
}

/// Says that a name was replaced by its owner.
fn succeeded(old: Guid, new: Guid) {
    note(&format!(
        "{} was replaced by its owner: the name is now {new}; `whimbrel names add ALIAS {new}` notes that",
        directory::shown(&old)
    ));
}

fn of_pointer(error: PointerError, servers: &NameServers) -> Failure {
    let asked = format!("{error} (asked {})", servers.asked());
    match error {
        PointerError::Unknown(..)
        | PointerError::Revoked(_)
        | PointerError::TooManySuccessors(_) => Failure::new(Exit::NoSuchName, asked),
        PointerError::Unreachable(..) => Failure::new(Exit::TimedOut, asked),
        PointerError::Interrupted => Failure::new(Exit::Interrupted, ""),
        PointerError::Io(error) => error.into(),
    }
}

/// Prints the pointers of a key.
pub(super) fn list(answer: &whimbrel_gnrs::Answer) -> String {
    let mut text = String::new();
    for record in &answer.providers {
        let Some(pointer) = record.as_pointer() else {
            continue;
        };
        let age = unix_ms().saturating_sub(record.issued_ms()) / 1000;
        let age = format_duration(Duration::from_secs(age));
        text += &format!(
            "  {}  {}, signed {age} ago\n",
            pointer.alias, pointer.content
        );
    }
    text
}
