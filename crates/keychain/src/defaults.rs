//! A user's defaults: the identity, each identity's key, each key's certificate.

use std::collections::BTreeMap;

use whimbrel_ndn_packet::Name;
use whimbrel_ndn_packet::certificate::identity_of_key;

/// The defaults, as lines of a file: `identity NAME`, `key NAME`, `certificate NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defaults {
    pub(crate) identity: Option<Name>,
    /// By identity.
    pub(crate) keys: BTreeMap<Name, Name>,
    /// By key.
    pub(crate) certificates: BTreeMap<Name, Name>,
}

impl Defaults {
    /// Skips unknown lines, which a later version may write.
    pub(crate) fn parse(text: &str) -> Defaults {
        let mut defaults = Defaults::default();
        for line in text.lines() {
            let Some((kind, uri)) = line.split_once(' ') else {
                continue;
            };
            let Ok(name) = uri.trim().parse::<Name>() else {
                continue;
            };
            match kind {
                "identity" => defaults.identity = Some(name),
                "key" => {
                    if let Some(identity) =
                        identity_of_key(name.as_ref()).map(|identity| identity.to_name())
                    {
                        defaults.keys.insert(identity, name);
                    }
                }
                "certificate" => {
                    let key = name.prefix(name.len().saturating_sub(2));
                    defaults.certificates.insert(key, name);
                }
                _ => {}
            }
        }
        defaults
    }

    pub(crate) fn text(&self) -> String {
        let identity = self
            .identity
            .iter()
            .map(|name| format!("identity {name}\n"));
        let keys = self.keys.values().map(|name| format!("key {name}\n"));
        let certificates = self
            .certificates
            .values()
            .map(|name| format!("certificate {name}\n"));
        identity.chain(keys).chain(certificates).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_survive_being_written_and_read() {
        let name = |uri: &str| uri.parse::<Name>().expect("a name");
        let defaults = Defaults {
            identity: Some(name("/a%20b")),
            keys: BTreeMap::from([(name("/a"), name("/a/KEY/%00"))]),
            certificates: BTreeMap::from([(name("/a/KEY/%00"), name("/a/KEY/%00/self/v=1"))]),
        };
        assert_eq!(Defaults::parse(&defaults.text()), defaults);
        let further = format!(
            "{}something new\nkey /no-key\n\nidentity\n",
            defaults.text()
        );
        assert_eq!(Defaults::parse(&further), defaults);
    }
}
