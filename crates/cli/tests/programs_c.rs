//! The interface for programs, in C: each row of the table in docs/programs.md, between two real hosts.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Network, Running, finished, whimbrel};

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../client-c")
}

/// Returns the folder of the library that this test was built with.
fn libraries() -> PathBuf {
    // It names the crate, so that cargo builds the library before this test.
    let _ = whimbrel::whimbrel_error();
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().to_owned()
}

/// Compiles a program against the shared or the static library.
fn compile(source: &str, is_static: bool, folder: &Path) -> PathBuf {
    let program = folder.join(if is_static { "static" } else { "shared" });
    let library = match is_static {
        true => libraries().join("libwhimbrel.a"),
        false => libraries().join("libwhimbrel.so"),
    };
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]);
    cc.arg(sources().join("include"))
        .arg(sources().join(source));
    cc.arg(library).arg("-o").arg(&program);
    cc.arg(format!("-Wl,-rpath,{}", libraries().display()));
    cc.args(["-lpthread", "-ldl", "-lm", "-lgcc_s"]);
    let (code, _, err) = finished(&mut cc);
    assert_eq!(code, 0, "{err}");
    program
}

#[test]
fn every_call_of_the_table_works_in_c() {
    let mut network = Network::start(None);
    let program = compile("tests/calls.c", false, network.folder.path());
    crate::programs::prepare_names(network.folder.path());
    let mut calls = Command::new(program);
    calls
        .arg(network.host_socket(0))
        .arg(network.host_socket(1));
    calls.arg(network.folder.path());
    calls.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = calls.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = String::new();
    for line in lines.map_while(Result::ok) {
        println!("{line}");
        if line == "restart" {
            network.hosts[0].take().unwrap().kill();
            network.start_host(0);
            let mut stdin = child.stdin.as_ref().unwrap();
            stdin.write_all(b"done\n").unwrap();
        }
        last = line;
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{status} in {last}");
    assert_eq!(last, "all");
}

#[test]
fn the_sensor_of_the_example_reaches_its_collector() {
    let network = Network::start(None);
    let program = compile("examples/sensor.c", true, network.folder.path());
    let inbox = network.path("in");
    std::fs::create_dir(&inbox).unwrap();
    let mut receive = whimbrel();
    receive.args([
        "inbox", "--json", "--count", "2", "--from", "anyone", "--socket",
    ]);
    receive.arg(network.host_socket(1)).arg("-o").arg(&inbox);
    let receiving = Running::start(&mut receive);
    let collector = network.guid_of("host-1");
    let mut sensor = Command::new(program);
    sensor
        .args([&collector, "100", "2"])
        .arg(network.host_socket(0));
    let (code, out, err) = finished(&mut sensor);
    assert_eq!(code, 0, "{out}{err}");
    for _ in 0..2 {
        receiving.await_json(|line| line["event"] == "received");
    }
    let reading = std::fs::read_to_string(inbox.join("reading.json")).unwrap();
    assert!(reading.starts_with("{\"load\": "), "{reading}");
}

/// The example says how it is compiled where the package is installed.
#[test]
fn the_example_compiles_against_what_the_package_installs() {
    let folder = tempfile::tempdir().unwrap();
    let usr = folder.path().join("usr");
    for sub in ["include", "lib/pkgconfig"] {
        std::fs::create_dir_all(usr.join(sub)).unwrap();
    }
    let copy = |from: PathBuf, to: &str| std::fs::copy(from, usr.join(to)).unwrap();
    copy(sources().join("include/whimbrel.h"), "include/whimbrel.h");
    copy(libraries().join("libwhimbrel.so"), "lib/libwhimbrel.so");
    let config = sources().join("../../packaging/whimbrel.pc");
    let config = std::fs::read_to_string(config).unwrap();
    let config = config.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    std::fs::write(usr.join("lib/pkgconfig/whimbrel.pc"), config).unwrap();
    let example = std::fs::read_to_string(sources().join("examples/sensor.c")).unwrap();
    let words = "cc sensor.c $(pkg-config --cflags --libs whimbrel) -o sensor";
    assert!(example.contains(words), "{example}");
    std::fs::write(folder.path().join("sensor.c"), example).unwrap();
    let prefix = format!("pkg-config --define-variable=prefix={}", usr.display());
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(words.replace("pkg-config", &prefix));
    shell.env("PKG_CONFIG_PATH", usr.join("lib/pkgconfig"));
    let (code, _, err) = finished(shell.current_dir(folder.path()));
    assert_eq!(code, 0, "{err}");
    let mut sensor = Command::new(folder.path().join("sensor"));
    let (code, _, err) = finished(sensor.env("LD_LIBRARY_PATH", usr.join("lib")));
    assert!(
        code == 2 && err.starts_with("sensor COLLECTOR"),
        "{code} {err}"
    );
}

#[test]
fn the_header_is_the_one_that_cbindgen_writes() {
    let Some(cbindgen) = std::env::var_os("WHIMBREL_CBINDGEN") else {
        println!("SKIPPED: WHIMBREL_CBINDGEN names no cbindgen");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("whimbrel.h");
    let mut command = Command::new(cbindgen);
    command.arg("--config").arg(sources().join("cbindgen.toml"));
    command.arg(sources()).arg("--output").arg(&written);
    let (code, _, err) = finished(&mut command);
    assert_eq!(code, 0, "{err}");
    let kept = sources().join("include/whimbrel.h");
    if std::env::var_os("WHIMBREL_WRITE_HEADER").is_some() {
        std::fs::copy(&written, &kept).unwrap();
    }
    let [written, kept] = [written, kept].map(|path| std::fs::read_to_string(path).unwrap());
    assert!(
        written == kept,
        "include/whimbrel.h is old: run this test with WHIMBREL_WRITE_HEADER=1"
    );
}
