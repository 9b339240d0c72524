//! Ordinary programs through the HTTP proxies: TLS, git, pip, apt, a browser. One that is not installed is SKIPPED.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::origin::{Origin, answer};
use crate::support::web::Web;
use crate::support::{Network, Running, await_that, free_port, noise};

/// The download of the browser, in pieces of this many octets.
const FILM_PIECES: usize = 40;
const FILM_PIECE: usize = 50_000;
/// The last hop is away for so long.
const OUTAGE: Duration = Duration::from_secs(10);

/// Returns true if a program can be run; says so if not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let is_there = found.is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("SKIPPED: {program} is not installed");
    }
    is_there
}

fn is_open(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Serves a folder, with TLS if there is a certificate.
fn serve(folder: &Path, certificate: Option<&Path>) -> (Running, u16) {
    let port = free_port();
    let program = "import http.server, ssl, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()";
    let mut command = Command::new("python3");
    command
        .args(["-c", program, &port.to_string()])
        .args(certificate);
    let running = Running::start(command.current_dir(folder).stderr(Stdio::null()));
    await_that("the server listens", || is_open(port));
    (running, port)
}

fn finished(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
}

/// Returns the bytes of messages that the router of the client side's host has carried to it.
fn carried(network: &Network) -> u64 {
    let links = network.host_status(1)["links"].clone();
    let links = links.as_array().cloned().unwrap_or_default();
    links
        .iter()
        .filter_map(|link| link["hop"]["chunk_bytes_received"].as_u64())
        .sum()
}

#[test]
fn curl_git_pip_and_apt_work_through_the_proxies() {
    if !has("python3") || !has("openssl") {
        return;
    }
    let network = Network::start(None);
    let web = Web::start(&network);
    let root = network.path("root");
    fs::create_dir(&root).unwrap();
    let film = noise(1 << 20, 7);
    fs::write(root.join("film"), &film).unwrap();

    // TLS by CONNECT.
    let certificate = network.path("certificate.pem");
    let path = certificate.to_str().unwrap();
    finished(Command::new("openssl").args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-keyout",
        path,
        "-out",
        &format!("{path}.crt"),
    ]));
    let both = fs::read_to_string(&certificate).unwrap()
        + &fs::read_to_string(format!("{path}.crt")).unwrap();
    fs::write(&certificate, both).unwrap();
    let (_tls, port) = serve(&root, Some(&certificate));
    assert!(web.fetch(&["-k", &format!("https://127.0.0.1:{port}/film")]) == film);

    if has("git") {
        let repository = root.join("project");
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command
                .current_dir(&repository)
                .args(["-c", "user.name=x", "-c", "user.email=x@y"]);
            finished(command.args(arguments));
        };
        fs::create_dir(&repository).unwrap();
        git(&["init", "-q"]);
        fs::write(repository.join("file"), noise(100_000, 8)).unwrap();
        git(&["add", "file"]);
        git(&["commit", "-q", "-m", "first"]);
        git(&["update-server-info"]);
        let clone = network.path("clone");
        let mut command = Command::new("git");
        command
            .env("https_proxy", &web.proxy)
            .env("GIT_SSL_NO_VERIFY", "1")
            .env("no_proxy", "");
        let url = format!("https://127.0.0.1:{port}/project/.git");
        finished(command.args(["clone", "-q", &url]).arg(&clone));
        assert!(fs::read(clone.join("file")).unwrap() == noise(100_000, 8));
    }

    let (_plain, port) = serve(&root, None);
    if has("pip") {
        let index = root.join("simple/bird");
        fs::create_dir_all(&index).unwrap();
        let link = "<a href=\"bird-1.0-py3-none-any.whl\">bird-1.0-py3-none-any.whl</a>";
        fs::write(index.join("index.html"), link).unwrap();
        let wheel = "import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1], 'w')
info = 'bird-1.0.dist-info/'
wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: bird\\nVersion: 1.0\\n')
wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
wheel.writestr(info + 'RECORD', '')
wheel.close()";
        let file = index.join("bird-1.0-py3-none-any.whl");
        finished(Command::new("python3").args(["-c", wheel]).arg(&file));
        let target = network.path("pip");
        let mut command = Command::new("pip");
        command.args([
            "download",
            "-q",
            "--no-deps",
            "--no-cache-dir",
            "--disable-pip-version-check",
            "--proxy",
            &web.proxy,
        ]);
        let url = format!("http://127.0.0.1:{port}/simple/");
        command.args([
            "--index-url",
            &url,
            "--trusted-host",
            "127.0.0.1",
            "bird",
            "-d",
        ]);
        finished(command.env("no_proxy", "").arg(&target));
        assert!(target.join("bird-1.0-py3-none-any.whl").exists());
    }

    if has("apt-get") {
        let repository = root.join("apt");
        fs::create_dir(&repository).unwrap();
        let package = |number| {
            format!(
                "Package: bird-{number}\nVersion: 1\nArchitecture: all\nMaintainer: x <x@y>\nFilename: ./b{number}.deb\nSize: 1\nSHA256: {number:064x}\nDescription: x\n\n"
            )
        };
        let packages: String = (0..10_000).map(package).collect();
        fs::write(repository.join("Packages"), &packages).unwrap();
        let update = |name: &str| {
            let state = network.path(name);
            for folder in [
                "lists/partial",
                "cache/archives/partial",
                "etc/apt.conf.d",
                "etc/preferences.d",
            ] {
                fs::create_dir_all(state.join(folder)).unwrap();
            }
            let sources = state.join("sources.list");
            fs::write(
                &sources,
                format!("deb [trusted=yes] http://127.0.0.1:{port}/apt ./\n"),
            )
            .unwrap();
            fs::write(state.join("status"), "").unwrap();
            let option = |key: &str, value: &str| format!("{key}={value}");
            let at = |part: &str| state.join(part).display().to_string();
            let mut command = Command::new("apt-get");
            for (key, value) in [
                ("Dir::Etc::sourcelist", at("sources.list")),
                ("Dir::Etc::sourceparts", "/dev/null".into()),
                ("Dir::State::lists", at("lists")),
                ("Dir::State::status", at("status")),
                ("Dir::Cache", at("cache")),
                ("APT::Sandbox::User", "root".into()),
                ("Acquire::http::Proxy", web.proxy.clone()),
                ("Debug::NoLocking", "true".into()),
            ] {
                command.arg("-o").arg(option(key, &value));
            }
            finished(command.arg("update").env("no_proxy", ""));
            let lists = fs::read_dir(state.join("lists")).unwrap();
            let got = lists.filter_map(Result::ok).any(|entry| {
                fs::read_to_string(entry.path()).is_ok_and(|text| text.contains("bird-9999"))
            });
            assert!(got, "{name} has no list");
        };
        let start = carried(&network);
        update("one");
        let first = carried(&network) - start;
        update("two");
        let second = carried(&network) - start - first;
        assert!(
            first > 1_000_000 && second * 100 < first,
            "{first}, then {second} bytes"
        );
    }
}

