//! A paper's statements as data: metric, setting, value, tolerance.

use std::collections::BTreeMap;

use serde::Deserialize;

/// `[[statements]]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// A key of `docs/sources.md` with a section, as `[MFTP §5.1]`.
    pub source: String,
    /// The statement in words.
    pub says: String,
    /// The metric that it is about, as `film.goodput`.
    pub metric: String,
    /// Where in the sweep; what is left out is averaged over.
    #[serde(default)]
    pub at: BTreeMap<String, toml::Value>,
    /// The metric there is divided by the metric here, where this is given.
    #[serde(default)]
    pub relative_to: Option<BTreeMap<String, toml::Value>>,
    /// The paper's number, in the metric's unit (or a ratio).
    pub value: f64,
    /// How far ours may be from it and still agree.
    pub tolerance: Tolerance,
    /// Why ours may differ.
    #[serde(default)]
    pub note: String,
}

/// `"10 %"` of the paper's number, or a number in the metric's unit.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub enum Tolerance {
    /// Of the paper's number.
    Relative(f64),
    /// In the metric's unit.
    Absolute(f64),
}

impl TryFrom<toml::Value> for Tolerance {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Tolerance, String> {
        let refused = || "a tolerance is \"10 %\", or a number in the metric's unit".to_owned();
        let (number, share) = match &value {
            toml::Value::Integer(number) => (*number as f64, false),
            toml::Value::Float(number) => (*number, false),
            toml::Value::String(text) => {
                let number = text.strip_suffix('%').ok_or_else(refused)?;
                let number: f64 = number.trim().parse().map_err(|_| refused())?;
                (number / 100.0, true)
            }
            _ => return Err(refused()),
        };
        match (number.is_finite() && number >= 0.0, share) {
            (false, _) => Err(refused()),
            (true, true) => Ok(Tolerance::Relative(number)),
            (true, false) => Ok(Tolerance::Absolute(number)),
        }
    }
}

impl Tolerance {
    /// Whether `ours` is near enough to `theirs`.
    pub fn admits(self, theirs: f64, ours: f64) -> bool {
        let room = match self {
            Tolerance::Relative(share) => theirs.abs() * share,
            Tolerance::Absolute(room) => room,
        };
        // A number that was computed may miss its bound by its last bit.
        (ours - theirs).abs() <= room * (1.0 + 1e-9) + f64::EPSILON
    }
}

/// A value of a sweep, or of a statement's `at`, as people read it.
pub(super) fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
