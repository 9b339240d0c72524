//! Every study, up to its pages, at a size that takes no time. The results are not judged here.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::Path;

use whimbrel_lab::study::{
    Backend, Comparison, STUDIES, Study, StudyOptions, StudyResult, write_pages, write_result,
};

const LAST_HOP: &str =
    "rate = \"54 Mbit/s\"\ndelay = \"1 us\"\nqueue = \"2000 packets\"\noverhead = 1156\n";

/// A small instance of a study of recovery on links.
fn belrp_scenario(study: &str) -> String {
    let load = |name: &str, from: &str, to: &str, rate: u32| {
        format!(
            "[loads.{name}]\nfrom = \"{from}\"\nto = \"{to}\"\n\
             poisson = {{ rate = {rate}, count = 120, lifetime = \"600 ms\" }}\n"
        )
    };
    let link = "delay = \"5 ms\"\nqueue = \"80 packets\"\noverhead = 2\ncarrier = \"bare\"\n\
                device = true\nmarking = false\n";
    let recovery = "[sweep.recovery]\n\
                    paper-3 = { \"defaults.link.recovery\" = \"paper-3\" }\n\
                    paper-1 = { \"defaults.link.recovery\" = \"paper-1\" }\n\
                    none = { \"defaults.link.recovery\" = \"off\" }\n\
                    adaptive = { \"defaults.link.recovery\" = \"adaptive\" }\n";
    let loss = "[sweep]\n\"defaults.link.loss\" = [\"2 %\", \"5 %\"]\n";
    let line = format!(
        "graph = {{ role = \"ndn-router\", prefix = \"N\", line = {{ nodes = 3 }} }}\n\
         limit = \"60 s\"\nlinger = \"1 s\"\n\
         [defaults.link]\nrate = \"10 Mbit/s\"\n{link}"
    );
    match study {
        "belrp-linear" => format!(
            "{line}{}{loss}{recovery}[study]\ndistribution = \"5 %\"\n",
            load("prefix-a", "N3", "N1", 900)
        ),
        "belrp-hops" => format!(
            "{line}loss = \"5 %\"\n{}[sweep.hops]\n\
             1 = {{ \"graph.line.nodes\" = 2, \"loads.prefix-a.from\" = \"N2\" }}\n\
             2 = {{ \"graph.line.nodes\" = 3, \"loads.prefix-a.from\" = \"N3\" }}\n{recovery}",
            load("prefix-a", "N2", "N1", 900)
        ),
        _ => format!(
            "nodes = {{ A = \"ndn-router\", B = \"ndn-router\", C = \"ndn-router\" }}\n\
             limit = \"60 s\"\nlinger = \"1 s\"\n\
             [defaults.link]\nrate = \"9.92 Mbit/s\"\n{link}\
             [links]\nB-A = {{ between = [\"B\", \"A\"] }}\nB-C = {{ between = [\"B\", \"C\"] }}\n\
             {}{}{loss}{recovery}[study]\nobserved = [\"A\", \"B\"]\n",
            load("prefix-a", "C", "A", 440),
            load("prefix-b", "B", "C", 440)
        ),
    }
}

/// Returns the scenario in a study's folder.
fn own_scenario(study: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../studies")
        .join(study)
        .join("scenario.toml");
    fs::read_to_string(file).unwrap()
}

/// Returns the lines of a scenario for which `kept` is true, each as `short` makes it.
fn shortened(text: &str, kept: impl Fn(&&str) -> bool, short: impl Fn(&str) -> String) -> String {
    let lines: Vec<String> = text.lines().filter(kept).map(short).collect();
    lines.join("\n") + "\n"
}

/// One of the studies of PTP, for seconds instead of minutes.
fn ptp_scenario(study: &str) -> String {
    let text = own_scenario(study);
    let short = |line: &str| match line.split_once(" = ") {
        Some(("runs", _)) => String::from("runs = 1"),
        Some(("limit", _)) => String::from("limit = \"8 s\""),
        Some(("warm_up", _)) => String::from("warm_up = \"2 s\""),
        Some(("start", _)) => String::from("start = \"2 s\""),
        Some(("segments", _)) => String::from("segments = 200"),
        _ => line.to_owned(),
    };
    // Of a hundred networks the smallest.
    let kept =
        |line: &&str| !line.contains("graph.seed") || line.contains("\"graph.waxman.nodes\" = 20,");
    shortened(&text, kept, short)
}

