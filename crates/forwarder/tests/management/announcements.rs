//! `rib/announce`: a prefix announcement registers its prefix.

use core::time::Duration;

use whimbrel_forwarder::mgmt::{CommandPolicy, LocalCommands, ManagementConfig};
use whimbrel_ndn_mgmt::client::{self, Target};
use whimbrel_ndn_mgmt::{RibEntry, RouteOrigin};
use whimbrel_ndn_packet::{Data, DigestSigner, PrefixAnnouncement, ValidityPeriod};

use super::router::{Router, name};

fn announcement(prefix: &str, expiration: Duration, validity: Option<ValidityPeriod>) -> Vec<u8> {
    PrefixAnnouncement {
        prefix: name(prefix),
        version: 1,
        expiration,
        validity,
    }
    .encode(&DigestSigner)
}

fn announce(router: &mut Router, announcement: &[u8]) -> u64 {
    let program = router.forwarder.faces().last().unwrap().id();
    let stamp = router.stamp();
    let interest = client::announce(Target::Local, announcement, &DigestSigner, stamp);
    let data = router.ask(program, &interest).expect("an answer");
    client::response(&data).unwrap().status_code
}

#[test]
fn an_announced_prefix_leads_to_its_announcer_for_its_lifetime() {
    let mut router = Router::new();
    let program = router.program();
    let hour = Duration::from_secs(3_600);
    let announcement = announcement("/a/b", hour, None);
    assert_eq!(announce(&mut router, &announcement), 200);
    let listed: Vec<RibEntry> = router.items(program, "rib/list");
    assert_eq!(listed[0].name, name("/a/b"));
    let route = listed[0].routes[0];
    let origin = RouteOrigin::PREFIX_ANNOUNCEMENT.0;
    assert_eq!(
        (route.face_id, route.origin, route.expiration_period),
        (program.0, origin, Some(hour))
    );
}

/// An announcement of /a/b for an hour, as built by NDNts.
#[test]
fn an_announcement_by_ndnts_is_understood() {
    let hex = "0626071008016108016220025041360107320100140318010515066d040036ee8016031b01c81700";
    let wire: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect();
    let mut router = Router::new();
    router.program();
    assert_eq!(announce(&mut router, &wire), 200);
    assert_eq!(router.next_hops("/a/b").len(), 1);
}

#[test]
fn invalid_and_expired_announcements_are_refused() {
    let mut router = Router::new();
    router.program();
    assert_eq!(announce(&mut router, b""), 400);
    let data = Data::new(name("/a/b"), vec![1]).encode(&DigestSigner);
    assert_eq!(
        announce(&mut router, &data),
        400,
        "its name is not that of an announcement"
    );
    let over = announcement("/a", Duration::ZERO, None);
    assert_eq!(announce(&mut router, &over), 416);
    let long_ago = ValidityPeriod {
        not_before: 1,
        not_after: 2,
    };
    let over = announcement("/a", Duration::from_secs(60), Some(long_ago));
    assert_eq!(announce(&mut router, &over), 416);
    assert!(router.forwarder.rib().is_empty());
}

#[test]
fn an_announcement_needs_a_key_where_keys_are_required() {
    let policy = CommandPolicy {
        local: LocalCommands::RequireSignature,
        ..CommandPolicy::default()
    };
    let mut router = Router::with(ManagementConfig {
        policy,
        ..ManagementConfig::default()
    });
    router.program();
    let announcement = announcement("/a", Duration::from_secs(60), None);
    assert_eq!(announce(&mut router, &announcement), 403);
}
