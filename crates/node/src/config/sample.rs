//! A commented sample, generated from the types, so that it is always up to date.

use std::num::NonZeroU16;

use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value};

use super::sections::{
    GnrsSection, HostSection, LinkSection, RouteSection, RouterSection, StorageSection,
};
use super::{
    Config, HopSection, Kind, NdnFaceSection, NdnRouteSection, NdnSection, NdnStrategySection,
};

/// Maximum length of a comment line.
const WIDTH: usize = 100;

/// The link of a router's sample that is in force: without one, no host could attach.
const LISTENING: &str = r#"
# The link that is in force: it listens for hosts and other routers on UDP port 4711 of all
# addresses. A router with links forwards NDN only with `enabled = true` in [ndn].
[[link]]
label = "hosts"
bind = "4711"
listen = true
"#;

/// Returns a configuration file in which all but a router's listening link is commented out at its
/// default: `# ` begins an explanation, `#` a key. Keys without a default show an example.
pub fn sample(kind: Kind) -> String {
    let mut out = String::new();
    let command = match kind {
        Kind::Router => "router run",
        Kind::Host => "host run",
        Kind::Gnrs => "gnrs serve",
    };
    comment(
        &mut out,
        &format!(
            "Configuration for `whimbrel {command} --config FILE`. Keys that are commented out show their default \
             (or an example, where it says so). Sizes: \"64 MiB\". Times: \"1.5 s\". Flags override this file."
        ),
    );
    let about = descriptions::<Config>();
    let section = |out: &mut String, name, list| section(out, &about, name, list);
    match kind {
        Kind::Router => {
            section(&mut out, "router", false);
            keys(&mut out, &RouterSection::default());
        }
        Kind::Host => {
            section(&mut out, "host", false);
            keys(&mut out, &HostSection::default());
        }
        Kind::Gnrs => {
            section(&mut out, "gnrs", false);
            keys(&mut out, &GnrsSection::default());
            return out;
        }
    }
    section(&mut out, "link", true);
    keys(&mut out, &LinkSection::new(""));
    if kind == Kind::Router {
        out.push_str(LISTENING);
        section(&mut out, "route", true);
        let to = whimbrel_core::Guid::NONE;
        keys(
            &mut out,
            &RouteSection {
                to,
                via: super::Via(String::new()),
                preference: 0,
                weight: NonZeroU16::MIN,
            },
        );
    }
    section(&mut out, "hop", false);
    keys(&mut out, &HopSection::default());
    if kind == Kind::Router {
        section(&mut out, "storage", false);
        keys(&mut out, &StorageSection::default());
        ndn_sections(&mut out, &about);
    }
    out
}

/// Writes the head of a section: its description and its name.
fn section(
    out: &mut String,
    about: &std::collections::BTreeMap<String, String>,
    name: &str,
    list: bool,
) {
    out.push('\n');
    comment(out, about.get(name).map_or("", String::as_str));
    out.push_str(&if list {
        format!("#[[{name}]]\n")
    } else {
        format!("[{name}]\n")
    });
}

/// Writes the sections of a router's NDN plane.
fn ndn_sections(out: &mut String, about: &std::collections::BTreeMap<String, String>) {
    section(out, about, "ndn", false);
    keys(out, &NdnSection::default());
    section(out, about, "ndn_face", true);
    let uri = String::new();
    keys(
        out,
        &NdnFaceSection {
            uri,
            local: None,
            reliability: None,
            mtu: None,
        },
    );
    section(out, about, "ndn_route", true);
    keys(
        out,
        &NdnRouteSection {
            prefix: String::new(),
            face: String::new(),
            cost: 0,
        },
    );
    section(out, about, "ndn_strategy", true);
    keys(
        out,
        &NdnStrategySection {
            prefix: String::new(),
            strategy: String::new(),
        },
    );
}

