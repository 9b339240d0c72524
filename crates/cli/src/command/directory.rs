//! `names`: aliases for names; and what other commands ask of the directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use serde_json::json;
use whimbrel_core::Guid;
use whimbrel_gnrs::alias::Alias;
use whimbrel_gnrs::directory::{AliasTaken, Directory, ImportError, Imported, SignedDirectory};
use whimbrel_keychain::small_file;
use whimbrel_node::config::NamedRemote;
use whimbrel_node::directory::{DirectoryFile, DirectoryFileError, ResolveError, resolve};
use whimbrel_node::keys;

use crate::exit::{Exit, Failure};
use crate::logging::note;
use crate::results::{Outcome, json_line, out};

#[derive(Subcommand, Debug)]
pub(crate) enum NamesCommand {
    /// Give a name an alias, which commands take in its place
    #[command(
        after_help = "Example:\n  whimbrel names add ship-7 6b1e...c2\n  whimbrel ping ship-7"
    )]
    Add {
        /// 1 to 32 characters of a to z, 0 to 9, '-', '.' and '_'; the first is a letter
        alias: Alias,
        /// The name of a host, a router or a content: 64 hexadecimal digits
        name: Guid,
    },
    /// Show the aliases, and the signers whose directories were imported
    #[command(after_help = "Example:\n  whimbrel names list --json | jq .aliases")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove an alias
    #[command(after_help = "Example:\n  whimbrel names remove ship-7")]
    Remove {
        /// The alias
        alias: Alias,
    },
    /// Write the aliases to a file that others can import, signed by a key
    #[command(after_help = "Example:\n  whimbrel names export harbour.names")]
    Export {
        /// The file to write; - for standard output
        file: PathBuf,
        /// The key that signs; it is created if it does not exist. Default: a key next to the directory
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Import the aliases of a signed file. The signer of the first import is pinned
    #[command(
        after_help = "Example:\n  whimbrel names import harbour.names\n\nAliases of your own stay as they are. A newer file of the \
                      same signer updates those that came from it."
    )]
    Import {
        /// The file; - for standard input
        file: PathBuf,
        /// Accept this signer only, and pin it
        #[arg(long, value_name = "NAME")]
        signer: Option<Guid>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget a signer and the aliases imported from it
    #[command(after_help = "Example:\n  whimbrel names forget 6b1e...c2")]
    Forget {
        /// The name of the signer's key, as `whimbrel names list` shows it
        signer: Guid,
    },
}

impl From<DirectoryFileError> for Failure {
    fn from(error: DirectoryFileError) -> Failure {
        let exit = match error {
            DirectoryFileError::Foreign(_) | DirectoryFileError::Damaged { .. } => Exit::Usage,
            DirectoryFileError::Read { .. } => Exit::Other,
            DirectoryFileError::Write { .. } => Exit::Write,
        };
        Failure::new(exit, error)
    }
}

