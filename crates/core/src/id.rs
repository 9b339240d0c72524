//! Identifiers shared by several crates.

use core::fmt;
use core::str::FromStr;

/// A globally unique identifier: 32 bytes that prove what they name.
///
/// The hash of a public key for a host, a router, a group or a service; the root of a BLAKE3 tree
/// for immutable content. Its text form is 64 lower-case hexadecimal digits, so that a content's
/// name is what `b3sum` prints for the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 32]);

impl Guid {
    /// Size on the wire, in bytes.
    pub const LEN: usize = 32;
    /// All zero: in a header it means "none". No key and no content has it unless the hash is
    /// broken.
    pub const NONE: Guid = Guid([0; 32]);

    /// Returns the bytes in wire format.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// `None` unless `bytes` is exactly 32 bytes long.
    pub fn from_slice(bytes: &[u8]) -> Option<Guid> {
        bytes.try_into().ok().map(Guid)
    }

    /// Returns true for [`Guid::NONE`].
    pub fn is_none(&self) -> bool {
        *self == Guid::NONE
    }

    /// Returns the first eight hexadecimal digits, for logs and tables where a human compares a
    /// handful of names.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(8);
        text
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({})", self.short())
    }
}

/// Why a text is not a [`Guid`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseGuidError {
    /// Not 64 characters long.
    #[error("a name has 64 hexadecimal digits; this text has {0} characters")]
    Length(usize),
    /// A character that is not a hexadecimal digit.
    #[error("'{0}' is not a hexadecimal digit; a name has 64 of them")]
    Digit(char),
}

impl FromStr for Guid {
    type Err = ParseGuidError;

    fn from_str(text: &str) -> Result<Guid, ParseGuidError> {
        let count = text.chars().count();
        if count != 64 {
            return Err(ParseGuidError::Length(count));
        }
        let mut bytes = [0; 32];
        for (index, character) in text.chars().enumerate() {
            let digit = character
                .to_digit(16)
                .ok_or(ParseGuidError::Digit(character))?;
            bytes[index / 2] = bytes[index / 2] << 4 | digit as u8;
        }
        Ok(Guid(bytes))
    }
}

/// The first digits of a name, as people abbreviate it: at least [`GuidPrefix::MIN`] and not all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuidPrefix(String);

impl GuidPrefix {
    /// The fewest digits.
    pub const MIN: usize = 4;

    /// Parses a prefix; `None` unless the text consists of a valid number of hexadecimal digits.
    pub fn new(text: &str) -> Option<GuidPrefix> {
        let is_part = (GuidPrefix::MIN..2 * Guid::LEN).contains(&text.len());
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_part && is_hex).then(|| GuidPrefix(text.to_ascii_lowercase()))
    }

    /// Returns the digits, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the name begins so.
    pub fn is_of(&self, name: &Guid) -> bool {
        name.to_string().starts_with(&self.0)
    }

    /// Returns the first of the names that begin so; the others follow it in the order of names.
    pub fn first(&self) -> Guid {
        let mut bytes = [0; Guid::LEN];
        for (index, digit) in self.0.chars().enumerate() {
            let digit = digit.to_digit(16).unwrap_or_default() as u8;
            bytes[index / 2] |= digit << (4 * (1 - index % 2));
        }
        Guid(bytes)
    }
}

impl fmt::Display for GuidPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl serde::Serialize for Guid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Guid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Guid, D::Error> {
        let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One adjacency of a machine: a configured neighbour, an inbound peer, or a local program.
///
/// The driver numbers ports and never gives a number to another port in the same run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId(pub u32);

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_form_round_trips(bytes: [u8; 32]) {
            let guid = Guid(bytes);
            prop_assert_eq!(guid.to_string().parse::<Guid>(), Ok(guid));
            prop_assert_eq!(guid.to_string().to_uppercase().parse::<Guid>(), Ok(guid));
        }

        #[test]
        fn a_prefix_is_of_its_names_and_of_no_other(bytes: [u8; 32], other: [u8; 32], length in GuidPrefix::MIN..64) {
            let (name, other) = (Guid(bytes), Guid(other));
            let text = name.to_string()[..length].to_uppercase();
            let prefix = GuidPrefix::new(&text).unwrap();
            prop_assert!(prefix.is_of(&name) && prefix.is_of(&prefix.first()));
            prop_assert!(prefix.first() <= name);
            prop_assert_eq!(prefix.is_of(&other), other.to_string().starts_with(prefix.as_str()));
            // Names that begin so are neighbours in the order of names.
            prop_assert!(prefix.is_of(&other) || other < prefix.first() || other > name);
        }

        #[test]
        fn any_text_parses_or_is_refused_without_panic(text in ".{0,80}") {
            let _ = text.parse::<Guid>();
        }
    }

    #[test]
    fn a_prefix_has_4_to_63_digits() {
        for wrong in ["", "abc", "xyzw", "abc-d", &"a".repeat(64)] {
            assert_eq!(GuidPrefix::new(wrong), None, "{wrong}");
        }
        assert!(GuidPrefix::new("ABcd").is_some_and(|prefix| prefix.as_str() == "abcd"));
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        assert_eq!("abc".parse::<Guid>(), Err(ParseGuidError::Length(3)));
        assert_eq!(
            "z".repeat(64).parse::<Guid>(),
            Err(ParseGuidError::Digit('z'))
        );
    }
}
