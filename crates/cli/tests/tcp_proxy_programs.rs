//! Ordinary programs over `whimbrel tcp-proxy`: curl with HTTP/1.1 and HTTP/2, a browser, ssh; and
//! what an outage does to them beside plain TCP over the same link.
//!
//! `scripts/setup --check` installs them; `scripts/test` names the place in `WHIMBREL_INTEROP`, and
//! then these tests fail without them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::support::interop::Interop;
use crate::support::sites::{CURL, SERVER, Sites};
use crate::support::{self, await_that};
use whimbrel_lab::browser::{HttpVersion, Loaded, Site, chromium};
use whimbrel_lab::{Process, lab_available};

/// TCP's own next attempt may be 120 s away.
const LONGEST_WAIT: Duration = Duration::from_secs(150);
const SITE: Site = Site {
    hosts: 3,
    objects: 16,
    size: 20_000,
};

/// Both sites, and what runs on them.
struct Programs {
    sites: Sites,
    interop: Interop,
    running: Vec<Process>,
}

impl Programs {
    fn start() -> Option<Programs> {
        if !lab_available() {
            return None;
        }
        let interop = Interop::find()?;
        Some(Programs {
            // Every port of the server.
            sites: Sites::allowing("10.202.0.1", 0.0, "", &[]),
            interop,
            running: Vec::new(),
        })
    }

    /// Starts a server at the servers' site, and waits until it listens.
    fn serve(&mut self, mut command: Command) {
        command.stdout(Stdio::piped()).stdin(Stdio::null());
        let command_line = format!("{command:?}");
        let mut server = self
            .sites
            .topology
            .host("b")
            .unwrap()
            .spawn(command)
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(server.take_stdout().unwrap());
        output.read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{command_line}: {line}");
        self.running.push(server);
    }

    /// Starts the web server with a certificate for its hosts. Returns the certificate.
    fn serve_web(&mut self) -> PathBuf {
        let server = SITE.prepare(&self.sites.path("")).unwrap();
        self.serve(server.command(&self.interop.node()));
        server.certificate
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let host = self.sites.topology.host("a").unwrap();
        host.run(program, arguments).unwrap()
    }

    /// Starts a program at the clients' site.
    fn client(&self, mut command: Command) -> Process {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.sites
            .topology
            .host("a")
            .unwrap()
            .spawn(command)
            .unwrap()
    }
}

#[test]
fn curl_speaks_both_versions_of_http_over_tls() {
    let Some(mut programs) = Programs::start() else {
        return;
    };
    let certificate = programs.serve_web();
    let expected: Vec<u8> = b"Whimbrel carries TCP. "
        .iter()
        .copied()
        .cycle()
        .take(1_000_000)
        .collect();
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let got = programs.sites.path("got");
        let resolve = format!("host1.test:443:{SERVER}");
        let arguments = [
            "--max-time",
            "100",
            flag,
            "--cacert",
            certificate.to_str().unwrap(),
            "--resolve",
            &resolve,
            "--write-out",
            "%{http_version}",
            "--output",
            got.to_str().unwrap(),
            "https://host1.test/bytes/1000000",
        ];
        let arguments = [&CURL[..], &arguments].concat();
        assert_eq!(programs.run("curl", &arguments), version);
        assert!(
            fs::read(&got).unwrap() == expected,
            "HTTP/{version}: the bytes differ"
        );
    }
}

#[test]
fn a_browser_loads_a_page_of_several_hosts() {
    let Some(mut programs) = Programs::start() else {
        return;
    };
    programs.serve_web();
    let command = chromium(SERVER, &programs.sites.path("chromium"), HttpVersion::Two);
    let mut browser = programs.client(command);
    let page = std::io::read_to_string(browser.take_stdout().unwrap()).unwrap();
    // 8 scripts and 8 pictures of each host.
    let loaded = Loaded::parse(&page).unwrap_or_else(|| panic!("{page}"));
    assert_eq!((loaded.objects, loaded.protocol.as_str()), (48, "h2"));
    let status = programs.sites.status("a");
    let connections = status["counters"]["connections"].as_u64().unwrap();
    assert!(connections >= u64::from(SITE.hosts), "{connections}");
}

