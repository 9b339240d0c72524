//! `whimbrel lab`: one file, both back ends, and their results.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]
#![allow(clippy::disallowed_methods, reason = "runs in real time")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const RANDOM_GRAPH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/scenarios/random-graph.toml"
);

fn whimbrel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_whimbrel"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a scenario and returns its summary by metric.
fn run(file: &str, backend: &str, folder: &Path) -> impl Fn(&str) -> f64 + use<> {
    let folder = folder.to_str().unwrap();
    let output = whimbrel(&[
        "lab",
        "run",
        file,
        "--backend",
        backend,
        "-o",
        folder,
        "--json",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["summary"].as_array().unwrap().clone();
    move |metric| {
        let row = rows.iter().find(|row| row["metric"] == metric);
        row.unwrap_or_else(|| panic!("{metric} is not in {rows:?}"))["mean"]
            .as_f64()
            .unwrap()
    }
}

#[test]
fn a_run_that_is_killed_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("results");
    let journal = folder.path().join("results.unfinished.jsonl");
    let arguments = [
        "lab",
        "run",
        RANDOM_GRAPH,
        "--runs",
        "8",
        "--jobs",
        "1",
        "-o",
        output.to_str().unwrap(),
    ];
    let mut first = Command::new(env!("CARGO_BIN_EXE_whimbrel"))
        .args(arguments)
        .spawn()
        .unwrap();
    let kept = || std::fs::read_to_string(&journal).unwrap_or_default();
    while kept().lines().count() < 3 {
        assert!(first.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(!output.exists());

    let resumed = |more: &[&str]| {
        let arguments = [&arguments[..], &["--resume"], more].concat();
        whimbrel(&arguments)
    };
    let refused = resumed(&["--seed", "9"]);
    let error = text(&refused.stderr);
    assert!(error.contains("run without --resume"), "{error}");
    let taken_up = resumed(&[]);
    let said = text(&taken_up.stderr);
    assert!(taken_up.status.success(), "{said}");
    assert!(said.contains("finished runs are not repeated"), "{said}");
    assert!(output.join("index.html").exists());
    assert!(!journal.exists());
}

#[test]
fn results_replace_no_other_files_and_a_load_that_is_cut_off_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("scenario.toml");
    let cut_off = std::fs::read_to_string(RANDOM_GRAPH)
        .unwrap()
        .replace("limit = \"2 min\"", "limit = \"700 ms\"");
    std::fs::write(&scenario, &cut_off).unwrap();
    let run = |output: &Path| {
        let (file, output) = (scenario.to_str().unwrap(), output.to_str().unwrap());
        whimbrel(&["lab", "run", file, "-o", output])
    };
    let refused = run(folder.path());
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("not the results of an earlier run"));
    assert_eq!(std::fs::read_to_string(&scenario).unwrap(), cut_off);

    for _ in 0..2 {
        let done = run(&folder.path().join("results"));
        assert!(done.status.success(), "{}", text(&done.stderr));
        let line = "file: not all files within the limit, in 1 of 1 runs";
        assert!(text(&done.stdout).contains(line), "{}", text(&done.stdout));
    }
}

/// Both files arrive, and the one behind the outage stalls for its duration.
fn assert_arrived(metric: impl Fn(&str) -> f64) {
    assert_eq!((metric("file.files"), metric("film.files")), (1.0, 1.0));
    assert_eq!((metric("file.bytes"), metric("film.bytes")), (4e6, 1e6));
    assert!(metric("file.stall") >= 0.9, "{}", metric("file.stall"));
}

#[test]
fn a_random_graph_runs_in_virtual_time_and_leaves_a_page() {
    let folder = tempfile::tempdir().unwrap();
    assert_arrived(run(RANDOM_GRAPH, "sim", folder.path()));
    let files = [
        "index.html",
        "result.json",
        "runs.csv",
        "summary.csv",
        "scenario.toml",
    ];
    let pictures = [
        "topology.svg",
        "topology.png",
        "transfers.svg",
        "transfers.png",
    ];
    for file in files.into_iter().chain(pictures) {
        let length = std::fs::metadata(folder.path().join(file)).unwrap().len();
        assert!(length > 100, "{file} has {length} bytes");
    }
    let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
    assert!(page.contains("A file and a film over a random graph") && page.contains("last out"));
    // The same file and seed give the same numbers.
    let again = tempfile::tempdir().unwrap();
    drop(run(RANDOM_GRAPH, "sim", again.path()));
    let read = |folder: &Path| std::fs::read(folder.join("result.json")).unwrap();
    assert!(read(folder.path()) == read(again.path()));
}

#[test]
fn the_same_random_graph_runs_in_namespaces() {
    if !whimbrel_lab::lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    assert_arrived(run(RANDOM_GRAPH, "netns", folder.path()));
}

#[test]
fn links_of_bare_ip_and_udp_are_mixed_on_one_path_in_both_back_ends() {
    if !whimbrel_lab::lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mixed.toml");
    let scenario = r#"
        limit = "60 s"
        nodes = { server = "host", n2 = "router", n3 = "router", client = "host", names = "name-server" }
        loads.film = { from = "server", to = "client", file = "4 MB" }
        [links]
        gnrs = { between = ["n2", "names"], rate = "50 Mbit/s" }
        wire = { between = ["server", "n2"], rate = "50 Mbit/s", carrier = "ip" }
        core = { between = ["n2", "n3"], rate = "50 Mbit/s", delay = "5 ms", carrier = "ip" }
        wifi = { between = ["n3", "client"], rate = "20 Mbit/s", delay = "1 ms", loss = "1 %" }
    "#;
    std::fs::write(&file, scenario).unwrap();
    for backend in ["sim", "netns"] {
        let out = folder.path().join(backend);
        let metric = run(file.to_str().unwrap(), backend, &out);
        assert_eq!((metric("film.files"), metric("film.bytes")), (1.0, 4e6));
    }
}

/// A consumer between two producers of the same file: real daemons find a path to each, and both carry a good part.
#[test]
fn mirrors_serve_the_same_segments_over_several_paths() {
    if !whimbrel_lab::lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mirrors.toml");
    let scenario = r#"
        limit = "60 s"
        metrics = ["links.left.backward", "links.right.backward"]

        [nodes]
        consumer = "ndn-router"
        one = "ndn-router"
        other = "ndn-router"

        [defaults.node]
        content_store = "0 B"

        [links]
        left = { between = ["consumer", "one"], rate = "4 Mbit/s", delay = "5 ms" }
        right = { between = ["consumer", "other"], rate = "4 Mbit/s", delay = "5 ms" }

        [routes]
        choose = "equal"
        by = "hops"

        [loads.film]
        from = "one"
        mirrors = ["other"]
        to = "consumer"
        file = "2 MB"
        segment = "1024 B"
        multipath = { paths = 4 }
    "#;
    std::fs::write(&file, scenario).unwrap();
    let file = file.to_str().unwrap();
    for backend in ["sim", "netns"] {
        let metric = run(file, backend, &folder.path().join(backend));
        for link in ["links.left.backward", "links.right.backward"] {
            let octets = metric(link);
            assert!(octets > 400_000.0, "{backend}: {octets} over {link}");
        }
    }
}

/// TCP through proxies between which there are two paths, one of which swallows everything in the middle: the connections share both,
/// and then the other one.
#[test]
fn tcp_connections_go_on_over_another_path() {
    if !whimbrel_lab::lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let guide =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios/tcp-two-paths.toml");
    let scenario = std::fs::read_to_string(guide).unwrap();
    let (head, _) = scenario.split_once("[sweep.paths]").unwrap();
    let head = head
        .replace("5 MB", "1 MB")
        .replace("count = 6", "count = 4")
        .replace("server = \"b\" }", "server = \"b\", paths = 2 }");
    let fault = "[[events]]\nat = \"2500 ms\"\noutage = \"upper-2\"\nduration = \"60 s\"\n";
    let file = folder.path().join("paths.toml");
    std::fs::write(&file, format!("{head}{fault}")).unwrap();
    for backend in ["sim", "netns"] {
        let out = folder.path().join(backend);
        let metric = run(file.to_str().unwrap(), backend, &out);
        assert_eq!((metric("files.files"), metric("files.bytes")), (4.0, 4e6));
        for link in ["links.upper-1.backward", "links.lower-1.backward"] {
            let octets = metric(link);
            assert!(octets > 100_000.0, "{backend}: {octets} over {link}");
        }
        let completion = metric("files.completion");
        assert!(
            completion < 55.0,
            "{backend}: it waits for the path's return"
        );
    }
}

/// A file for a group of three behind two routers: once on the link of the source, on both back ends.
#[test]
fn a_group_gets_a_file_once_over_each_link() {
    const GROUP: &str = r#"
graph = { role = "router", leaf_role = "host", tree = { branches = [2, 2] }, link = { rate = "50 Mbit/s", delay = "1 ms" } }
nodes = { source = "host", names = "name-server" }
loads.film = { from = "source", to = "n4..n6", start = "1 s", service = "multicast", push = { size = "1 MB", count = 1 } }
limit = "1 min"
metrics = ["film.*", "links.uplink.forward"]
[links]
uplink = { between = ["source", "n1"], rate = "50 Mbit/s" }
n1-names = { between = ["n1", "names"], rate = "50 Mbit/s" }
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("group.toml");
    std::fs::write(&file, GROUP).unwrap();
    let backends = match whimbrel_lab::lab_available() {
        true => ["sim", "netns"].as_slice(),
        false => &["sim"],
    };
    for backend in backends {
        let out = folder.path().join(backend);
        let metric = run(file.to_str().unwrap(), backend, &out);
        for receiver in ["n4", "n5", "n6"] {
            assert_eq!(metric(&format!("film.{receiver}.bytes")), 1e6, "{backend}");
        }
        let sent = metric("links.uplink.forward");
        assert!((1e6..1.2e6).contains(&sent), "{backend}: {sent}");
    }
}

/// `scripts/paths` at a size that takes seconds: two routers, veth pairs behind token buckets. The script compares the
/// bytes.
#[test]
fn a_file_comes_over_real_paths_while_one_fails_and_one_slows_down() {
    if !whimbrel_lab::lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/paths");
    let output = Command::new(script)
        .env("PROGRAM", env!("CARGO_BIN_EXE_whimbrel"))
        .env("FOLDER", folder.path())
        .envs([("SIZE", "12M"), ("PATHS", "3"), ("RATE", "20")])
        .env("RUNS", "auto faults")
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert_eq!(said.matches("bytes equal").count(), 2, "{said}");
    let faults = said.split("faults ").nth(1).unwrap_or_default();
    assert!(
        faults.contains("path-left") && faults.contains("failed"),
        "the report says what became of the path: {said}"
    );
}

/// `scripts/branches` at a size that takes seconds: it compares the bytes, and must count the processes themselves and not
/// what started them.
#[test]
fn the_cost_of_dividing_a_flow_is_counted_where_it_arises() {
    if !whimbrel_lab::lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/branches");
    let output = Command::new(script)
        .env("PROGRAM", env!("CARGO_BIN_EXE_whimbrel"))
        .env("FOLDER", folder.path())
        .envs([("SIZE", "30M"), ("TIMES", "1"), ("RATE", "200")])
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert_eq!(said.matches("(router ").count(), 4, "{said}");
    assert!(said.contains("medians: "), "{said}");
    for nothing in ["router 0.00", "client 0.00"] {
        assert!(!said.contains(nothing), "{said}");
    }
}

#[test]
fn the_sample_has_ten_lines_and_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let sample = whimbrel(&["lab", "sample"]);
    assert_eq!(text(&sample.stdout).lines().count(), 10);
    let file = folder.path().join("film.toml");
    std::fs::write(&file, &sample.stdout).unwrap();
    let file = file.to_str().unwrap();
    let checked = whimbrel(&["lab", "check", file]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let said = text(&checked.stdout);
    assert!(said.contains("3 nodes, 2 links"));
    assert!(
        said.contains("--backend sim\n") && said.contains("--backend netns\n"),
        "{said}"
    );
    let metric = run(file, "sim", &folder.path().join("out"));
    assert_eq!(metric("film.files"), 1.0);
    assert!(metric("film.stall") > 2.9);
}

#[test]
fn the_documents_show_the_sample_as_it_is() {
    for document in ["README.md", "docs/scenarios.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(document);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(whimbrel_lab::scenario::SAMPLE), "{document}");
    }
}

#[test]
fn the_documents_scenarios_can_be_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios");
    let guide = std::fs::read_to_string(folder.with_extension("md")).unwrap();
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            guide.contains(name),
            "docs/scenarios.md does not tell of {name}"
        );
        let output = whimbrel(&["lab", "check", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("--backend netns\n"), "{name}");
        checked += 1;
    }
    assert!(checked > 0);
}

