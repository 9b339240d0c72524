//! `id new|show|rotate|revoke|publish`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Subcommand;
use whimbrel_core::Guid;
use whimbrel_core::units::Span;
use whimbrel_gnrs::record::revocation_file;
use whimbrel_gnrs::wire::Code;
use whimbrel_gnrs::{KeyPair, Record, Rejection};
use whimbrel_keychain::small_file;
use whimbrel_node::keys;
use whimbrel_node::name_client::NamePatience;
use whimbrel_node::pointers::unix_ms;

use super::pointers::NameServers;
use crate::exit::{Exit, Failure};
use crate::logging::note;
use crate::results::{Outcome, json_line, out, stop_flag};

#[derive(Subcommand, Debug)]
pub(crate) enum IdCommand {
    /// Create a key and print its name
    #[command(after_help = "Example:\n  whimbrel id new host.pem")]
    New {
        /// The file to write (PKCS#8 PEM, mode 0600); it must not exist
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the name of a key
    #[command(after_help = "Example:\n  whimbrel id show host.pem")]
    Show {
        /// The key file
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Prepare a signed statement that replaces a key with a successor; keep it away from the key
    #[command(
        after_help = "Example:\n  whimbrel id rotate host.pem next.pem -o host.rotation\n  whimbrel id publish host.rotation --name-server \
                      192.0.2.1:4720\n\nNothing changes until `id publish`: the name of OLD is then revoked, and the name of NEW succeeds it. Keep \
                      NEW offline until then."
    )]
    Rotate {
        /// The key file of the name that is to end
        old: PathBuf,
        /// The key file of its successor; it is created if it does not exist
        new: PathBuf,
        /// The file to write, which must not exist
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Prepare a signed statement that revokes a key without a successor
    #[command(
        after_help = "Example:\n  whimbrel id revoke host.pem -o host.revocation\n  whimbrel id publish host.revocation\n\nNothing changes \
                      until `id publish`. It overrides every `id rotate` of the same key, because a thief of the key could name a \
                      successor."
    )]
    Revoke {
        /// The key file
        key: PathBuf,
        /// The file to write, which must not exist
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Publish a statement of `id rotate` or `id revoke`. This cannot be undone
    #[command(
        after_help = "Example:\n  whimbrel id publish host.revocation --name-server 192.0.2.1:4720"
    )]
    Publish {
        /// The statement
        statement: PathBuf,
        #[command(flatten)]
        name_servers: NameServers,
        /// How long to wait for a name server
        #[arg(long, value_name = "DURATION", default_value = "10 s", value_parser = Span::with_unit)]
        timeout: Span,
    },
}

pub(crate) fn run(command: &IdCommand) -> Outcome {
    match command {
        IdCommand::New { file, json } => show(&keys::create(file)?, *json),
        IdCommand::Show { file, json } => show(&keys::load(file)?, *json),
        IdCommand::Rotate { old, new, output } => {
            let keys = keys::load(old)?;
            let successor = match new.exists() {
                true => keys::load(new)?,
                false => keys::create(new)?,
            };
            write(output, &keys, Some(successor.guid()))
        }
        IdCommand::Revoke { key, output } => write(output, &keys::load(key)?, None),
        IdCommand::Publish {
            statement,
            name_servers,
            timeout,
        } => publish(statement, name_servers, timeout),
    }
}

fn show(keys: &KeyPair, json: bool) -> Outcome {
    let (guid, public) = (keys.guid(), keys.public());
    if json {
        json_line(&serde_json::json!({ "guid": guid, "public_key": public.to_string() }));
    } else {
        out(&format!("{guid}\n"));
    }
    Ok(Exit::Done)
}

fn write(path: &Path, keys: &KeyPair, successor: Option<Guid>) -> Outcome {
    let record = Record::revocation(keys, successor, unix_ms());
    let record = record.map_err(|_| {
        Failure::new(
            Exit::Usage,
            "a name cannot succeed itself: NEW is the key OLD, name another file",
        )
    })?;
    let failed = |error: std::io::Error| {
        Failure::new(
            Exit::Write,
            format!("cannot write {}: {error}", path.display()),
        )
    };
    let mut options = OpenOptions::new();
    // Whoever has it can end the name.
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(failed)?;
    let written = file.write_all(revocation_file::encode(&record).as_bytes());
    written.and_then(|()| file.sync_all()).map_err(failed)?;
    let then = match successor {
        Some(name) => format!("and {name} succeeds it"),
        None => "and has no successor".to_owned(),
    };
    note(&format!(
        "once {} is published, {} is revoked {then}; keep it offline, it is valid for ten years",
        path.display(),
        keys.guid()
    ));
    Ok(Exit::Done)
}

fn publish(path: &Path, servers: &NameServers, timeout: &Span) -> Outcome {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("{}: {error}", path.display()))
    };
    let text = small_file::read_text(path).map_err(|error| wrong(&error))?;
    let record = revocation_file::decode(&text, unix_ms()).map_err(|error| wrong(&error))?;
    let name = record.subject();
    let stop = stop_flag()?;
    let patience = NamePatience {
        until: Instant::now() + timeout.0,
        stop: &stop,
    };
    let refused = |exit, why: &str| {
        Failure::new(
            exit,
            format!("the statement about {name} is not published: {why}"),
        )
    };
    match servers.client()?.register(record, patience)? {
        Some(Ok(())) => {
            note(&format!("{name} is revoked"));
            Ok(Exit::Done)
        }
        Some(Err(Rejection::Server {
            code: Code::Revoked | Code::Stale | Code::Conflict,
            ..
        })) => Err(refused(
            Exit::Other,
            "the name is revoked already, by another statement",
        )),
        Some(Err(Rejection::Server { code, .. })) => Err(refused(
            Exit::Other,
            &format!("the name server refuses it ({code:?})"),
        )),
        _ => Err(refused(
            Exit::TimedOut,
            &format!("no name server responds; asked: {}", servers.asked()),
        )),
    }
}
