//! Directories: aliases for names, of this user's own and of others who have signed theirs.
//!
//! An alias is the user's own word: two users may call two hosts the same. A [`SignedDirectory`] passes
//! aliases on; who takes one over pins its signer, and later versions of that signer only.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use whimbrel_core::Guid;
use whimbrel_core::identity::{KeyPair, PublicKey, Signature};

use crate::alias::{Alias, AliasError};

/// Bound of the aliases of a directory.
pub const MAX_ALIASES: usize = 4096;
/// Bound of the signers whose directories are taken over.
pub const MAX_SIGNERS: usize = 64;
/// The longest text of a directory, in bytes: [`MAX_ALIASES`] lines and three more.
const MAX_LEN: usize = 512 * 1024;

const CONTEXT: &str = "whimbrel 2026 directory of names v1";
const HEAD: &str = "whimbrel-names 1";

/// A directory that somebody has signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedDirectory {
    /// The name of the key that has signed.
    pub signer: Guid,
    /// Grows with each version; by convention Unix time in milliseconds.
    pub version: u64,
    /// The names.
    pub names: BTreeMap<Alias, Guid>,
}

/// Why a text is not a signed directory.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It does not begin like one.
    #[error("it is not a directory of names (its first line would be \"{HEAD}\")")]
    NotOne,
    /// It is longer than any.
    #[error("a directory of names has at most {MAX_ALIASES} aliases")]
    TooLong,
    /// A line contradicts the format.
    #[error("line {0} is not a line of a directory of names: get the file again")]
    Line(usize),
    /// An alias is not one.
    #[error("line {line}: {source}")]
    Alias {
        /// Its line.
        line: usize,
        /// The fault.
        source: AliasError,
    },
    /// The file was changed after it was signed.
    #[error("the signature does not match: the file was changed or cut off; get it again")]
    Signature,
}

impl SignedDirectory {
    /// Signs these names.
    pub fn sign(keys: &KeyPair, version: u64, names: &BTreeMap<Alias, Guid>) -> String {
        let mut text = format!("{HEAD}\nkey {}\nversion {version}\n", keys.public());
        for (alias, name) in names {
            let _ = writeln!(text, "{alias} {name}");
        }
        let signature = keys.sign(CONTEXT, text.as_bytes());
        text += "signature ";
        for byte in signature.0 {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
        text
    }

    /// Reads what [`SignedDirectory::sign`] has written, and verifies it.
    pub fn parse(text: &str) -> Result<SignedDirectory, DirectoryError> {
        if text.len() > MAX_LEN {
            return Err(DirectoryError::TooLong);
        }
        let body = text.strip_prefix(HEAD).ok_or(DirectoryError::NotOne)?;
        if !body.starts_with('\n') {
            return Err(DirectoryError::NotOne);
        }
        let mut lines = (2..).zip(body[1..].lines());
        let mut next = |word: &str| match lines.next() {
            Some((number, line)) => {
                let value = line.strip_prefix(word).and_then(|it| it.strip_prefix(' '));
                value.map(str::to_owned).ok_or(DirectoryError::Line(number))
            }
            None => Err(DirectoryError::Signature),
        };
        let key = next("key")?.parse::<PublicKey>();
        let key = key.map_err(|_| DirectoryError::Line(2))?;
        let version = next("version")?.parse();
        let version = version.map_err(|_| DirectoryError::Line(3))?;
        let mut names = BTreeMap::new();
        for (line, entry) in lines {
            let (alias, name) = entry.split_once(' ').ok_or(DirectoryError::Line(line))?;
            if alias == "signature" && name.len() == 2 * Signature::LEN {
                let signature = signature(name).ok_or(DirectoryError::Line(line))?;
                let at = text.rfind("signature ").unwrap_or_default();
                let signed = &text.as_bytes()[..at];
                let verdict = key.verify(CONTEXT, signed, &signature);
                let is_last = text[at..].lines().count() == 1;
                if verdict.is_err() || !is_last {
                    return Err(DirectoryError::Signature);
                }
                let signer = key.guid();
                return Ok(SignedDirectory {
                    signer,
                    version,
                    names,
                });
            }
            if names.len() >= MAX_ALIASES {
                return Err(DirectoryError::TooLong);
            }
            let alias = alias.parse();
            let alias = alias.map_err(|source| DirectoryError::Alias { line, source })?;
            let name = name.parse().map_err(|_| DirectoryError::Line(line))?;
            if names.insert(alias, name).is_some() {
                return Err(DirectoryError::Line(line));
            }
        }
        Err(DirectoryError::Signature)
    }
}

fn signature(text: &str) -> Option<Signature> {
    let mut bytes = [0; Signature::LEN];
    let digits = text.as_bytes().as_chunks::<2>().0;
    for (byte, pair) in bytes.iter_mut().zip(digits) {
        let pair = core::str::from_utf8(pair).ok()?;
        if !pair.bytes().all(|it| it.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(Signature(bytes))
}

/// What an alias stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Aliased {
    /// The name.
    pub name: Guid,
    /// The signer of the directory that it comes from; `None` if the user has given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Guid>,
}

/// The aliases of one user.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    aliases: BTreeMap<Alias, Aliased>,
    /// The pinned signers, and the version of each that was taken over last.
    #[serde(default)]
    signers: BTreeMap<Guid, u64>,
}

/// Why an alias is not given.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AliasTaken {
    /// It stands for another name.
    #[error(
        "{alias} stands for {name} already: `whimbrel names remove {alias}` first, or choose another alias"
    )]
    Taken {
        /// The alias.
        alias: Alias,
        /// What it stands for.
        name: Guid,
    },
    /// It looks like an alias of another name.
    #[error(
        "{alias} looks like {other}, which stands for {name}: choose an alias that differs more"
    )]
    LooksLike {
        /// The alias.
        alias: Alias,
        /// The one that it looks like.
        other: Alias,
        /// What that stands for.
        name: Guid,
    },
    /// There is no room.
    #[error("the directory has {MAX_ALIASES} aliases, and takes no more: remove some")]
    Full,
}

