//! Arguments in the style of `nfdc`: keys followed by values, where some keys may be omitted. The
//! same keys are options, too.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::exit::{Exit, Failure};

/// The arguments of one command.
pub(super) struct Keys {
    /// Keys that may be omitted if their values come in this order.
    pub(super) ordered: &'static [&'static str],
    /// Keys that may not be omitted.
    pub(super) named: &'static [&'static str],
    /// Words without a value.
    pub(super) flags: &'static [&'static str],
}

/// Values by key.
#[derive(Debug, Default)]
pub(super) struct Values(BTreeMap<&'static str, String>);

fn usage(text: String) -> Failure {
    Failure::new(Exit::Usage, text)
}

impl Keys {
    /// Reads `words`; `options` are the same keys given as `--key value`.
    pub(super) fn read(
        &self,
        words: &[String],
        options: &[(&'static str, &Option<String>)],
    ) -> Result<Values, Failure> {
        let mut values = Values::default();
        for (key, value) in options {
            if let Some(value) = value {
                values.put(key, value.clone())?;
            }
        }
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let known = |keys: &'static [&'static str]| keys.iter().find(|key| *key == word);
            if let Some(key) = known(self.flags) {
                values.put(key, String::new())?;
            } else if let Some(key) = known(self.ordered).or_else(|| known(self.named)) {
                let value = words
                    .next()
                    .ok_or_else(|| usage(format!("'{key}' needs a value")))?;
                values.put(key, value.clone())?;
            } else if let Some(key) = self.ordered.iter().find(|key| !values.0.contains_key(*key)) {
                values.put(key, word.clone())?;
            } else {
                let keys: Vec<&str> = [self.ordered, self.named, self.flags].concat();
                return Err(usage(format!(
                    "unknown word '{word}': expected one of {}",
                    keys.join(", ")
                )));
            }
        }
        Ok(values)
    }
}

impl Values {
    fn put(&mut self, key: &'static str, value: String) -> Result<(), Failure> {
        match self.0.insert(key, value) {
            None => Ok(()),
            Some(_) => Err(usage(format!("'{key}' is given twice"))),
        }
    }

    /// Returns the text of a key.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns true if the flag was given.
    pub(super) fn flag(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the text of a required key.
    pub(super) fn required(&self, key: &str) -> Result<&str, Failure> {
        self.text(key)
            .ok_or_else(|| usage(format!("{key} is missing")))
    }

    /// Returns the value of a key.
    pub(super) fn value<T: FromStr>(&self, key: &str) -> Result<Option<T>, Failure>
    where
        T::Err: std::fmt::Display,
    {
        self.with(key, |text| {
            text.parse().map_err(|error: T::Err| error.to_string())
        })
    }

    /// Returns the value of a key, parsed by `parse`.
    pub(super) fn with<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        let parsed = self
            .text(key)
            .map(|text| parse(text).map_err(|why| usage(format!("{key} '{text}': {why}"))));
        parsed.transpose()
    }
}

/// Parses `on` or `off`.
pub(super) fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" | "yes" | "true" => Ok(true),
        "off" | "no" | "false" => Ok(false),
        _ => Err(String::from("must be on or off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: Keys = Keys {
        ordered: &["prefix", "nexthop"],
        named: &["cost"],
        flags: &["capture"],
    };

    fn read(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        KEYS.read(&words, &[])
            .map(|values| format!("{:?}", values.0))
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn keys_may_be_written_or_left_out_in_their_order() {
        let expected = r#"{"capture": "", "cost": "7", "nexthop": "udp://b", "prefix": "/a"}"#;
        for line in [
            "prefix /a nexthop udp://b cost 7 capture",
            "/a udp://b cost 7 capture",
            "capture cost 7 nexthop udp://b /a",
            "nexthop udp://b capture prefix /a cost 7",
        ] {
            assert_eq!(read(line).as_deref(), Ok(expected), "{line}");
        }
        assert_eq!(read("").as_deref(), Ok("{}"));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (line, expected) in [
            ("/a udp://b 7", "unknown word '7'"),
            ("/a nexthop", "'nexthop' needs a value"),
            ("/a prefix /b", "'prefix' is given twice"),
            ("cost 1 cost 2", "'cost' is given twice"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.starts_with(expected), "{line}: {error}");
        }
    }

    #[test]
    fn options_are_the_same_keys() {
        let (cost, none) = (Some(String::from("7")), None);
        let words = [String::from("/a")];
        let values = KEYS
            .read(&words, &[("cost", &cost), ("nexthop", &none)])
            .unwrap();
        assert_eq!(
            (values.value::<u64>("cost").unwrap(), values.text("nexthop")),
            (Some(7), None)
        );
        assert!(values.required("nexthop").is_err());
        assert!(
            KEYS.read(
                &[String::from("cost"), String::from("1")],
                &[("cost", &cost)]
            )
            .is_err()
        );
        let seven = Some(String::from("seven"));
        assert!(
            KEYS.read(&[], &[("cost", &seven)])
                .unwrap()
                .value::<u64>("cost")
                .is_err()
        );
    }
}
