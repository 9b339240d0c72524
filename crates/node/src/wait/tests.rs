//! Which reason is given when.

use super::*;
use serde_json::{Value, json};

fn link(up: bool, refused: bool) -> Value {
    json!({
        "peer": "192.0.2.7:4711", "caller": false, "up": up, "silent_s": 7.5, "refused": refused,
        "hop": { "largest_frame": 1452, "mtu_falls": 0 },
    })
}

fn transfer(state: &str, kept: bool) -> Value {
    let mut transfer = json!({ "content": Guid([7; 32]), "state": state, "idle_s": 41.2 });
    if kept {
        transfer["kept_by"] = json!(Guid([0xab; 32]));
        transfer["kept_s"] = json!(12.9);
    }
    transfer
}

fn text(binding: Option<&str>, links: Value, transfers: Value) -> String {
    let report = json!({
        "binding": binding, "clock": { "router_ahead_ms": -3_600_400, "adopted": true },
        "links": links, "transfers": transfers, "uptime_s": 3,
    });
    let waits = waits_in(&report.to_string());
    waits
        .first()
        .map_or(String::new(), |(_, wait)| wait.to_string())
}

#[test]
fn each_reason_has_a_line_that_says_what_where_and_for_how_long() {
    let (up, requested) = (
        json!([link(true, false)]),
        json!([transfer("requested", false)]),
    );
    let mut unwilling = link(false, false);
    unwilling["unwilling"] = json!("the neighbour is plain");
    let mut without_route = link(false, false);
    without_route["carrier"] = json!(false);
    let mut with_false_data = transfer("requested", false);
    with_false_data["false_from"] = json!(Guid([7; 32]));
    with_false_data["false_chunks"] = json!(5);
    let mut without_holder = transfer("flowing", false);
    without_holder["absent_s"] = json!(9.9);
    let cases = [
        (
            None,
            json!([link(false, true)]),
            requested.clone(),
            "not connected for 7 s (192.0.2.7:4711: Connection refused)",
        ),
        (
            None,
            json!([link(false, false)]),
            json!([]),
            "not connected for 7 s (192.0.2.7:4711: no answer)",
        ),
        (
            None,
            json!([unwilling]),
            json!([]),
            "not connected for 7 s (192.0.2.7:4711: the neighbour is plain)",
        ),
        (
            None,
            json!([without_route]),
            json!([]),
            "not connected for 7 s (192.0.2.7:4711: no route, or its interface is down)",
        ),
        (
            Some("clock"),
            up.clone(),
            json!([]),
            "clock refused: this machine's is 3600 s ahead of the router's; set the wrong one of the two",
        ),
        (
            Some("unreachable"),
            up.clone(),
            requested.clone(),
            "the router's name server is silent",
        ),
        (
            Some("registered"),
            up.clone(),
            json!([transfer("requested", true)]),
            "no way to a provider for 12 s; router abababab keeps the request (`whimbrel router status` there says why)",
        ),
        (
            Some("registered"),
            up.clone(),
            json!([without_holder]),
            "nobody serves the rest for 9 s (asked 192.0.2.7:4711)",
        ),
        (
            Some("registered"),
            up.clone(),
            json!([with_false_data]),
            "07070707 behind 192.0.2.7:4711 sends data that does not fit its name; 5 refused",
        ),
        (
            Some("registered"),
            up.clone(),
            requested,
            "asked 192.0.2.7:4711, no answer for 41 s",
        ),
        (
            Some("registered"),
            up.clone(),
            json!([transfer("stalled", false)]),
            "no data for 41 s",
        ),
        (Some("registered"), up, json!([]), ""),
    ];
    for (binding, links, transfers, line) in cases {
        assert_eq!(text(binding, links, transfers), line);
    }
}

#[test]
fn a_clock_that_is_years_off_is_reported_in_days() {
    let wait = Wait::ClockRefused {
        router_ahead_ms: Some(157_680_000_000),
    };
    assert_eq!(
        wait.to_string(),
        "clock refused: this machine's is 1825 d behind the router's; set the wrong one of the two"
    );
}

#[test]
fn a_host_name_that_cannot_be_looked_up_is_the_reason_until_another_neighbour_is_known() {
    let report = |links: Value| {
        let unresolved = json!([{
            "host": "nosuch.invalid", "error": "no such name", "again_in_s": 3.2,
        }]);
        let report = json!({ "links": links, "unresolved": unresolved });
        let waits = waits_in(&report.to_string());
        waits.first().map(|(_, wait)| wait.to_string())
    };
    assert_eq!(
        report(json!([])).as_deref(),
        Some("cannot look up nosuch.invalid: no such name; trying again in 4 s")
    );
    assert_eq!(report(json!([link(true, false)])), None);
}

#[test]
fn a_chunk_that_is_arriving_over_a_thin_link_is_no_wait() {
    let report = |idle_s: f64, silent_s: f64, arriving: u64| {
        let mut link = link(true, false);
        link["silent_s"] = json!(silent_s);
        link["hop"]["chunks_arriving"] = json!(arriving);
        let mut transfer = transfer("stalled", false);
        transfer["idle_s"] = json!(idle_s);
        json!({ "links": [link], "transfers": [transfer] }).to_string()
    };
    assert!(waits_in(&report(4.0, 0.2, 1)).is_empty());
    let mut lies: Value = serde_json::from_str(&report(4.0, 0.2, 1)).unwrap();
    lies["transfers"][0]["false_from"] = json!(Guid([7; 32]));
    assert_eq!(waits_in(&lies.to_string()).len(), 1);
    for (idle_s, silent_s, arriving) in [(4.0, 0.2, 0), (4.0, 3.0, 1), (31.0, 0.2, 1)] {
        let waits = waits_in(&report(idle_s, silent_s, arriving));
        assert_eq!(waits.len(), 1, "{idle_s} {silent_s} {arriving}");
    }
    let mut watch = Watch::new(Subject::Answer);
    watch.since -= PATIENCE;
    for (arriving, waits) in [(1, false), (0, true)] {
        let report = report(4.0, 0.2, arriving);
        watch.read(&serde_json::from_str(&report).unwrap(), &|_| true);
        assert_eq!(watch.wait().is_some(), waits);
    }
}