#[test]
fn errors_name_file_line_and_key_and_exit_with_the_usage_code() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("film.toml");
    let sample = text(&whimbrel(&["lab", "sample"]).stdout);
    std::fs::write(
        &file,
        sample.replace("outage = \"wifi\"", "outage = \"wify\""),
    )
    .unwrap();
    for command in ["check", "run"] {
        let output = whimbrel(&["lab", command, file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        let wanted = "film.toml:9: events[0].outage: there is no link 'wify'; did you mean 'wifi'?";
        assert!(said.contains(wanted), "{said}");
    }
    let missing = whimbrel(&["lab", "check", "/nowhere/film.toml"]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn a_paper_s_values_are_shown_beside_ours_over_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sweep.toml");
    let sample = text(&whimbrel(&["lab", "sample"]).stdout);
    let text = format!(
        "{sample}[sweep]\n\"links.wifi.rate\" = [\"10 Mbit/s\", \"20 Mbit/s\"]\n\
         [[statements]]\nsource = \"[MFTP §5.2]\"\nsays = \"twice the rate, not twice as fast\"\n\
         metric = \"film.goodput\"\nat = {{ \"links.wifi.rate\" = \"20 Mbit/s\" }}\n\
         relative_to = {{ \"links.wifi.rate\" = \"10 Mbit/s\" }}\nvalue = 1.5\ntolerance = 0.4\n"
    );
    std::fs::write(&file, text).unwrap();
    let out = folder.path().join("out");
    let output = whimbrel(&[
        "lab",
        "run",
        file.to_str().unwrap(),
        "-o",
        out.to_str().unwrap(),
        "--runs",
        "2",
    ]);
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("agrees") && said.contains("links.wifi.rate = 20 Mbit/s"),
        "{said}"
    );
    assert!(out.join("film-goodput.svg").exists());
    let runs = std::fs::read_to_string(out.join("runs.csv")).unwrap();
    assert_eq!(runs.lines().count(), 5);
    assert!(
        runs.starts_with("links.wifi.rate,run,seed,film.completion,"),
        "{runs}"
    );
}

#[test]
fn pages_and_flows_run_in_namespaces_and_unsupported_loads_are_refused_by_name() {
    if !whimbrel_lab::lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loads.toml");
    let text = r#"
nodes = { a = "host", r = ["router", "ndn-router"], s = "ndn-router", b = "host" }
limit = "1 min"
[links]
ar = { between = ["a", "r"], rate = "50 Mbit/s", delay = "2 ms" }
rb = { between = ["r", "b"], rate = "50 Mbit/s", delay = "2 ms" }
rs = { between = ["r", "s"], rate = "50 Mbit/s", delay = "2 ms", loss = "1 %" }
[loads]
web = { from = "a", to = "b", over = "tcp", page = { objects = 5, size = "20 kB", parallel = 2 } }
page = { from = "s", to = "r", page = { objects = 3, size = "50001 B", parallel = 2 } }
flows = { from = "a", to = "b", flows = { size = "100 kB", per_second = 10, count = 3 } }
"#;
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let metric = run(path, "netns", &folder.path().join("out"));
    for (load, files, bytes) in [
        ("web", 5.0, 100_000.0),
        ("page", 3.0, 150_003.0),
        ("flows", 3.0, 300_000.0),
    ] {
        let found = (
            metric(&format!("{load}.files")),
            metric(&format!("{load}.bytes")),
        );
        assert_eq!(found, (files, bytes), "{load}");
    }
    std::fs::write(
        &file,
        text.replace(
            "page = { objects = 3, size = \"50001 B\", parallel = 2 }",
            "bulk = true",
        ),
    )
    .unwrap();
    let checked = whimbrel(&["lab", "check", path]);
    let said = self::text(&checked.stdout);
    assert!(
        said.contains("runs with --backend sim") && said.contains("loads.page.bulk: the back end"),
        "{said}"
    );
    let refused = whimbrel(&["lab", "run", path, "--backend", "netns"]);
    let said = self::text(&refused.stderr);
    assert!(
        said.contains("loads.toml:10: loads.page.bulk: the back end 'netns' does not run 'page'"),
        "{said}"
    );
    assert_eq!(refused.status.code(), Some(2));
}

/// Interests at a rate, a load without end on each plane that has one, and a content store that is
/// emptied.
#[test]
fn rates_bulk_and_emptied_caches_run_in_namespaces() {
    if !whimbrel_lab::lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rates.toml");
    let text = r#"
nodes = { a = ["host", "ndn-router"], r = ["router", "ndn-router"], b = ["host", "ndn-router"] }
limit = "1 min"
defaults.link = { rate = "50 Mbit/s", delay = "2 ms" }
links.ar = { between = ["a", "r"] }
links.rb = { between = ["r", "b"], loss = "1 %" }
events = [{ at = "1 s", empty_cache = "r" }]
[loads]
asked = { from = "a", to = "b", over = "ndn", cbr = { rate = 200, count = 400, payload = 500 } }
drawn = { from = "b", to = "a", over = "ndn", poisson = { rate = 100, count = 200 } }
endless = { from = "a", to = "b", over = "tcp", bulk = true }
chunks = { from = "a", to = "b", over = "mobility-first", bulk = true }
"#;
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let metric = run(path, "netns", &folder.path().join("out"));
    for (load, answered, seconds) in [("asked", 400.0, 2.0), ("drawn", 200.0, 1.2)] {
        let of = |name: &str| metric(&format!("{load}.{name}"));
        assert_eq!(of("answered"), answered);
        // Two links of 2 ms, there and back; and the rate bounds the time from below.
        assert!(of("delay") >= 8.0 && of("completion") >= seconds, "{load}");
    }
    for load in ["endless", "chunks"] {
        assert!(metric(&format!("{load}.bytes")) > 1e5, "{load}");
    }
    // The same file in virtual time.
    let simulated = run(path, "sim", &folder.path().join("sim"));
    assert_eq!(simulated("asked.answered"), 400.0);
}

#[test]
fn a_load_that_would_start_after_the_limit_never_begins() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("late.toml");
    let sample = text(&whimbrel(&["lab", "sample"]).stdout);
    let text = format!("limit = \"3 s\"\n{sample}")
        .replace("10 MB\" }", "100 kB\" }\nloads.late = { from = \"server\", to = \"client\", file = \"1 kB\", start = \"2 min\" }");
    std::fs::write(&file, text).unwrap();
    let backends = match whimbrel_lab::lab_available() {
        true => ["sim", "netns"].as_slice(),
        false => &["sim"],
    };
    for backend in backends {
        let begun = std::time::Instant::now();
        let metric = run(
            file.to_str().unwrap(),
            backend,
            &folder.path().join(backend),
        );
        assert_eq!(
            (metric("film.files"), metric("late.files")),
            (1.0, 0.0),
            "{backend}"
        );
        assert!(begun.elapsed().as_secs() < 60, "{backend}");
    }
}