/// One of the studies of TCP over NDN, with files of some packets.
fn tcpicn_scenario(study: &str) -> String {
    let mut text = own_scenario(study);
    for large in [
        "50 MB", "20 MB", "10 MB", "4 MB", "3 MB", "125 kB", "1.25 MB", "12.5 MB", "62.5 MB",
    ] {
        text = text.replace(&format!("\"{large}\""), "\"30 kB\"");
    }
    text.replace("runs = 3", "runs = 2")
        .replace("runs = 5", "runs = 2")
}

/// One of the studies of multihoming, for a second instead of minutes.
fn multihoming_scenario(study: &str) -> String {
    let text = own_scenario(study);
    let short = |line: &str| match line.split_once(" = ") {
        Some(("runs", _)) => String::from("runs = 2"),
        Some(("limit", _)) => String::from("limit = \"3 s\""),
        Some(("file", _)) => String::from("file = \"1 MB\""),
        Some(("ping", _)) => String::from("ping = { count = 9, interval = \"50 ms\" }"),
        Some(("within", _)) => String::from("within = \"50 ms\""),
        _ => {
            let line = line.replace("2.5 s", "300 ms").replace("59 s", "2 s");
            line.replace("60 MB", "500 kB")
        }
    };
    // Of the cells, those of two kinds that make a map; of the twelve sites' files, one site's.
    let kept = |line: &&str| {
        let is_cell = line.starts_with('"') && line.matches('/').count() >= 2;
        let is_file = line.contains("-server\", to = ") && !line.starts_with("bbn = ");
        !is_file
            && (!is_cell || line.starts_with("\"chunk/1:20") || line.starts_with("\"others/uplink"))
    };
    shortened(&text, kept, short)
}

fn scenario(study: &str) -> String {
    if study.starts_with("multihoming-") || study.starts_with("mobility-") {
        return multihoming_scenario(study);
    }
    if study == "mftp-m2m" {
        return own_scenario(study);
    }
    if study == "mftp-multicast" {
        // Ten receivers of a short file.
        let kept = |line: &&str| {
            let left_out = ["\"30\"", "\"100", "\"0 %\"", "\"5 %\""];
            !left_out.iter().any(|begin| line.starts_with(begin))
        };
        let short = |line: &str| line.replace("4 MB", "200 kB");
        return shortened(&own_scenario(study), kept, short);
    }
    if study.starts_with("tcpicn-") {
        return tcpicn_scenario(study);
    }
    if study.starts_with("ptp-") {
        return ptp_scenario(study);
    }
    if study.starts_with("belrp-") {
        return belrp_scenario(study);
    }
    let net = format!(
        "nodes = {{ N1 = \"host\", N2 = \"router\", N3 = \"router\", N4 = \"host\", GNRS = \"name-server\" }}\n\
         [links]\nN2-GNRS = {{ between = [\"N2\", \"GNRS\"], rate = \"1 Gbit/s\" }}\n\
         N1-N2 = {{ between = [\"N1\", \"N2\"], rate = \"1 Gbit/s\" }}\n\
         N2-N3 = {{ between = [\"N2\", \"N3\"], rate = \"1 Gbit/s\", delay = \"25 ms\" }}\n\
         [links.N3-N4]\nbetween = [\"N3\", \"N4\"]\n{LAST_HOP}\
         [loads.film]\nfrom = \"N1\"\nto = \"N4\"\nfile = \"300 kB\"\n"
    );
    let tcp =
        ["N1", "N2", "N3", "N4", "GNRS"].map(|node| format!("\"nodes.{node}\" = \"tcp-host\"\n"));
    let tcp = format!(
        "[sweep.by.tcp]\n\"loads.film.over\" = \"tcp\"\n{}",
        tcp.concat()
    );
    if study == "mftp-fig8" {
        return format!(
            "runs = 2\n{net}\
             [sweep.loss]\n\"0 %\" = {{}}\n\"1 %\" = {{ \"links.N3-N4.loss\" = \"1 %\" }}\n\
             [sweep.rtt]\n\"10 ms\" = {{ \"links.N2-N3.delay\" = \"5 ms\" }}\n\"50 ms\" = {{}}\n\
             [sweep.by]\nmftp = {{}}\n{tcp}\
             [study]\ninstantaneous = {{ rtt = \"50 ms\", loss = \"1 %\" }}\n"
        );
    }
    let rival = if study == "mftp-fig9" {
        tcp.as_str()
    } else {
        "[sweep.by.receiver-driven]\n\"loads.film.nack_timer\" = \"500 ms\"\n\
         \"nodes.N3\" = { role = \"router\", proactive = false }\n"
    };
    let off = |seconds| {
        format!(
            "\"{seconds} s\" = {{ \"links.N3-N4.outages\" = [{{ start = \"1 s\", duration = \"{seconds} s\" }}] }}\n"
        )
    };
    format!(
        "runs = 2\n{net}within = \"1 s\"\n[netns]\nruns = 1\n\
         [sweep.wifi]\n\"one & only\" = {{}}\nother = {{}}\n\
         [sweep.off]\n{}{}[sweep.by]\nmftp = {{}}\n{rival}",
        off(10),
        off(30)
    )
}

