//! Validity periods of certificates and announcements.

use crate::tlv::{self, DecodeError};
use crate::types;

/// A period in whole seconds since the Unix epoch; both ends are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidityPeriod {
    /// NotBefore; 0 for dates before 1970.
    pub not_before: u64,
    /// NotAfter.
    pub not_after: u64,
}

const DAY: u64 = 86_400;

impl ValidityPeriod {
    /// The last second that the format can write: the end of the year 9999.
    pub const LAST_SECOND: u64 = 253_402_300_799;

    /// Returns a period from a time on, for a number of seconds.
    pub const fn starting(not_before: u64, seconds: u64) -> ValidityPeriod {
        ValidityPeriod {
            not_before,
            not_after: not_before.saturating_add(seconds),
        }
    }

    /// Returns true if this second of Unix time is within the period.
    pub const fn contains(&self, unix_seconds: u64) -> bool {
        self.not_before <= unix_seconds && unix_seconds <= self.not_after
    }

    /// Returns the intersection; contains nothing if they do not overlap.
    pub fn intersection(&self, other: &ValidityPeriod) -> ValidityPeriod {
        ValidityPeriod {
            not_before: self.not_before.max(other.not_before),
            not_after: self.not_after.min(other.not_after),
        }
    }

    /// Decodes the TLV-VALUE of a ValidityPeriod.
    pub fn decode(value: &[u8]) -> Result<ValidityPeriod, DecodeError> {
        let (mut not_before, mut not_after) = (None, None);
        tlv::read_ordered(value, &[types::NOT_BEFORE, types::NOT_AFTER], |element| {
            let time = read_time(element.value).ok_or(DecodeError::Value(element.typ))?;
            if element.typ == types::NOT_BEFORE {
                not_before = Some(time)
            } else {
                not_after = Some(time)
            }
            Ok(())
        })?;
        Ok(ValidityPeriod {
            not_before: not_before.ok_or(DecodeError::Missing(types::NOT_BEFORE))?,
            not_after: not_after.ok_or(DecodeError::Missing(types::NOT_AFTER))?,
        })
    }

    /// Appends the whole element. Times after the year 9999 are written as its last second.
    pub fn encode(&self, out: &mut Vec<u8>) {
        tlv::write_nested(out, types::VALIDITY_PERIOD, |out| {
            tlv::write_element(
                out,
                types::NOT_BEFORE,
                time_text(self.not_before).as_bytes(),
            );
            tlv::write_element(out, types::NOT_AFTER, time_text(self.not_after).as_bytes());
        });
    }
}

/// Returns a time in seconds since the Unix epoch as certificates write it: `20201231T235959`, in
/// UTC.
pub fn time_text(unix_seconds: u64) -> String {
    let seconds = unix_seconds.min(ValidityPeriod::LAST_SECOND);
    let (year, month, day) = date_of(seconds / DAY);
    let clock = seconds % DAY;
    format!(
        "{year:04}{month:02}{day:02}T{:02}{:02}{:02}",
        clock / 3600,
        clock / 60 % 60,
        clock % 60
    )
}

/// Parses `20201231T235959` to seconds since the Unix epoch; 0 for times before 1970; `None` if it
/// is not a time.
pub fn read_time(text: &[u8]) -> Option<u64> {
    let text: &[u8; 15] = text.try_into().ok()?;
    let number = |from: usize, to: usize| {
        text.get(from..to)?.iter().try_fold(0u64, |number, digit| {
            digit
                .is_ascii_digit()
                .then(|| number * 10 + u64::from(digit - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
    let day_exists = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    // 60 is a leap second, which Unix time does not count.
    if text.get(8) != Some(&b'T') || !day_exists || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    if year < 1970 {
        return Some(0);
    }
    Some(days_until(year, month, day) * DAY + hour * 3600 + minute * 60 + second.min(59))
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the year 0 to the first day of a year, in the Gregorian calendar.
const fn days_before_year(year: u64) -> u64 {
    let past = year.saturating_sub(1);
    365 * year
        + if year == 0 {
            0
        } else {
            past / 4 - past / 100 + past / 400 + 1
        }
}

/// Days from the Unix epoch to a date from 1970 on.
fn days_until(year: u64, month: u64, day: u64) -> u64 {
    let in_year: u64 = (1..month).map(|month| days_in(year, month)).sum();
    days_before_year(year) - days_before_year(1970) + in_year + day - 1
}

fn date_of(days: u64) -> (u64, u64, u64) {
    // A year has at least 365 days: the guess is never too early, and too late by a few years at
    // most.
    let mut year = 1970 + days / 365;
    while days_before_year(year) - days_before_year(1970) > days {
        year -= 1;
    }
    let mut rest = days - (days_before_year(year) - days_before_year(1970));
    let mut month = 1;
    while rest >= days_in(year, month) {
        rest -= days_in(year, month);
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("19700101T000000", 0),
            ("19700102T000001", 86_401),
            ("20000229T120000", 951_825_600),
            ("20181030T000000", 1_540_857_600),
            ("20201231T235959", 1_609_459_199),
            ("20380119T031408", 1 << 31),
            ("21000301T000000", 4_107_542_400),
            ("99991231T235959", ValidityPeriod::LAST_SECOND),
        ] {
            assert_eq!(read_time(text.as_bytes()), Some(seconds), "{text}");
            assert_eq!(time_text(seconds), text);
        }
        assert_eq!(read_time(b"15821015T000000"), Some(0));
        assert_eq!(time_text(u64::MAX), "99991231T235959");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "20201231",
            "20201231T23595",
            "20201231T2359590",
            "20201231 235959",
            "20201331T000000",
            "20200001T000000",
            "20200100T000000",
            "20210229T000000",
            "21000229T000000",
            "20201231T240000",
            "20201231T006000",
            "20201231T000061",
            "2020123aT000000",
            "+0201231T000000",
        ] {
            assert_eq!(read_time(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_time_survives_being_written_and_read(seconds in 0..=ValidityPeriod::LAST_SECOND) {
            prop_assert_eq!(read_time(time_text(seconds).as_bytes()), Some(seconds));
        }

        #[test]
        fn a_later_second_is_a_later_text(seconds in 0..ValidityPeriod::LAST_SECOND) {
            prop_assert!(time_text(seconds) < time_text(seconds + 1));
        }

        #[test]
        fn a_period_survives_being_encoded_and_decoded(
            not_before in 0..=ValidityPeriod::LAST_SECOND,
            not_after in 0..=ValidityPeriod::LAST_SECOND,
        ) {
            let period = ValidityPeriod { not_before, not_after };
            let mut out = Vec::new();
            period.encode(&mut out);
            let element = tlv::outermost(&out).expect("one element");
            prop_assert_eq!(ValidityPeriod::decode(element.value), Ok(period));
        }
    }
}
