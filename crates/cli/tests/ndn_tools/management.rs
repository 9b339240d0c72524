//! Commands that manage a forwarder, as `nfdc` does.

use serde_json::Value;

use super::with_input;
use crate::support::ndn::Router;
use crate::support::noise;

#[test]
fn faces_are_created_listed_changed_and_destroyed() {
    let router = Router::start();
    let uri = "udp4://127.0.0.1:9";
    let made = router.prints(&[
        "face",
        "create",
        "remote",
        "udp://127.0.0.1:9",
        "persistency",
        "permanent",
    ]);
    assert!(made.starts_with("face-created id="), "{made}");
    assert!(
        made.contains(&format!("remote={uri}")) && made.contains("persistency=permanent"),
        "{made}"
    );
    let list = router.prints(&["face", "list", "remote", "udp://127.0.0.1:9"]);
    assert!(
        list.contains(uri) && list.contains("permanent point-to-point"),
        "{list}"
    );
    assert!(
        router
            .prints(&["face", "create", uri])
            .starts_with("face-exists")
    );
    let updated = router.json(&["face", "update", uri, "reliability", "on", "--mtu", "1200"]);
    assert_eq!(updated["event"], "face-updated");
    let shown = router.json(&["face", "show", uri]);
    assert!(
        shown["flags"]
            .as_array()
            .unwrap()
            .contains(&"lp-reliability".into()),
        "{shown}"
    );
    assert_eq!(shown["mtu"], 1200, "{shown}");
    let again = router.prints(&["face", "create", uri, "--reliability", "off"]);
    assert!(
        again.starts_with("face-updated") && again.contains("reliability=off"),
        "{again}"
    );
    let all = router.json(&["face", "list"]);
    assert!(
        all.as_array()
            .unwrap()
            .iter()
            .any(|face| face["remote"] == uri)
    );
    assert!(
        router
            .prints(&["face", "destroy", uri])
            .starts_with("face-destroyed id=")
    );
    assert_eq!(router.fails(&["face", "show", uri]).0, 3);
}

#[test]
fn routes_to_a_face_uri_make_the_face() {
    let router = Router::start();
    let made = router.prints(&[
        "route",
        "add",
        "/far",
        "udp://127.0.0.1:9",
        "cost",
        "7",
        "capture",
    ]);
    assert!(
        made.starts_with("route-add-accepted prefix=/far nexthop="),
        "{made}"
    );
    let shown = router.prints(&["route", "show", "prefix", "/far"]);
    assert!(
        shown.contains("origin=static cost=7 flags=child-inherit|capture expires=never"),
        "{shown}"
    );
    router.prints(&[
        "route",
        "add",
        "--prefix",
        "/far",
        "--nexthop",
        "udp://127.0.0.1:9",
        "--cost",
        "8",
        "--no-inherit",
    ]);
    let routes = router.json(&["route", "list", "origin", "static"]);
    assert_eq!(routes[0]["cost"], 8, "{routes}");
    assert_eq!(routes[0]["flags"], Value::Array(vec![]), "{routes}");
    router.prints(&["route", "remove", "/far", "udp://127.0.0.1:9"]);
    assert_eq!(router.fails(&["route", "show", "/far"]).0, 6);
    let again = ["route", "remove", "/far", "udp://127.0.0.1:9"];
    assert_eq!(router.fails(&again).0, 6);
}

#[test]
fn a_route_joins_two_routers_and_content_crosses_them() {
    let producer = Router::start();
    let consumer = Router::start();
    let content = noise(1_000_000, 5);
    let _serve = producer.serve("/across", &content, &[]);
    consumer.prints(&["route", "add", "/across", &producer.udp()]);
    let (code, out, errors) = with_input(consumer.command(&["ndn", "get", "/across"]), b"");
    assert!(code == 0 && out == content, "{code} {errors}");
}

