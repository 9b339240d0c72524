//! Quantities as people type them: `1.5s`, `20 ms`, `64 KiB`, `50M`, `10Mbit/s`, `1 %`.
//!
//! One grammar for configurations, scenarios and command lines: a decimal number, then a unit, with
//! or without a space between them.
//!
//! | quantity | units | a bare number on a command line |
//! |---|---|---|
//! | duration | `ns`, `us`, `ms`, `s`, `min` or `m`, `h`, `d` | seconds, or what the option says |
//! | size | `B`, `kB`, `MB`, `GB`, `TB` (powers of 1000); `KiB` ... `TiB`, or `k`, `M`, `G`, `T` (powers of 1024, as `head` and `dd` have them) | bytes |
//! | rate | `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s`, `Tbit/s`, or `bps`, `b/s`, or the prefix alone; `B/s`, `kB/s` ... are eight times as much | bits per second |
//!
//! In a file a bare number is refused, because it could mean seconds or milliseconds. Upper and
//! lower case matter only where they change the quantity (`Mb/s` and `MB/s`).
//!
//! Numbers are exact decimals and never pass through floating point: "0.1 ms" is 100,000 ns.
//! Fractions of a nanosecond, byte or bit per second are cut off.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use serde::de::{Deserializer, Unexpected, Visitor};
use serde::ser::Serializer;

/// A kind of quantity.
#[derive(PartialEq, Eq)]
struct Kind {
    what: &'static str,
    example: &'static str,
    /// The units in an error message.
    accepted: &'static str,
    /// The units for display, smallest first, as multiples of the base unit.
    shown: &'static [(&'static str, u64)],
    /// Further units that can be parsed.
    also: &'static [(&'static str, u64)],
}

const DURATION: Kind = Kind {
    what: "duration",
    example: "1.5 s",
    accepted: "ns, us, ms, s, min, h, d",
    shown: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", SECOND),
        ("min", 60 * SECOND),
        ("h", 3_600 * SECOND),
        ("d", 86_400 * SECOND),
    ],
    also: &[("\u{b5}s", 1_000), ("\u{3bc}s", 1_000), ("m", 60 * SECOND)],
};

const SIZE: Kind = Kind {
    what: "size",
    example: "64 MiB",
    accepted: "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
    shown: &[
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
    also: &[
        ("k", 1 << 10),
        ("M", 1 << 20),
        ("G", 1 << 30),
        ("T", 1 << 40),
    ],
};

const RATE: Kind = Kind {
    what: "rate",
    example: "10 Mbit/s",
    accepted: "bit/s, kbit/s, Mbit/s, Gbit/s (or bps, Mbps, Mb/s ...), B/s, kB/s, MB/s, GB/s",
    shown: &[
        ("bit/s", 1),
        ("kbit/s", KILO),
        ("Mbit/s", MEGA),
        ("Gbit/s", GIGA),
        ("Tbit/s", TERA),
    ],
    also: &[
        ("k", KILO),
        ("M", MEGA),
        ("G", GIGA),
        ("T", TERA),
        ("bps", 1),
        ("kbps", KILO),
        ("Mbps", MEGA),
        ("Gbps", GIGA),
        ("Tbps", TERA),
        ("b/s", 1),
        ("kb/s", KILO),
        ("Mb/s", MEGA),
        ("Gb/s", GIGA),
        ("Tb/s", TERA),
        ("B/s", 8),
        ("kB/s", 8 * KILO),
        ("MB/s", 8 * MEGA),
        ("GB/s", 8 * GIGA),
        ("TB/s", 8 * TERA),
    ],
};

const SECOND: u64 = 1_000_000_000;
const KILO: u64 = 1_000;
const MEGA: u64 = 1_000_000;
const GIGA: u64 = 1_000_000_000;
const TERA: u64 = 1_000_000_000_000;

/// Maximum of evaluated decimal places: one unit in the last place is less than one base unit in
/// the largest unit, and the product of a 64-bit count still fits 128 bits.
const FRACTION_DIGITS: usize = 18;

/// Why a text is not a quantity: the text, the fault and the accepted units.
#[derive(Clone, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    kind: &'static Kind,
    fault: Fault,
}

#[derive(Clone, PartialEq, Eq)]
enum Fault {
    NoNumber,
    NoUnit,
    UnknownUnit(String),
    CaseMatters(String),
    TooLarge,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnitError { text, kind, fault } = self;
        let Kind {
            what,
            example,
            accepted,
            ..
        } = kind;
        match fault {
            Fault::NoNumber => write!(
                f,
                "'{text}' is no {what}: it does not begin with a number; write a number and one of {accepted}, as in \"{example}\""
            ),
            Fault::NoUnit => write!(
                f,
                "'{text}' has no unit; write one of {accepted}, as in \"{example}\""
            ),
            Fault::UnknownUnit(unit) => write!(
                f,
                "'{unit}' is not a unit of a {what} (read: '{text}'); write one of {accepted}, as in \"{example}\""
            ),
            Fault::CaseMatters(unit) => write!(
                f,
                "'{unit}' may be bits or bytes (read: '{text}'): upper and lower case matter; write one of {accepted}"
            ),
            Fault::TooLarge => write!(f, "'{text}' is too large for a {what}"),
        }
    }
}

