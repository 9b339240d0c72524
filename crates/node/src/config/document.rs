//! The places of keys in a file.

use core::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::Place;
use super::key_path::{entry_at, key_at, line_of};

/// The text of a configuration file.
#[derive(Clone, Debug)]
pub(super) struct Document {
    path: PathBuf,
    text: String,
}

impl Document {
    pub(super) fn new(path: &Path, text: &str) -> Document {
        Document {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Returns true if the text is not TOML.
    pub(super) fn is_unreadable(&self) -> bool {
        self.table().is_none()
    }

    /// Returns the root table, or `None` if the text is not TOML.
    fn table(&self) -> Option<Spanned<DeTable<'_>>> {
        DeTable::parse(&self.text).ok()
    }

    /// Returns the sections, in the order of the file.
    pub(super) fn sections(&self) -> Vec<String> {
        let Some(table) = self.table() else {
            return Vec::new();
        };
        let mut sections: Vec<(usize, String)> = table
            .get_ref()
            .iter()
            .map(|(key, _)| (key.span().start, key.get_ref().to_string()))
            .collect();
        sections.sort();
        sections.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns true if a section exists and has other keys than `ignored`.
    pub(super) fn has_keys(&self, section: &str, ignored: &str) -> bool {
        let ignored = ignored
            .split_once('.')
            .and_then(|(of, key)| (of == section).then_some(key));
        self.table().is_some_and(|table| {
            let value = table.get_ref().get(section).map(Spanned::get_ref);
            match value {
                Some(DeValue::Table(table)) => table
                    .keys()
                    .any(|key| Some(key.get_ref().as_ref()) != ignored),
                Some(DeValue::Array(array)) => !array.is_empty(),
                Some(_) => true,
                None => false,
            }
        })
    }

    /// Returns the place of `key`, or else of the section in which it would be.
    pub(super) fn place_of(&self, key: &str) -> Place {
        let Some(table) = self.table() else {
            return self.place_at(0);
        };
        let shorter = core::iter::successors(Some(key), |key| {
            let end = key.rfind(['.', '['])?;
            Some(&key[..end])
        });
        let found = shorter.into_iter().find_map(|key| locate(&table, key));
        self.place_at(found.map_or(0, |span| span.start))
    }

    /// Returns the line and the column of a byte.
    pub(super) fn place_at(&self, offset: usize) -> Place {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Place::File {
            path: self.path.clone(),
            line: line_of(&self.text, offset),
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// Returns the text with spaces in place of the key and value around a byte, or `None` if there
    /// are none.
    pub(super) fn without(&self, offset: usize) -> Option<String> {
        self.blanked(entry_at(self.table()?.get_ref(), offset)?)
    }

    /// Returns the place of the section whose header is at a byte, or `None` if there is none.
    pub(super) fn section_at(&self, offset: usize) -> Option<Range<usize>> {
        let section = self.text.get(offset..)?.strip_prefix('[')?;
        let length = section.find("\n[").map_or(section.len(), |at| at + 1);
        Some(offset..offset + 1 + length)
    }

    /// Returns the text with spaces in a place.
    pub(super) fn blanked(&self, place: Range<usize>) -> Option<String> {
        let blank = self.text.get(place.clone())?.chars();
        let blank: String = blank
            .flat_map(|c| core::iter::repeat_n(if c == '\n' { c } else { ' ' }, c.len_utf8()))
            .collect();
        let mut text = self.text.clone();
        text.replace_range(place, &blank);
        Some(text)
    }

    /// Returns the innermost key whose name or value was written at a byte; empty if there is none.
    pub(super) fn key_at(&self, offset: usize) -> String {
        let table = self.table();
        table.map_or_else(String::new, |table| {
            key_at(table.get_ref(), offset).to_string()
        })
    }
}

/// Returns the place of a key's name, or of an element of an array.
fn locate(table: &Spanned<DeTable<'_>>, key: &str) -> Option<Range<usize>> {
    let mut at: Option<&DeValue<'_>> = None;
    let mut span = None;
    for step in key.split('.') {
        let (name, index) = match step.split_once('[') {
            Some((name, index)) => (name, Some(index.trim_end_matches(']').parse().ok()?)),
            None => (step, None),
        };
        let inside: &DeTable<'_> = match at {
            None => table.get_ref(),
            Some(DeValue::Table(inside)) => inside,
            Some(_) => return None,
        };
        let (key, value) = inside.iter().find(|(key, _)| key.get_ref() == name)?;
        span = Some(key.span());
        at = Some(value.get_ref());
        if let Some(index) = index {
            let index: usize = index;
            let element = value.get_ref().as_array()?.get(index)?;
            span = Some(element.span());
            at = Some(element.get_ref());
        }
    }
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[hop]\nmin_timeout = \"1 s\"\n\n[[link]]\nlabel = \"a\"\n\n[[link]]\nlabel = \"b\"\n\n[ndn]\nudp = [\n  \"[::]:1\",\n  \"[::]:2\",\n]\n";

    fn line_and_column(place: Place) -> (usize, usize) {
        match place {
            Place::File { line, column, .. } => (line, column),
            _ => (0, 0),
        }
    }

    #[test]
    fn keys_are_found_where_they_stand_or_would_stand() {
        let document = Document::new(Path::new("a.toml"), TEXT);
        for (key, place) in [
            ("hop.min_timeout", (2, 1)),
            ("hop.max_timeout", (1, 2)),
            ("link[0].label", (5, 1)),
            ("link[1].label", (8, 1)),
            ("link[1].bind", (7, 1)),
            ("link[2].label", (4, 3)),
            ("ndn.udp[1]", (13, 3)),
            ("host.key", (1, 1)),
        ] {
            assert_eq!(line_and_column(document.place_of(key)), place, "{key}");
        }
        assert!(document.has_keys("link", "") && !document.has_keys("host", ""));
        assert!(document.has_keys("hop", "link.metrics"));
        assert_eq!(document.sections(), ["hop", "link", "ndn"]);
    }

    #[test]
    fn a_byte_belongs_to_the_innermost_key() {
        let document = Document::new(Path::new("a.toml"), TEXT);
        let at = |what: &str| document.key_at(TEXT.find(what).expect("it is there"));
        assert_eq!(at("\"1 s\""), "hop.min_timeout");
        assert_eq!(at("\"b\""), "link[1].label");
        assert_eq!(at("\"[::]:2\""), "ndn.udp[1]");
        assert_eq!(document.key_at(TEXT.len() + 5), "");
    }
}