fn run(study: &Study, folder: &Path) -> StudyResult {
    let file = folder.join(format!("{}.toml", study.name));
    fs::write(&file, scenario(study.name)).unwrap();
    let options = StudyOptions {
        backend: Backend::Sim,
        scenario: Some(file),
        runs: None,
        seed: 1,
        jobs: Some(3),
        program: "whimbrel".into(),
        journal: None,
    };
    let mut reports = Vec::new();
    let result = study
        .run(&options, &mut |done, all, _| reports.push((done, all)))
        .unwrap();
    let all = reports[0].1;
    assert!(
        all > 0 && (result.transfers.is_empty() || result.transfers.len() == all),
        "{}",
        study.name
    );
    assert_eq!(
        reports,
        (0..=all).map(|done| (done, all)).collect::<Vec<_>>()
    );
    result
}

#[test]
fn pages_show_both_back_ends_beside_the_paper() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("results");
    let studies: Vec<&Study> = STUDIES
        .iter()
        // Some have files of their own form.
        .filter(|study| {
            study.runs_on(Backend::Sim) && !["gnrs-scale", "gstar"].contains(&study.name)
        })
        .collect();
    for study in studies.iter().copied() {
        let simulated = run(study, folder.path());
        assert!(
            simulated
                .transfers
                .iter()
                .all(|transfer| transfer.record.completed),
            "{}",
            study.name
        );
        // Of some rows of a paper there are no numbers, but a table of ours.
        assert!(!simulated.tables.is_empty() || !simulated.comparisons.is_empty());
        write_result(&simulated, &root).unwrap();
        if !study.runs_on(Backend::Netns) {
            continue;
        }
        // Results of a run in namespaces have the same form.
        let measured = StudyResult {
            backend: Backend::Netns,
            machine: Some(String::from("Linux 0.0")),
            ..simulated.clone()
        };
        write_result(&measured, &root).unwrap();
    }
    let pages = write_pages(&root).unwrap();
    assert_eq!(pages.studies.len(), studies.len());
    let index = fs::read_to_string(&pages.index).unwrap();
    for ((name, path), study) in pages.studies.iter().zip(&studies) {
        let page = fs::read_to_string(path).unwrap();
        // A verdict and its reason precede everything else; numbers are in tables.
        let (verdicts, first) = (page.find("ul class=\"verdicts\""), page.find("<table"));
        assert!(verdicts.is_some() && verdicts < first, "{name}");
        assert!(page.contains("<th scope=\"col\">difference</th>"), "{name}");
        // The paper's numbers appear in a figure, too; some studies go beyond their paper, and some papers have
        // figures without numbers.
        let has_numbers = !matches!(
            study.name,
            "mftp-m2m"
                | "mftp-multicast"
                | "ptp-random"
                | "tcpicn-sim"
                | "tcpicn-fairness"
                | "tcpicn-grid"
                | "tcpicn-duplex"
                | "multihoming-throughput"
                | "multihoming-grid"
                | "multihoming-wide"
                | "mobility-handoff"
        );
        assert_eq!(page.contains("circles: the paper"), has_numbers, "{name}");
        assert!(!page.contains(" (paper "), "{name}: numbers in a sentence");
        for column in ["The paper", "Simulator", "Reasons for differences"] {
            assert!(
                page.contains(&format!("role=\"columnheader\">{column}")),
                "{name}: {column}"
            );
        }
        let in_namespaces = study.runs_on(Backend::Netns);
        assert_eq!(
            page.contains("role=\"columnheader\">Namespaces"),
            in_namespaces,
            "{name}"
        );
        assert_eq!(page.contains("Linux 0.0"), in_namespaces, "{name}");
        let has_transfers = study.name.starts_with("mftp-fig") || study.name == "tcpicn-sim";
        assert_eq!(page.contains("flent"), has_transfers, "{name}");
        // The simulator has neither ICMP nor Multipath TCP nor programs of IP multicast.
        let is_whole = !matches!(
            study.name,
            "mftp-multicast" | "multihoming-ping" | "multihoming-throughput" | "multihoming-grid"
        );
        assert!(!page.contains("not run yet"), "{name}");
        assert_ne!(page.contains("not measured"), is_whole, "{name}");
        assert!(page.contains("--backend sim --seed 1"), "{name}");
        assert!(
            page.contains("<svg role=\"img\" aria-label=\"") && page.contains(study.title),
            "{name}"
        );
        for remote in ["src=", "href=\"http", "url(", "@import", "<script"] {
            assert!(!page.contains(remote), "{name} has {remote}");
        }
        assert!(index.contains(&format!("href=\"{name}.html\"")));
    }
    let fig9 = fs::read_to_string(root.join("mftp-fig9.html")).unwrap();
    assert!(
        fig9.contains("one &amp; only") && !fig9.contains("one & only"),
        "text is escaped"
    );
}

