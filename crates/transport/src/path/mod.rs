//! The ways that a consumer's Interests take.

/// A path, within one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

impl PathId {
    /// The only one of a connection that has one.
    pub const FIRST: PathId = PathId(0);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}