#[test]
fn strategies_are_set_shown_and_unset() {
    let router = Router::start();
    let set = router.prints(&["strategy", "set", "/video", "multicast"]);
    assert!(
        set.starts_with("strategy-set prefix=/video strategy=/localhost/nfd/strategy/multicast"),
        "{set}"
    );
    let shown = router.prints(&["strategy", "show", "/video/1"]);
    assert!(
        shown.starts_with("prefix=/video strategy=/localhost/nfd/strategy/multicast"),
        "{shown}"
    );
    let list = router.json(&["strategy", "list"]);
    assert_eq!(list.as_array().unwrap().len(), 2, "{list}");
    assert!(
        router.json(&["strategy", "list", "--available"])["available"]
            .as_array()
            .unwrap()
            .len()
            > 2
    );
    assert_eq!(router.fails(&["strategy", "set", "/video", "no-such"]).0, 7);
    assert_eq!(router.fails(&["strategy", "unset", "/"]).0, 2);
    router.prints(&["strategy", "unset", "/video"]);
    assert!(
        router
            .prints(&["strategy", "show", "/video/1"])
            .starts_with("prefix=/ ")
    );
}

#[test]
fn the_content_store_is_shown_configured_and_emptied() {
    let router = Router::start();
    let content = noise(4_000_000, 11);
    let serve = router.serve("/stored", &content, &["--freshness", "1 h"]);
    let got = |arguments: &[&str]| with_input(router.command(arguments), b"");
    assert_eq!(got(&["ndn", "get", "/stored"]).0, 0);
    let info = router.json(&["cs", "info"]);
    assert!(info["entries"].as_u64().unwrap() >= 500, "{info}");
    // NDN's protocol counts packets; the bound that applies first is in bytes.
    assert_eq!(info["capacity_bytes"], 64 << 20, "{info}");
    assert!(info["bytes"].as_u64().unwrap() >= 4_000_000, "{info}");
    let text = router.prints(&["cs", "info"]);
    assert!(
        text.contains("admit=on") && text.contains("maxBytes=67108864\n"),
        "{text}"
    );
    let erased = router.json(&["cs", "erase", "/stored", "count", "5"]);
    assert_eq!(erased["count"], 5);
    let erased = router.json(&["cs", "erase", "/stored"]);
    assert!(erased["count"].as_u64().unwrap() >= 495, "{erased}");
    assert!(
        router
            .prints(&["cs", "config", "capacity", "10", "--serve", "off"])
            .contains("capacity=10 admit=on serve=off")
    );
    drop(serve);
}

#[test]
fn status_describes_the_forwarder_and_its_faces() {
    let router = Router::start();
    let text = router.prints(&["status"]);
    assert!(
        text.contains("version: ") && text.contains("up for: 0 d 00:0"),
        "{text}"
    );
    let status = router.json(&["status", "--faces"]);
    assert!(
        status["general"]["version"]
            .as_str()
            .unwrap()
            .to_lowercase()
            .contains("whimbrel"),
        "{status}"
    );
    assert!(status["counters"]["drops"].is_object(), "{status}");
    assert!(
        !status["faces"].as_array().unwrap().is_empty() && status["links"].is_array(),
        "{status}"
    );
}

#[test]
fn management_has_the_exit_codes_of_nfdc() {
    let router = Router::start();
    for (code, arguments) in [
        (2, &["face", "create"][..]),
        (2, &["face", "create", "nonsense"]),
        (
            2,
            &[
                "face",
                "create",
                "udp://127.0.0.1:9",
                "persistency",
                "sometimes",
            ],
        ),
        (
            2,
            &[
                "face",
                "create",
                "udp://127.0.0.1:9",
                "colour",
                "red",
                "and",
                "more",
            ],
        ),
        (2, &["face", "update", "300"]),
        (3, &["face", "show", "65000"]),
        (3, &["face", "destroy", "udp://127.0.0.1:9"]),
        (3, &["face", "update", "65000", "mtu", "1400"]),
        (4, &["face", "create", "udp://name.invalid"]),
        (4, &["route", "add", "/", "udp://name.invalid"]),
        (3, &["route", "add", "/", "65000"]),
        (3, &["route", "remove", "/", "65000"]),
        (2, &["route", "add", "no-slash", "260"]),
        (2, &["route", "add", "/a", "260", "cost", "much"]),
        (6, &["route", "show", "/nothing/here"]),
        (6, &["route", "list", "origin", "77"]),
        (2, &["cs", "config", "admit", "perhaps"]),
    ] {
        let (found, errors) = router.fails(arguments);
        assert_eq!(found, code, "{arguments:?}: {errors}");
        assert!(
            errors.contains("whimbrel: ") || errors.contains("error: "),
            "{errors}"
        );
    }
}
