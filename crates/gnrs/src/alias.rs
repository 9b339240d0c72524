//! Aliases: short texts that people type in place of a name, and that a key's owner gives to pointers.

use core::fmt;
use core::str::FromStr;

use whimbrel_core::Guid;

/// Longest alias, in bytes.
pub const MAX_ALIAS_LEN: usize = 32;
/// What a ticket begins with: no alias does, so that a word is never both.
const TICKET: &str = "whimbrel";

/// An alias: 1 to 32 characters of a to z, 0 to 9, `-`, `.` and `_`, of which the first is a letter. It is
/// never a name of 64 digits, nor the first digits of one.
#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Alias(String);

/// Why a text is not an alias.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AliasError {
    /// It has no characters, or more than [`MAX_ALIAS_LEN`].
    #[error("an alias has 1 to {MAX_ALIAS_LEN} characters; this one has {0}")]
    Length(usize),
    /// A character that is not in the list: another alphabet has letters that look like these.
    #[error(
        "'{}' (U+{:04X}) cannot be in an alias: it has a to z, 0 to 9, '-', '.' and '_' only, so that no two characters look the same",
        .0.escape_debug(), u32::from(*.0)
    )]
    Character(char),
    /// The first character is not a letter.
    #[error("an alias begins with a letter, a to z; this one begins with '{0}'")]
    Start(char),
    /// All characters are hexadecimal digits.
    #[error("'{0}' could be the first digits of a name: add a letter after f, or a '-'")]
    Hexadecimal(String),
    /// It begins as a ticket does.
    #[error("an alias does not begin with \"{TICKET}\", as tickets do")]
    Ticket,
}

impl Alias {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the alias with each character that is easily taken for another replaced by it: aliases with
    /// the same skeleton look alike.
    pub fn skeleton(&self) -> String {
        let letters = self.0.replace("rn", "m").replace("vv", "w");
        let plain = |character| match character {
            '0' => 'o',
            '1' | 'i' => 'l',
            '5' => 's',
            '.' | '_' => '-',
            other => other,
        };
        letters.chars().map(plain).collect()
    }

    /// Returns the alias as a key of a store.
    pub(crate) fn hash(&self, context: &str) -> Guid {
        Guid(blake3::derive_key(context, self.0.as_bytes()))
    }
}

impl FromStr for Alias {
    type Err = AliasError;

    fn from_str(text: &str) -> Result<Alias, AliasError> {
        let count = text.chars().count();
        let first = text.chars().next().ok_or(AliasError::Length(0))?;
        if let Some(wrong) = text.chars().find(|it| !is_usual(*it)) {
            return Err(AliasError::Character(wrong));
        }
        if count > MAX_ALIAS_LEN {
            return Err(AliasError::Length(count));
        }
        if !first.is_ascii_lowercase() {
            return Err(AliasError::Start(first));
        }
        if text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(AliasError::Hexadecimal(text.to_owned()));
        }
        if text.starts_with(TICKET) {
            return Err(AliasError::Ticket);
        }
        Ok(Alias(text.to_owned()))
    }
}

fn is_usual(character: char) -> bool {
    character.is_ascii_lowercase()
        || character.is_ascii_digit()
        || matches!(character, '-' | '.' | '_')
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Alias {
    type Error = AliasError;

    fn try_from(text: String) -> Result<Alias, AliasError> {
        text.parse()
    }
}

impl From<Alias> for String {
    fn from(alias: Alias) -> String {
        alias.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_an_alias_or_refused_and_never_begins_a_name(text in "\\PC{0,40}|[a-z0-9._-]{0,40}") {
            if let Ok(alias) = text.parse::<Alias>() {
                prop_assert_eq!(alias.as_str(), &text);
                prop_assert!(whimbrel_core::GuidPrefix::new(&text).is_none());
                prop_assert!(text.parse::<Guid>().is_err());
            }
        }
    }

    #[test]
    fn an_alias_that_could_be_something_else_is_refused() {
        let refused = |text: &str| text.parse::<Alias>().unwrap_err();
        assert_eq!(refused(""), AliasError::Length(0));
        assert_eq!(refused(&"x".repeat(33)), AliasError::Length(33));
        assert_eq!(refused("7-ships"), AliasError::Start('7'));
        assert_eq!(refused("cafe"), AliasError::Hexadecimal("cafe".into()));
        assert_eq!(refused("whimbrel1x"), AliasError::Ticket);
        // A space, a capital, a Cyrillic letter that looks like a Latin one.
        for (text, wrong) in [("ship 7", ' '), ("Ship-7", 'S'), ("\u{455}hip", '\u{455}')] {
            assert_eq!(refused(text), AliasError::Character(wrong));
        }
        let text = refused("\u{455}hip").to_string();
        assert!(text.contains("U+0455"), "{text}");
        assert_eq!("ship-7".parse::<Alias>().unwrap().as_str(), "ship-7");
    }

    #[test]
    fn aliases_that_look_alike_have_one_skeleton() {
        let skeleton = |text: &str| text.parse::<Alias>().unwrap().skeleton();
        for (one, other) in [
            ("ship-1", "ship-l"),
            ("ship-i", "ship_l"),
            ("host0", "hosto"),
            ("barn", "bam"),
        ] {
            assert_eq!(skeleton(one), skeleton(other), "{one} {other}");
        }
        assert_ne!(skeleton("ship-7"), skeleton("ship-8"));
    }
}