#[test]
fn a_page_names_missing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let study = Study::find("mftp-fig10").unwrap();
    write_result(&run(study, folder.path()), folder.path()).unwrap();
    let pages = write_pages(folder.path()).unwrap();
    assert_eq!(pages.studies.len(), 1);
    let page = fs::read_to_string(&pages.studies[0].1).unwrap();
    assert!(
        page.contains("whimbrel study run mftp-fig10 --backend netns"),
        "the command that fills the column"
    );
    assert!(
        fs::read_to_string(&pages.index)
            .unwrap()
            .contains("whimbrel study run mftp-fig8 --backend sim")
    );
}

#[test]
fn a_simulated_study_leaves_the_same_files_however_many_run_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let study = Study::find("mftp-fig9").unwrap();
    let [first, second] = ["a", "b"].map(|name| {
        let root = folder.path().join(name);
        let written = write_result(&run(study, folder.path()), &root).unwrap();
        let flent = written.join("flent/wifi-1-off-10s-tcp-run-01.flent.gz");
        ["result.json", "response-times.csv"]
            .map(|file| fs::read(written.join(file)).unwrap())
            .into_iter()
            .chain([fs::read(flent).unwrap()])
            .collect::<Vec<_>>()
    });
    assert!(first == second);
}

#[test]
fn a_result_of_another_version_is_refused_with_that_reason() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("mftp-fig8/sim");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("result.json"), "{}").unwrap();
    let error = write_pages(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("result.json") && error.contains("run the study again"),
        "{error}"
    );
}

#[test]
fn the_studies_of_recovery_on_links_leave_the_same_files_each_time() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["belrp-linear", "belrp-hops", "belrp-abilene"] {
        let study = Study::find(name).unwrap();
        let [first, second] = ["a", "b"].map(|root| {
            let written =
                write_result(&run(study, folder.path()), &folder.path().join(root)).unwrap();
            ["result.json", "trace-hashes.csv", "traffic.csv"]
                .map(|file| fs::read(written.join(file)).unwrap())
        });
        assert!(first == second, "{name}");
        let hashes = String::from_utf8(first[1].clone()).unwrap();
        assert_eq!(
            hashes.lines().count(),
            1 + 2 * 4,
            "a hash of each kind of run: {hashes}"
        );
    }
}

/// Runs the small study of a line with this text at its end.
fn run_line(more: &str, folder: &Path) -> Result<StudyResult, String> {
    let file = folder.join("line.toml");
    let sweep = "adaptive = { \"defaults.link.recovery\" = \"adaptive\" }\n";
    let own = "paper-3-first-ack = { \"defaults.link.recovery\" = \"paper-3\", \"defaults.link.later_acks\" = 1 }\n";
    let text = belrp_scenario("belrp-linear").replace(sweep, &format!("{sweep}{own}"));
    fs::write(&file, text + more).unwrap();
    let options = StudyOptions {
        backend: Backend::Sim,
        scenario: Some(file),
        runs: None,
        seed: 1,
        jobs: Some(2),
        program: "whimbrel".into(),
        journal: None,
    };
    let ran = Study::find("belrp-linear")
        .unwrap()
        .run(&options, &mut |_, _, _| {});
    ran.map_err(|error| error.to_string())
}

const READINGS: &str = "\n[[study.readings]]\nname = \"first-ack\"\ntitle = \"<one> ACK\"\nevidence = \"Fig. 3\"\n\
     [[study.readings]]\nname = \"ideal\"\ntitle = \"20 octets\"\nevidence = \"Table II\"\nideal_octets = 20\nshown = true\n";

