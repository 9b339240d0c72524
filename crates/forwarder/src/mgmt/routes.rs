//! `rib/...`: register and unregister routes, announce prefixes, and the dataset.

use core::time::Duration;

use whimbrel_core::Time;
use whimbrel_ndn_mgmt::{
    ControlParameters, ControlResponse, ROUTE_CHILD_INHERIT, RibEntry, RouteOrigin, RouteStatus,
};
use whimbrel_ndn_packet::{Name, PrefixAnnouncementRef};

use super::fib::no_face;
use super::verb::{Context, Outcome, refuse_own_prefix};
use crate::face::FaceId;
use crate::forwarder::Forwarder;
use crate::rib::{PageRefusal, RibError, Route, RouteKey};
use crate::tables::MAX_DEPTH;

/// Cost of an announced route, so that operators' routes are preferred (NFD: `PA_ROUTE_COST`).
const ANNOUNCEMENT_COST: u64 = 2_048;
/// RouteOrigin has 16 bits in NFD.
const MAX_ORIGIN: u64 = u16::MAX as u64;

pub(crate) fn register(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    let key = match key(context, &parameters) {
        Ok(key) => key,
        Err(refusal) => return refusal.into(),
    };
    let prefix = parameters.name.clone().unwrap_or_default();
    let wanted = Wanted {
        key,
        cost: parameters.cost.unwrap_or(0),
        flags: parameters.flags.unwrap_or(ROUTE_CHILD_INHERIT),
        lives: parameters.expiration_period,
    };
    add(context, prefix, &wanted).into()
}

struct Wanted {
    key: RouteKey,
    cost: u64,
    flags: u64,
    /// `None`: as long as the face.
    lives: Option<Duration>,
}

fn add(context: &mut Context<'_>, prefix: Name, wanted: &Wanted) -> ControlResponse {
    let Wanted {
        key,
        cost,
        flags,
        lives,
    } = *wanted;
    if let Err(refusal) = refuse_own_prefix(context, &prefix) {
        return refusal;
    }
    let is_page = context.forwarder.rib().is_page(key.face);
    if is_page && is_set_otherwise(context, &prefix, key.face) {
        return ControlResponse::new(409, PageRefusal::Taken.to_string());
    }
    if context.forwarder.face(key.face).is_none() {
        return no_face(key.face.0);
    }
    if lives.is_some_and(|lives| lives.is_zero()) {
        return ControlResponse::new(
            400,
            "ExpirationPeriod 0 ends the route at once: leave it out or give one",
        );
    }
    // ndn-cxx writes "never" as its largest number of milliseconds.
    let expires = lives
        .map(|lives| context.now + lives)
        .filter(|at| *at < Time::MAX);
    let wanted = Route {
        cost,
        flags,
        expires,
    };
    let route = context.forwarder.rib().allowed_route(key.face, wanted);
    match context.forwarder.register_route(prefix.clone(), key, route) {
        Err(error) => ControlResponse::new(status_of(error), error.to_string()),
        Ok(()) => ControlResponse::success(&ControlParameters {
            name: Some(prefix),
            face_id: Some(key.face.0),
            origin: Some(key.origin.0),
            cost: Some(route.cost),
            flags: Some(route.flags),
            expiration_period: lives.filter(|_| expires.is_some()),
            ..ControlParameters::default()
        }),
    }
}

const fn status_of(error: RibError) -> u64 {
    match error {
        RibError::TooDeep(_) => 414,
        RibError::Page(PageRefusal::Everything) => 403,
        RibError::Page(PageRefusal::Taken) => 409,
        RibError::Page(PageRefusal::Page | PageRefusal::Pages)
        | RibError::Face(..)
        | RibError::OctetsOfFace(..)
        | RibError::Octets(_)
        | RibError::Routes(_) => 503,
    }
}

/// Returns true if the prefix conflicts with something other than routes: it is a prefix of the
/// router's own, or is above or below a next hop set by a command (`fib/add-nexthop`). Longer
/// prefixes of the router keep working, because the longest match wins.
fn is_set_otherwise(context: &Context<'_>, prefix: &Name, face: FaceId) -> bool {
    let begins_own = |own: &Name| prefix.as_ref().is_prefix_of(own.as_ref());
    let (fib, rib) = (context.forwarder.fib(), context.forwarder.rib());
    let by_hand = |shorter: Name| {
        let hops = fib.next_hops(shorter.as_ref()).unwrap_or_default();
        hops.iter()
            .any(|hop| hop.face != face && rib.hop(&shorter, hop.face).is_none())
    };
    !prefix.is_empty()
        && (context.own_prefixes.iter().any(begins_own)
            || (0..=prefix.len().min(MAX_DEPTH)).any(|count| by_hand(prefix.prefix(count))))
}