impl From<AliasTaken> for Failure {
    fn from(error: AliasTaken) -> Failure {
        Failure::new(Exit::Usage, error)
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Failure {
        Failure::new(Exit::Usage, error)
    }
}

/// Reads a name as people type it, for arguments of commands: 64 digits, or an alias of this user's
/// directory.
pub(crate) fn name(text: &str) -> Result<Guid, ResolveError> {
    resolve(text)
}

/// Reads the address of a neighbour, whose name may be an alias: `[NAME@]HOST:PORT`.
pub(crate) fn remote(text: &str) -> Result<NamedRemote, Box<dyn std::error::Error + Send + Sync>> {
    match text.split_once('@') {
        Some((alias, at)) if alias.trim().parse::<Alias>().is_ok() => {
            let name = Some(resolve(alias.trim())?);
            let remote = at.parse()?;
            Ok(NamedRemote { name, remote })
        }
        _ => Ok(text.parse()?),
    }
}

/// Returns a name for people: its digits, and its alias if it has one.
pub(crate) fn shown(name: &Guid) -> String {
    static DIRECTORY: OnceLock<Directory> = OnceLock::new();
    let read = || {
        let read = DirectoryFile::of_this_user().read();
        read.unwrap_or_else(|error| {
            note(&error.to_string());
            Directory::default()
        })
    };
    match DIRECTORY.get_or_init(read).alias_of(name) {
        Some(alias) => format!("{name} ({alias})"),
        None => name.to_string(),
    }
}

pub(crate) fn run(command: NamesCommand) -> Outcome {
    let file = DirectoryFile::of_this_user();
    match command {
        NamesCommand::Add { alias, name } => {
            file.change(|directory| Ok::<_, Failure>(directory.add(alias, name)?))?;
            Ok(Exit::Done)
        }
        NamesCommand::List { json } => list(&file.read()?, json),
        NamesCommand::Remove { alias } => {
            let removed = file.change(|it| Ok::<_, Failure>(it.remove(&alias)))?;
            let unknown = || Failure::new(Exit::Usage, format!("no name has the alias {alias}"));
            removed.ok_or_else(unknown).map(|_| Exit::Done)
        }
        NamesCommand::Export { file: to, key } => export(&file, &to, key),
        NamesCommand::Import {
            file: from,
            signer,
            json,
        } => import(&file, &from, signer, json),
        NamesCommand::Forget { signer } => {
            let count = file.change(|it| Ok::<_, Failure>(it.forget(&signer)))?;
            let count = count.ok_or_else(|| {
                Failure::new(Exit::Usage, format!("{signer} is not a pinned signer"))
            })?;
            note(&format!("{count} aliases of this signer were removed"));
            Ok(Exit::Done)
        }
    }
}

fn list(directory: &Directory, json: bool) -> Outcome {
    if json {
        let signers: Vec<&Guid> = directory.signers().collect();
        json_line(&json!({ "aliases": directory.aliases(), "signers": signers }));
        return Ok(Exit::Done);
    }
    let width = directory.aliases().keys().map(|it| it.as_str().len());
    let width = width.max().unwrap_or(0);
    let mut text = String::new();
    for (alias, it) in directory.aliases() {
        let from = it
            .from
            .map_or(String::new(), |from| format!("  from {}", from.short()));
        text += &format!("{:width$}  {}{from}\n", alias.as_str(), it.name);
    }
    for signer in directory.signers() {
        text += &format!("signer {signer}\n");
    }
    out(&text);
    Ok(Exit::Done)
}

fn export(file: &DirectoryFile, to: &Path, key: Option<PathBuf>) -> Outcome {
    let names: BTreeMap<Alias, Guid> = file.read()?.names();
    if names.is_empty() {
        let text = "the directory of names is empty: `whimbrel names add ALIAS NAME` comes first";
        return Err(Failure::new(Exit::Usage, text));
    }
    let key = key.unwrap_or_else(|| file.path().with_extension("pem"));
    let (keys, _held) = keys::hold(&key)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let text = SignedDirectory::sign(&keys, now.as_millis() as u64, &names);
    if to == Path::new("-") {
        out(&text);
    } else {
        // Another file that is named by mistake stays.
        let is_other = small_file::read_text(to).map(|old| SignedDirectory::parse(&old).is_err());
        if to.exists() && is_other.unwrap_or(true) {
            let text = format!(
                "{} exists and is not a directory of names: name another file",
                to.display()
            );
            return Err(Failure::new(Exit::Usage, text));
        }
        fs::write(to, text).map_err(|error| {
            Failure::new(
                Exit::Write,
                format!("cannot write {}: {error}", to.display()),
            )
        })?;
    }
    note(&format!(
        "{} aliases, signed by {}",
        names.len(),
        keys.guid()
    ));
    Ok(Exit::Done)
}

fn import(file: &DirectoryFile, from: &Path, signer: Option<Guid>, json: bool) -> Outcome {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("{}: {error}", from.display()))
    };
    let text = if from == Path::new("-") {
        let mut text = String::new();
        let read = io::stdin().take(1 << 20).read_to_string(&mut text);
        read.map(|_| text)
    } else {
        small_file::read_text(from)
    };
    let text = text.map_err(|error| wrong(&error))?;
    let signed = SignedDirectory::parse(&text).map_err(|error| wrong(&error))?;
    let by = signed.signer;
    let imported = file.change(|it| Ok::<_, Failure>(it.import(signed, signer)?))?;
    if json {
        let refused: Vec<String> = imported.refused.iter().map(AliasTaken::to_string).collect();
        let changed: BTreeMap<&Alias, Guid> = imported
            .changed
            .iter()
            .map(|(it, old)| (it, *old))
            .collect();
        json_line(&json!({
            "signer": by, "is_new_signer": imported.is_new_signer, "added": imported.added,
            "changed": changed, "removed": imported.removed, "refused": refused,
        }));
    } else {
        tell(&imported, &by);
    }
    Ok(match imported.refused.is_empty() {
        true => Exit::Done,
        false => Exit::Incomplete,
    })
}

fn tell(imported: &Imported, by: &Guid) {
    let pinned = match imported.is_new_signer {
        true => ", which is pinned: ask its owner whether this is their name",
        false => ", as before",
    };
    note(&format!("signed by {by}{pinned}"));
    for alias in &imported.added {
        out(&format!("added {alias}\n"));
    }
    for (alias, old) in &imported.changed {
        out(&format!("changed {alias}, which was {old}\n"));
    }
    for alias in &imported.removed {
        out(&format!("removed {alias}\n"));
    }
    for refused in &imported.refused {
        note(&format!("not taken over: {refused}"));
    }
}
