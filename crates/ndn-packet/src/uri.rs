//! Names as text: NDN URIs.
//!
//! Components of the conventions' types are written with their label (`seg=3`), all others but
//! generic ones with the number of their type (`32=metadata`). [`NameRef::numbered`] writes the
//! number for the conventions' types, too (`50=%03`), which every NDN program reads. Both forms can
//! be parsed.

use core::fmt;
use core::str::FromStr;

use crate::name::{Component, ComponentRef, Name, NameRef};
use crate::tlv;
use crate::types;

/// Types with a label in URIs, whose values are numbers.
const NUMBERS: [(u64, &str); 5] = [
    (types::SEGMENT, "seg"),
    (types::BYTE_OFFSET, "off"),
    (types::VERSION, "v"),
    (types::TIMESTAMP, "t"),
    (types::SEQUENCE_NUM, "seq"),
];
/// Types with a label in URIs, whose values are digests in hexadecimal.
const DIGESTS: [(u64, &str); 2] = [
    (types::IMPLICIT_SHA256_DIGEST, "sha256digest"),
    (types::PARAMETERS_SHA256_DIGEST, "params-sha256"),
];

/// Writes a component or a name with type numbers in place of the conventions' labels.
#[derive(Clone, Copy)]
pub struct Numbered<T>(T);

impl<'a> ComponentRef<'a> {
    /// Displays the number of its type rather than a label of the conventions.
    pub const fn numbered(self) -> Numbered<ComponentRef<'a>> {
        Numbered(self)
    }

    fn write_digest(&self, f: &mut fmt::Formatter<'_>) -> Option<fmt::Result> {
        let (_, label) = DIGESTS
            .iter()
            .find(|(digest, _)| *digest == u64::from(self.typ()))?;
        if self.value().len() != 32 {
            return None;
        }
        let digits = |f: &mut fmt::Formatter<'_>| {
            self.value()
                .iter()
                .try_for_each(|octet| write!(f, "{octet:02x}"))
        };
        Some(write!(f, "{label}=").and_then(|()| digits(f)))
    }

    fn write_number(&self, f: &mut fmt::Formatter<'_>) -> Option<fmt::Result> {
        let (typ, label) = NUMBERS
            .iter()
            .find(|(number, _)| *number == u64::from(self.typ()))?;
        let number = self.number_of(*typ)?;
        // A longer form of the same number would not survive parsing.
        (tlv::integer_len(number) == self.value().len()).then(|| write!(f, "{label}={number}"))
    }

    fn write_octets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if u64::from(self.typ()) != types::GENERIC_COMPONENT {
            write!(f, "{}=", self.typ())?;
        }
        // Empty or only dots: three more dots distinguish it from a relative path.
        if self.value().iter().all(|octet| *octet == b'.') {
            f.write_str("...")?;
        }
        self.value().iter().try_for_each(|octet| match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                write!(f, "{}", char::from(*octet))
            }
            _ => write!(f, "%{octet:02X}"),
        })
    }
}

impl<'a> NameRef<'a> {
    /// Displays type numbers rather than labels of the conventions.
    pub const fn numbered(self) -> Numbered<NameRef<'a>> {
        Numbered(self)
    }
}

impl fmt::Display for Numbered<ComponentRef<'_>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .write_digest(f)
            .unwrap_or_else(|| self.0.write_octets(f))
    }
}

impl fmt::Display for Numbered<NameRef<'_>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        self.0
            .components()
            .try_for_each(|component| write!(f, "/{}", component.numbered()))
    }
}

impl fmt::Display for ComponentRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(written) = self.write_digest(f) {
            return written;
        }
        if let Some(written) = self.write_number(f) {
            return written;
        }
        self.write_octets(f)
    }
}

impl fmt::Debug for ComponentRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_ref(), f)
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NameRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("/");
        }
        self.components()
            .try_for_each(|component| write!(f, "/{component}"))
    }
}

impl fmt::Debug for NameRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_ref(), f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseNameError {
    /// A component is empty or consists of one or two dots.
    #[error("the component '{0}' is empty or has too few dots: three dots stand for an empty one")]
    Empty(String),
    /// `%` without two hexadecimal digits.
    #[error("'%' in '{0}' is not followed by two hexadecimal digits")]
    Escape(String),
    /// The part before `=` is not a component type.
    #[error(
        "'{0}' is not a component type: use a number from 1 to 65535, or one of seg, off, v, t, seq, sha256digest, params-sha256"
    )]
    Type(String),
    /// The value after a numeric label such as `seg=` is not a number.
    #[error("'{0}' is not a number from 0 to 18446744073709551615")]
    Number(String),
    /// A digest is not 64 hexadecimal digits.
    #[error("'{0}' is not a digest of 64 hexadecimal digits")]
    Digest(String),
}