pub(crate) fn unregister(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    let key = match key(context, &parameters) {
        Ok(key) => key,
        Err(refusal) => return refusal.into(),
    };
    let prefix = parameters.name.clone().unwrap_or_default();
    // Unregistering a route that does not exist succeeds, as the protocol requires.
    context.forwarder.unregister_route(&prefix, key);
    ControlResponse::success(&ControlParameters {
        name: Some(prefix),
        face_id: Some(key.face.0),
        origin: Some(key.origin.0),
        ..ControlParameters::default()
    })
    .into()
}

fn key(context: &Context<'_>, parameters: &ControlParameters) -> Result<RouteKey, ControlResponse> {
    let face = context.face_meant(parameters);
    if context.remote && face != context.from {
        let text = "a neighbour may only register and unregister prefixes at its own face: leave FaceId out";
        return Err(ControlResponse::new(403, text));
    }
    let origin = parameters.origin.unwrap_or(RouteOrigin::APP.0);
    if origin > MAX_ORIGIN {
        return Err(ControlResponse::new(
            400,
            format!("an Origin is a number up to {MAX_ORIGIN}"),
        ));
    }
    Ok(RouteKey {
        face,
        origin: RouteOrigin(origin),
    })
}

/// `rib/announce`, for an allowed announcement.
pub(crate) fn announce(
    context: &mut Context<'_>,
    announcement: &PrefixAnnouncementRef<'_>,
) -> ControlResponse {
    let now = context.forwarder.wall().unix_millis(context.now) / 1_000;
    let Some(lives) = announcement.lifetime(Some(now)) else {
        return ControlResponse::new(416, "the prefix announcement is not valid at this time");
    };
    let wanted = Wanted {
        key: RouteKey {
            face: context.from,
            origin: RouteOrigin::PREFIX_ANNOUNCEMENT,
        },
        cost: ANNOUNCEMENT_COST,
        flags: ROUTE_CHILD_INHERIT,
        lives: Some(lives),
    };
    add(context, announcement.prefix.to_name(), &wanted)
}

pub(crate) fn list(forwarder: &Forwarder, now: Time) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, routes) in forwarder.rib().entries() {
        let routes = routes
            .map(|(key, route)| RouteStatus {
                face_id: key.face.0,
                origin: key.origin.0,
                cost: route.cost,
                flags: route.flags,
                expiration_period: route.expires.map(|at| at.since(now)),
            })
            .collect();
        RibEntry {
            name: name.clone(),
            routes,
        }
        .encode(&mut out);
    }
    out
}

impl Forwarder {
    /// Adds a route, or changes the one with the same prefix, face and origin, and updates the FIB.
    pub fn register_route(
        &mut self,
        prefix: Name,
        key: RouteKey,
        route: Route,
    ) -> Result<(), RibError> {
        let outcome = self.rib.register(prefix, key, route);
        self.follow_rib();
        outcome
    }

    /// Removes a route, and updates the FIB; returns false if the route does not exist.
    pub fn unregister_route(&mut self, prefix: &Name, key: RouteKey) -> bool {
        let was_there = self.rib.unregister(prefix, key);
        self.follow_rib();
        was_there
    }

    /// Displaces routes to web pages for a next hop set by a command.
    pub(crate) fn displace_pages(&mut self, prefix: &Name) {
        self.rib.displace_pages(prefix);
        self.follow_rib();
    }

    /// Removes the routes of a removed face.
    pub(crate) fn forget_routes(&mut self, face: FaceId) {
        self.rib.remove_face(face);
        self.follow_rib();
    }

    /// Updates the FIB after changes of the RIB.
    pub(crate) fn follow_rib(&mut self) {
        for update in self.rib.take_updates() {
            let prefix = update.prefix.as_ref();
            match update.rank {
                // The RIB refuses prefixes that are too deep for the FIB.
                Some(rank) => drop(self.engine.fib.add_ranked(prefix, update.face, rank)),
                None => drop(self.engine.fib.remove_next_hop(prefix, update.face)),
            }
        }
    }
}