#[test]
fn chunks_that_come_one_by_one_are_no_wait_until_a_second_without_new_data() {
    let report = |data: u64| -> Report {
        let mut link = link(true, false);
        link["hop"]["data_received"] = json!(data);
        let report = json!({ "links": [link], "transfers": [transfer("flowing", false)] });
        serde_json::from_value(report).unwrap()
    };
    let mut watch = Watch::new(Subject::Answer);
    watch.since -= PATIENCE;
    for (data, waits) in [(10, false), (11, false), (11, true), (12, false)] {
        watch.read(&report(data), &|_| true);
        assert_eq!(watch.wait().is_some(), waits, "{data}");
    }
}

#[test]
fn a_pause_as_between_the_chunks_before_is_no_wait_unless_its_reason_is_known() {
    let report = |up: bool| -> Report {
        let transfers = [transfer("flowing", false)];
        serde_json::from_value(json!({ "links": [link(up, false)], "transfers": transfers }))
            .unwrap()
    };
    let mut watch = Watch::new(Subject::Answer);
    watch.progressed();
    watch.since -= Duration::from_secs(6);
    watch.progressed();
    for (idle_s, up, waits) in [(7, true, false), (7, false, true), (13, true, true)] {
        watch.since = Instant::now() - Duration::from_secs(idle_s);
        watch.read(&report(up), &|_| true);
        assert_eq!(watch.wait().is_some(), waits, "{idle_s}");
    }
}

#[test]
fn a_transfer_that_has_begun_does_not_wait_for_the_name_server_at_once() {
    let mut pausing = transfer("flowing", false);
    pausing["idle_s"] = json!(1.4);
    let mut kept = transfer("requested", true);
    kept["kept_s"] = json!(0.3);
    let up = json!([link(true, false)]);
    let line = text(Some("unreachable"), up.clone(), json!([pausing]));
    assert_eq!(line, "no data for 1 s");
    let line = text(Some("registered"), up, json!([kept]));
    assert_eq!(line, "asked 192.0.2.7:4711, no answer for 41 s");
}

#[test]
fn large_packets_that_vanish_while_something_is_waited_for_are_the_reason() {
    let report = |falls: u64| -> Report {
        let mut link = link(true, false);
        link["hop"]["mtu_falls"] = json!(falls);
        let report = json!({ "links": [link], "transfers": [transfer("stalled", false)] });
        serde_json::from_value(report).unwrap()
    };
    let mut watch = Watch::new(Subject::Answer);
    watch.since -= PATIENCE;
    watch.read(&report(2), &|_| true);
    assert_eq!(watch.wait(), Some(&Wait::Stalled { for_s: 41 }));
    watch.read(&report(3), &|_| true);
    assert!(matches!(
        watch.wait(),
        Some(Wait::Mtu {
            largest_frame: 1452,
            ..
        })
    ));
}

#[test]
fn a_sender_is_missing_only_since_the_host_is_connected() {
    let report = |up: bool| -> Report {
        serde_json::from_value(json!({ "links": [link(up, false)] })).unwrap()
    };
    let mut watch = Watch::new(Subject::Sender(7));
    watch.since -= Duration::from_secs(50);
    watch.read(&report(false), &|_| false);
    assert!(matches!(watch.wait(), Some(Wait::NotConnected { .. })));
    watch.read(&report(true), &|_| false);
    watch.host_ready = watch.host_ready.map(|at| at - Duration::from_secs(20));
    watch.read(&report(true), &|_| false);
    let wait = watch.wait().unwrap();
    assert!(
        matches!(
            wait,
            Wait::NoSender {
                number: 7,
                for_s: 20..50,
                ..
            }
        ),
        "{wait}"
    );
    assert!(wait.to_string().contains("asked 192.0.2.7:4711"), "{wait}");
    watch.read(&report(false), &|_| false);
    watch.read(&report(true), &|_| false);
    assert!(matches!(
        watch.wait(),
        Some(Wait::NoSender { for_s: 0..20, .. })
    ));
}

#[test]
fn a_link_that_the_host_has_shut_is_no_silent_neighbour() {
    for (why, says) in [("quota", "quota is used up"), ("off", "switched off")] {
        for up in [true, false] {
            let mut link = link(up, false);
            link["label"] = json!("lte");
            let report = json!({ "links": [link], "shut": { "lte": why } });
            let waits = waits_in(&report.to_string());
            let (_, wait) = waits.first().unwrap();
            let text = wait.to_string();
            assert!(text.contains(says) && !text.contains("no answer"), "{text}");
        }
    }
}

#[test]
fn only_another_reason_counts_as_a_change() {
    let one = Wait::Stalled { for_s: 3 };
    assert!(one.is_same_reason(&Wait::Stalled { for_s: 4 }));
    let refused = |refused| Wait::NotConnected {
        to: vec![Tried {
            no_way: false,
            peer: "a".into(),
            refused,
            unwilling: None,
            shut: None,
        }],
        for_s: 1,
    };
    assert!(refused(true).is_same_reason(&refused(true)));
    assert!(!refused(true).is_same_reason(&refused(false)));
}

#[test]
fn a_report_that_is_none_gives_no_reason() {
    assert!(waits_in("{}").is_empty());
    assert!(waits_in("nonsense").is_empty());
}
