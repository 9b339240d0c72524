//! A hostile program: its use of resources is bounded, and others are still served.

use proptest::prelude::*;
use whimbrel_forwarder::mgmt::ManagementConfig;
use whimbrel_forwarder::rib::RibLimits;
use whimbrel_ndn_mgmt::ControlParameters;
use whimbrel_ndn_mgmt::client::{self, Target};
use whimbrel_ndn_packet::{Component, DigestSigner, Interest, Name};

use super::router::{Router, name, of_name};

fn small() -> Router {
    Router::with(ManagementConfig {
        routes: RibLimits {
            routes: 1_000,
            routes_per_face: 100,
            ..RibLimits::default()
        },
        fib_entries: 200,
        strategy_choices: 50,
        ..ManagementConfig::default()
    })
}

#[test]
fn endless_registrations_end_at_the_limit_of_the_face_and_others_still_register() {
    let mut router = small();
    let (hostile, program) = (router.program(), router.program());
    let mut refused = 0;
    for number in 0..500 {
        let response = router.command(
            hostile,
            "rib/register",
            &of_name(&format!("/flood/{number}")),
        );
        if !response.is_success() {
            assert_eq!(response.status_code, 503);
            refused += 1;
        }
    }
    assert_eq!((refused, router.forwarder.rib().len()), (400, 100));
    router.done(program, "rib/register", &of_name("/honest"));
    router.forwarder.remove_face(router.now, hostile);
    assert_eq!(router.forwarder.rib().len(), 1);
    assert_eq!(
        router.forwarder.fib().len(),
        3,
        "with the two prefixes of management"
    );
}

#[test]
fn next_hops_and_strategy_choices_end_at_their_limits() {
    let mut router = small();
    let hostile = router.program();
    let strategy = Some(name("/localhost/nfd/strategy/multicast"));
    for number in 0..300 {
        let prefix = of_name(&format!("/flood/{number}"));
        router.command(hostile, "fib/add-nexthop", &prefix);
        let choice = ControlParameters {
            strategy: strategy.clone(),
            ..prefix
        };
        router.command(hostile, "strategy-choice/set", &choice);
    }
    assert_eq!(router.forwarder.fib().len(), 200);
    assert_eq!(router.forwarder.strategies().entries().len(), 50);
    router.done(hostile, "fib/add-nexthop", &of_name("/flood/1"));
}

#[test]
fn a_flood_of_interests_for_datasets_is_answered_and_leaves_nothing_behind() {
    let mut router = Router::new();
    let (hostile, program) = (router.program(), router.program());
    for number in 0..2_000u32 {
        let mut interest = Interest::new(Target::Local.name("faces", "list"));
        (interest.can_be_prefix, interest.must_be_fresh) = (true, true);
        interest.nonce = Some(number.to_be_bytes());
        // Each Interest has different parameters, so that no two have the same name.
        interest.parameters = Some(number.to_be_bytes().to_vec().into());
        assert!(router.ask(hostile, &interest.encode()).is_some());
    }
    assert!(!router.dataset(program, "fib/list").is_empty());
}

fn any_component() -> impl Strategy<Value = Component> {
    let words = prop::sample::select(vec![
        "faces",
        "fib",
        "rib",
        "cs",
        "status",
        "strategy-choice",
        "whimbrel",
        "list",
        "create",
        "update",
        "destroy",
        "register",
        "unregister",
        "announce",
        "query",
        "events",
        "general",
        "config",
        "erase",
        "set",
        "unset",
        "",
    ]);
    prop_oneof![
        4 => words.prop_map(|word| Component::generic(word.as_bytes().to_vec())),
        2 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Component::generic),
        1 => (any::<u64>(), 0x30u64..0x3b).prop_map(|(number, typ)| Component::number(typ, number)),
        1 => any::<u64>().prop_map(|id| {
            let parameters = ControlParameters { face_id: Some(id), mtu: Some(id), ..of_name("/a") };
            Component::generic(parameters.encode())
        }),
    ]
}

proptest! {
    #[test]
    fn whatever_comes_under_the_prefix_of_management_does_no_harm(
        names in prop::collection::vec(prop::collection::vec(any_component(), 0..7), 1..20),
        signed in any::<bool>(),
    ) {
        let mut router = Router::new();
        let (hostile, program) = (router.program(), router.program());
        for (number, components) in names.into_iter().enumerate() {
            let name = components.iter().fold(Target::Local.prefix(), |name: Name, part| name.child(part.as_ref()));
            let mut interest = Interest::new(name);
            interest.can_be_prefix = number % 2 == 0;
            interest.nonce = Some([number as u8; 4]);
            let wire = if signed {
                let info = whimbrel_ndn_packet::Signer::info(&DigestSigner);
                interest.encode_signed(&DigestSigner, &info)
            } else {
                interest.encode()
            };
            router.ask(hostile, &wire);
        }
        router.work();
        router.now += core::time::Duration::from_secs(2);
        router.done(program, "rib/register", &of_name("/honest"));
        let hops = router.next_hops("/honest");
        prop_assert!(hops.contains(&(program.0, 0)));
        prop_assert!(client::response(b"").is_err());
    }
}
