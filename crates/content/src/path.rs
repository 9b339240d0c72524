//! Paths that stay inside their folder.

use core::cmp::Ordering;
use core::fmt;

/// The longest path, in bytes: Linux's limit for one call, less the closing NUL.
pub const MAX_PATH_LEN: usize = 4095;
/// The longest component, in bytes: the limit of the usual file systems.
pub const MAX_COMPONENT_LEN: usize = 255;

/// A path of `/`-separated components below some folder, in bytes as the file system has them.
///
/// Joined to a folder it names something inside that folder: it is not absolute and has no empty,
/// `.` or `..` component and no NUL. It need not be UTF-8 and may have control characters, as files
/// may: [`fmt::Debug`] quotes it for a terminal. The code that opens the file must guard against
/// symbolic links on the receiver's disk.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RelativePath(Box<[u8]>);

/// Why a path is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathError {
    /// An empty path.
    #[error("its path is empty")]
    Empty,
    /// Begins with `/`.
    #[error("its path is absolute: it could name any file of this machine")]
    Absolute,
    /// Has a component `..`.
    #[error("its path contains \"..\": it could name a file outside its folder")]
    Parent,
    /// Has a component `.`.
    #[error("its path contains \".\"")]
    Current,
    /// Has two `/` in a row or one at its end.
    #[error("its path has an empty component")]
    EmptyComponent,
    /// Has a NUL.
    #[error("its path contains a NUL, which a file name cannot have")]
    Nul,
    /// Longer than [`MAX_PATH_LEN`].
    #[error("its path has {0} bytes; the maximum is {MAX_PATH_LEN}")]
    TooLong(usize),
    /// A component longer than [`MAX_COMPONENT_LEN`].
    #[error("its path has a component of {0} bytes; the maximum is {MAX_COMPONENT_LEN}")]
    ComponentTooLong(usize),
}

impl RelativePath {
    /// Checks `path`.
    pub fn new(path: impl Into<Vec<u8>>) -> Result<RelativePath, PathError> {
        let path = path.into();
        if path.is_empty() {
            return Err(PathError::Empty);
        }
        if path.len() > MAX_PATH_LEN {
            return Err(PathError::TooLong(path.len()));
        }
        if path.contains(&0) {
            return Err(PathError::Nul);
        }
        if path.starts_with(b"/") {
            return Err(PathError::Absolute);
        }
        for component in path.split(|byte| *byte == b'/') {
            match component {
                b"" => return Err(PathError::EmptyComponent),
                b"." => return Err(PathError::Current),
                b".." => return Err(PathError::Parent),
                long if long.len() > MAX_COMPONENT_LEN => {
                    return Err(PathError::ComponentTooLong(long.len()));
                }
                _ => {}
            }
        }
        Ok(RelativePath(path.into()))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the components, outermost first; at least one.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }

    /// Returns the path of the folder that it is in, empty for the topmost, and its own name there.
    pub fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&[], &self.0),
        }
    }

    /// Returns whether `other` lies below this path, so that this one cannot be a file beside it.
    pub fn is_above(&self, other: &RelativePath) -> bool {
        other
            .0
            .strip_prefix(self.as_bytes())
            .is_some_and(|rest| rest.starts_with(b"/"))
    }
}

/// Ordered by components, each by its bytes: a path's descendants follow it directly.
impl Ord for RelativePath {
    fn cmp(&self, other: &RelativePath) -> Ordering {
        self.components().cmp(other.components())
    }
}

impl PartialOrd for RelativePath {
    fn partial_cmp(&self, other: &RelativePath) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Quoted, so that it can be shown anywhere.
impl fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.0))
    }
}

/// Returns the bytes of somebody else's path for a terminal: in quotes, control characters and what is
/// not UTF-8 escaped.
pub fn quoted(path: &[u8]) -> String {
    let mut text = String::from("\"");
    for part in path.utf8_chunks() {
        text.extend(part.valid().escape_debug());
        for byte in part.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text.push('"');
    text
}

impl AsRef<std::path::Path> for RelativePath {
    fn as_ref(&self) -> &std::path::Path {
        use std::os::unix::ffi::OsStrExt;
        std::ffi::OsStr::from_bytes(&self.0).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    #[test]
    fn unsafe_paths_are_refused_with_their_reason() {
        let refused = |path: &str| RelativePath::new(path).unwrap_err();
        assert_eq!(refused(""), PathError::Empty);
        assert_eq!(refused("/etc/passwd"), PathError::Absolute);
        assert_eq!(refused(".."), PathError::Parent);
        assert_eq!(refused("a/../../b"), PathError::Parent);
        assert_eq!(refused("./a"), PathError::Current);
        assert_eq!(refused("a//b"), PathError::EmptyComponent);
        assert_eq!(refused("a/"), PathError::EmptyComponent);
        assert_eq!(refused("a\0b"), PathError::Nul);
        assert_eq!(refused(&"x".repeat(256)), PathError::ComponentTooLong(256));
        assert_eq!(refused(&"x/".repeat(2048)), PathError::TooLong(4096));
        assert!(RelativePath::new("...").is_ok() && RelativePath::new("a/..b/c.").is_ok());
    }

    #[test]
    fn a_path_for_a_terminal_moves_no_cursor_and_says_what_is_not_text() {
        let path = RelativePath::new(b"a\x1b[2J\xff\"\xc3\xbc".to_vec()).unwrap();
        assert_eq!(format!("{path:?}"), "\"a\\u{1b}[2J\\xff\\\"\u{fc}\"");
        assert_eq!(path.split(), (&b""[..], path.as_bytes()));
        let path = RelativePath::new("a/b/c").unwrap();
        assert_eq!(path.split(), (&b"a/b"[..], &b"c"[..]));
    }

    proptest! {
        #[test]
        fn an_accepted_path_stays_inside_and_joins_unchanged(path in "[a./\0é~]{0,12}") {
            if let Ok(accepted) = RelativePath::new(path.clone()) {
                let parts: Vec<_> = Path::new(&path).components().collect();
                prop_assert!(parts.iter().all(|part| matches!(part, Component::Normal(_))));
                prop_assert_eq!(parts.len(), accepted.components().count());
                prop_assert!(Path::new("/top").join(&accepted).starts_with("/top"));
            }
        }

        #[test]
        fn what_lies_below_a_path_follows_it_directly(
            mut paths in prop::collection::btree_set("[ab!.]{1,2}(/[ab!.]{1,2}){0,2}", 0..30)
                .prop_map(|paths| paths.into_iter().filter_map(|path| RelativePath::new(path).ok()).collect::<Vec<_>>()),
        ) {
            paths.sort();
            let any_above = paths.iter().any(|path| paths.iter().any(|other| path.is_above(other)));
            let neighbour_above = paths.windows(2).any(|pair| pair[0].is_above(&pair[1]));
            prop_assert_eq!(any_above, neighbour_above);
        }
    }
}
