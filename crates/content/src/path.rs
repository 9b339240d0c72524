//! Paths that stay inside their folder.

use core::cmp::Ordering;
use core::fmt;

/// The longest path, in bytes: Linux's limit for one call, less the closing NUL.
pub const MAX_PATH_LEN: usize = 4095;
/// The longest component, in bytes: the limit of the usual file systems.
pub const MAX_COMPONENT_LEN: usize = 255;

/// A path of `/`-separated components below some folder, in UTF-8.
///
/// Joined to a folder it names something inside that folder: it is not absolute and has no empty,
/// `.` or `..` component and no NUL. It may have control characters, as files may: quote it before
/// showing it on a terminal. The code that opens the file must guard against symbolic links on the
/// receiver's disk.
#[derive(Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelativePath(String);

/// Why a path is refused. The messages quote paths, so that control characters cannot affect a
/// terminal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathError {
    /// An empty text.
    #[error("the path is empty")]
    Empty,
    /// Begins with `/`.
    #[error("the path {0:?} is absolute: it could name any file of this machine")]
    Absolute(String),
    /// Has a component `..`.
    #[error("the path {0:?} contains \"..\": it could name a file outside its folder")]
    Parent(String),
    /// Has a component `.`.
    #[error("the path {0:?} contains \".\": write it without")]
    Current(String),
    /// Has two `/` in a row or one at its end.
    #[error("the path {0:?} has an empty component")]
    EmptyComponent(String),
    /// Has a NUL.
    #[error("the path {0:?} contains a NUL, which a file name cannot have")]
    Nul(String),
    /// Longer than [`MAX_PATH_LEN`].
    #[error("a path of {0} bytes; the maximum is {MAX_PATH_LEN}")]
    TooLong(usize),
    /// A component longer than [`MAX_COMPONENT_LEN`].
    #[error("a path with a component of {0} bytes; the maximum is {MAX_COMPONENT_LEN}")]
    ComponentTooLong(usize),
    /// Not UTF-8.
    #[error("the path is not UTF-8")]
    NotUtf8,
}

impl RelativePath {
    /// Checks `path`.
    pub fn new(path: impl Into<String>) -> Result<RelativePath, PathError> {
        let path = path.into();
        if path.is_empty() {
            return Err(PathError::Empty);
        }
        if path.len() > MAX_PATH_LEN {
            return Err(PathError::TooLong(path.len()));
        }
        if path.contains('\0') {
            return Err(PathError::Nul(path));
        }
        if path.starts_with('/') {
            return Err(PathError::Absolute(path));
        }
        for component in path.split('/') {
            match component {
                "" => return Err(PathError::EmptyComponent(path)),
                "." => return Err(PathError::Current(path)),
                ".." => return Err(PathError::Parent(path)),
                long if long.len() > MAX_COMPONENT_LEN => {
                    return Err(PathError::ComponentTooLong(long.len()));
                }
                _ => {}
            }
        }
        Ok(RelativePath(path))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The components, outermost first; at least one.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Whether `other` lies below this path, so that this one cannot be a file beside it.
    pub fn is_above(&self, other: &RelativePath) -> bool {
        other
            .0
            .strip_prefix(self.0.as_str())
            .is_some_and(|rest| rest.starts_with('/'))
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
        fmt::Debug::fmt(&self.0, f)
    }
}

impl AsRef<std::path::Path> for RelativePath {
    fn as_ref(&self) -> &std::path::Path {
        self.0.as_ref()
    }
}

impl TryFrom<String> for RelativePath {
    type Error = PathError;

    fn try_from(path: String) -> Result<RelativePath, PathError> {
        RelativePath::new(path)
    }
}

impl From<RelativePath> for String {
    fn from(path: RelativePath) -> String {
        path.0
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
        let own = |path: &str| path.to_string();
        assert_eq!(refused(""), PathError::Empty);
        assert_eq!(
            refused("/etc/passwd"),
            PathError::Absolute(own("/etc/passwd"))
        );
        assert_eq!(refused(".."), PathError::Parent(own("..")));
        assert_eq!(refused("a/../../b"), PathError::Parent(own("a/../../b")));
        assert_eq!(refused("./a"), PathError::Current(own("./a")));
        assert_eq!(refused("a//b"), PathError::EmptyComponent(own("a//b")));
        assert_eq!(refused("a/"), PathError::EmptyComponent(own("a/")));
        assert_eq!(refused("a\0b"), PathError::Nul(own("a\0b")));
        assert_eq!(refused(&"x".repeat(256)), PathError::ComponentTooLong(256));
        assert_eq!(refused(&"x/".repeat(2048)), PathError::TooLong(4096));
        assert!(RelativePath::new("...").is_ok() && RelativePath::new("a/..b/c.").is_ok());
        assert!(!refused("../\u{1b}[2J").to_string().contains('\u{1b}'));
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