/// A queue with CoDel (RFC 8289) marks the frames of hops, which answer by sending less: it has
/// nothing to drop.
#[test]
fn a_queue_that_marks_drops_nothing() {
    const MARKS: &str = r#"
nodes = { server = "host", n2 = "router", client = "host" }
loads.film = { from = "server", to = "client", file = "10 MB" }
limit = "1 min"
metrics = ["film.bytes", "film.goodput", "links.wifi.marked", "links.wifi.dropped"]
[links]
wire = { between = ["server", "n2"], rate = "100 Mbit/s" }
wifi = { between = ["n2", "client"], rate = "20 Mbit/s", delay = "20 ms", queue = "500 kB", codel = "2 ms" }
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("marks.toml");
    std::fs::write(&file, MARKS).unwrap();
    let backends = match whimbrel_lab::lab_available() {
        true => ["sim", "netns"].as_slice(),
        false => &["sim"],
    };
    for backend in backends {
        let out = folder.path().join(backend);
        let metric = run(file.to_str().unwrap(), backend, &out);
        assert_eq!(metric("film.bytes"), 1e7, "{backend}");
        let (marked, dropped) = (metric("links.wifi.marked"), metric("links.wifi.dropped"));
        assert!(
            marked > 0.0 && dropped == 0.0,
            "{backend}: {marked} marked, {dropped} dropped"
        );
        let goodput = metric("film.goodput");
        println!("{backend}: {marked} marked, {goodput:.2} Mbit/s");
    }
}

