//! The configuration of a host, a router or a name server: one TOML schema for the three.
//!
//! | type | is |
//! |---|---|
//! | [`Config`] | the schema, as written |
//! | [`Draft`] | a file, and the flags of a command that override it; it knows where each key was written |
//! | [`Plan`] | the input of a start: names, addresses, FaceUris, strategies and policies, parsed and checked |
//!
//! A plan is made only from a draft without faults, and only a plan can be started: every fault
//! that would stop or silently change a start is found here, and `whimbrel config check` finds the
//! same.

mod address;
mod carrier;
mod checks;
mod document;
mod fault;
mod here;
mod hop;
pub mod key_path;
mod names;
mod ndn;
mod ndn_plan;
mod plan;
mod planning;
mod sample;
mod sections;

use std::path::{Path, PathBuf};

use whimbrel_core::suggest;
use whimbrel_forwarder::strategy::StrategyKinds;

use document::Document;

pub(crate) use address::any_address;
pub use address::{NamedRemote, Remote, RemoteError, Via, listen_address};
pub use carrier::{Bind, Way};
pub use fault::{Fault, Faults, Place};
pub use here::Checked;
pub use hop::{HopSection, Pacing, has_fast_aes};
pub use names::NameStorePlan;
pub use ndn::{
    CommandRights, NDN_PORT, NDN_WEBSOCKET_PORT, NdnFaceSection, NdnRouteSection, NdnSection,
    NdnStrategySection, Reliability,
};
pub use ndn_plan::NdnPlan;
pub use plan::{ChunkFolder, HostPlan, MobilityFirstPlan, NameServerPlan, Plan, RouterPlan};
pub use sample::sample;
pub use sections::{
    Config, GNRS_PORT, GnrsSection, HostSection, LinkSection, PolicyName, RouteSection,
    RouterSection, RoutingName, SchedulerName, StorageSection,
};
pub use whimbrel_link::hop::PostQuantum;

/// The key of a section of the MobilityFirst plane that serves a router's other plane as well.
const OF_BOTH_PLANES: &str = "router.metrics";

/// The kind of node that a configuration is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `whimbrel router run`
    Router,
    /// `whimbrel host run`
    Host,
    /// `whimbrel gnrs serve`
    Gnrs,
}

impl Kind {
    /// Returns the sections that this kind of node reads.
    const fn sections(self) -> &'static [&'static str] {
        match self {
            Kind::Router => &[
                "router",
                "link",
                "route",
                "hop",
                "storage",
                "ndn",
                "ndn_face",
                "ndn_route",
                "ndn_strategy",
            ],
            Kind::Host => &["host", "link", "hop"],
            Kind::Gnrs => &["gnrs"],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Kind::Router => "router",
            Kind::Host => "host",
            Kind::Gnrs => "name server",
        }
    }
}

/// The reason why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The configuration has faults.
    #[error("{0}")]
    Faults(Faults),
}

/// A configuration as written: a file, and the flags that override it.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Both together. A command that changes a value here claims its key with [`Draft::set_by`].
    pub config: Config,
    /// The strategies that an NDN router knows.
    pub strategies: StrategyKinds,
    document: Option<Document>,
    flags: Vec<(String, &'static str)>,
}

impl From<Config> for Draft {
    fn from(config: Config) -> Draft {
        Draft {
            config,
            ..Draft::default()
        }
    }
}

/// Bound of the faults found while a file is read.
const MAX_SCHEMA_FAULTS: usize = 50;

/// Returns the text without what an error is about: a key, or a section that lacks one.
fn without(document: &Document, error: &toml::de::Error) -> Option<String> {
    let at = error.span()?.start;
    document
        .without(at)
        .or_else(|| document.blanked(document.section_at(at)?))
}

/// Returns true for a key that is missing only because it was faulty and left out.
fn is_follow_up(
    document: &Document,
    error: &toml::de::Error,
    fault: &Fault,
    faults: &[Fault],
) -> bool {
    let header = error.span().map_or(0, |span| span.start);
    let Some(section) = document.section_at(header) else {
        return false;
    };
    let inside = document.place_at(section.start)..document.place_at(section.end);
    fault.message.starts_with("missing field") && faults.iter().any(|it| inside.contains(&it.place))
}

/// Describes text that is not TOML, an unknown key, or a value of the wrong kind.
fn schema_fault(document: &Document, text: &str, error: &toml::de::Error) -> Fault {
    let span = error.span().unwrap_or_default();
    let offset = span.start;
    let written = text.get(span).unwrap_or_default();
    let message = suggest::in_parse_error(error.message(), &[]);
    let word = text.get(offset..).unwrap_or_default();
    let word = word.split(|c: char| c.is_whitespace() || c == ',').next();
    let word = word.unwrap_or_default();
    // The library's message names neither the value nor an accepted one.
    let message = if message == "invalid socket address syntax"
        || message.ends_with("expected socket address")
    {
        format!(
            "{written} is not an address; write an address and a port, as \"0.0.0.0:4711\" or \"[::]:4711\""
        )
    } else if message.ends_with("expected a sequence") {
        format!("{written} is not a list; write [{written}]")
    } else if document.is_unreadable() && word.starts_with(|c: char| c.is_alphabetic()) {
        format!("{message}; text stands in quotes: \"{word}\"")
    } else {
        message
    };
    Fault {
        place: document.place_at(offset),
        key: document.key_at(offset),
        message,
    }
}

impl Draft {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Draft, ConfigError> {
        let text =
            whimbrel_keychain::small_file::read_text(path).map_err(|source| ConfigError::Read {
                path: path.to_owned(),
                source,
            })?;
        Draft::parse(path, &text)
    }

