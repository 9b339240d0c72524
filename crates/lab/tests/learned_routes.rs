//! Networks of routers without a typed route, in virtual time.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::path::Path;

use whimbrel_lab::scenario::run::Run;
use whimbrel_lab::scenario::{Overrides, Scenario, sim};

fn run(text: &str) -> Run {
    let scenario = Scenario::parse(Path::new("a.toml"), text, Overrides::default())
        .unwrap_or_else(|faults| panic!("{faults}"));
    let plan = &scenario.settings[0].plan;
    sim::run(plan, plan.seed).unwrap()
}

/// Five routers in a ring; the server is at `a`, the client at `c`.
fn ring() -> String {
    let mut text = String::from("limit = \"5 min\"\nseed = 3\n[nodes]\n");
    let routers = ["a", "b", "c", "d", "e"];
    for router in routers {
        text +=
            &format!("{router} = {{ role = \"router\", router = {{ routing = \"learned\" }} }}\n");
    }
    text += "server = \"host\"\nclient = \"host\"\nnames = \"name-server\"\n[links]\n";
    for (at, router) in routers.iter().enumerate() {
        let next = routers[(at + 1) % 5];
        text += &format!(
            "{router}-{next} = {{ between = [\"{router}\", \"{next}\"], rate = \"20 Mbit/s\", delay = \"5 ms\" }}\n\
             {router}-names = {{ between = [\"{router}\", \"names\"], rate = \"100 Mbit/s\" }}\n"
        );
    }
    text += "server-a = { between = [\"server\", \"a\"], rate = \"100 Mbit/s\" }\n\
             client-c = { between = [\"client\", \"c\"], rate = \"100 Mbit/s\" }\n\
             [loads.film]\nfrom = \"server\"\nto = \"client\"\nfile = \"10 MB\"\n";
    text
}

#[test]
fn a_file_crosses_five_routers_without_a_route() {
    let got = run(&ring());
    let value = |name: &str| got.values[name];
    assert_eq!((value("film.files"), value("film.bytes")), (1.0, 1e7));
    // By the shorter way.
    assert!(value("links.a-b.bytes") > 1e7, "{:?}", got.values);
    assert!(value("links.d-e.bytes") < 1e6, "{:?}", got.values);
}
