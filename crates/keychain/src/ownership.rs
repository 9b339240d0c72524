//! Paths that another user could have prepared, or could change.
//!
//! A program whose key is at such a path runs under a key that the other user knows. A program that
//! attaches to a socket there hands its requests to that user.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use nix::unistd::{Gid, Group, User, geteuid};
use rustix::fs::lgetxattr;

/// Links in a row that are followed, as many as the kernel does (`path_resolution(7)`).
const MAX_LINKS: usize = 40;
/// The bit of a folder in which users may remove and rename only what is theirs (`inode(7)`).
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;
/// The bit of a mode, or of an entry of an access control list, that lets somebody write.
const WRITE: u32 = 0o2;
/// The extended attribute that holds a POSIX access control list (`acl(5)`, `xattr(7)`): a version,
/// and entries of a tag, permissions and a number, in little-endian order.
const ACL: &str = "system.posix_acl_access";
/// The kernel's limit of an extended attribute, in bytes (`xattr(7)`).
const MAX_ACL_LEN: usize = 65_536;

/// The source of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A default of this program for this user: all of it must belong to this user or to root.
    Default,
    /// The user, a configuration, or the layout of the system. A folder there that root, or this
    /// user, has given to another user is trusted as its owner is: `/run/nfd` belongs to the user of
    /// a forwarder.
    Named,
}

