//! Pointers of keys: publishing one, finding its newest version, and what was found here before.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use whimbrel_core::Guid;
use whimbrel_gnrs::alias::Alias;
use whimbrel_gnrs::record::{MAX_LIFETIME_MS, Pointer};
use whimbrel_gnrs::wire::Code;
use whimbrel_gnrs::{KeyPair, Record, Rejection, Statement, VerifyError};
use whimbrel_io::IoError;
use whimbrel_keychain::small_file;

use crate::directory::DirectoryFile;
use crate::name_client::{NameClient, NamePatience, Resolution};
use whimbrel_client::place::{check_own, make_folder_of};

/// A pointer is signed again after this time: it is forgotten after three times as long.
pub const RENEWAL: Duration = Duration::from_millis(MAX_LIFETIME_MS / 3);
/// The number of successors of a revoked name that are followed.
const MAX_SUCCESSORS: usize = 8;
/// Tries to sign a version above the one that is stored.
const MAX_TRIES: usize = 3;

/// Returns the Unix time in milliseconds.
pub fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_millis() as u64
}

/// A pointer that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundPointer {
    /// Whose it is: the name that was asked for, or the one that has succeeded it.
    pub owner: Guid,
    /// What it says.
    pub pointer: Pointer,
    /// Its version.
    pub version: u64,
    /// When its owner signed it, Unix time in milliseconds.
    pub issued_ms: u64,
    /// False if no name server has said so now: it was found here before.
    pub is_current: bool,
}

/// Why a pointer is not found.
#[derive(Debug, thiserror::Error)]
pub enum PointerError {
    /// Nobody has published it, or it was removed.
    #[error("{0} has no pointer '{1}' in the name service")]
    Unknown(Guid, Alias),
    /// The owner's name is no longer valid.
    #[error("{0} was revoked by its owner, and names no successor: ask them for their new name")]
    Revoked(Guid),
    /// The names that succeed each other have no end.
    #[error("{0} was revoked, and so were the {MAX_SUCCESSORS} names that succeed it")]
    TooManySuccessors(Guid),
    /// No name server responds, and nothing was found here before.
    #[error("no name server responds, and {0}/{1} was not found here before")]
    Unreachable(Guid, Alias),
    /// The wait has ended.
    #[error("interrupted")]
    Interrupted,
    /// The system's error.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Follows a name to the one that its owner uses now. `told` is called for each that was revoked, with
/// its successor. A name server that does not respond has nothing to say against a name.
pub fn current_name(
    client: &mut NameClient,
    name: Guid,
    patience: NamePatience<'_>,
    told: &mut dyn FnMut(Guid, Guid),
) -> Result<Guid, PointerError> {
    let mut current = name;
    for _ in 0..MAX_SUCCESSORS {
        let answer = match client.resolve(current, patience)? {
            Resolution::Found(answer) => answer,
            _ => return Ok(current),
        };
        let Some(revocation) = answer.revocation() else {
            return Ok(current);
        };
        let successor = revocation.successor();
        let successor = successor.ok_or(PointerError::Revoked(current))?;
        told(current, successor);
        current = successor;
    }
    Err(PointerError::TooManySuccessors(name))
}

/// Finds the newest version of a pointer: that of the name servers, or of those that were found here
/// before.
pub fn find(
    client: &mut NameClient,
    known: &KnownPointers,
    owner: Guid,
    alias: &Alias,
    patience: NamePatience<'_>,
    told: &mut dyn FnMut(Guid, Guid),
) -> Result<FoundPointer, PointerError> {
    let subject = Pointer::subject_of(&owner);
    let resolution = client.resolve(subject, patience)?;
    if patience.stop.load(Ordering::Relaxed) {
        return Err(PointerError::Interrupted);
    }
    let answered = !matches!(resolution, Resolution::Unreachable | Resolution::Pending);
    let record = match &resolution {
        Resolution::Found(answer) => answer.pointer(alias).map(|(record, _)| record.clone()),
        _ => None,
    };
    if answered {
        let current = current_name(client, owner, patience, told)?;
        if current != owner {
            return find(client, known, current, alias, patience, told);
        }
    }
    let before = known.newest(&owner, alias);
    let (record, is_current) = match (record, before) {
        // A server that has lost its records may have got an older one back.
        (Some(now), Some(before)) if before.version() > now.version() => (before, false),
        (Some(now), _) => (now, true),
        (None, Some(before)) => (before, false),
        (None, None) if answered => return Err(PointerError::Unknown(owner, alias.clone())),
        (None, None) => return Err(PointerError::Unreachable(owner, alias.clone())),
    };
    known.note(&record);
    let unknown = || PointerError::Unknown(owner, alias.clone());
    Ok(FoundPointer {
        owner,
        pointer: record.as_pointer().ok_or_else(unknown)?,
        version: record.version(),
        issued_ms: record.issued_ms(),
        is_current,
    })
}

/// Publishes a pointer with the name servers, or removes it. Returns its record, or `None` if the wait
/// has ended first.
pub fn publish(
    client: &mut NameClient,
    keys: &KeyPair,
    pointer: &Pointer,
    removed: bool,
    patience: NamePatience<'_>,
) -> Result<Option<Result<Record, Rejection>>, IoError> {
    let now_ms = unix_ms();
    let mut statement = match removed {
        true => Statement::removal(now_ms, MAX_LIFETIME_MS),
        false => Statement::new(now_ms, MAX_LIFETIME_MS, Vec::new()),
    };
    for _ in 0..MAX_TRIES {
        let Ok(record) = Record::pointer(keys, pointer, &statement) else {
            break;
        };
        match client.register(record.clone(), patience)? {
            None => return Ok(None),
            Some(Ok(())) => return Ok(Some(Ok(record))),
            // The clock has been set back, or another machine's is ahead.
            Some(Err(Rejection::Server {
                code: Code::Stale | Code::Conflict,
                stored,
            })) if stored >= statement.version => {
                statement.version = stored.saturating_add(1);
            }
            Some(Err(rejection)) => return Ok(Some(Err(rejection))),
        }
    }
    Ok(Some(Err(Rejection::Busy)))
}

/// The pointers that this user's programs have found, one in a file: what was seen is not forgotten
/// when the name servers are out of reach.
#[derive(Clone, Debug)]
pub struct KnownPointers(PathBuf);

impl KnownPointers {
    /// Those in this folder.
    pub fn within(folder: impl Into<PathBuf>) -> KnownPointers {
        KnownPointers(folder.into())
    }

