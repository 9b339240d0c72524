//! A scenario's text as a tree whose values know where they were written.
//!
//! Everything is read from this tree with serde, piece by piece. A piece that was inherited
//! (defaults) or replaced (sweeps) keeps the place at which it was written, so that a fault names
//! the line to correct.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use whimbrel_core::suggest;
use whimbrel_node::config::key_path::{KeyPath, Step, key_at, line_of};

use super::fault::Fault;

/// A value and the place at which it was written.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;
/// Keys and values in the order of the file.
pub(super) type Table<'t> = DeTable<'t>;

/// A scenario's file as parsed, possibly with some values replaced.
#[derive(Clone, Debug)]
pub(super) struct Document<'t> {
    file: PathBuf,
    text: &'t str,
    /// The tree as written, to find the key at a place.
    written: Arc<Value<'t>>,
    root: Value<'t>,
}

impl<'t> Document<'t> {
    /// Parses a text; `file` is for messages.
    pub(super) fn parse(file: &Path, text: &'t str) -> Result<Document<'t>, Fault> {
        let parsed = DeTable::parse(text).map_err(|error| Fault {
            file: file.to_owned(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            key: String::new(),
            message: error.message().trim_end().to_owned(),
        })?;
        let root = table_value(parsed.span(), parsed.into_inner());
        Ok(Document {
            file: file.to_owned(),
            text,
            written: Arc::new(root.clone()),
            root,
        })
    }

    /// Returns the folder that the file's paths are relative to.
    pub(super) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// Returns the value at `path`.
    pub(super) fn get(&self, path: &KeyPath) -> Option<&Value<'t>> {
        path.0
            .iter()
            .try_fold(&self.root, |value, step| match (step, value.get_ref()) {
                (Step::Key(key), DeValue::Table(table)) => table.get(key.as_str()),
                (Step::Index(index), DeValue::Array(array)) => array.get(*index),
                _ => None,
            })
    }

    /// Returns the table at `path`, if there is one.
    pub(super) fn table(&self, path: &KeyPath) -> Option<&Table<'t>> {
        self.get(path)?.get_ref().as_table()
    }

    /// Returns the keys of the table at `path`, in the order of the file.
    pub(super) fn keys(&self, path: &KeyPath) -> Vec<String> {
        let keys = self.table(path).into_iter().flat_map(Table::keys);
        keys.map(|key| key.get_ref().to_string()).collect()
    }

    /// Returns the same document with `value` at `path`; makes missing tables on the way.
    pub(super) fn with(&self, path: &KeyPath, value: &Value<'t>) -> Result<Document<'t>, Fault> {
        let mut changed = self.clone();
        match put(&mut changed.root, &path.0, value) {
            true => Ok(changed),
            false => Err(self.fault(path, "there is no such key")),
        }
    }

    /// Reads the value at `path`.
    pub(super) fn read<T: DeserializeOwned>(&self, path: &KeyPath) -> Result<T, Fault> {
        match self.get(path) {
            Some(value) => self.decode(value.clone(), &[]),
            None => Err(self.fault(path, format!("'{path}' is missing"))),
        }
    }

    /// Reads a value; `also` are keys that are known there beside those of `T`.
    pub(super) fn decode<T: DeserializeOwned>(
        &self,
        value: Value<'t>,
        also: &[&str],
    ) -> Result<T, Fault> {
        let span = value.span();
        T::deserialize(ValueDeserializer::from(value)).map_err(|error| {
            let (line, key) = self.place(error.span().unwrap_or(span).start);
            Fault {
                file: self.file.clone(),
                line,
                key: key.to_string(),
                message: suggest::in_parse_error(error.message(), also),
            }
        })
    }

    /// Returns a fault of the value at `path`, or of the place where it would be.
    pub(super) fn fault(&self, path: &KeyPath, message: impl Into<String>) -> Fault {
        let known = (0..=path.0.len()).rev().find_map(|length| {
            let known = KeyPath(path.0[..length].to_vec());
            self.get(&known).map(Spanned::span)
        });
        let (line, written) = self.place(known.map_or(0, |span| span.start));
        // A value that a sweep put there was written elsewhere.
        let swept = matches!(written.0.first(), Some(Step::Key(key)) if key == "sweep");
        Fault {
            file: self.file.clone(),
            line,
            key: if swept { written } else { path.clone() }.to_string(),
            message: message.into(),
        }
    }

    /// Returns the line of a byte, and the innermost key whose name or value was written there.
    fn place(&self, offset: usize) -> (usize, KeyPath) {
        let written = self.written.get_ref().as_table();
        let key = written.map_or_else(KeyPath::default, |table| key_at(table, offset));
        (line_of(self.text, offset), key)
    }
}

/// Returns an empty table that was written nowhere.
pub(super) fn empty_table<'t>() -> Table<'t> {
    Table::new()
}

/// Returns a table as a value at the given span.
pub(super) fn table_value(span: Range<usize>, table: Table<'_>) -> Value<'_> {
    Spanned::new(span, DeValue::Table(table))
}

/// Returns `over` merged into `base`: tables are merged, other values replaced.
pub(super) fn merged<'t>(base: &Table<'t>, over: &Table<'t>) -> Table<'t> {
    let mut all = base.clone();
    for (key, value) in over {
        let joint = match (all.get(key).map(Spanned::get_ref), value.get_ref()) {
            (Some(DeValue::Table(below)), DeValue::Table(above)) => {
                table_value(value.span(), merged(below, above))
            }
            _ => value.clone(),
        };
        all.insert(key.clone(), joint);
    }
    all
}

fn put<'t>(at: &mut Value<'t>, steps: &[Step], value: &Value<'t>) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        *at = value.clone();
        return true;
    };
    match (step, at.get_mut()) {
        (Step::Key(key), DeValue::Table(table)) => {
            if !table.contains_key(key.as_str()) {
                let key = Spanned::new(value.span(), key.clone().into());
                table.insert(key, table_value(value.span(), empty_table()));
            }
            match table.get_mut(key.as_str()) {
                Some(next) => put(next, rest, value),
                None => false,
            }
        }
        (Step::Index(index), DeValue::Array(array)) => match array.get_mut(*index) {
            Some(next) => put(next, rest, value),
            None => false,
        },
        _ => false,
    }
}