#[test]
fn a_reading_changes_what_it_says_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let result = run_line(READINGS, folder.path()).unwrap();
    let [first_ack, ideal] = result.readings.as_slice() else {
        panic!("{:?}", result.readings);
    };
    let ours = |rows: &[Comparison], id: &str, case: &str| -> Vec<f64> {
        let row = rows.iter().find(|row| row.id == id && row.case == case);
        let points = &row.unwrap_or_else(|| panic!("{id} {case}")).points;
        points.iter().map(|point| point.ours).collect()
    };
    let (text, three) = (&result.comparisons, "paper, at most 3");
    for reading in [first_ack, ideal] {
        assert_eq!(reading.comparisons.len(), text.len());
        for case in ["end to end only", "paper, at most 1"] {
            let read = ours(&reading.comparisons, "retransmissions", case);
            assert_eq!(read, ours(text, "retransmissions", case), "{case}");
        }
    }
    // Runs of its own, for the one kind that has some.
    let time = |rows: &[Comparison], case| ours(rows, "retrieval", case);
    assert!(time(&first_ack.comparisons, three) != time(text, three));
    let one = "paper, at most 1";
    assert_eq!(time(&first_ack.comparisons, one), time(text, one));
    // The same runs, divided by 20 octets more in each of the two frames of each of the two hops,
    // at 10 Mbit/s.
    let bare = 2.0 * (10.0 + f64::from((28 + 1061 + 4) * 8) / 1e4);
    let wide = bare + 2.0 * f64::from(2 * 20 * 8) / 1e4;
    for case in [three, one] {
        let pairs = time(&ideal.comparisons, case)
            .into_iter()
            .zip(time(text, case));
        for (read, text) in pairs {
            assert!((read / text - bare / wide).abs() < 1e-9, "{read} {text}");
        }
    }
    let all = "end to end only";
    assert_eq!(time(&ideal.comparisons, all), time(text, all));
    write_result(&result, folder.path()).unwrap();
    assert!(
        folder
            .path()
            .join("belrp-linear/sim/retrieval-times-ideal.csv")
            .exists()
    );
    let pages = write_pages(folder.path()).unwrap();
    let page = fs::read_to_string(&pages.studies[0].1).unwrap();
    for shown in [
        "&lt;one&gt; ACK",
        "Table II",
        "<th scope=\"col\">ideal</th>",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn a_reading_that_has_no_runs_to_replace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // The sweep has runs of a reading that is not described.
    let error = run_line("", folder.path()).unwrap_err();
    assert!(
        error.contains("sweep.recovery.paper-3-first-ack") && error.contains("study.readings"),
        "{error}"
    );
}

#[test]
fn a_scenario_that_a_study_cannot_work_from_is_refused_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let said = |old: &str, new: &str| {
        let text = belrp_scenario("belrp-linear");
        assert!(text.contains(old), "{old}");
        let file = folder.path().join("own.toml");
        fs::write(&file, text.replace(old, new)).unwrap();
        let options = StudyOptions {
            backend: Backend::Sim,
            scenario: Some(file),
            runs: None,
            seed: 1,
            jobs: Some(1),
            program: "whimbrel".into(),
            journal: None,
        };
        let study = Study::find("belrp-linear").unwrap();
        let ran = study.run(&options, &mut |_, _, _| {});
        ran.map(|_| ()).unwrap_err().to_string()
    };
    for (old, new, expected) in [
        ("\nnone = ", "\nnever = ", "sweep.recovery.never"),
        (
            "loads.prefix-a",
            "loads.film",
            "loads.film: this study follows",
        ),
        (
            "distribution",
            "distributoin",
            "own.toml:24: study.distributoin: unknown key",
        ),
        ("nodes = 3", "nodes = 1", "own.toml:1: graph.line"),
    ] {
        let error = said(old, new);
        assert!(error.contains(expected), "{expected}\n{error}");
    }
}

#[test]
fn a_study_without_namespaces_says_what_to_do() {
    let study = Study::find("belrp-linear").unwrap();
    let options = StudyOptions {
        backend: Backend::Netns,
        scenario: None,
        runs: None,
        seed: 1,
        jobs: None,
        program: "whimbrel".into(),
        journal: None,
    };
    let error = study
        .run(&options, &mut |_, _, _| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("--backend sim"), "{error}");
}
