//! The pending Interest table.

/// Interests that wait for Data.
#[derive(Clone, Debug, Default)]
pub struct Pit {}

impl Pit {
    /// How many entries it has.
    pub fn len(&self) -> usize {
        0
    }
    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
