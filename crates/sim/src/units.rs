//! Quantities as people write them: "54 Mbit/s", "25 ms", "256 KiB", "1 %".
//!
//! Numbers are read as exact decimals, never through floating point, so that "0.1 ms" is 100,000 ns
//! and nothing else. Prefixes are case-sensitive because `Mb` and `MB` differ by a factor of eight.

use core::fmt;
use core::time::Duration;

use serde::de::{Unexpected, Visitor};

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It does not begin with a decimal number.
    #[error("'{0}' does not begin with a number")]
    NoNumber(String),
    /// The number is there, the unit is not.
    #[error("'{text}' has no unit; write one of {expected}")]
    NoUnit {
        /// The whole text.
        text: String,
        /// The units that would do.
        expected: &'static str,
    },
    /// The unit is not one of those that fit here.
    #[error(
        "'{unit}' is no unit that fits here; write one of {expected} (upper and lower case matter)"
    )]
    UnknownUnit {
        /// The unit as written.
        unit: String,
        /// The units that would do.
        expected: &'static str,
    },
    /// More than fits in 64 bits of the smallest unit.
    #[error("'{0}' is too large")]
    TooLarge(String),
    /// Not within 0 to 1.
    #[error("{0} is no probability: it must lie within 0 and 1, or 0 % and 100 %")]
    NotAProbability(String),
}

const RATE_UNITS: &str =
    "bit/s, kbit/s, Mbit/s, Gbit/s (or bps, Mbps, Mb/s ...), B/s, kB/s, MB/s, GB/s";
const TIME_UNITS: &str = "ns, us, ms, s, min, h";
const SIZE_UNITS: &str = "B, kB, MB, GB, KiB, MiB, GiB";

/// Splits "12.5 ms" into "12.5" and "ms".
fn split(text: &str) -> Result<(&str, &str), UnitError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(UnitError::NoNumber(text.to_owned()));
    }
    Ok((number, unit.trim()))
}

/// `number` times `scale`, rounded down, in exact arithmetic.
fn scaled(number: &str, scale: u128) -> Result<u64, UnitError> {
    let too_large = || UnitError::TooLarge(number.to_owned());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (mut value, mut divisor) = (0u128, 1u128);
    for digit in whole.chars().filter(|c| *c != '_') {
        let digit = digit
            .to_digit(10)
            .ok_or_else(|| UnitError::NoNumber(number.to_owned()))?;
        value = value.checked_mul(10).ok_or_else(too_large)? + u128::from(digit);
    }
    // Twenty digits are below one part of the largest scale; what follows them cannot show.
    for digit in fraction.chars().filter(|c| *c != '_').take(20) {
        let digit = digit
            .to_digit(10)
            .ok_or_else(|| UnitError::NoNumber(number.to_owned()))?;
        value = value.checked_mul(10).ok_or_else(too_large)? + u128::from(digit);
        divisor *= 10;
    }
    let product = value.checked_mul(scale).ok_or_else(too_large)?;
    u64::try_from(product / divisor).map_err(|_| too_large())
}

fn with_unit(
    text: &str,
    expected: &'static str,
    scale_of: impl Fn(&str) -> Option<u128>,
) -> Result<u64, UnitError> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Err(UnitError::NoUnit {
            text: text.trim().to_owned(),
            expected,
        });
    }
    let scale = scale_of(unit).ok_or_else(|| UnitError::UnknownUnit {
        unit: unit.to_owned(),
        expected,
    })?;
    scaled(number, scale)
}

/// Bits per second of "54 Mbit/s". Prefixes are decimal; bytes per second are taken times eight.
pub fn parse_rate(text: &str) -> Result<u64, UnitError> {
    with_unit(text, RATE_UNITS, |unit| {
        let (factor, rest) = match unit.chars().next()? {
            'k' => (1_000, &unit[1..]),
            'M' => (1_000_000, &unit[1..]),
            'G' => (1_000_000_000, &unit[1..]),
            _ => (1, unit),
        };
        match rest {
            "bit/s" | "bps" | "b/s" => Some(factor),
            "B/s" => Some(factor * 8),
            _ => None,
        }
    })
}

/// The duration of "25 ms".
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let nanos = with_unit(text, TIME_UNITS, |unit| match unit {
        "ns" => Some(1),
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "min" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        _ => None,
    })?;
    Ok(Duration::from_nanos(nanos))
}

/// Bytes of "256 KiB".
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    with_unit(text, SIZE_UNITS, |unit| match unit {
        "B" => Some(1),
        "kB" => Some(1_000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    })
}

/// The probability of "1 %" or "0.01".
pub fn parse_probability(text: &str) -> Result<f64, UnitError> {
    let refuse = || UnitError::NotAProbability(text.trim().to_owned());
    let (number, divisor) = match text.trim().strip_suffix('%') {
        Some(number) => (number.trim(), 100.0),
        None => (text.trim(), 1.0),
    };
    let value: f64 = number.parse().map_err(|_| refuse())?;
    check_probability(value / divisor).map_err(|_| refuse())
}

/// `value` if it lies within 0 and 1.
pub fn check_probability(value: f64) -> Result<f64, UnitError> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(UnitError::NotAProbability(value.to_string()))
    }
}

/// The shortest exact text of a duration that [`parse_duration`] reads back.
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let (divisor, unit) = match nanos {
        0 => return "0 s".to_owned(),
        n if n % 1_000_000_000 == 0 => (1_000_000_000, "s"),
        n if n % 1_000_000 == 0 => (1_000_000, "ms"),
        n if n % 1_000 == 0 => (1_000, "us"),
        _ => (1, "ns"),
    };
    format!("{} {unit}", nanos / divisor)
}

