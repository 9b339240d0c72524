//! The protocol's enumerated numbers.

use core::fmt;
use core::str::FromStr;

use crate::face::{LinkType, Persistency, Scope};

/// Bit 0 of a face's `Flags`: local fields (IncomingFaceId, NextHopFaceId, CachePolicy) are in use.
pub const FLAG_LOCAL_FIELDS: u64 = 1;
/// Bit 1 of a face's `Flags`: link reliability is in use.
pub const FLAG_LP_RELIABILITY: u64 = 2;
/// Bit 2 of a face's `Flags`: congestion is marked.
pub const FLAG_CONGESTION_MARKING: u64 = 4;

/// Bit 0 of the content store's `Flags`: new Data is admitted.
pub const FLAG_CS_ADMIT: u64 = 1;
/// Bit 1 of the content store's `Flags`: Interests are answered from it.
pub const FLAG_CS_SERVE: u64 = 2;

/// Bit 0 of a route's `Flags`: longer prefixes use it too.
pub const ROUTE_CHILD_INHERIT: u64 = 1;
/// Bit 1 of a route's `Flags`: its prefix inherits from no shorter one.
pub const ROUTE_CAPTURE: u64 = 2;

pub(crate) const fn scope_code(scope: Scope) -> u64 {
    match scope {
        Scope::NonLocal => 0,
        Scope::Local => 1,
    }
}

pub(crate) const fn scope_from(code: u64) -> Option<Scope> {
    match code {
        0 => Some(Scope::NonLocal),
        1 => Some(Scope::Local),
        _ => None,
    }
}

pub(crate) const fn persistency_code(persistency: Persistency) -> u64 {
    match persistency {
        Persistency::Persistent => 0,
        Persistency::OnDemand => 1,
        Persistency::Permanent => 2,
    }
}

pub(crate) const fn persistency_from(code: u64) -> Option<Persistency> {
    match code {
        0 => Some(Persistency::Persistent),
        1 => Some(Persistency::OnDemand),
        2 => Some(Persistency::Permanent),
        _ => None,
    }
}

pub(crate) const fn link_type_code(link_type: LinkType) -> u64 {
    match link_type {
        LinkType::PointToPoint => 0,
        LinkType::MultiAccess => 1,
        LinkType::AdHoc => 2,
    }
}

pub(crate) const fn link_type_from(code: u64) -> Option<LinkType> {
    match code {
        0 => Some(LinkType::PointToPoint),
        1 => Some(LinkType::MultiAccess),
        2 => Some(LinkType::AdHoc),
        _ => None,
    }
}

/// An event of a face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaceEventKind {
    /// It was created.
    Created,
    /// It was destroyed.
    Destroyed,
    /// It works again.
    Up,
    /// It failed, and its owner tries to reopen it.
    Down,
}

impl FaceEventKind {
    pub(crate) const fn code(self) -> u64 {
        match self {
            FaceEventKind::Created => 1,
            FaceEventKind::Destroyed => 2,
            FaceEventKind::Up => 3,
            FaceEventKind::Down => 4,
        }
    }

    pub(crate) const fn from_code(code: u64) -> Option<FaceEventKind> {
        match code {
            1 => Some(FaceEventKind::Created),
            2 => Some(FaceEventKind::Destroyed),
            3 => Some(FaceEventKind::Up),
            4 => Some(FaceEventKind::Down),
            _ => None,
        }
    }
}

/// The source of a route. Any number up to 65535 is allowed; some have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteOrigin(pub u64);

impl RouteOrigin {
    /// A local producer.
    pub const APP: RouteOrigin = RouteOrigin(0);
    /// Automatic prefix registration.
    pub const AUTOREG: RouteOrigin = RouteOrigin(64);
    /// A client at the other end of the face.
    pub const CLIENT: RouteOrigin = RouteOrigin(65);
    /// Automatic configuration.
    pub const AUTOCONF: RouteOrigin = RouteOrigin(66);
    /// The NLSR routing protocol.
    pub const NLSR: RouteOrigin = RouteOrigin(128);
    /// A prefix announcement.
    pub const PREFIX_ANNOUNCEMENT: RouteOrigin = RouteOrigin(129);
    /// An operator.
    pub const STATIC: RouteOrigin = RouteOrigin(255);

    const NAMES: [(RouteOrigin, &'static str); 7] = [
        (RouteOrigin::APP, "app"),
        (RouteOrigin::AUTOREG, "autoreg"),
        (RouteOrigin::CLIENT, "client"),
        (RouteOrigin::AUTOCONF, "autoconf"),
        (RouteOrigin::NLSR, "nlsr"),
        (RouteOrigin::PREFIX_ANNOUNCEMENT, "prefixann"),
        (RouteOrigin::STATIC, "static"),
    ];
}

impl fmt::Display for RouteOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RouteOrigin::NAMES.iter().find(|(origin, _)| origin == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for RouteOrigin {
    type Err = core::num::ParseIntError;

    /// Parses a name or a number.
    fn from_str(text: &str) -> Result<RouteOrigin, Self::Err> {
        match RouteOrigin::NAMES.iter().find(|(_, name)| *name == text) {
            Some((origin, _)) => Ok(*origin),
            None => text.parse().map(RouteOrigin),
        }
    }
}
