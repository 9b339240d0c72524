//! The path of a value in a TOML file, as `links.wifi.between[1]`, and the key at a byte.

use core::fmt;
use core::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One step into a table or an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the value of a key.
    Key(String),
    /// To an element.
    Index(usize),
}

/// A path of keys and indices from the root of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPath(pub Vec<Step>);

impl KeyPath {
    /// Reads `links.wifi.between[1]`; keys that contain dots stand in quotes.
    pub fn parse(text: &str) -> Option<KeyPath> {
        let mut steps = Vec::new();
        let mut rest = text;
        loop {
            if let Some(quoted) = rest.strip_prefix('"') {
                let (key, after) = quoted.split_once('"')?;
                steps.push(Step::Key(key.to_owned()));
                rest = after;
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                if end == 0 {
                    return None;
                }
                steps.push(Step::Key(rest[..end].to_owned()));
                rest = &rest[end..];
            }
            while let Some(index) = rest.strip_prefix('[') {
                let (number, after) = index.split_once(']')?;
                steps.push(Step::Index(number.parse().ok()?));
                rest = after;
            }
            match rest.strip_prefix('.') {
                Some(more) => rest = more,
                None if rest.is_empty() => return Some(KeyPath(steps)),
                None => return None,
            }
        }
    }

    /// Returns the path of `key` below this one.
    pub fn key(&self, key: &str) -> KeyPath {
        let mut steps = self.0.clone();
        steps.push(Step::Key(key.to_owned()));
        KeyPath(steps)
    }

    /// Returns the path of entry `index` below this one.
    pub fn index(&self, index: usize) -> KeyPath {
        let mut steps = self.0.clone();
        steps.push(Step::Index(index));
        KeyPath(steps)
    }
}

/// A path of keys only.
impl<const N: usize> From<[&str; N]> for KeyPath {
    fn from(keys: [&str; N]) -> KeyPath {
        KeyPath(keys.map(|key| Step::Key(key.to_owned())).into())
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(number) => write!(f, "[{number}]")?,
                Step::Key(key) => {
                    if index > 0 {
                        f.write_str(".")?;
                    }
                    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                    if !key.is_empty() && key.chars().all(bare) {
                        f.write_str(key)?;
                    } else {
                        write!(f, "\"{key}\"")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the line of a byte, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// Returns the innermost key whose name or value was written at a byte; the root if there is none.
pub fn key_at(table: &DeTable<'_>, offset: usize) -> KeyPath {
    let mut best = (usize::MAX, KeyPath::default());
    search_table(table, &KeyPath::default(), offset, &mut best);
    best.1
}

/// Returns the bytes of the innermost key and value around a byte whose value is not a table, or
/// `None` if there are none.
pub fn entry_at(table: &DeTable<'_>, offset: usize) -> Option<Range<usize>> {
    table.iter().find_map(|(key, value)| match value.get_ref() {
        DeValue::Table(inner) => entry_at(inner, offset),
        DeValue::Array(elements) if elements.iter().any(|it| it.get_ref().is_table()) => elements
            .iter()
            .filter_map(|element| element.get_ref().as_table())
            .find_map(|inner| entry_at(inner, offset)),
        _ => {
            let entry = key.span().start..value.span().end;
            entry.contains(&offset).then_some(entry)
        }
    })
}

/// The length of the shortest text around the byte, and the key that it belongs to.
type Best = (usize, KeyPath);

fn search_table(table: &DeTable<'_>, path: &KeyPath, offset: usize, best: &mut Best) {
    for (key, value) in table {
        let below = path.key(key.get_ref());
        consider(key.span(), &below, offset, best);
        search(value, &below, offset, best);
    }
}

fn search(value: &Spanned<DeValue<'_>>, path: &KeyPath, offset: usize, best: &mut Best) {
    consider(value.span(), path, offset, best);
    match value.get_ref() {
        DeValue::Table(table) => search_table(table, path, offset, best),
        DeValue::Array(array) => {
            for (index, value) in array.iter().enumerate() {
                search(value, &path.index(index), offset, best);
            }
        }
        _ => {}
    }
}

fn consider(span: Range<usize>, path: &KeyPath, offset: usize, best: &mut Best) {
    if span.contains(&offset) && span.len() <= best.0 {
        *best = (span.len(), path.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(
            steps in prop::collection::vec((("[a-z.0-9 -]{1,8}"), prop::option::of(0usize..100)), 1..5)
        ) {
            let mut path = KeyPath::default();
            for (key, index) in steps {
                path = path.key(&key);
                if let Some(index) = index {
                    path = path.index(index);
                }
            }
            prop_assert_eq!(KeyPath::parse(&path.to_string()), Some(path));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,30}") {
            let _ = KeyPath::parse(&text);
        }
    }
}