#[test]
fn a_browser_survives_ten_seconds_without_last_hop_in_page_and_download() {
    if !has("chromium") {
        return;
    }
    let network = Network::start(None);
    let web = Web::start(&network);
    let origin = Origin::start(|asked, stream| match asked.target.as_str() {
        "/" => {
            let images: String = (0..24)
                .map(|number| format!("<img src=/image-{number}>"))
                .collect();
            let script = "<script>onload = () => { let ok = [...document.images].filter(it => it.naturalWidth == 1).length; \
                          document.body.append('loaded ' + ok + ', the film ' + (window.film || 'broken')); }</script>";
            let film = "<script async src=/film></script>";
            let page = format!("<html><body>{script}{film}{images}</body></html>");
            answer(
                stream,
                "200 OK",
                "Content-Type: text/html\r\n",
                page.as_bytes(),
            );
        }
        // A download of some seconds, as a script: the page is not loaded before its last octet.
        "/film" => {
            let (piece, end) = ([b' '; FILM_PIECE], b"film = 'whole'");
            let length = FILM_PIECES * piece.len() + end.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(head.as_bytes());
            for _ in 0..FILM_PIECES {
                let _ = stream.write_all(&piece);
                std::thread::sleep(Duration::from_millis(100));
            }
            let _ = stream.write_all(end);
        }
        _ => {
            std::thread::sleep(Duration::from_millis(200));
            let image = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
            answer(stream, "200 OK", "Content-Type: image/gif\r\n", image);
        }
    });
    let mut browser = Command::new("chromium");
    browser
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            "--no-first-run",
            "--disable-dev-shm-usage",
        ])
        .arg(format!(
            "--user-data-dir={}",
            network.path("profile").display()
        ))
        .args([
            &format!("--proxy-server={}", web.proxy),
            "--proxy-bypass-list=<-loopback>",
        ])
        .arg(origin.url("/"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let browser = browser.spawn().unwrap();
    let images = || {
        origin
            .asked()
            .iter()
            .filter(|it| it.target.starts_with("/image"))
            .count()
    };
    let film_is_asked = || origin.asked().iter().any(|it| it.target == "/film");
    await_that("some of it was asked for", || {
        images() > 5 && film_is_asked()
    });
    let router = network.routers[1].as_ref().unwrap();
    router.signal("STOP");
    assert!(images() < 24, "too quick for this test");
    std::thread::sleep(OUTAGE);
    router.signal("CONT");
    let output = browser.wait_with_output().unwrap();
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(page.contains("loaded 24, the film whole"), "{page}");
}
