//! The configuration of a host, a router or a name server: one TOML schema for the three.
//!
//! Flags of a command override what a file says; a key that the schema does not know is an error
//! that names the line and the known key that it resembles.

mod address;
mod ndn;
mod sample;
mod sections;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use whimbrel_core::suggest;

pub use address::{Remote, RemoteError, Via};
pub use ndn::{
    CommandRights, NDN_PORT, NDN_WEBSOCKET_PORT, NdnFaceSection, NdnRouteSection, NdnSection,
    NdnStrategySection, Reliability,
};
pub use sample::{Kind, sample};
pub use sections::{
    Config, GNRS_PORT, GnrsSection, HopSection, HostSection, LinkSection, Pacing, RouteSection,
    RouterSection, StorageSection,
};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// It is no TOML, has an unknown key, or a value of the wrong kind.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// Its parts contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

impl Config {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Config::parse(path, &text)
    }

    /// Reads a text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|error| {
            let (line, column) = position(text, error.span().map_or(0, |span| span.start));
            ConfigError::Parse {
                path: path.to_owned(),
                line,
                column,
                message: suggest::in_parse_error(error.message(), &[]),
            }
        })?;
        config.check().map_err(|fault| match fault {
            ConfigError::Contradiction(what) => {
                ConfigError::Contradiction(format!("{}: {what}", path.display()))
            }
            other => other,
        })?;
        Ok(config)
    }

    /// Whether the parts fit together. To be called again when flags have changed something.
    pub fn check(&self) -> Result<(), ConfigError> {
        let contradiction = |what: String| Err(ConfigError::Contradiction(what));
        let mut labels = BTreeSet::new();
        for link in &self.link {
            let label = &link.label;
            if label.is_empty() || label.starts_with("gnrs:") || label.starts_with("local") {
                return contradiction(format!(
                    "[[link]] label = \"{label}\": a label is not empty and begins with neither \"gnrs:\" nor \"local\""
                ));
            }
            if !labels.insert(label.as_str()) {
                return contradiction(format!("[[link]] label = \"{label}\" is there twice"));
            }
            if link.remote.is_none() && !link.listen {
                return contradiction(format!(
                    "[[link]] \"{label}\" has neither remote (a neighbour's address) nor listen = true"
                ));
            }
            if link.listen && link.bind.is_none() {
                return contradiction(format!(
                    "[[link]] \"{label}\" listens, so it needs an address and port to bind, as \"0.0.0.0:4711\""
                ));
            }
        }
        let ways = self.route.iter().map(|route| ("[[route]] via", &route.via));
        let ways = ways.chain(
            self.router
                .default_route
                .iter()
                .map(|via| ("[router] default_route", via)),
        );
        for (key, via) in ways {
            if via.next_hop(labels.iter().copied()).is_none() {
                let label = &via.0;
                let near = suggest::hint(label, labels.iter().copied());
                return contradiction(format!(
                    "{key} = \"{label}\" is neither the label of a link nor a name of 64 hexadecimal digits{near}"
                ));
            }
        }
        if let Some(unknown) = self
            .host
            .preference
            .iter()
            .find(|label| !labels.contains(label.as_str()))
        {
            return contradiction(format!(
                "[host] preference names \"{unknown}\", and no link has this label"
            ));
        }
        self.ndn.web_origins()?;
        Ok(())
    }
}

/// Line and column of a byte offset, from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        Config::parse(Path::new("node.toml"), text)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_known_one() {
        let message = fault("[router]\n\n[hop]\nbufer_packets = 5\n");
        assert!(message.starts_with("node.toml:4:1: "), "{message}");
        assert!(
            message.contains("'bufer_packets'") && message.contains("'buffer_packets'"),
            "{message}"
        );
        let message = fault("[hop]\nzebra = 5\n");
        assert!(message.contains("pacing, buffer_packets"), "{message}");
        let message = fault("[rooter]\n");
        assert!(
            message.contains("node.toml:1:2") && message.contains("'router'"),
            "{message}"
        );
    }

    #[test]
    fn a_bad_value_is_named_with_its_line_and_an_example() {
        let message = fault("[storage]\ntotal = \"lots\"\n");
        assert!(
            message.contains("node.toml:2:") && message.contains("64 MiB"),
            "{message}"
        );
        let message = fault("[hop]\npacing = \"fast\"\n");
        assert!(message.contains("estimate"), "{message}");
        let message = fault("[[link]]\nlabel = \"a\"\nremote = \"nowhere\"\n");
        assert!(
            message.contains("node.toml:3:") && message.contains("host:port"),
            "{message}"
        );
        assert!(fault("[hop\n").contains("node.toml:1:"));
    }

    #[test]
    fn parts_that_contradict_each_other_are_refused() {
        let link = "[[link]]\nlabel = \"north\"\nremote = \"192.0.2.1:1\"\n";
        assert!(fault(&format!("{link}{link}")).contains("twice"));
        assert!(fault("[[link]]\nlabel = \"north\"\n").contains("neither remote"));
        assert!(fault("[[link]]\nlabel = \"north\"\nlisten = true\n").contains("bind"));
        let message = fault(&format!("[router]\ndefault_route = \"nort\"\n{link}"));
        assert!(message.contains("did you mean 'north'"), "{message}");
        assert!(fault(&format!("[host]\npreference = [\"lte\"]\n{link}")).contains("\"lte\""));
    }

    #[test]
    fn an_origin_that_no_page_has_is_refused_with_an_example() {
        for (written, said) in [
            ("https://app.example/page", "without a path"),
            ("app.example", "https://app.example"),
            ("null", "sandboxed"),
        ] {
            let message = fault(&format!("[ndn]\nallowed_origins = [\"{written}\"]\n"));
            let named = message.contains("allowed_origins") && message.contains(written);
            assert!(named && message.contains(said), "{message}");
        }
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(
            Config::parse(Path::new("x"), "").unwrap(),
            Config::default()
        );
    }
}