impl FromStr for Component {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Component, ParseNameError> {
        let Some((label, rest)) = text.split_once('=') else {
            return Ok(Component::generic(unescape(text)?));
        };
        if let Some((typ, _)) = NUMBERS.iter().find(|(_, name)| *name == label) {
            let number = decimal(rest).ok_or_else(|| ParseNameError::Number(rest.to_owned()))?;
            return Ok(Component::number(*typ, number));
        }
        if let Some((typ, _)) = DIGESTS.iter().find(|(_, name)| *name == label) {
            return Ok(Component::new(*typ as u16, digest(rest)?));
        }
        let typ: u16 = decimal(label).ok_or_else(|| ParseNameError::Type(label.to_owned()))?;
        let value = unescape(rest)?;
        match u64::from(typ) {
            0 => Err(ParseNameError::Type(label.to_owned())),
            typ if typ <= types::PARAMETERS_SHA256_DIGEST && value.len() != 32 => {
                Err(ParseNameError::Digest(rest.to_owned()))
            }
            _ => Ok(Component::new(typ, value)),
        }
    }
}

impl FromStr for Name {
    type Err = ParseNameError;

    /// `/a/b`, `ndn:/a/b`, `ndn://any.authority/a/b` and `a/b` are the same name.
    fn from_str(text: &str) -> Result<Name, ParseNameError> {
        let text = match text.get(..4) {
            Some(scheme) if scheme.eq_ignore_ascii_case("ndn:") => {
                without_authority(text.get(4..).unwrap_or_default())
            }
            _ => text,
        };
        let path = text.strip_prefix('/').unwrap_or(text);
        // "/a/" is "/a": people write a trailing slash on prefixes. "//" is a slip, and no root: a
        // route for it would draw all traffic.
        let path = match path.strip_suffix('/') {
            Some(shorter) if !shorter.is_empty() => shorter,
            _ => path,
        };
        if path.is_empty() {
            return Ok(Name::root());
        }
        let components: Result<Vec<Component>, _> = path.split('/').map(str::parse).collect();
        Ok(Name::of(components?))
    }
}

/// "The authority component is not relevant to NDN. It should not be present, and it is ignored if
/// it is present."
fn without_authority(after_scheme: &str) -> &str {
    let Some(authority) = after_scheme.strip_prefix("//") else {
        return after_scheme;
    };
    authority
        .find('/')
        .and_then(|slash| authority.get(slash..))
        .unwrap_or_default()
}

fn unescape(text: &str) -> Result<Vec<u8>, ParseNameError> {
    let mut value = Vec::with_capacity(text.len());
    let mut octets = text.bytes();
    while let Some(octet) = octets.next() {
        if octet != b'%' {
            value.push(octet);
            continue;
        }
        let digits = octets
            .next()
            .and_then(hex_digit)
            .zip(octets.next().and_then(hex_digit));
        let (high, low) = digits.ok_or_else(|| ParseNameError::Escape(text.to_owned()))?;
        value.push(high << 4 | low);
    }
    // Checked after unescaping, because earlier handlers of the URI may have escaped or unescaped a
    // dot.
    if value.iter().all(|octet| *octet == b'.') {
        let Some(dots) = value.len().checked_sub(3) else {
            return Err(ParseNameError::Empty(text.to_owned()));
        };
        value.truncate(dots);
    }
    Ok(value)
}

/// Digits only: the standard library would accept a plus sign, too.
fn decimal<T: FromStr>(digits: &str) -> Option<T> {
    if digits.bytes().all(|digit| digit.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}

fn hex_digit(octet: u8) -> Option<u8> {
    char::from(octet).to_digit(16).map(|digit| digit as u8)
}

fn digest(text: &str) -> Result<Vec<u8>, ParseNameError> {
    let wrong = || ParseNameError::Digest(text.to_owned());
    if text.len() != 64 {
        return Err(wrong());
    }
    let digits: Option<Vec<u8>> = text.bytes().map(hex_digit).collect();
    Ok(digits
        .ok_or_else(wrong)?
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |octet, digit| octet << 4 | digit))
        .collect())
}
