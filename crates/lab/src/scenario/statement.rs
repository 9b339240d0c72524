//! A paper's statements as data: metric, setting, value, tolerance.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::figure::number;

/// `[[statements]]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// A key of `docs/sources.md` with a section, as `[MFTP §5.1]`.
    pub source: String,
    /// The statement in words.
    pub says: String,
    /// The metric, as `film.goodput`.
    pub metric: String,
    /// The setting of the sweep; keys that are left out are averaged over.
    #[serde(default, deserialize_with = "settings")]
    pub at: BTreeMap<String, toml::Value>,
    /// The setting of a divisor: the metric at `at` is divided by the metric here.
    #[serde(default, deserialize_with = "some_settings")]
    pub relative_to: Option<BTreeMap<String, toml::Value>>,
    /// The paper's number, in the metric's unit (or a ratio).
    pub value: f64,
    /// The largest accepted difference.
    pub tolerance: Tolerance,
    /// The likely reason for a difference.
    #[serde(default)]
    pub note: String,
}

type Settings = BTreeMap<String, toml::Value>;

fn settings<'de, D: Deserializer<'de>>(from: D) -> Result<Settings, D::Error> {
    struct Table;

    impl<'de> Visitor<'de> for Table {
        type Value = Settings;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of settings, as in { \"links.wifi.loss\" = \"1 %\" }")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Settings, A::Error> {
            Settings::deserialize(MapAccessDeserializer::new(map))
        }
    }

    from.deserialize_map(Table)
}

fn some_settings<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Settings>, D::Error> {
    settings(from).map(Some)
}

/// The largest difference from a paper's number: `"10 %"` of it, a number in the metric's unit, or the
/// larger of several: `["10 %", 5]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Tolerance {
    /// As a share of the paper's number.
    share: f64,
    /// In the metric's unit.
    absolute: f64,
}

impl TryFrom<toml::Value> for Tolerance {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Tolerance, String> {
        let refused = || {
            "a tolerance is \"10 %\", a number in the metric's unit, or a list of both".to_owned()
        };
        let (number, is_share) = match &value {
            toml::Value::Integer(number) => (*number as f64, false),
            toml::Value::Float(number) => (*number, false),
            toml::Value::String(text) => {
                let number = text.strip_suffix('%').ok_or_else(refused)?;
                let number: f64 = number.trim().parse().map_err(|_| refused())?;
                (number / 100.0, true)
            }
            toml::Value::Array(parts) if !parts.is_empty() => {
                let parts = parts.iter().map(|part| Tolerance::try_from(part.clone()));
                return parts
                    .reduce(|all, part| Ok(all?.or(part?)))
                    .unwrap_or_else(|| Err(refused()));
            }
            _ => return Err(refused()),
        };
        match (number.is_finite() && number >= 0.0, is_share) {
            (false, _) => Err(refused()),
            (true, true) => Ok(Tolerance {
                share: number,
                absolute: 0.0,
            }),
            (true, false) => Ok(Tolerance {
                share: 0.0,
                absolute: number,
            }),
        }
    }
}

impl Tolerance {
    fn or(self, other: Tolerance) -> Tolerance {
        Tolerance {
            share: self.share.max(other.share),
            absolute: self.absolute.max(other.absolute),
        }
    }

    /// Returns true if `ours` is near enough to `theirs`.
    pub fn admits(self, theirs: f64, ours: f64) -> bool {
        let room = (theirs.abs() * self.share).max(self.absolute);
        // A computed number may miss its bound by its last bit.
        (ours - theirs).abs() <= room * (1.0 + 1e-9) + f64::EPSILON
    }

    /// Returns it as text, for a quantity in `unit`: "within 10 % or 5 ms".
    pub fn in_unit(self, unit: &str) -> String {
        let unit = match unit {
            "%" => "percentage points",
            other => other,
        };
        let absolute = format!("{} {unit}", self.absolute);
        let absolute = absolute.trim_end();
        let share = number(100.0 * self.share);
        match (self.share > 0.0, self.absolute > 0.0) {
            (true, true) => format!("within {share} % or {absolute}"),
            (true, false) => format!("within {share} %"),
            _ => format!("within {absolute}"),
        }
    }
}

/// Bounds for a paper's words: `{ from = 48, below = 58 }`, `{ above = 99.5 }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Range {
    from: Option<f64>,
    above: Option<f64>,
    to: Option<f64>,
    below: Option<f64>,
}

impl Range {
    /// Returns true if `ours` is within all bounds.
    pub fn admits(self, ours: f64) -> bool {
        self.from.is_none_or(|from| ours >= from)
            && self.above.is_none_or(|above| ours > above)
            && self.to.is_none_or(|to| ours <= to)
            && self.below.is_none_or(|below| ours < below)
    }
}

/// As "from 48, below 58".
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounds = [
            ("from", self.from),
            ("above", self.above),
            ("to", self.to),
            ("below", self.below),
        ];
        let known = bounds
            .iter()
            .filter_map(|(word, bound)| Some(format!("{word} {}", (*bound)?)));
        f.write_str(&known.collect::<Vec<_>>().join(", "))
    }
}

/// Returns a value of a sweep, or of a statement's `at`, as people read it.
pub(super) fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Both {
        tolerance: Tolerance,
        range: Range,
    }

    fn read(tolerance: &str, range: &str) -> Option<Both> {
        toml::from_str(&format!("tolerance = {tolerance}\nrange = {range}\n")).ok()
    }

    #[test]
    fn the_larger_of_several_tolerances_holds() {
        let Both { tolerance, range } = read("[\"10 %\", 5]", "{ from = 48, below = 58 }").unwrap();
        assert_eq!(tolerance.in_unit("ms"), "within 10 % or 5 ms");
        assert!(tolerance.admits(10.0, 15.0) && !tolerance.admits(10.0, 15.1));
        assert!(tolerance.admits(100.0, 110.0) && !tolerance.admits(100.0, 89.9));
        assert_eq!(range.to_string(), "from 48, below 58");
        assert!(range.admits(48.0) && range.admits(57.9));
        assert!(!range.admits(47.9) && !range.admits(58.0));
        for wrong in ["[]", "\"10\"", "-1", "[5, \"x %\"]"] {
            assert!(read(wrong, "{}").is_none(), "{wrong}");
        }
        assert!(read("1", "{ over = 3 }").is_none());
    }
}