/// Why a signed directory is not taken over.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImportError {
    /// Another signer is pinned.
    #[error(
        "it is signed by {0}, and directories of others were imported before: if you trust this key as well, repeat the command with `--signer {0}`"
    )]
    Unknown(Guid),
    /// The user expects another signer.
    #[error("it is signed by {found}, not by {expected}")]
    Other {
        /// The name of the key that has signed it.
        found: Guid,
        /// Who should have.
        expected: Guid,
    },
    /// A newer version was taken over.
    #[error(
        "it is older than the directory of this signer that was imported before: ask for the newest"
    )]
    Older,
    /// Too many signers.
    #[error(
        "{MAX_SIGNERS} signers are pinned, and no more are: `whimbrel names forget SIGNER` makes room"
    )]
    Full,
}

/// What an import has changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Imported {
    /// True if the signer was not pinned before.
    pub is_new_signer: bool,
    /// Aliases that are new.
    pub added: Vec<Alias>,
    /// Aliases that stood for another name of the same signer, and that name.
    pub changed: Vec<(Alias, Guid)>,
    /// Aliases that the signer no longer has.
    pub removed: Vec<Alias>,
    /// Aliases that are not taken over.
    pub refused: Vec<AliasTaken>,
}

impl Directory {
    /// Returns the aliases and what they stand for.
    pub fn aliases(&self) -> &BTreeMap<Alias, Aliased> {
        &self.aliases
    }

    /// Returns the pinned signers.
    pub fn signers(&self) -> impl Iterator<Item = &Guid> {
        self.signers.keys()
    }

    /// Returns what an alias stands for.
    pub fn name_of(&self, alias: &Alias) -> Option<Guid> {
        self.aliases.get(alias).map(|it| it.name)
    }

    /// Returns the alias of a name: of several, one of the user's own, and of these the first.
    pub fn alias_of(&self, name: &Guid) -> Option<&Alias> {
        let all = self.aliases.iter().filter(|(_, it)| it.name == *name);
        let first = all.min_by_key(|(alias, it)| (it.from.is_some(), *alias));
        first.map(|(alias, _)| alias)
    }

    /// Returns the aliases that begin with the same letters or look alike, as a suggestion.
    pub fn similar(&self, alias: &str) -> Option<&Alias> {
        let words = self.aliases.keys().map(Alias::as_str);
        let found = whimbrel_core::suggest::nearest(alias, words)?;
        self.aliases.keys().find(|it| it.as_str() == found)
    }

    /// Gives an alias to a name. Returns false if it had it already.
    pub fn add(&mut self, alias: Alias, name: Guid) -> Result<bool, AliasTaken> {
        let before = self.aliases.get(&alias).copied();
        if let Some(Aliased { name: other, .. }) = before.filter(|it| it.name != name) {
            return Err(AliasTaken::Taken { alias, name: other });
        }
        self.check_new(&alias, name)?;
        let own = Aliased { name, from: None };
        self.aliases.insert(alias, own);
        Ok(before != Some(own))
    }