impl fmt::Debug for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnitError({self})")
    }
}

impl core::error::Error for UnitError {}

impl Kind {
    /// Parses a quantity. `bare` is the unit of a number without one; `None` refuses it.
    fn parse(&'static self, text: &str, bare: Option<u64>) -> Result<u64, UnitError> {
        let refuse = |fault| UnitError {
            text: text.trim().to_owned(),
            kind: self,
            fault,
        };
        let (number, unit) = split(text);
        let number = Decimal::read(number).ok_or_else(|| refuse(Fault::NoNumber))?;
        let factor = if unit.is_empty() {
            bare.ok_or_else(|| refuse(Fault::NoUnit))?
        } else {
            self.factor(unit).map_err(refuse)?
        };
        number.times(factor).ok_or_else(|| refuse(Fault::TooLarge))
    }

    fn factor(&self, unit: &str) -> Result<u64, Fault> {
        let all = || self.shown.iter().chain(self.also);
        if let Some((_, factor)) = all().find(|(name, _)| *name == unit) {
            return Ok(*factor);
        }
        let mut alike = all().filter(|(name, _)| name.eq_ignore_ascii_case(unit));
        let Some((_, factor)) = alike.next() else {
            return Err(Fault::UnknownUnit(unit.to_owned()));
        };
        if alike.any(|(_, other)| other != factor) {
            return Err(Fault::CaseMatters(unit.to_owned()));
        }
        Ok(*factor)
    }

    /// Displays it in the largest unit of which it is a whole multiple; zero in `zero`.
    fn show(&self, count: u64, zero: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, factor): &&(&str, u64)| count >= *factor && count.is_multiple_of(*factor);
        match self.shown.iter().rfind(fits) {
            Some((unit, factor)) => write!(f, "{} {unit}", count / factor),
            None => write!(f, "0 {zero}"),
        }
    }
}

/// Splits "12.5 ms" into "12.5" and "ms".
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let in_number = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    let end = text.find(|c| !in_number(c)).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// A decimal number: `digits` divided by `divisor`.
struct Decimal {
    digits: u128,
    divisor: u128,
}

impl Decimal {
    /// `None` if it is not a number. A number with too many digits becomes the largest.
    fn read(text: &str) -> Option<Decimal> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if fraction.contains('.') || !text.contains(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let digits =
            |text: &'_ str| -> Vec<u32> { text.chars().filter_map(|c| c.to_digit(10)).collect() };
        let fraction: Vec<u32> = digits(fraction).into_iter().take(FRACTION_DIGITS).collect();
        let divisor = fraction.iter().fold(1u128, |divisor, _| divisor * 10);
        let append =
            |value: u128, digit: u32| value.saturating_mul(10).saturating_add(u128::from(digit));
        let digits = digits(whole).into_iter().chain(fraction).fold(0, append);
        Some(Decimal { digits, divisor })
    }

    fn times(&self, factor: u64) -> Option<u64> {
        let product = self.digits.checked_mul(u128::from(factor))?;
        u64::try_from(product / self.divisor).ok()
    }
}

/// A quantity's newtype: parsed from a command line by `FromStr`, from a file by serde, and
/// displayed in a form that both can parse.
macro_rules! quantity {
    ($name:ident, $kind:expr, $bare:expr, $zero:literal, $expecting:literal) => {
        impl $name {
            /// Parses a quantity in a file: with a unit.
            pub fn with_unit(text: &str) -> Result<$name, UnitError> {
                $kind.parse(text, None).map($name::from_count)
            }
        }

        /// Parses a quantity on a command line: with a unit, or a bare number.
        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<$name, UnitError> {
                $kind.parse(text, Some($bare)).map($name::from_count)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $kind.show(self.count(), $zero, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                deserializer.deserialize_str(TextVisitor {
                    expecting: $expecting,
                    parse: $name::with_unit,
                })
            }
        }
    };
}

/// A length of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

impl Span {
    const fn from_count(nanos: u64) -> Span {
        Span(Duration::from_nanos(nanos))
    }