/// The shortest exact text of a rate that [`parse_rate`] reads back.
pub fn format_rate(bits_per_second: u64) -> String {
    let (divisor, unit) = match bits_per_second {
        n if n > 0 && n % 1_000_000_000 == 0 => (1_000_000_000, "Gbit/s"),
        n if n > 0 && n % 1_000_000 == 0 => (1_000_000, "Mbit/s"),
        n if n > 0 && n % 1_000 == 0 => (1_000, "kbit/s"),
        _ => (1, "bit/s"),
    };
    format!("{} {unit}", bits_per_second / divisor)
}

/// For `#[serde(with = "units::duration")]`: a text with a unit; a bare number is refused, since
/// nobody can tell seconds from milliseconds.
pub mod duration {
    use super::*;

    /// Writes the text that [`deserialize`] reads.
    pub fn serialize<S: serde::Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration(*duration))
    }

    /// Reads "25 ms".
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        deserializer.deserialize_str(TextVisitor {
            expecting: "a duration such as \"25 ms\"",
            parse: parse_duration,
        })
    }
}

/// For `#[serde(with = "units::optional_duration")]` beside `#[serde(default)]`.
pub mod optional_duration {
    use super::*;

    /// Writes the text that [`deserialize`] reads.
    pub fn serialize<S: serde::Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(duration) => super::duration::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads "25 ms".
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        super::duration::deserialize(deserializer).map(Some)
    }
}

/// For `#[serde(with = "units::size")]`: a text with a unit.
pub mod size {
    use super::*;

    /// Writes the text that [`deserialize`] reads.
    pub fn serialize<S: serde::Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{bytes} B"))
    }

    /// Reads "256 KiB".
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_str(TextVisitor {
            expecting: "a size such as \"256 KiB\"",
            parse: parse_size,
        })
    }
}

/// For `#[serde(with = "units::optional_size")]` beside `#[serde(default)]`.
pub mod optional_size {
    /// Writes the text that [`deserialize`] reads.
    pub fn serialize<S: serde::Serializer>(
        value: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(bytes) => super::size::serialize(bytes, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads "256 KiB".
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        super::size::deserialize(deserializer).map(Some)
    }
}

/// For `#[serde(with = "units::probability")]`: a number within 0 and 1, or a text such as "1 %".
pub mod probability {
    use super::*;

    /// Writes the number.
    pub fn serialize<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(*value)
    }

    /// Reads 0.01 or "1 %".
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        deserializer.deserialize_any(ProbabilityVisitor)
    }
}

struct TextVisitor<T> {
    expecting: &'static str,
    parse: fn(&str) -> Result<T, UnitError>,
}

impl<T> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }
}

struct ProbabilityVisitor;

impl Visitor<'_> for ProbabilityVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a probability such as 0.01 or \"1 %\"")
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<f64, E> {
        check_probability(value).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<f64, E> {
        check_probability(value as f64).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<f64, E> {
        let value =
            u64::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))?;
        self.visit_u64(value)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<f64, E> {
        parse_probability(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_read_exactly() {
        assert_eq!(parse_rate("54 Mbit/s"), Ok(54_000_000));
        assert_eq!(parse_rate("5.5Mbps"), Ok(5_500_000));
        assert_eq!(parse_rate("1_000 bit/s"), Ok(1_000));
        assert_eq!(parse_rate("1 MB/s"), Ok(8_000_000));
        assert_eq!(parse_duration("0.1 ms"), Ok(Duration::from_nanos(100_000)));
        assert_eq!(parse_duration("1.5 min"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_size("256 KiB"), Ok(262_144));
        assert_eq!(parse_size("2 MB"), Ok(2_000_000));
        assert_eq!(parse_probability("1 %"), Ok(0.01));
        assert_eq!(parse_probability("0.5"), Ok(0.5));
    }

    #[test]
    fn refusals_name_the_cause_and_what_would_do() {
        let said = |error: UnitError| error.to_string();
        assert!(said(parse_rate("54").unwrap_err()).contains("Mbit/s"));
        assert!(said(parse_rate("54 mbit/s").unwrap_err()).contains("upper and lower case matter"));
        assert!(said(parse_duration("ms").unwrap_err()).contains("does not begin with a number"));
        assert!(
            said(parse_duration("-1 ms").unwrap_err()).contains("does not begin with a number")
        );
        assert!(said(parse_duration("1.2.3 ms").unwrap_err()).contains("number"));
        assert!(said(parse_size("99999999999999 GiB").unwrap_err()).contains("too large"));
        assert!(said(parse_probability("101 %").unwrap_err()).contains("0 % and 100 %"));
        assert!(parse_probability("NaN").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "\\PC{0,40}") {
            let _ = parse_rate(&text);
            let _ = parse_duration(&text);
            let _ = parse_size(&text);
            let _ = parse_probability(&text);
        }

        #[test]
        fn any_digits_and_units_are_read_or_refused_without_panic(text in "[0-9._]{0,50} ?(ms|Mbit/s|GiB|h|%)") {
            let _ = parse_rate(&text);
            let _ = parse_duration(&text);
            let _ = parse_size(&text);
            let _ = parse_probability(&text);
        }

        #[test]
        fn what_is_written_is_read_back(nanos: u64, rate: u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_rate(&format_rate(rate)), Ok(rate));
        }
    }
}