/// A command over ssh that answers each line.
struct Session {
    name: &'static str,
    // Kept alive: a process that is dropped is killed.
    _process: Process,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Session {
    fn start(programs: &Programs, name: &'static str, server: Ipv4Addr) -> Session {
        let mut command = Command::new("ssh");
        command
            .args(["-F", "none", "-p", "22", "-o", "StrictHostKeyChecking=no"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"])
            .args(["-o", "PreferredAuthentications=none"])
            .arg(format!("user@{server}"))
            .arg("while read line; do echo \"got $line\"; done");
        let mut process = programs.client(command);
        let input = process.take_stdin().unwrap();
        let output = process.take_stdout().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Session {
            name,
            _process: process,
            input,
            lines,
        }
    }

    fn say(&mut self, line: &str) {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
        self.input.flush().unwrap();
    }

    fn hear(&self, line: &str) {
        let heard = self.lines.recv_timeout(LONGEST_WAIT);
        assert_eq!(
            heard.as_deref(),
            Ok(format!("got {line}").as_str()),
            "{}",
            self.name
        );
    }
}

/// A file on its way by curl.
struct Download {
    name: &'static str,
    path: PathBuf,
    process: Process,
}

impl Download {
    fn start(programs: &Programs, name: &'static str, server: Ipv4Addr) -> Download {
        let path = programs.sites.path(&format!("{name}.got"));
        let mut command = Command::new("curl");
        command
            .args(CURL)
            .arg("--no-buffer")
            .arg("--output")
            .arg(&path)
            .arg(format!("http://{server}/file"));
        let process = programs.client(command);
        Download {
            name,
            path,
            process,
        }
    }

    fn bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |it| it.len())
    }
}

/// After an outage the sessions go on, and no byte is lost or changed. Plain TCP crosses the same link
/// in the same run; the times are printed (`--nocapture`) and not judged.
#[test]
fn ssh_and_a_download_survive_an_outage() {
    survives(Duration::from_secs(10));
}

/// The same with longer outages, by hand:
///
/// `cargo test -p whimbrel --test all tcp_proxy_programs::ssh -- --ignored --nocapture`
#[test]
#[ignore = "takes a quarter of an hour"]
fn ssh_and_a_download_survive_long_outages() {
    for seconds in [60, 600] {
        println!("an outage of {seconds} s:");
        survives(Duration::from_secs(seconds));
    }
}

fn survives(outage: Duration) {
    let Some(mut programs) = Programs::start() else {
        return;
    };
    let plain = programs.sites.topology.address_of("b", "ab").unwrap();
    let mut server = programs.interop.tcp("ssh");
    server.args(["0.0.0.0", "22"]);
    programs.serve(server);
    let file = programs.sites.path("file");
    let content = support::noise(20_000_000, 7);
    fs::write(&file, &content).unwrap();
    let _server = programs.sites.serve(&file);
    let _plain_server = programs.sites.serve_at(plain, &file);
    let ways = [("proxies", SERVER), ("plain", plain)];
    let mut sessions = ways.map(|(name, server)| Session::start(&programs, name, server));
    for session in &mut sessions {
        session.say("one");
        session.hear("one");
    }
    let mut downloads = ways.map(|(name, server)| Download::start(&programs, name, server));
    await_that("both downloads have begun", || {
        downloads.iter().all(|it| it.bytes() > 500_000)
    });
    programs.sites.topology.set_outage("ab", true).unwrap();
    std::thread::sleep(outage / 2);
    let cut = downloads.each_ref().map(Download::bytes);
    assert!(cut.iter().all(|bytes| *bytes < content.len() as u64));
    sessions.iter_mut().for_each(|session| session.say("two"));
    std::thread::sleep(outage / 2);
    let back = Instant::now();
    programs.sites.topology.set_outage("ab", false).unwrap();
    std::thread::scope(|scope| {
        for session in &mut sessions {
            scope.spawn(move || {
                session.hear("two");
                println!(
                    "ssh, {}: goes on {:.2?} after the outage",
                    session.name,
                    back.elapsed()
                );
            });
        }
        for (download, cut) in downloads.iter().zip(cut) {
            scope.spawn(move || {
                while download.bytes() == cut && back.elapsed() < LONGEST_WAIT {
                    std::thread::sleep(Duration::from_millis(2));
                }
                println!(
                    "curl, {}: goes on {:.2?} after the outage",
                    download.name,
                    back.elapsed()
                );
            });
        }
    });
    for download in &mut downloads {
        let ended = download.process.wait_for(LONGEST_WAIT).unwrap();
        assert!(
            ended.is_some_and(|status| status.success()),
            "{}",
            download.name
        );
        assert!(
            fs::read(&download.path).unwrap() == content,
            "{}: the bytes differ",
            download.name
        );
    }
    for session in &mut sessions {
        session.say("three");
        session.hear("three");
    }
}