    /// At most 584 years.
    fn count(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteSize(pub u64);

impl ByteSize {
    const fn from_count(bytes: u64) -> ByteSize {
        ByteSize(bytes)
    }

    const fn count(self) -> u64 {
        self.0
    }

    /// As a length in memory.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rate(pub u64);

impl Rate {
    const fn from_count(bits_per_second: u64) -> Rate {
        Rate(bits_per_second)
    }

    const fn count(self) -> u64 {
        self.0
    }
}

quantity!(Span, DURATION, SECOND, "s", "a duration such as \"25 ms\"");
quantity!(ByteSize, SIZE, 1, "B", "a size such as \"256 KiB\"");
quantity!(Rate, RATE, 1, "bit/s", "a rate such as \"10 Mbit/s\"");

/// Returns the duration of "25 ms".
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    Span::with_unit(text).map(|span| span.0)
}

/// Returns the duration of "25 ms", or of "25" in milliseconds, as in NDN programs.
pub fn parse_millis(text: &str) -> Result<Duration, UnitError> {
    let nanos = DURATION.parse(text, Some(1_000_000))?;
    Ok(Duration::from_nanos(nanos))
}

/// Returns the bytes of "256 KiB".
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    ByteSize::with_unit(text).map(|size| size.0)
}

/// Bits per second of "54 Mbit/s".
pub fn parse_rate(text: &str) -> Result<u64, UnitError> {
    Rate::with_unit(text).map(|rate| rate.0)
}

/// Returns a text that [`parse_duration`] can parse.
pub fn format_duration(duration: Duration) -> String {
    Span(duration).to_string()
}

/// Returns a text that [`parse_rate`] can parse.
pub fn format_rate(bits_per_second: u64) -> String {
    Rate(bits_per_second).to_string()
}

/// The value is not within 0 to 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a probability; write 0 to 1, or 0 % to 100 %, as in \"0.01\" or \"1 %\"")]
pub struct ProbabilityError(String);

/// Returns the probability of "1 %" or "0.01".
pub fn parse_probability(text: &str) -> Result<f64, ProbabilityError> {
    let refuse = || ProbabilityError(text.trim().to_owned());
    let (number, divisor) = match text.trim().strip_suffix('%') {
        Some(number) => (number.trim(), 100.0),
        None => (text.trim(), 1.0),
    };
    let value: f64 = number.parse().map_err(|_| refuse())?;
    check_probability(value / divisor).map_err(|_| refuse())
}

/// Returns `value` if it lies within 0 and 1.
pub fn check_probability(value: f64) -> Result<f64, ProbabilityError> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(ProbabilityError(value.to_string()))
    }
}

macro_rules! serde_with {
    ($(#[$doc:meta])* $module:ident, $optional:ident, $type:ty, $quantity:ident) => {
        $(#[$doc])*
        pub mod $module {
            use super::*;

            /// Writes a text for [`deserialize`].
            pub fn serialize<S: Serializer>(value: &$type, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&$quantity(*value))
            }

            /// Parses a text with a unit.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                <$quantity as serde::Deserialize>::deserialize(deserializer).map(|read| read.0)
            }
        }

        /// The same beside `#[serde(default)]`.
        pub mod $optional {
            use super::*;

            /// Writes a text for [`deserialize`].
            pub fn serialize<S: Serializer>(
                value: &Option<$type>,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                match value {
                    Some(value) => super::$module::serialize(value, serializer),
                    None => serializer.serialize_none(),
                }
            }

            /// Parses a text with a unit.
            pub fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Option<$type>, D::Error> {
                super::$module::deserialize(deserializer).map(Some)
            }
        }
    };
}

serde_with! {
    /// For `#[serde(with = "units::duration")]`: "25 ms".
    duration, optional_duration, Duration, Span
}
serde_with! {
    /// For `#[serde(with = "units::size")]`: "256 KiB".
    size, optional_size, u64, ByteSize
}

/// For `#[serde(with = "units::probability")]`: a number within 0 and 1, or a text such as "1 %".
pub mod probability {
    use super::*;

