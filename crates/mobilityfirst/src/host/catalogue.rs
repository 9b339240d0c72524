//! The contents that local programs offer.

use std::collections::BTreeMap;

use whimbrel_core::{Guid, GuidPrefix};

use super::App;
use crate::local::{Publish, TransferOptions};

/// Bound of the offers of all programs together.
const MAX_OFFERS: usize = 1 << 20;

/// A program's offer of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) app: App,
    pub(super) publish: Publish,
    pub(super) options: TransferOptions,
}

/// The offers. Several programs may offer the same content: the newest offer is used, and when its
/// program leaves, the one before it.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    // The offers of each content, the newest last; no list is empty.
    by_content: BTreeMap<Guid, Vec<Offer>>,
    offers: usize,
}

impl Catalogue {
    /// Returns the number of contents on offer.
    pub(super) fn len(&self) -> usize {
        self.by_content.len()
    }

    pub(super) fn contains(&self, content: &Guid) -> bool {
        self.by_content.contains_key(content)
    }

    /// Returns the contents whose names begin with `prefix`, in order.
    pub(super) fn beginning(&self, prefix: &GuidPrefix) -> impl Iterator<Item = Guid> {
        let names = self.by_content.range(prefix.first()..);
        names
            .map(|(name, _)| *name)
            .take_while(|name| prefix.is_of(name))
    }

    /// Returns the offer to use.
    pub(super) fn get(&self, content: &Guid) -> Option<&Offer> {
        self.by_content.get(content)?.last()
    }

    /// Returns the length of a content in bytes.
    pub(super) fn len_of(&self, content: &Guid) -> Option<u64> {
        self.get(content).map(|offer| offer.publish.content_len)
    }

    /// Returns the file name of the newest offer that suggests one. A content that is a file may also
    /// be a pack of a folder, which has no name.
    pub(super) fn file_name(&self, content: &Guid) -> &str {
        let offers = self.by_content.get(content).into_iter().flatten();
        let mut names = offers.map(|offer| &*offer.publish.file_name);
        names.rfind(|name| !name.is_empty()).unwrap_or_default()
    }

    /// Returns all programs that offer `content`.
    pub(super) fn publishers(&self, content: &Guid) -> Vec<App> {
        self.by_content
            .get(content)
            .into_iter()
            .flatten()
            .map(|offer| offer.app)
            .collect()
    }

    /// Adds an offer, or renews that of the same program. Returns false if there are too many.
    pub(super) fn add(&mut self, offer: Offer) -> bool {
        self.remove(offer.app, &offer.publish.content);
        if self.offers >= MAX_OFFERS {
            return false;
        }
        self.offers += 1;
        self.by_content
            .entry(offer.publish.content)
            .or_default()
            .push(offer);
        true
    }

    /// Removes an offer. Returns true if it existed and no other program offers the content.
    pub(super) fn remove(&mut self, app: App, content: &Guid) -> bool {
        let Some(offers) = self.by_content.get_mut(content) else {
            return false;
        };
        let before = offers.len();
        offers.retain(|offer| offer.app != app);
        self.offers -= before - offers.len();
        let nobody = offers.is_empty();
        if nobody {
            self.by_content.remove(content);
        }
        nobody
    }

    /// Removes all offers of a program. Returns the contents that no program offers any more.
    pub(super) fn remove_all_of(&mut self, app: App) -> Vec<Guid> {
        let offered = |offers: &Vec<Offer>| offers.iter().any(|offer| offer.app == app);
        let contents: Vec<Guid> = self
            .by_content
            .iter()
            .filter(|(_, offers)| offered(offers))
            .map(|(content, _)| *content)
            .collect();
        contents
            .into_iter()
            .filter(|content| self.remove(app, content))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ContentKind;

    fn offer(app: u32, content: u8) -> Offer {
        let publish = Publish {
            content: Guid([content; 32]),
            content_len: u64::from(app),
            kind: ContentKind::File,
            file_name: String::new(),
        };
        Offer {
            app: App::Inner(app),
            publish,
            options: TransferOptions::default(),
        }
    }

    #[test]
    fn an_offer_without_a_name_takes_no_name_away() {
        let mut catalogue = Catalogue::default();
        let content = Guid([7; 32]);
        for (app, name) in [(1, "first"), (2, "film"), (3, "")] {
            let mut offer = offer(app, 7);
            offer.publish.file_name = name.to_owned();
            catalogue.add(offer);
        }
        assert_eq!(catalogue.file_name(&content), "film");
        catalogue.remove(App::Inner(2), &content);
        assert_eq!(catalogue.file_name(&content), "first");
        catalogue.remove(App::Inner(1), &content);
        assert_eq!(catalogue.file_name(&content), "");
    }

    #[test]
    fn a_content_is_on_offer_until_its_last_program_leaves() {
        let mut catalogue = Catalogue::default();
        for (app, content) in [(1, 7), (2, 7), (1, 8), (1, 7)] {
            assert!(catalogue.add(offer(app, content)));
        }
        let (shared, alone) = (Guid([7; 32]), Guid([8; 32]));
        assert_eq!(
            catalogue.get(&shared),
            Some(&offer(1, 7)),
            "the one renewed last"
        );
        assert_eq!(
            catalogue.publishers(&shared),
            [App::Inner(2), App::Inner(1)]
        );
        assert_eq!(catalogue.remove_all_of(App::Inner(1)), [alone]);
        assert_eq!(catalogue.get(&shared), Some(&offer(2, 7)));
        assert!(!catalogue.remove(App::Inner(1), &shared), "it has none");
        assert!(catalogue.remove(App::Inner(2), &shared));
        assert_eq!((catalogue.len(), catalogue.offers), (0, 0));
    }
}