/// The reason why a path is not used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ForeignPath {
    /// It belongs to a user who is neither this one nor root.
    #[error(
        "{} belongs to another user (number {owner}), so it is not used: remove it, or name a place of your own",
        path.display()
    )]
    Owner {
        /// The file, folder or link.
        path: PathBuf,
        /// The number of its owner.
        owner: u32,
    },
    /// It belongs to a user that this user namespace does not know.
    #[error(
        "in this user namespace it cannot be told whose {} is (root's or another user's), so it is not used: name a place of your own",
        path.display()
    )]
    Unmapped {
        /// The file, folder or link.
        path: PathBuf,
    },
    /// Other users may write to it.
    #[error(
        "other users may write to {} (mode {mode:o}), so it is not used: run `chmod go-w` on it, or name a place of your own",
        path.display()
    )]
    Writable {
        /// The file or folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// Checks `path` and each folder and link on the way to it, as far as they exist: nobody but this
/// user, root and those that they have put in charge can have made or changed what is there.
///
/// In a sticky folder that all may write to, such as `/tmp`, only what belongs to this user or to
/// root is accepted. The permissions of a socket are not looked at: they say who may connect.
pub fn check(path: &Path, origin: Origin) -> Result<(), ForeignPath> {
    let Ok(path) = std::path::absolute(path) else {
        return Ok(());
    };
    let Ok(top) = fs::symlink_metadata("/") else {
        return Ok(());
    };
    let mut walk = Walk {
        origin,
        user: geteuid().as_raw(),
        unmapped: unmapped_user(),
        // In a user namespace, root's files seem to belong to another user.
        trusted: vec![geteuid().as_raw(), top.uid()],
        has_root: top.uid() == ROOT,
        at: PathBuf::from("/"),
        shared: vec![false],
    };
    let mut due: Vec<OsString> = Vec::new();
    push_components(&mut due, &path);
    let mut links = 0;
    while let Some(name) = due.pop() {
        // What does not exist, or cannot be looked at, cannot be used either.
        let Ok(to) = walk.step(&name)? else {
            break;
        };
        let Some(target) = to else { continue };
        links += 1;
        if links > MAX_LINKS {
            break;
        }
        push_components(&mut due, &target);
    }
    Ok(())
}

fn push_components(due: &mut Vec<OsString>, path: &Path) {
    let components = path.components().rev();
    let relevant = components.filter(|component| *component != Component::CurDir);
    due.extend(relevant.map(|component| component.as_os_str().to_owned()));
}

/// A walk along a path, from the root.
struct Walk {
    origin: Origin,
    user: u32,
    /// What stands for all users that this user namespace does not know.
    unmapped: Option<u32>,
    /// The owners that are trusted on the rest of the way.
    trusted: Vec<u32>,
    /// True if files of root are recognised by their owner.
    has_root: bool,
    /// The folder that was reached. No part of it is a link.
    at: PathBuf,
    /// For each folder on the way there, true if others may add entries.
    shared: Vec<bool>,
}

impl Walk {
    /// Goes to `name`; returns the target of a link instead.
    fn step(&mut self, name: &OsStr) -> Result<io::Result<Option<PathBuf>>, ForeignPath> {
        if name == ".." {
            if self.at.pop() {
                self.shared.pop();
            }
            return Ok(Ok(None));
        }
        if name == "/" {
            self.at = PathBuf::from("/");
            self.shared.truncate(1);
            return Ok(Ok(None));
        }
        let path = self.at.join(name);
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        if self.shared.last() == Some(&true) && !self.is_own(found.uid()) {
            return Err(self.foreign(&path, found.uid()));
        }
        if found.is_symlink() {
            return Ok(fs::read_link(&path).map(Some));
        }
        let is_shared = self.visit(&path, &found)?;
        self.shared.push(is_shared);
        self.at = path;
        Ok(Ok(None))
    }

    fn is_own(&self, owner: u32) -> bool {
        owner == self.user || (self.has_root && owner == ROOT)
    }

    /// Checks what is at `path`, in a folder that only trusted users may write to or where it
    /// belongs to one. Returns true for a folder whose entries are to be checked one by one, because
    /// others may add some.
    fn visit(&mut self, path: &Path, found: &fs::Metadata) -> Result<bool, ForeignPath> {
        let (owner, mode) = (found.uid(), found.mode() & 0o7777);
        if !self.trusted.contains(&owner) {
            if self.origin == Origin::Default {
                return Err(self.foreign(path, owner));
            }
            self.trusted.push(owner);
        }
        if found.file_type().is_socket() {
            return Ok(false);
        }
        let group_writes = mode & 0o020 != 0 && self.lets_group_write(path, found);
        let others_write = mode & 0o002 != 0 || group_writes;
        if others_write && !(found.is_dir() && mode & STICKY != 0) {
            let path = path.to_owned();
            return Err(ForeignPath::Writable { path, mode });
        }
        Ok(others_write)
    }

    fn foreign(&self, path: &Path, owner: u32) -> ForeignPath {
        let path = path.to_owned();
        match self.unmapped == Some(owner) {
            true => ForeignPath::Unmapped { path },
            false => ForeignPath::Owner { path, owner },
        }
    }

    /// Returns true if others may write to a file of which the group's bits allow it: its group, or
    /// where it has an access control list, those that this names. The bits are then the most that
    /// any entry allows.
    fn lets_group_write(&self, path: &Path, found: &fs::Metadata) -> bool {
        let mut list = vec![0; MAX_ACL_LEN];
        let Ok(length) = lgetxattr(path, ACL, &mut list[..]) else {
            return !self.is_private(found.uid(), found.gid());
        };
        let entries = list.get(4..length).unwrap_or_default().chunks_exact(8);
        entries.into_iter().any(|entry| {
            let number = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let writes = u32::from(entry[2]) & WRITE != 0;
            writes
                && match u16::from_le_bytes([entry[0], entry[1]]) {
                    // ACL_USER, ACL_GROUP_OBJ, ACL_GROUP of linux/posix_acl.h.
                    0x02 => !self.is_own(number) && number != found.uid(),
                    0x04 => !self.is_private(found.uid(), found.gid()),
                    0x08 => !self.is_private(found.uid(), number),
                    _ => false,
                }
        })
    }

    /// Returns true if a group has no member but this owner, as where each user has a group of their
    /// own name, or if it is root's.
    fn is_private(&self, owner: u32, group: u32) -> bool {
        if self.has_root && group == ROOT {
            return true;
        }
        let user = User::from_uid(owner.into()).ok().flatten();
        let group = Group::from_gid(Gid::from_raw(group)).ok().flatten();
        user.zip(group).is_some_and(|(user, group)| {
            user.gid == group.gid
                && user.name == group.name
                && group.mem.iter().all(|member| *member == user.name)
        })
    }
}

/// Returns the number that stands for users that this user namespace does not know; `None` where it
/// knows all.
fn unmapped_user() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    let known: u64 = map.lines().filter_map(count).sum();
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    (known < u64::from(u32::MAX)).then(|| overflow.trim().parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    const STRANGER: u32 = 65_533;

    fn folder(path: &Path, mode: u32) -> PathBuf {
        fs::create_dir(path).unwrap();
        set_mode(path, mode);
        path.to_owned()
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn named(path: &Path) -> Result<(), ForeignPath> {
        check(path, Origin::Named)
    }

    /// Only root may give files away.
    fn give_away(path: &Path) -> bool {
        chown(path, Some(STRANGER), None).is_ok()
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused_and_a_sticky_one_is_not() {
        let top = tempfile::tempdir().unwrap();
        let open = folder(&top.path().join("open"), 0o777);
        let refused = ForeignPath::Writable {
            path: open.clone(),
            mode: 0o777,
        };
        for path in [open.clone(), open.join("key"), open.join("new/key")] {
            assert_eq!(named(&path), Err(refused.clone()), "{path:?}");
        }
        set_mode(&open, 0o1777);
        let key = open.join("key");
        assert_eq!(named(&key), Ok(()));
        fs::write(&key, "key").unwrap();
        assert_eq!(named(&key), Ok(()));
        set_mode(&key, 0o606);
        assert!(matches!(named(&key), Err(ForeignPath::Writable { .. })));
        // Who may connect to a socket does not change where it leads.
        let socket = open.join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        set_mode(&socket, 0o666);
        assert_eq!(named(&socket), Ok(()));
    }

    #[test]
    fn what_another_user_made_in_a_shared_folder_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let shared = folder(&top.path().join("shared"), 0o1777);
        let mine = folder(&top.path().join("mine"), 0o700);
        let theirs = folder(&shared.join("theirs"), 0o755);
        let link = shared.join("link");
        symlink(&mine, &link).unwrap();
        assert_eq!(named(&link.join("key")), Ok(()));
        if !give_away(&theirs) {
            return;
        }
        std::os::unix::fs::lchown(&link, Some(STRANGER), None).unwrap();
        for (path, foreign) in [(theirs.join("key"), theirs), (link.join("key"), link)] {
            let refused = Err(ForeignPath::Owner {
                path: foreign,
                owner: STRANGER,
            });
            assert_eq!(named(&path), refused);
            assert_eq!(check(&path, Origin::Default), refused);
        }
    }

    /// Gives a file an access control list: the owner's permissions, and further entries.
    fn set_acl(path: &Path, further: &[(u16, u16, u32)]) {
        let usual = [(0x01, 7, u32::MAX), (0x04, 5, u32::MAX)];
        let end = [(0x10, 7, u32::MAX), (0x20, 5, u32::MAX)];
        let mut list = 2u32.to_le_bytes().to_vec();
        let mut all: Vec<(u16, u16, u32)> =
            usual.iter().chain(further).chain(&end).copied().collect();
        all.sort_unstable();
        for (tag, permissions, number) in all {
            list.extend_from_slice(&tag.to_le_bytes());
            list.extend_from_slice(&permissions.to_le_bytes());
            list.extend_from_slice(&number.to_le_bytes());
        }
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(path, ACL, &list, flags).expect("a file system with lists");
    }

    #[test]
    fn a_folder_whose_access_control_list_lets_another_user_write_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let own = geteuid().as_raw();
        let cases = [
            ((0x02, 7, STRANGER), true),
            ((0x08, 7, STRANGER), true),
            // To read, or to this user, or to root.
            ((0x02, 5, STRANGER), false),
            ((0x02, 7, own), false),
            ((0x02, 7, ROOT), false),
            ((0x08, 7, ROOT), false),
        ];
        for (number, (entry, refused)) in cases.into_iter().enumerate() {
            let path = folder(&top.path().join(number.to_string()), 0o755);
            set_acl(&path, &[entry]);
            // The group's bits show the mask.
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o775);
            let found = named(&path.join("key"));
            let is_refused = matches!(found, Err(ForeignPath::Writable { .. }));
            assert_eq!(is_refused, refused, "{entry:?}: {found:?}");
            // What the message says helps.
            set_mode(&path, 0o755);
            assert_eq!(named(&path.join("key")), Ok(()));
        }
    }

    /// Runs a test of this program in a user namespace that knows this user alone, as root. Returns
    /// what it printed; `None` where there is no such thing.
    fn in_user_namespace(test: &str, folder: &Path) -> Option<String> {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--"]);
        let output = command
            .arg(std::env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture"])
            .env("WHIMBREL_FOLDER", folder)
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.contains("running 1 test").then_some(text)
    }

    #[test]
    #[ignore = "runs in a user namespace, by the next test"]
    fn says_what_is_foreign() {
        let top = PathBuf::from(std::env::var_os("WHIMBREL_FOLDER").unwrap());
        for name in ["own", "foreign"] {
            let found = named(&top.join(name).join("key"));
            println!(
                "{name}: {}",
                found.map_or_else(|error| error.to_string(), |()| "used".into())
            );
        }
    }

    #[test]
    fn in_a_user_namespace_folders_of_unknown_users_are_said_to_be_unknown() {
        let top = tempfile::tempdir().unwrap();
        let shared = folder(&top.path().join("shared"), 0o1777);
        folder(&shared.join("own"), 0o700);
        if !give_away(&folder(&shared.join("foreign"), 0o755)) {
            return;
        }
        set_mode(top.path(), 0o755);
        let test = "ownership::tests::says_what_is_foreign";
        let Some(text) = in_user_namespace(test, &shared) else {
            return eprintln!("SKIPPED: no user namespaces");
        };
        assert!(text.contains("own: used"), "{text}");
        assert!(text.contains("cannot be told whose"), "{text}");
    }

    #[test]
    fn a_folder_that_root_gave_to_a_service_is_for_named_paths_only() {
        let top = tempfile::tempdir().unwrap();
        let given = folder(&top.path().join("given"), 0o755);
        let socket = given.join("daemon.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        if !give_away(&given) || !give_away(&socket) {
            return;
        }
        assert_eq!(named(&socket), Ok(()));
        let refused = check(&socket, Origin::Default);
        assert!(
            matches!(&refused, Err(ForeignPath::Owner { path, .. }) if *path == given),
            "{refused:?}"
        );
    }

    #[test]
    fn links_and_dots_are_followed_to_the_folder_that_counts() {
        let top = tempfile::tempdir().unwrap();
        let open = folder(&top.path().join("open"), 0o777);
        let mine = folder(&top.path().join("mine"), 0o700);
        symlink("../open", mine.join("link")).unwrap();
        assert!(named(&mine.join("link/key")).is_err());
        assert_eq!(
            named(&mine.join("link/../mine/key")),
            Err(ForeignPath::Writable {
                path: open,
                mode: 0o777
            })
        );
        assert_eq!(named(&mine.join("./sub/../key")), Ok(()));
        let shared = folder(&top.path().join("shared"), 0o1777);
        let theirs = folder(&shared.join("theirs"), 0o755);
        folder(&shared.join("own"), 0o700);
        if give_away(&theirs) {
            let around = named(&shared.join("own/../theirs/key"));
            assert!(
                matches!(around, Err(ForeignPath::Owner { .. })),
                "{around:?}"
            );
        }
        symlink("turn", mine.join("turn")).unwrap();
        assert_eq!(named(&mine.join("turn/key")), Ok(()), "opening it fails");
    }
}