    fn check_new(&self, alias: &Alias, name: Guid) -> Result<(), AliasTaken> {
        let skeleton = alias.skeleton();
        let alike = self
            .aliases
            .iter()
            .find(|(other, it)| *other != alias && it.name != name && other.skeleton() == skeleton);
        if let Some((other, it)) = alike {
            return Err(AliasTaken::LooksLike {
                alias: alias.clone(),
                other: other.clone(),
                name: it.name,
            });
        }
        match self.aliases.len() >= MAX_ALIASES && !self.aliases.contains_key(alias) {
            true => Err(AliasTaken::Full),
            false => Ok(()),
        }
    }

    /// Takes an alias away. Returns what it stood for.
    pub fn remove(&mut self, alias: &Alias) -> Option<Aliased> {
        self.aliases.remove(alias)
    }

    /// Forgets a signer and all aliases of theirs. Returns their number; `None` if it is not pinned.
    pub fn forget(&mut self, signer: &Guid) -> Option<usize> {
        self.signers.remove(signer)?;
        let before = self.aliases.len();
        self.aliases.retain(|_, it| it.from != Some(*signer));
        Some(before - self.aliases.len())
    }

    /// Returns the names to sign: all of them, under the aliases that they have here.
    pub fn names(&self) -> BTreeMap<Alias, Guid> {
        let all = self.aliases.iter();
        all.map(|(alias, it)| (alias.clone(), it.name)).collect()
    }

    /// Takes over a signed directory. The first signer is pinned; a further one only if it is
    /// `expected`. Aliases of the user's own, and of other signers, stay as they are.
    pub fn import(
        &mut self,
        signed: SignedDirectory,
        expected: Option<Guid>,
    ) -> Result<Imported, ImportError> {
        let SignedDirectory {
            signer: found,
            version,
            names,
        } = signed;
        if let Some(expected) = expected.filter(|it| *it != found) {
            return Err(ImportError::Other { found, expected });
        }
        let pinned = self.signers.get(&found).copied();
        if pinned.is_none() && expected.is_none() && !self.signers.is_empty() {
            return Err(ImportError::Unknown(found));
        }
        if pinned.is_some_and(|before| version < before) {
            return Err(ImportError::Older);
        }
        if pinned.is_none() && self.signers.len() >= MAX_SIGNERS {
            return Err(ImportError::Full);
        }
        self.signers.insert(found, version);
        let mut imported = Imported {
            is_new_signer: pinned.is_none(),
            ..Imported::default()
        };
        let is_gone =
            |alias: &Alias, it: &Aliased| it.from == Some(found) && !names.contains_key(alias);
        let gone = self.aliases.iter().filter(|(alias, it)| is_gone(alias, it));
        imported.removed = gone.map(|(alias, _)| alias.clone()).collect();
        self.aliases.retain(|alias, it| !is_gone(alias, it));
        for (alias, name) in names {
            self.take_over(
                alias,
                Aliased {
                    name,
                    from: Some(found),
                },
                &mut imported,
            );
        }
        Ok(imported)
    }

