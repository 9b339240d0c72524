//! Routes to web pages. A page is a stranger's program that a person has merely opened: it serves
//! only free names, and routes of other faces displace its routes.
//!
//! At no time does a route to a page have a prefix that equals, is above or is below the prefix of
//! a route to another face, whichever came first. The one exception is a default route that applies
//! to longer prefixes: a page's routes cost more than any other ([`PAGE_ROUTE_COST`]), so the
//! default route stays preferred.

use std::collections::BTreeSet;

use whimbrel_ndn_packet::Name;

use super::{Entry, Rib, Route, RouteKey};
use crate::face::FaceId;
use whimbrel_ndn_mgmt::{ROUTE_CAPTURE, RouteOrigin};

/// Minimum cost of a route to a page.
pub const PAGE_ROUTE_COST: u64 = 1_000_000;
/// Maximum of routes to one page.
pub const ROUTES_PER_PAGE: usize = 32;
/// Maximum of routes to all pages together: a page may open many connections.
pub const ROUTES_OF_PAGES: usize = 512;

/// Why a web page's route is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageRefusal {
    /// It requested the prefix `/`.
    #[error("a web page cannot register all names")]
    Everything,
    /// Another face has the prefix, one above it or one below it.
    #[error(
        "a web page cannot register this prefix: another face has it, one above it or one below it"
    )]
    Taken,
    /// The page has reached its limit of routes.
    #[error("a web page cannot register more than {ROUTES_PER_PAGE} prefixes")]
    Page,
    /// All pages together have reached their limit of routes.
    #[error("web pages already have {ROUTES_OF_PAGES} prefixes, the maximum for all together")]
    Pages,
}

/// The faces of pages, and their routes.
#[derive(Debug, Default)]
pub(super) struct Pages {
    faces: BTreeSet<FaceId>,
    /// In canonical order, as the entries of the RIB.
    routes: BTreeSet<(Name, RouteKey)>,
    displaced: u64,
}

impl Pages {
    pub(super) fn added(&mut self, prefix: &Name, key: RouteKey) {
        if self.faces.contains(&key.face) {
            self.routes.insert((prefix.clone(), key));
        }
    }

    pub(super) fn removed(&mut self, prefix: &Name, key: RouteKey) {
        if self.faces.contains(&key.face) {
            self.routes.remove(&(prefix.clone(), key));
        }
    }

    pub(super) fn forget(&mut self, face: FaceId) {
        self.faces.remove(&face);
    }

    /// Routes whose prefix equals, is above or is below `prefix`.
    fn related<'a>(
        &'a self,
        prefix: &'a Name,
    ) -> impl Iterator<Item = &'a (Name, RouteKey)> + use<'a> {
        let key = |number| RouteKey {
            face: FaceId(number),
            origin: RouteOrigin(number),
        };
        let above = (0..prefix.len()).flat_map(move |count| {
            let name = prefix.prefix(count);
            self.routes
                .range((name.clone(), key(0))..=(name, key(u64::MAX)))
        });
        let equal_or_below = self
            .routes
            .range((prefix.clone(), key(0))..)
            .take_while(|(name, _)| prefix.as_ref().is_prefix_of(name.as_ref()));
        above.chain(equal_or_below)
    }
}

fn leads_elsewhere(entry: &Entry, face: FaceId) -> bool {
    entry.faces().any(|other| other != face)
}

impl Rib {
    /// Marks `face` as one of a web page, until it is removed.
    pub fn add_page(&mut self, face: FaceId) {
        self.pages.faces.insert(face);
    }

    /// Returns true if the face leads to a web page.
    pub fn is_page(&self, face: FaceId) -> bool {
        self.pages.faces.contains(&face)
    }

    /// Returns the number of routes to web pages.
    pub fn page_routes(&self) -> usize {
        self.pages.routes.len()
    }

    /// Returns the number of routes of web pages that others have displaced.
    pub fn displaced_page_routes(&self) -> u64 {
        self.pages.displaced
    }

    /// Returns the route as `face` may have it: one to a page costs more than others, and does not
    /// hide the routes of shorter prefixes (CAPTURE), whatever was requested. (NDNts requests
    /// CAPTURE by default.)
    pub fn allowed_route(&self, face: FaceId, route: Route) -> Route {
        if !self.is_page(face) {
            return route;
        }
        Route {
            cost: route.cost.max(PAGE_ROUTE_COST),
            flags: route.flags & !ROUTE_CAPTURE,
            ..route
        }
    }

    /// Checks whether a page may have this prefix.
    pub(super) fn check_page(&self, prefix: &Name, key: RouteKey) -> Result<(), PageRefusal> {
        if prefix.is_empty() {
            return Err(PageRefusal::Everything);
        }
        if self.is_taken(prefix, key.face) {
            return Err(PageRefusal::Taken);
        }
        if self.route(prefix, key).is_some() {
            return Ok(());
        }
        if self.routes_of(key.face) >= ROUTES_PER_PAGE {
            return Err(PageRefusal::Page);
        }
        if self.pages.routes.len() >= ROUTES_OF_PAGES {
            return Err(PageRefusal::Pages);
        }
        Ok(())
    }

    /// Returns true if another face has a related route; stops at the first one, because the page's
    /// own are few.
    fn is_taken(&self, prefix: &Name, face: FaceId) -> bool {
        let is_default_for_all = |entry: &Entry| entry.routes.values().all(Route::passes);
        let default = self.entries.get(&Name::root());
        if default.is_some_and(|entry| !is_default_for_all(entry)) {
            return true;
        }
        let above = (1..prefix.len()).filter_map(|count| self.entries.get(&prefix.prefix(count)));
        let equal_or_below = self
            .entries
            .range(prefix.clone()..)
            .take_while(|(name, _)| prefix.as_ref().is_prefix_of(name.as_ref()))
            .map(|(_, entry)| entry);
        above
            .chain(equal_or_below)
            .any(|entry| leads_elsewhere(entry, face))
    }

    /// Displaces pages' routes for a route that is not a page's.
    pub(super) fn displace_for(&mut self, prefix: &Name, route: Route) {
        if !prefix.is_empty() || !route.passes() {
            self.displace_pages(prefix);
        }
    }

    /// Removes the routes to pages whose prefix equals, is above or is below `prefix`.
    pub fn displace_pages(&mut self, prefix: &Name) {
        if self.pages.routes.is_empty() {
            return;
        }
        let related: Vec<(Name, RouteKey)> = self.pages.related(prefix).cloned().collect();
        for (prefix, key) in related {
            self.pages.displaced += u64::from(self.unregister(&prefix, key));
        }
    }
}
