//! Sizes, durations and rates as people write them: `64 MiB`, `1.5 s`, `100 Mbit/s`.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Why a text is no quantity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{text}' is no {what}; write a number and one of {units}, as in \"{example}\"")]
pub struct UnitError {
    text: String,
    what: &'static str,
    units: String,
    example: &'static str,
}

/// A kind of quantity: its units, smallest first, as multiples of what is counted.
struct Kind {
    what: &'static str,
    units: &'static [(&'static str, u64)],
    example: &'static str,
}

const BYTES: Kind = Kind {
    what: "size",
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("KiB", 1 << 10),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
        ("GB", 1_000_000_000),
        ("GiB", 1 << 30),
        ("TB", 1_000_000_000_000),
        ("TiB", 1 << 40),
    ],
    example: "64 MiB",
};

const NANOSECONDS: Kind = Kind {
    what: "duration",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
    ],
    example: "1.5 s",
};

const BITS_PER_SECOND: Kind = Kind {
    what: "rate",
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
    ],
    example: "100 Mbit/s",
};

impl Kind {
    fn parse(&self, text: &str) -> Result<u64, UnitError> {
        let fault = || UnitError {
            text: text.to_owned(),
            what: self.what,
            units: self
                .units
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", "),
            example: self.example,
        };
        let trimmed = text.trim();
        let digits = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = (&trimmed[..digits], trimmed[digits..].trim());
        let (_, factor) = self
            .units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .ok_or_else(fault)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(*factor).ok_or_else(fault);
        }
        let value = number.parse::<f64>().map_err(|_| fault())? * *factor as f64;
        if value.is_finite() && value < u64::MAX as f64 {
            Ok(value.round() as u64)
        } else {
            Err(fault())
        }
    }

    /// With the largest unit of which it is a whole multiple.
    fn show(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, factor): &&(&str, u64)| value >= *factor && value.is_multiple_of(*factor);
        let (unit, factor) = self
            .units
            .iter()
            .rfind(fits)
            .or(self.units.first())
            .copied()
            .unwrap_or(("", 1));
        write!(f, "{} {unit}", value / factor)
    }
}

macro_rules! quantity {
    ($name:ident, $kind:expr, $schema:literal) => {
        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<$name, UnitError> {
                $kind.parse(text).map($name::from_count)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $kind.show(self.count(), f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $schema.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": $schema })
            }
        }
    };
}

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteSize(pub u64);

impl ByteSize {
    const fn from_count(count: u64) -> ByteSize {
        ByteSize(count)
    }
    const fn count(&self) -> u64 {
        self.0
    }
    /// As a length in memory.
    pub fn as_usize(&self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// A length of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Duration);

impl Span {
    const fn from_count(count: u64) -> Span {
        Span(Duration::from_nanos(count))
    }
    fn count(&self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Bits per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub u64);

impl Rate {
    const fn from_count(count: u64) -> Rate {
        Rate(count)
    }
    const fn count(&self) -> u64 {
        self.0
    }
}

quantity!(ByteSize, BYTES, "size");
quantity!(Span, NANOSECONDS, "duration");
quantity!(Rate, BITS_PER_SECOND, "rate");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(count: u64) {
            prop_assert_eq!(ByteSize(count).to_string().parse(), Ok(ByteSize(count)));
            let span = Span(Duration::from_nanos(count));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
            prop_assert_eq!(Rate(count).to_string().parse(), Ok(Rate(count)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,20}") {
            let _ = (text.parse::<ByteSize>(), text.parse::<Span>(), text.parse::<Rate>());
        }
    }

    #[test]
    fn people_write_fractions_and_skip_spaces() {
        assert_eq!("1.5GiB".parse(), Ok(ByteSize(3 << 29)));
        assert_eq!(" 250 ms ".parse(), Ok(Span(Duration::from_millis(250))));
        assert_eq!("2.5 Mbit/s".parse(), Ok(Rate(2_500_000)));
        assert_eq!(ByteSize(64 << 20).to_string(), "64 MiB");
    }

    #[test]
    fn a_refusal_shows_what_would_do() {
        let error = "5 parsecs".parse::<Span>().unwrap_err().to_string();
        assert!(error.contains("ms") && error.contains("1.5 s"), "{error}");
        assert!("5".parse::<ByteSize>().is_err());
        assert!("99999999999 TiB".parse::<ByteSize>().is_err());
    }
}