    /// Reads a text; `path` is for messages. Finds text that is not TOML, unknown keys and values
    /// of the wrong kind; [`Draft::plan`] finds the rest.
    pub fn parse(path: &Path, text: &str) -> Result<Draft, ConfigError> {
        let document = Document::new(path, text);
        let mut config: Config = toml::from_str(text).map_err(|error| {
            // Each fault hides those behind it, so the rest is read without the faulty key. What is left out leaves
            // all other bytes in their places.
            let mut faults = vec![schema_fault(&document, text, &error)];
            let mut rest = without(&document, &error);
            while let Some(left) = rest.take().filter(|_| faults.len() < MAX_SCHEMA_FAULTS) {
                if let Err(error) = toml::from_str::<Config>(&left) {
                    let fault = schema_fault(&document, text, &error);
                    if !is_follow_up(&document, &error, &fault, &faults) {
                        faults.push(fault);
                    }
                    rest = without(&Document::new(path, &left), &error);
                }
            }
            let first = faults[0].clone();
            ConfigError::Faults(Faults::of(faults).unwrap_or_else(|| first.into()))
        })?;
        sections::label_links(&mut config.link);
        Ok(Draft {
            config,
            strategies: StrategyKinds::default(),
            document: Some(document),
            flags: Vec::new(),
        })
    }

    /// Notes that `flag` has written `key`, so that a fault there names the flag.
    pub fn set_by(&mut self, key: impl Into<String>, flag: &'static str) {
        self.flags.push((key.into(), flag));
    }

    /// Returns the kind of node that the file is for: that of its first section that only one kind
    /// reads, or a router if there is none.
    pub fn kind(&self) -> Kind {
        let sections = self.document.as_ref().map(Document::sections);
        let only_of = |section: &String| {
            let mut kinds = [Kind::Router, Kind::Host, Kind::Gnrs]
                .into_iter()
                .filter(|kind| kind.sections().contains(&section.as_str()));
            kinds.next().filter(|_| kinds.next().is_none())
        };
        let sections = sections.unwrap_or_default();
        sections.iter().find_map(only_of).unwrap_or(Kind::Router)
    }

    /// Returns a key that a flag has written in `section`, or the section itself if the file has
    /// keys there.
    fn said_of(&self, section: &str) -> Option<String> {
        let inside = |key: &&(String, &'static str)| {
            key.0 != OF_BOTH_PLANES
                && key
                    .0
                    .strip_prefix(section)
                    .is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        let in_file = |file: &Document| file.has_keys(section, OF_BOTH_PLANES);
        match self.flags.iter().find(inside) {
            Some((key, _)) => Some(key.clone()),
            None if self.document.as_ref().is_some_and(in_file) => Some(section.to_owned()),
            None => None,
        }
    }

    /// Returns the flag that has written `key`, or a key that contains it.
    fn flag_of(&self, key: &str) -> Option<&'static str> {
        let covers = |written: &str| {
            key.strip_prefix(written)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let mut flags = self.flags.iter().rev();
        flags.find(|(key, _)| covers(key)).map(|(_, flag)| *flag)
    }

    fn place_of(&self, key: &str) -> Place {
        match (self.flag_of(key), &self.document) {
            (Some(flag), _) => Place::Flag(flag),
            (None, Some(document)) => document.place_of(key),
            (None, None) => Place::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        Draft::parse(Path::new("node.toml"), text)
            .and_then(|draft| draft.plan(draft.kind()))
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
    fn faults_behind_one_in_a_section_with_required_keys_are_found() {
        let message = fault(
            "[[route]]\nto = \"zz\"\nvia = \"a\"\n\n[[route]]\nvia = \"a\"\n\n[hop]\nmin_timeout = \"10\"\n",
        );
        let lines: Vec<&str> = message.lines().collect();
        let [bad_name, missing, without_unit] = lines[..] else {
            panic!("{message}");
        };
        assert!(
            bad_name.starts_with("node.toml:2:6: route[0].to: "),
            "{message}"
        );
        assert!(
            missing.starts_with("node.toml:5:1: route[1]: missing field `to`"),
            "{message}"
        );
        assert!(
            without_unit.starts_with("node.toml:9:15: hop.min_timeout: "),
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
        assert!(message.contains("bottleneck"), "{message}");
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
        assert!(fault("[[link]]\n").contains("\"link 1\" has neither remote"));
        assert!(fault("[[link]]\nlabel = \"north\"\nlisten = true\n").contains("bind"));
        let message = fault(&format!("[router]\ndefault_route = \"nort\"\n{link}"));
        assert!(message.contains("did you mean 'north'"), "{message}");
        assert!(fault(&format!("[host]\npreference = [\"lte\"]\n{link}")).contains("\"lte\""));
    }

    #[test]
    fn links_without_a_label_are_called_by_their_remote_or_their_number() {
        let text = "[[link]]\nremote = \"192.0.2.1:1\"\n\n[[link]]\nlisten = true\nbind = \"0.0.0.0:4711\"\n\n\
                    [[link]]\nlabel = \"north\"\nremote = \"192.0.2.2:1\"\n\n\
                    [[link]]\nbind = \"0.0.0.0:0\"\nremote = \"192.0.2.1:1\"\n";
        let draft = Draft::parse(Path::new("node.toml"), text).unwrap();
        let labels: Vec<&str> = draft.config.link.iter().map(|it| &*it.label).collect();
        assert_eq!(labels, ["192.0.2.1:1", "link 2", "north", "link 4"]);
        draft.plan(Kind::Router).unwrap();
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
        let draft = Draft::parse(Path::new("x"), "").unwrap();
        assert_eq!(draft.config, Config::default());
    }
}
