//! `group`: groups of hosts, to which `push` and `message` send [MFTP §3.5].

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;
use whimbrel_client::{Answer, AttachedSession, LocalError, Question};
use whimbrel_core::Guid;
use whimbrel_core::units::Span;
use whimbrel_gnrs::GroupAdmission;
use whimbrel_keychain::small_file;
use whimbrel_mobilityfirst::local::MembershipChange;
use whimbrel_mobilityfirst::wire::ControlCode;
use whimbrel_node::keys;
use whimbrel_node::pointers::unix_ms;

use super::access::reach;
use super::directory;
use super::{Outcome, json_line, out, stop_flag};
use crate::arguments::HostAccess;
use crate::exit::{self, Exit, Failure};
use crate::logging::{note, path_line};

/// How often the signal is looked at, and a question is repeated.
const LOOK: Duration = Duration::from_millis(200);
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Subcommand, Debug)]
pub(crate) enum GroupCommand {
    /// Create a group's key and print its name
    #[command(after_help = format!("Example:\n  whimbrel group create team.pem\n  whimbrel group admit team.pem anyone -o team.admission\n\n{}", exit::HELP))]
    Create {
        /// The file to write (PKCS#8 PEM, mode 0600); it must not exist. Its holder decides who may join
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Sign an admission to a group, for one host or for anyone
    #[command(
        after_help = "Example:\n  whimbrel group admit team.pem 6b1e...c2 -o ship-7.admission\n\nAn admission for a host is of no use to \
                      others; one for anyone makes the group open. It cannot be revoked before it expires."
    )]
    Admit {
        /// The group's key file
        key: PathBuf,
        /// The host's name, or "anyone"
        #[arg(value_name = "NAME|anyone", value_parser = admitted)]
        member: AdmittedHost,
        /// How long it is valid
        #[arg(long, value_name = "DURATION", default_value = "365 d", value_parser = Span::with_unit)]
        lifetime: Span,
        /// The file to write, which must not exist; by default it is printed
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Join a group with this host. It stays a member when it sleeps or is away
    #[command(
        after_help = "Example:\n  whimbrel group join team.admission --key me.pem --router 192.0.2.1:4711\n\nA membership is renewed while a \
                      host daemon runs, and ends a week after it was last renewed."
    )]
    Join {
        #[command(flatten)]
        joining: Joining,
        /// The key is that of a group: its members then also get what is sent to the group that it joins
        #[arg(long)]
        as_group: bool,
    },
    /// Leave a group
    #[command(
        after_help = "Example:\n  whimbrel group leave team.admission --key me.pem --router 192.0.2.1:4711"
    )]
    Leave(Joining),
    /// Print the names of a group's members
    #[command(after_help = "Example:\n  whimbrel group members 6b1e...c2 --router 192.0.2.1:4711")]
    Members {
        /// The group: its name, or an alias (`whimbrel names`)
        #[arg(value_name = "GROUP", value_parser = group)]
        group: Guid,
        #[command(flatten)]
        asking: GroupAsking,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// What `join` and `leave` have in common.
#[derive(Args, Debug)]
pub(crate) struct Joining {
    /// The admission, or the file that holds it
    #[arg(value_name = "ADMISSION")]
    admission: String,
    #[command(flatten)]
    asking: GroupAsking,
}

/// The host, and the patience.
#[derive(Args, Debug)]
pub(crate) struct GroupAsking {
    #[command(flatten)]
    access: HostAccess,
    /// Give up after this long
    #[arg(long, value_name = "DURATION", default_value = "30 s", value_parser = Span::with_unit)]
    timeout: Span,
}

/// Who may join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmittedHost(Option<Guid>);

fn admitted(text: &str) -> Result<AdmittedHost, whimbrel_node::directory::ResolveError> {
    match text {
        "anyone" => Ok(AdmittedHost(None)),
        name => directory::name(name).map(|name| AdmittedHost(Some(name))),
    }
}

/// Reads a group's name, with or without the word before it by which receivers are told to be groups.
fn group(text: &str) -> Result<Guid, whimbrel_node::directory::ResolveError> {
    directory::name(text.strip_prefix(GROUP_WORD).unwrap_or(text))
}

/// Before the name of a group in the place of a receiver's.
pub(crate) const GROUP_WORD: &str = "group:";

/// Whom a content or a message is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushReceiver {
    pub(crate) name: Guid,
    pub(crate) is_group: bool,
}

/// Reads a receiver as people type it: a name or an alias, after "group:" that of a group.
pub(crate) fn receiver(text: &str) -> Result<PushReceiver, whimbrel_node::directory::ResolveError> {
    Ok(PushReceiver {
        name: group(text)?,
        is_group: text.starts_with(GROUP_WORD),
    })
}

/// Reads an admission, or the file that holds it.
pub(crate) fn admission(text: &str) -> Result<GroupAdmission, Failure> {
    let unsigned = |what: &str| {
        let text = format!("{what} no admission that a group has signed (whimbrel group admit)");
        Failure::new(Exit::Usage, text)
    };
    let text = match text.parse::<GroupAdmission>() {
        Ok(admission) if admission.is_signed() => return Ok(admission),
        Ok(_) => return Err(unsigned("this is")),
        Err(_) => small_file::read_text(Path::new(text)).map_err(|error| {
            let path = path_line(Path::new(text));
            let text = format!("{path} is not an admission, and cannot be read as a file: {error}");
            Failure::new(Exit::Usage, text)
        })?,
    };
    let admission = text.trim().parse::<GroupAdmission>().ok();
    let signed = admission.filter(GroupAdmission::is_signed);
    signed.ok_or_else(|| unsigned("the file holds"))
}