    fn take_over(&mut self, alias: Alias, new: Aliased, imported: &mut Imported) {
        let before = self.aliases.get(&alias).copied();
        match before {
            Some(old) if old.name == new.name => return,
            Some(old) if old.from != new.from => {
                let name = old.name;
                return imported.refused.push(AliasTaken::Taken { alias, name });
            }
            _ => {}
        }
        if let Err(taken) = self.check_new(&alias, new.name) {
            return imported.refused.push(taken);
        }
        self.aliases.insert(alias.clone(), new);
        match before {
            Some(old) => imported.changed.push((alias, old.name)),
            None => imported.added.push(alias),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn alias(text: &str) -> Alias {
        text.parse().unwrap()
    }

    fn keys(seed: u8) -> KeyPair {
        KeyPair::from_secret(&[seed; 32])
    }

    fn name(byte: u8) -> Guid {
        Guid([byte; 32])
    }

    fn names(all: &[(&str, u8)]) -> BTreeMap<Alias, Guid> {
        all.iter()
            .map(|(text, byte)| (alias(text), name(*byte)))
            .collect()
    }

    fn signed(seed: u8, version: u64, all: &[(&str, u8)]) -> SignedDirectory {
        let text = SignedDirectory::sign(&keys(seed), version, &names(all));
        SignedDirectory::parse(&text).unwrap()
    }

    proptest! {
        #[test]
        fn what_was_signed_is_read_and_a_changed_byte_is_noticed(
            texts in prop::collection::btree_map("[g-z][a-z0-9._-]{0,20}", any::<[u8; 32]>(), 0..6),
            version: u64, at: prop::sample::Index, with in 1u8..128,
        ) {
            let all: BTreeMap<Alias, Guid> = (texts.into_iter())
                .filter_map(|(text, bytes)| Some((text.parse().ok()?, Guid(bytes))))
                .collect();
            let text = SignedDirectory::sign(&keys(1), version, &all);
            let signer = keys(1).guid();
            let whole = SignedDirectory { signer, version, names: all };
            prop_assert_eq!(SignedDirectory::parse(&text), Ok(whole.clone()));
            let mut bytes = text.clone().into_bytes();
            *at.get_mut(&mut bytes) ^= with;
            if let Ok(changed) = String::from_utf8(bytes) {
                let read = SignedDirectory::parse(&changed);
                // Digits of the signature may be capitals.
                prop_assert!(read.is_err() || read == Ok(whole), "{}", changed);
            }
            let longer = text + "more";
            prop_assert!(SignedDirectory::parse(&longer).is_err());
        }

        #[test]
        fn any_text_is_no_directory_and_does_not_panic(text in "(whimbrel-names 1\n)?\\PC{0,200}") {
            prop_assert!(SignedDirectory::parse(&text).is_err());
        }
    }

    #[test]
    fn an_alias_stands_for_one_name_and_none_looks_like_it() {
        let mut directory = Directory::default();
        assert_eq!(directory.add(alias("ship-1"), name(1)), Ok(true));
        assert_eq!(directory.add(alias("ship-1"), name(1)), Ok(false));
        let taken = directory.add(alias("ship-1"), name(2)).unwrap_err();
        assert!(matches!(taken, AliasTaken::Taken { .. }), "{taken}");
        let alike = directory.add(alias("ship-l"), name(2)).unwrap_err();
        assert!(matches!(alike, AliasTaken::LooksLike { .. }), "{alike}");
        // The same host may be called both.
        assert_eq!(directory.add(alias("ship-l"), name(1)), Ok(true));
        assert_eq!(directory.alias_of(&name(1)), Some(&alias("ship-1")));
        assert_eq!(directory.similar("shp-1"), Some(&alias("ship-1")));
    }

    #[test]
    fn the_first_signer_is_pinned_and_another_one_must_be_named() {
        let mut directory = Directory::default();
        let first = directory.import(signed(1, 5, &[("ship-7", 7)]), None);
        assert!(first.unwrap().is_new_signer);
        let stranger = signed(2, 9, &[("ship-8", 8)]);
        let refused = directory.import(stranger.clone(), None);
        assert_eq!(refused, Err(ImportError::Unknown(keys(2).guid())));
        assert_eq!(directory.aliases().len(), 1);
        let other = directory.import(stranger.clone(), Some(keys(3).guid()));
        assert!(matches!(other, Err(ImportError::Other { .. })));
        let named = directory.import(stranger, Some(keys(2).guid())).unwrap();
        assert_eq!(named.added, [alias("ship-8")]);
        assert_eq!(directory.forget(&keys(2).guid()), Some(1));
        assert_eq!(directory.name_of(&alias("ship-8")), None);
    }

    #[test]
    fn an_import_follows_its_signer_and_changes_nothing_of_others() {
        let mut directory = Directory::default();
        directory.add(alias("base"), name(1)).unwrap();
        let all = [("base", 9), ("ship-7", 7), ("ship-8", 8)];
        let first = directory.import(signed(1, 5, &all), None).unwrap();
        assert_eq!(first.refused.len(), 1, "the user's own alias stays");
        assert_eq!(directory.name_of(&alias("base")), Some(name(1)));
        let older = directory.import(signed(1, 4, &all), None);
        assert_eq!(older, Err(ImportError::Older));
        let next = [("ship-7", 17), ("shore", 3)];
        let second = directory.import(signed(1, 6, &next), None).unwrap();
        assert_eq!(second.changed, [(alias("ship-7"), name(7))]);
        assert_eq!(second.removed, [alias("ship-8")]);
        assert_eq!(second.added, [alias("shore")]);
        assert_eq!(directory.aliases().len(), 3);
    }
}