    /// Those of this user.
    pub fn of_this_user() -> KnownPointers {
        let directory = DirectoryFile::of_this_user();
        KnownPointers(directory.path().with_extension("pointers"))
    }

    fn file(&self, owner: &Guid, alias: &Alias) -> PathBuf {
        self.0.join(format!("{owner}.{alias}"))
    }

    /// Returns the newest version that was found.
    pub fn newest(&self, owner: &Guid, alias: &Alias) -> Option<Record> {
        let path = self.file(owner, alias);
        check_own(&path).ok()?;
        let record = Record::parse(small_file::read(&path).ok()?.into()).ok()?;
        let is_right = record.filed_under() == Pointer::key_of(owner, alias);
        // An old version is better than none.
        let verdict = match record.verify(unix_ms()) {
            Err(VerifyError::Expired) => record.verify(record.issued_ms()),
            verdict => verdict,
        };
        (is_right && verdict.is_ok() && !record.is_removal()).then_some(record)
    }

    /// Keeps a version. Without room for it, the next one is found all the same.
    fn note(&self, record: &Record) {
        let Some(pointer) = record.as_pointer() else {
            return;
        };
        let path = self.file(&record.signer(), &pointer.alias);
        let written = make_folder_of(&path)
            .map_err(io::Error::other)
            .and_then(|()| small_file::write(&path, record.as_bytes()));
        if let Err(error) = written {
            tracing::debug!(%error, "a pointer is not kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn films(version: u64, seed: u8) -> Record {
        let pointer = Pointer {
            alias: "films".parse().unwrap(),
            content: Guid([version as u8; 32]),
            size: 5,
        };
        let statement = Statement {
            version,
            // Long expired.
            ..Statement::new(1_800_000, 1000, vec![])
        };
        Record::pointer(&KeyPair::from_secret(&[seed; 32]), &pointer, &statement).unwrap()
    }

    #[test]
    fn the_newest_version_is_known_here_after_it_has_expired() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownPointers::within(folder.path().join("pointers"));
        let (owner, alias) = (films(1, 1).signer(), "films".parse().unwrap());
        assert_eq!(known.newest(&owner, &alias), None);
        known.note(&films(1, 1));
        known.note(&films(2, 1));
        assert_eq!(known.newest(&owner, &alias), Some(films(2, 1)));
        // What another key has signed is not this owner's.
        let file = known.file(&owner, &alias);
        std::fs::write(&file, films(3, 2).as_bytes()).unwrap();
        assert_eq!(known.newest(&owner, &alias), None);
        std::fs::write(&file, "noise").unwrap();
        assert_eq!(known.newest(&owner, &alias), None);
    }
}