    /// Writes the number.
    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(*value)
    }

    /// Parses 0.01 or "1 %".
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
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

    fn span(text: &str) -> Duration {
        text.parse::<Span>().expect("a duration").0
    }

    fn size(text: &str) -> u64 {
        text.parse::<ByteSize>().expect("a size").0
    }

    fn rate(text: &str) -> u64 {
        text.parse::<Rate>().expect("a rate").0
    }

    #[test]
    fn quantities_are_read_as_people_type_them() {
        assert_eq!(span("5"), Duration::from_secs(5));
        assert_eq!(span("0.2"), Duration::from_millis(200));
        assert_eq!(span(".5"), Duration::from_millis(500));
        assert_eq!(span("1.5s"), Duration::from_millis(1500));
        assert_eq!(span(" 20ms "), Duration::from_millis(20));
        assert_eq!(span("0.1 ms"), Duration::from_nanos(100_000));
        assert_eq!(span("1.5 MIN"), Duration::from_secs(90));
        assert_eq!(span("2m"), Duration::from_secs(120));
        assert_eq!(span("365 d"), Duration::from_secs(365 * 86_400));
        assert_eq!(size("50M"), 50 << 20);
        assert_eq!(size("100k"), 100 << 10);
        assert_eq!(size("64 KiB"), 65_536);
        assert_eq!(size("1.5GiB"), 3 << 29);
        assert_eq!(size("2 MB"), 2_000_000);
        assert_eq!(size("4096"), 4096);
        assert_eq!(rate("10Mbit/s"), 10_000_000);
        assert_eq!(rate("10M"), 10_000_000);
        assert_eq!(rate("5.5Mbps"), 5_500_000);
        assert_eq!(rate("1_000 bit/s"), 1_000);
        assert_eq!(rate("1 MB/s"), 8_000_000);
        assert_eq!(rate("1 mbit/s"), 1_000_000);
        assert_eq!(parse_millis("4000"), Ok(Duration::from_secs(4)));
        assert_eq!(parse_millis("4 s"), Ok(Duration::from_secs(4)));
        assert_eq!(parse_probability("1 %"), Ok(0.01));
        assert_eq!(parse_probability("0.5"), Ok(0.5));
    }

    #[test]
    fn a_bare_number_in_a_file_is_refused() {
        for parsed in [
            parse_duration("54").map(drop),
            parse_size("54").map(drop),
            parse_rate("54").map(drop),
        ] {
            let said = parsed.expect_err("no unit").to_string();
            assert!(
                said.starts_with("'54' has no unit; write one of "),
                "{said}"
            );
        }
    }

    #[test]
    fn a_refusal_says_what_was_read_and_what_would_do() {
        let duration = |text: &str| text.parse::<Span>().expect_err("refused").to_string();
        let said = duration("5 parsecs");
        assert!(
            said.contains("'parsecs'") && said.contains("5 parsecs") && said.contains("ms, s, min"),
            "{said}"
        );
        for text in ["", "ms", "-1 ms", ".", "_ s", "1.2.3 ms", "soon"] {
            let said = duration(text);
            assert!(
                said.contains(&format!("'{text}'")) && said.contains("1.5 s"),
                "{said}"
            );
        }
        let rate = |text: &str| text.parse::<Rate>().expect_err("refused").to_string();
        assert!(rate("54 mb/s").contains("upper and lower case matter"));
        assert!(rate("54 ms").contains("Mbit/s"));
        for text in ["99999999999 TiB", &"9".repeat(60), "18446744073709551616"] {
            let said = text.parse::<ByteSize>().expect_err("refused").to_string();
            assert!(said.contains("too large"), "{said}");
        }
        let said = parse_probability("101 %").expect_err("refused").to_string();
        assert!(said.contains("'101 %'") && said.contains("100 %"), "{said}");
        assert!(parse_probability("NaN").is_err());
    }

    #[test]
    fn what_follows_the_last_place_that_counts_changes_nothing() {
        let long = format!("18446744073.{} s", "7".repeat(60));
        assert_eq!(
            parse_duration("18446744073.7095516150 s"),
            Ok(Duration::from_nanos(u64::MAX))
        );
        assert!(parse_duration(&long).is_err());
        assert_eq!(
            parse_duration(&format!("1.{}9 ns", "0".repeat(60))),
            Ok(Duration::from_nanos(1))
        );
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(count: u64, places in 0u32..20) {
            // Round numbers are shown in larger units.
            let count = count / 10u64.pow(places) * 10u64.pow(places);
            let span = Span(Duration::from_nanos(count));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
            prop_assert_eq!(Span::with_unit(&span.to_string()), Ok(span));
            prop_assert_eq!(ByteSize::with_unit(&ByteSize(count).to_string()), Ok(ByteSize(count)));
            prop_assert_eq!(Rate::with_unit(&Rate(count).to_string()), Ok(Rate(count)));
        }

        #[test]
        fn sizes_in_powers_of_two_are_read_back(count: u64, shift in 0u32..64) {
            let size = ByteSize(count >> shift << shift);
            prop_assert_eq!(ByteSize::with_unit(&size.to_string()), Ok(size));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = (text.parse::<Rate>(), text.parse::<Span>(), text.parse::<ByteSize>());
            let _ = (parse_millis(&text), parse_probability(&text));
        }

        #[test]
        fn any_digits_and_units_are_read_or_refused(text in "[0-9._]{0,50} ?(ms|Mbit/s|GiB|h|%|M)") {
            let _ = (text.parse::<Rate>(), text.parse::<Span>(), text.parse::<ByteSize>());
            let _ = (parse_millis(&text), parse_probability(&text));
        }
    }
}