#[test]
fn attacks_are_on_real_daemons_and_what_they_draw_is_counted() {
    if !whimbrel_lab::lab_available() {
        return;
    }
    let attacks = ["reflector", "web-page"];
    let mut arguments = vec!["lab", "attack", "--json", "--for", "2s"];
    arguments.extend(["--rate", "5Mbit/s", "--wire", "300Mbit/s"]);
    arguments.extend(attacks);
    let output = whimbrel(&arguments);
    // 10: on a busy machine rates fall by themselves.
    assert!(
        matches!(output.status.code(), Some(0 | 10)),
        "{}",
        text(&output.stderr)
    );
    let findings = text(&output.stdout);
    let findings: Vec<Value> = findings
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(findings.len(), attacks.len());
    for (finding, name) in findings.iter().zip(attacks) {
        assert_eq!(finding["name"], name);
        let sent = &finding["sent"];
        assert!(sent["packets"].as_u64() > Some(0), "{finding}");
        assert!(
            sent["drawn"].as_u64() <= sent["octets"].as_u64(),
            "{finding}"
        );
        assert_eq!(sent["obeyed"], false, "{finding}");
        // Honest users were there.
        let before = &finding["samples"][0];
        assert!(before["rate"].as_f64() > Some(0.0), "{finding}");
        assert!(before["newcomers"].as_u64() > Some(0), "{finding}");
        assert!(name == "web-page" || before["rate"].as_f64() < Some(3e8));
    }
    for wrong in [["--rate", "0"], ["--wire", "1Mbit/s"]] {
        let none = whimbrel(&[&["lab", "attack"], &wrong[..]].concat());
        assert_eq!(none.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_check_says_in_plain_words_what_a_key_takes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("faults.toml");
    let sound = text(&whimbrel(&["lab", "sample"]).stdout);
    let statement = "\n[[statements]]\nsource = \"[MFTP §5.1]\"\nsays = \"x\"\nmetric = \"film.goodput\"\nvalue = 1\ntolerance = 1\n";
    let check = |scenario: String| {
        std::fs::write(&file, scenario).unwrap();
        let output = whimbrel(&["lab", "check", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr) + &text(&output.stdout)
    };
    for nodes in [r#"["server"]"#, r#"["server", "router", "client"]"#] {
        let between = format!("between = {nodes}");
        let ends = sound.replace(r#"between = ["server", "router"]"#, &between);
        assert_ne!(ends, sound);
        let said = check(ends);
        assert!(
            said.contains("between: ") && said.contains(r#"expected two nodes, as in ["a", "b"]"#),
            "{said}"
        );
    }
    for key in ["at", "relative_to"] {
        let said = check(format!("{sound}{statement}{key} = \"p.median\"\n"));
        assert!(
            said.contains(&format!("statements[0].{key}: "))
                && said.contains(
                    "expected a table of settings, as in { \"links.wifi.loss\" = \"1 %\" }"
                ),
            "{said}"
        );
    }
    let help = text(&whimbrel(&["lab", "check", "--help"]).stdout);
    assert!(help.contains("the first errors that it finds"), "{help}");
}
