//! The route that a program requests from its forwarder.

use core::time::Duration;

use whimbrel_ndn_mgmt::ControlParameters;
use whimbrel_ndn_packet::Name;

/// The parameters of `rib/register` and `rib/unregister`; the forwarder chooses those that are
/// `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteParameters {
    /// The prefix.
    pub name: Name,
    /// The next hop; `None` is the face that the command arrives on.
    pub face_id: Option<u64>,
    /// The source of the route; `None` is an application.
    pub origin: Option<u64>,
    /// Cost; `None` is 0.
    pub cost: Option<u64>,
    /// [`whimbrel_ndn_mgmt::ROUTE_CHILD_INHERIT`], [`whimbrel_ndn_mgmt::ROUTE_CAPTURE`].
    pub flags: Option<u64>,
    /// The route's lifetime; `None` is that of the face.
    pub expiration: Option<Duration>,
}

impl RouteParameters {
    /// For `name`, with the forwarder's defaults.
    pub fn new(name: Name) -> RouteParameters {
        RouteParameters {
            name,
            ..RouteParameters::default()
        }
    }
}

impl From<&RouteParameters> for ControlParameters {
    fn from(route: &RouteParameters) -> ControlParameters {
        ControlParameters {
            name: Some(route.name.clone()),
            face_id: route.face_id,
            origin: route.origin,
            cost: route.cost,
            flags: route.flags,
            expiration_period: route.expiration,
            ..ControlParameters::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ndn_mgmt::{ROUTE_CAPTURE, ROUTE_CHILD_INHERIT};

    use super::*;

    #[test]
    fn parameters_are_in_the_order_and_types_of_the_protocol() {
        let route = RouteParameters {
            face_id: Some(300),
            origin: Some(0),
            cost: Some(10),
            flags: Some(ROUTE_CHILD_INHERIT | ROUTE_CAPTURE),
            expiration: Some(Duration::from_secs(60)),
            ..RouteParameters::new("/A".parse().unwrap())
        };
        let expected: &[u8] = &[
            0x68, 22, // ControlParameters
            0x07, 3, 0x08, 1, b'A', // Name
            0x69, 2, 1, 44, // FaceId
            0x6f, 1, 0, // Origin
            0x6a, 1, 10, // Cost
            0x6c, 1, 3, // Flags
            0x6d, 2, 0xea, 0x60, // ExpirationPeriod
        ];
        assert_eq!(ControlParameters::from(&route).encode(), expected);
    }
}
