//! Where a value stands in a scenario: `links.wifi.between[1]`.

use std::fmt;

/// One step into a table or an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// A path of keys and indices from the root of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyPath(pub(super) Vec<Step>);

impl KeyPath {
    /// Reads `links.wifi.between[1]`; keys that contain dots stand in quotes.
    pub(super) fn parse(text: &str) -> Option<KeyPath> {
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

    /// The path of `key` below this one.
    pub(super) fn key(&self, key: &str) -> KeyPath {
        let mut steps = self.0.clone();
        steps.push(Step::Key(key.to_owned()));
        KeyPath(steps)
    }

    /// The path of entry `index` below this one.
    pub(super) fn index(&self, index: usize) -> KeyPath {
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
