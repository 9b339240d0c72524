//! Parameters of a strategy: the components after its version, each `name~value`.

use core::str::FromStr;
use core::time::Duration;

use whimbrel_ndn_packet::NameRef;

use super::StrategyError;
use super::suppression::Suppression;

/// Parameters that have not been read yet.
#[derive(Debug)]
pub struct Parameters {
    rest: Vec<(String, String)>,
}

fn wrong(parameter: impl Into<String>, why: impl Into<String>) -> StrategyError {
    StrategyError::Parameter {
        parameter: parameter.into(),
        why: why.into(),
    }
}

impl Parameters {
    /// Parses all components of `name`.
    pub fn read(name: NameRef<'_>) -> Result<Parameters, StrategyError> {
        let mut rest: Vec<(String, String)> = Vec::new();
        for component in name.components() {
            let text = String::from_utf8_lossy(component.value()).into_owned();
            let (key, value) = text
                .split_once('~')
                .ok_or_else(|| wrong(&text, "not of the form name~value"))?;
            if rest.iter().any(|(known, _)| known == key) {
                return Err(wrong(text, "given twice"));
            }
            rest.push((key.to_owned(), value.to_owned()));
        }
        Ok(Parameters { rest })
    }

    /// The value of one parameter, as text.
    pub fn text(&mut self, key: &str) -> Option<String> {
        let at = self.rest.iter().position(|(known, _)| known == key)?;
        Some(self.rest.remove(at).1)
    }

    /// The value of one parameter, or its default.
    pub fn number<T: FromStr>(&mut self, key: &str, default: T) -> Result<T, StrategyError> {
        let Some(value) = self.text(key) else {
            return Ok(default);
        };
        value
            .parse()
            .map_err(|_| wrong(format!("{key}~{value}"), "the value is not a valid number"))
    }

    /// A share: above 0, at most 1.
    pub fn share(&mut self, key: &str, default: f64) -> Result<f64, StrategyError> {
        let share: f64 = self.number(key, default)?;
        if share > 0.0 && share <= 1.0 {
            return Ok(share);
        }
        let why = "must be above 0 and at most 1";
        Err(Parameters::wrong(key, &share.to_string(), why))
    }

    /// A number of milliseconds, at least `least`.
    pub fn millis(
        &mut self,
        key: &str,
        default: u64,
        least: u64,
    ) -> Result<Duration, StrategyError> {
        let millis: u64 = self.number(key, default)?;
        if millis < least {
            return Err(wrong(
                format!("{key}~{millis}"),
                format!("must be at least {least} ms"),
            ));
        }
        Ok(Duration::from_millis(millis))
    }

    /// The suppression parameters, named as in NFD.
    pub fn suppression(&mut self) -> Result<Suppression, StrategyError> {
        let initial = self.millis("retx-suppression-initial", 10, 1)?;
        let max = self.millis("retx-suppression-max", 250, 1)?;
        let multiplier: f64 = self.number("retx-suppression-multiplier", 2.0)?;
        if initial > max {
            return Err(wrong(
                "retx-suppression-initial",
                "longer than retx-suppression-max",
            ));
        }
        if !(1.0..=1000.0).contains(&multiplier) {
            return Err(wrong(
                "retx-suppression-multiplier",
                "must be from 1 to 1000",
            ));
        }
        Ok(Suppression {
            initial,
            max,
            multiplier,
        })
    }

    /// All parameters that begin with `prefix`: the rest of their names, and their values.
    pub fn with_prefix(&mut self, prefix: &str) -> Vec<(String, String)> {
        let (taken, rest) = core::mem::take(&mut self.rest)
            .into_iter()
            .partition(|(key, _)| key.starts_with(prefix));
        self.rest = rest;
        let taken: Vec<(String, String)> = taken;
        taken
            .into_iter()
            .map(|(key, value)| (key.replacen(prefix, "", 1), value))
            .collect()
    }

    /// Fails if a parameter is left.
    pub fn finish(self) -> Result<(), StrategyError> {
        match self.rest.into_iter().next() {
            Some((key, value)) => Err(wrong(
                format!("{key}~{value}"),
                "unknown parameter of this strategy",
            )),
            None => Ok(()),
        }
    }

    /// Returns an error about one parameter.
    pub fn wrong(key: &str, value: &str, why: &str) -> StrategyError {
        wrong(format!("{key}~{value}"), why)
    }
}
