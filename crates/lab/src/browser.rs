//! A page of many small objects on several hosts, and a real browser that loads it.
//!
//! Chromium, Node.js and OpenSSL are the machine's own. The site's names exist in the browser only, and its
//! certificate is made for the run: nothing asks any network.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::LabError;

/// The server's program, which tests run, too.
const SERVER: &str = include_str!("../../../interop/tcp/web.mjs");
/// The port of HTTPS.
pub const PORT: u16 = 443;

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum HttpVersion {
    /// A few connections to each host, each with one request at a time.
    #[serde(rename = "1.1")]
    One,
    /// Many requests at a time on one connection.
    #[default]
    #[serde(rename = "2")]
    Two,
    /// The same over QUIC.
    #[serde(rename = "3")]
    Three,
}

impl HttpVersion {
    /// Returns its name in ALPN.
    pub const fn protocol(self) -> &'static str {
        match self {
            HttpVersion::One => "http/1.1",
            HttpVersion::Two => "h2",
            HttpVersion::Three => "h3",
        }
    }
}

/// A page and its objects: half of them scripts, half of them pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Hosts, all behind one address.
    pub hosts: u16,
    /// Objects on each.
    pub objects: u16,
    /// Bytes of each object.
    pub size: u32,
}

/// The files of a web server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its certificate.
    pub certificate: PathBuf,
    key: PathBuf,
    program: PathBuf,
    site: Site,
}

impl Site {
    /// Returns the name of a host, counted from 1.
    pub fn host(number: u16) -> String {
        format!("host{number}.test")
    }

    /// Returns the number of objects beside the page.
    pub fn total(&self) -> u32 {
        u32::from(self.hosts) * u32::from(self.objects)
    }

    /// Makes a certificate and what else a server needs, in `folder`.
    pub fn prepare(self, folder: &Path) -> Result<Server, LabError> {
        let file = |name: &str| folder.join(name);
        let (key, certificate, program) = (file("web.key"), file("web.crt"), file("web.mjs"));
        std::fs::write(&program, SERVER)
            .map_err(LabError::system(format!("write {}", program.display())))?;
        let hosts = (1..=self.hosts).map(|number| format!("DNS:{}", Site::host(number)));
        let names = hosts.collect::<Vec<_>>().join(",");
        let mut command = Command::new("openssl");
        command
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=host1.test", "-addext"])
            .arg(format!("subjectAltName={names}"));
        command.arg("-keyout").arg(&key);
        command.arg("-out").arg(&certificate);
        let output = command.output();
        let output = output.map_err(|error| crate::error::spawn_error("openssl", error))?;
        if !output.status.success() {
            return Err(LabError::Program {
                name: String::from("openssl"),
                what: String::from("made no certificate"),
                said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(Server {
            certificate,
            key,
            program,
            site: self,
        })
    }
}

impl Server {
    /// Returns the command that serves the site on all addresses of its host, with this Node.js. It says
    /// "ready" when it listens.
    pub fn command(&self, node: &Path) -> Command {
        let mut command = Command::new(node);
        command.arg(&self.program);
        command.args(["0.0.0.0", &PORT.to_string()]);
        command.arg(&self.key).arg(&self.certificate);
        let Site {
            hosts,
            objects,
            size,
        } = self.site;
        command.args([hosts.to_string(), objects.to_string(), size.to_string()]);
        command
    }
}

/// Returns the command with which Chromium, with an empty profile, loads a page and prints it once it is there.
fn headless(profile: &Path) -> Command {
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg("--dump-dom");
    command
}

/// Returns the command that loads a page by HTTP without TLS, from its server or through a proxy.
pub fn chromium_by_http(url: &str, profile: &Path, proxy: Option<SocketAddr>) -> Command {
    let mut command = headless(profile);
    match proxy {
        // A server behind the proxy may have an address of this host.
        Some(proxy) => command
            .arg(format!("--proxy-server=http://{proxy}"))
            .arg("--proxy-bypass-list=<-loopback>"),
        None => command.arg("--no-proxy-server"),
    };
    command.arg(url);
    command
}

/// Returns the command that loads the page of a [`Site`] from this address.
pub fn chromium(server: Ipv4Addr, profile: &Path, version: HttpVersion) -> Command {
    let mut command = headless(profile);
    // The certificate is one of this run alone.
    command.args(["--no-proxy-server", "--ignore-certificate-errors"]);
    if version == HttpVersion::One {
        command.arg("--disable-http2");
    }
    command.arg(format!("--host-resolver-rules=MAP *.test {server}"));
    command.arg(format!("https://{}/", Site::host(1)));
    command
}

/// What a page says once it is loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Objects that arrived.
    pub objects: u32,
    /// The version of HTTP, by its name in ALPN.
    pub protocol: String,
    /// From the start of the navigation to the end of the last object.
    pub time: Duration,
}

impl Loaded {
    /// Reads the title of a page: "loaded 48 over h2 in 812.5 ms". Returns `None` for any other text.
    pub fn parse(page: &str) -> Option<Loaded> {
        let (_, said) = page.split_once("<title>loaded ")?;
        let (said, _) = said.split_once(" ms</title>")?;
        let (objects, said) = said.split_once(" over ")?;
        let (protocol, millis) = said.split_once(" in ")?;
        let seconds = millis.parse::<f64>().ok()? / 1e3;
        Some(Loaded {
            objects: objects.parse().ok()?,
            protocol: protocol.to_owned(),
            time: Duration::try_from_secs_f64(seconds).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_of_a_page_is_read() {
        let page = "<html><head><title>loaded 48 over h2 in 812.5 ms</title></head></html>";
        let loaded = Loaded::parse(page).unwrap();
        assert_eq!((loaded.objects, loaded.protocol.as_str()), (48, "h2"));
        assert_eq!(loaded.time, Duration::from_micros(812_500));
        for odd in [
            "objects",
            "loaded 48 over h2",
            "loaded x over h2 in 1 ms",
            "loaded 1 over h2 in -1 ms",
        ] {
            assert_eq!(
                Loaded::parse(&format!("<title>{odd}</title>")),
                None,
                "{odd}"
            );
        }
    }
}