fn properties<T: JsonSchema>() -> Map<String, Value> {
    let schema = SchemaGenerator::default().into_root_schema_for::<T>();
    let properties = schema
        .as_object()
        .and_then(|object| object.get("properties"));
    properties
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

fn descriptions<T: JsonSchema>() -> std::collections::BTreeMap<String, String> {
    let text = |schema: &Value| {
        schema
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    properties::<T>()
        .iter()
        .map(|(name, schema)| (name.clone(), text(schema)))
        .collect()
}

/// Writes every key of a section: its explanation, then the key with its default, or with an
/// example if it has none.
fn keys<T: JsonSchema + Serialize>(out: &mut String, defaults: &T) {
    let defaults = serde_json::to_value(defaults).unwrap_or_default();
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    for (name, schema) in properties::<T>() {
        let description = schema
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let example = schema.get("examples").and_then(|examples| examples.get(0));
        let default = defaults
            .get(&name)
            .filter(|value| !is_empty(value) && example.is_none());
        let (value, mark) = match (default, example) {
            (Some(default), _) => (Some(default), ""),
            (None, example) => (example, " For example:"),
        };
        comment(out, &format!("{}{mark}", description.replace('\n', " ")));
        out.push_str(&format!("#{name} = {}\n", value.unwrap_or(&Value::Null)));
    }
}

fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::{Draft, Plan};
    use super::*;
    use std::path::Path;

    /// Returns the sample with every key in force.
    fn in_force(kind: Kind) -> String {
        let uncomment = |line: &str| match line.strip_prefix('#') {
            Some(key) if !key.starts_with(' ') => format!("{key}\n"),
            _ => format!("{line}\n"),
        };
        sample(kind).lines().map(uncomment).collect()
    }

    const KINDS: [Kind; 3] = [Kind::Router, Kind::Host, Kind::Gnrs];

    #[test]
    fn a_sample_as_printed_is_the_defaults_and_a_routers_listens_for_hosts() {
        for kind in KINDS {
            let draft = Draft::parse(Path::new("sample"), &sample(kind)).unwrap();
            let mut config = draft.config.clone();
            let links = core::mem::take(&mut config.link);
            assert_eq!((draft.kind(), &config), (kind, &Config::default()));
            let plan = draft.plan(kind).unwrap();
            let Plan::Router(plan) = plan else {
                assert!(links.is_empty(), "{links:?}");
                continue;
            };
            assert_eq!(links.len(), 1);
            assert!(links[0].listen);
            assert!(plan.mobility_first.is_some() && plan.ndn.is_none());
        }
    }

    #[test]
    fn every_key_of_a_sample_is_known_and_its_value_is_the_default_or_an_example() {
        for kind in KINDS {
            let text = in_force(kind);
            // The examples name links that the sample does not have, so only the types are checked
            // here.
            let config: Config =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let defaults = Config::default();
            let hop = HopSection {
                allow: Vec::new(),
                deny: Vec::new(),
                ..config.hop.clone()
            };
            let storage = StorageSection {
                folder: None,
                ..config.storage.clone()
            };
            assert_eq!((&hop, &storage), (&defaults.hop, &defaults.storage));
            assert_eq!(config.gnrs.listen, defaults.gnrs.listen);
            assert_eq!(config.ndn.udp, defaults.ndn.udp);
            assert_eq!(config.gnrs.max_bytes, defaults.gnrs.max_bytes);
            assert_eq!(config.host.nack_timeout, defaults.host.nack_timeout);
            if kind != Kind::Gnrs {
                assert_eq!(config.link[0].mtu, LinkSection::new("").mtu);
                assert_eq!(config.link[0].label, "north");
            }
        }
    }

    #[test]
    fn the_samples_in_the_documentation_are_what_the_program_prints() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config");
        for (kind, file) in KINDS
            .into_iter()
            .zip(["router.toml", "host.toml", "gnrs.toml"])
        {
            if std::env::var_os("WHIMBREL_WRITE_SAMPLES").is_some() {
                std::fs::write(folder.join(file), sample(kind)).unwrap();
            }
            let kept = std::fs::read_to_string(folder.join(file)).unwrap();
            assert!(
                kept == sample(kind),
                "WHIMBREL_WRITE_SAMPLES=1 makes docs/config/{file} again"
            );
        }
    }

    #[test]
    fn samples_are_complete_and_every_key_is_explained() {
        let all: String = KINDS.map(sample).concat();
        let sections = [
            properties::<RouterSection>(),
            properties::<HostSection>(),
            properties::<GnrsSection>(),
            properties::<LinkSection>(),
            properties::<RouteSection>(),
            properties::<HopSection>(),
            properties::<StorageSection>(),
            properties::<NdnSection>(),
            properties::<NdnFaceSection>(),
            properties::<NdnRouteSection>(),
            properties::<NdnStrategySection>(),
        ];
        for (name, schema) in sections.iter().flatten() {
            assert!(all.contains(&format!("\n#{name} = ")), "{name}");
            assert!(schema.get("description").is_some(), "{name} has no comment");
        }
        assert!(!all.contains("= null"), "{all}");
        assert_eq!(properties::<Config>().len(), sections.len());
    }
}