pub(crate) fn run(command: GroupCommand) -> Outcome {
    match command {
        GroupCommand::Create { file, json } => {
            let name = keys::create(&file)?.guid();
            match json {
                true => json_line(&json!({ "group": name })),
                false => out(&format!("{name}\n")),
            }
            Ok(Exit::Done)
        }
        GroupCommand::Admit {
            key,
            member,
            lifetime,
            output,
        } => admit(&key, member, lifetime.0, output.as_deref()),
        GroupCommand::Join {
            joining,
            as_group: false,
        } => join(joining, MembershipChange::Join),
        GroupCommand::Join {
            joining,
            as_group: true,
        } => join(joining, MembershipChange::JoinAsGroup),
        GroupCommand::Leave(joining) => join(joining, MembershipChange::Leave),
        GroupCommand::Members {
            group,
            asking,
            json,
        } => members(group, asking, json),
    }
}

fn admit(key: &Path, member: AdmittedHost, lifetime: Duration, output: Option<&Path>) -> Outcome {
    let keys = keys::load(key)?;
    let expires_ms = unix_ms().saturating_add(lifetime.as_millis() as u64);
    let admission = GroupAdmission::sign(&keys, member.0, expires_ms);
    match output {
        None => out(&format!("{admission}\n")),
        Some(path) => {
            let written = std::fs::File::create_new(path).and_then(|mut file| {
                std::io::Write::write_all(&mut file, format!("{admission}\n").as_bytes())
            });
            written.map_err(|error| unwritten(path, &error))?;
        }
    }
    Ok(Exit::Done)
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let exit = match error.kind() {
        std::io::ErrorKind::AlreadyExists => Exit::Usage,
        _ => Exit::Write,
    };
    Failure::new(exit, format!("cannot write {}: {error}", path_line(path)))
}

/// Passes the host's session to `look` until that returns something.
fn ask<T>(
    asking: &GroupAsking,
    mut look: impl FnMut(&mut AttachedSession<'_>) -> Result<Option<T>, LocalError>,
) -> Result<T, Failure> {
    let stop = stop_flag()?;
    let mut access = reach(&asking.access, Vec::new())?;
    let mut host = access.session()?;
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if let Some(found) = look(&mut host)? {
            return Ok(found);
        }
        if begun.elapsed() >= asking.timeout.0 {
            let text = "no router has answered in time; `whimbrel doctor` looks for the cause";
            return Err(Failure::new(Exit::TimedOut, text));
        }
    }
    Err(Failure::new(Exit::Interrupted, "interrupted"))
}

fn join(joining: Joining, change: MembershipChange) -> Outcome {
    let is_on = change != MembershipChange::Leave;
    let admission = admission(&joining.admission)?;
    let group = admission.group_name();
    if is_on && joining.asking.access.router.is_empty() != joining.asking.access.key.is_none() {
        note("a member needs a name that stays: name a file for its key with --key");
    }
    let mut is_asked = false;
    let code = ask(&joining.asking, |host| {
        if !std::mem::replace(&mut is_asked, true) {
            host.session().set_membership(admission, change);
        }
        host.step(LOOK)?;
        let code = host.session().name_code(group);
        // Until the name service has answered.
        Ok(code.filter(|code| *code != ControlCode::Attached))
    })?;
    let Some(why) = refusal(code) else {
        let what = if is_on { "joined" } else { "left" };
        note(&format!("{what} {}", directory::shown(&group)));
        return Ok(Exit::Done);
    };
    let text = format!("cannot change the membership in {group}: {why}");
    Err(Failure::new(Exit::Other, text))
}

/// Returns why the name service has not taken a membership, or its end; `None` if it has.
pub(crate) fn refusal(code: ControlCode) -> Option<&'static str> {
    Some(match code {
        ControlCode::Registered | ControlCode::Attached => return None,
        ControlCode::Invalid => "the admission is not for this host, or it has ended",
        ControlCode::Stale => "the name service has a newer statement of this host",
        ControlCode::Unreachable => "no name service answers",
        ControlCode::Full => "the host, the router or the name service has no room",
        ControlCode::Clock => "the clock of this machine is wrong, or the admission has ended",
    })
}

fn members(group: Guid, asking: GroupAsking, json: bool) -> Outcome {
    let report = ask(&asking, |host| {
        Ok(match host.ask(Question::Members(group), AGAIN)? {
            Some(Answer::Status(json)) => Some(json),
            _ => None,
        })
    })?;
    if json {
        out(&format!("{report}\n"));
        return Ok(Exit::Done);
    }
    let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
    let names = report["members"].as_array().into_iter().flatten();
    for name in names.filter_map(|name| name.as_str()?.parse::<Guid>().ok()) {
        out(&format!("{}\n", directory::shown(&name)));
    }
    Ok(Exit::Done)
}
