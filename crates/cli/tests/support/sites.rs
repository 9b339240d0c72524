//! Two sites, each with a router and a TCP proxy, and an emulated link between them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use whimbrel_lab::baseline::HttpServer;
use whimbrel_lab::{CongestionControl, Process, Topology, TopologyBuilder, ndnd};
use whimbrel_sim::link::{LinkSpec, Loss};

use super::interop::ndnd_tool;
use super::{await_that, finished, whimbrel};

/// Of every call of curl: nothing of this user's configuration, no proxy of this machine's.
pub(crate) const CURL: [&str; 6] = ["-q", "--silent", "--show-error", "--fail", "--noproxy", "*"];
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 202, 0, 1);

const MTU: usize = 1500;

/// A client's site and a server's site, each with a router and a proxy.
pub(crate) struct Sites {
    pub(crate) topology: Topology,
    folder: tempfile::TempDir,
    /// Both routers, then the proxies of a and b.
    programs: Vec<Process>,
    proxies: Vec<ProxyCommand>,
}

/// How a site's proxy is started.
#[derive(Clone)]
struct ProxyCommand {
    site: &'static str,
    role: &'static str,
    arguments: Vec<String>,
}

/// The forwarder of each site.
enum Forwarder<'a> {
    /// Our router, with more of `[ndn]` in its configuration.
    Ours(&'a str),
    /// NDNd, by its program.
    Ndnd(&'a Path),
}

/// A link of 50 Mbit/s with a round trip of 10 ms, and what it loses and takes.
fn emulated(loss: f64, mtu: usize) -> TopologyBuilder {
    let spec = LinkSpec::new(50_000_000, Duration::from_millis(5));
    let spec = match loss {
        0.0 => spec,
        loss => spec.with_loss(Loss::Independent(loss)),
    };
    let topology = TopologyBuilder::new(1).host("a").host("b").mtu(mtu);
    topology.link("ab", "a", "b", spec.clone(), spec)
}

impl Sites {
    pub(crate) fn new(loss: f64, routers: &str, proxies: &[&str]) -> Sites {
        Sites::allowing("10.202.0.1:80", loss, routers, proxies)
    }

    /// As [`Sites::new`], with what the reverse proxy allows.
    pub(crate) fn allowing(allowed: &str, loss: f64, routers: &str, proxies: &[&str]) -> Sites {
        let allow = [proxies, &["--allow", allowed]].concat();
        Sites::on(
            emulated(loss, MTU),
            &Forwarder::Ours(routers),
            [proxies, &allow],
        )
    }

    /// Sites with a link that takes frames of `mtu` octets.
    pub(crate) fn narrow(mtu: usize) -> Sites {
        let allow = ["--allow", "10.202.0.1:80"];
        Sites::on(emulated(0.0, mtu), &Forwarder::Ours(""), [&[], &allow])
    }

    /// Sites with more options for each proxy.
    pub(crate) fn each(proxies: [&[&str]; 2]) -> Sites {
        Sites::on(emulated(0.0, MTU), &Forwarder::Ours(""), proxies)
    }

    /// Sites with NDNd in place of our router.
    pub(crate) fn with_ndnd(program: &Path, proxies: &[&str]) -> Sites {
        let allow = [proxies, &["--allow", "10.202.0.1:80"]].concat();
        Sites::on(
            emulated(0.0, MTU),
            &Forwarder::Ndnd(program),
            [proxies, &allow],
        )
    }

    /// Sites whose link is a pair of virtual Ethernet interfaces, as fast as the kernel.
    pub(crate) fn fast(proxies: &[&str]) -> Sites {
        let topology = TopologyBuilder::new(1).host("a").host("b");
        let allow = [proxies, &["--allow", "10.202.0.1"]].concat();
        Sites::on(
            topology.veth("ab", "a", "b"),
            &Forwarder::Ours(""),
            [proxies, &allow],
        )
    }

    fn on(topology: TopologyBuilder, forwarder: &Forwarder<'_>, proxies: [&[&str]; 2]) -> Sites {
        let topology = topology.build().unwrap();
        // The hosts have no IPv6; the devices that are still to come may.
        for host in ["a", "b"].map(|name| topology.host(name).unwrap()) {
            for scope in ["default", "lo"] {
                let setting = format!("net.ipv6.conf.{scope}.disable_ipv6");
                host.set_sysctl(&setting, "0").unwrap();
            }
        }
        let mut sites = Sites {
            topology,
            folder: tempfile::tempdir().unwrap(),
            programs: Vec::new(),
            proxies: Vec::new(),
        };
        let key = sites.path("key");
        let (code, secret, _) = finished(whimbrel().args(["tcp-proxy", "key"]));
        assert_eq!(code, 0);
        fs::write(&key, secret).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&key, private).unwrap();
        for (site, other) in [("a", "b"), ("b", "a")] {
            match forwarder {
                Forwarder::Ours(config) => sites.start_router(site, other, config),
                Forwarder::Ndnd(program) => sites.start_ndnd(site, other, program),
            }
        }
        let [one, other] = [
            ["10.201.0.1", "10.202.0.0/16=/b/tcp"],
            ["10.202.0.1", "10.201.0.0/16=/a/tcp"],
        ];
        sites.add_proxy("a", "forward", one, proxies[0]);
        sites.add_proxy("b", "reverse", other, proxies[1]);
        sites
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn start(&mut self, site: &str, name: &str, mut command: Command) {
        let log = fs::File::create(self.path(&format!("{site}.{name}.log"))).unwrap();
        let output = fs::File::create(self.path(&format!("{site}.{name}.out"))).unwrap();
        command.stdout(output).stderr(log).stdin(Stdio::null());
        let process = self.topology.host(site).unwrap().spawn(command).unwrap();
        self.programs.push(process);
    }

    fn socket(&self, site: &str) -> PathBuf {
        self.path(&format!("{site}.nfd.sock"))
    }

    fn status_socket(&self, site: &str) -> PathBuf {
        self.path(&format!("tcp-proxy-{site}.sock"))
    }

    fn start_router(&mut self, site: &str, other: &str, config: &str) {
        let address = self.topology.address_of(other, "ab").unwrap();
        let file = self.path(&format!("{site}.toml"));
        let route =
            format!("[[ndn_route]]\nprefix = \"/{other}\"\nface = \"udp4://{address}:6363\"\n");
        fs::write(
            &file,
            format!("[ndn]\nmulticast = false\n{config}\n{route}"),
        )
        .unwrap();
        let mut command = whimbrel();
        command
            .args(["router", "run", "--quiet", "--ndn", "--config"])
            .arg(file);
        command.arg("--ndn-socket").arg(self.socket(site));
        self.start(site, "router", command);
        await_that("the router answers", || self.socket(site).exists());
    }

    fn start_ndnd(&mut self, site: &str, other: &str, program: &Path) {
        let config = self.path(&format!("{site}.yml"));
        fs::write(&config, ndnd::configuration(&self.socket(site), Some(6363))).unwrap();
        let mut command = Command::new(program);
        command.args(["fw", "run"]).arg(config);
        self.start(site, "router", command);
        await_that("the forwarder answers", || self.socket(site).exists());
        let face = format!(
            "face=udp://{}:6363",
            self.topology.address_of(other, "ab").unwrap()
        );
        let prefix = format!("prefix=/{other}");
        let (code, out, errors) =
            finished(ndnd_tool(program, &self.socket(site)).args(["route-add", &prefix, &face]));
        assert_eq!(code, 0, "{out}{errors}");
    }

    fn add_proxy(
        &mut self,
        site: &'static str,
        role: &'static str,
        [address, route]: [&str; 2],
        more: &[&str],
    ) {
        let own = ["--address", address, "--route", route];
        let arguments = own.iter().chain(more).map(|it| (*it).to_owned()).collect();
        let proxy = ProxyCommand {
            site,
            role,
            arguments,
        };
        self.proxies.push(proxy.clone());
        self.start_proxy(&proxy);
    }

    fn start_proxy(&mut self, proxy: &ProxyCommand) {
        let ProxyCommand {
            site,
            role,
            arguments,
        } = proxy;
        let mut command = whimbrel();
        command.args([
            "tcp-proxy",
            role,
            "--json",
            "--prefix",
            &format!("/{site}/tcp"),
        ]);
        command.args(arguments);
        command.arg("--key").arg(self.path("key"));
        command
            .arg("--transport")
            .arg(format!("unix://{}", self.socket(site).display()));
        command.arg("--socket").arg(self.status_socket(site));
        self.start(site, role, command);
        let (out, log) = (format!("{site}.{role}.out"), format!("{site}.{role}.log"));
        await_that("the proxy is ready", || {
            let log = fs::read_to_string(self.path(&log)).unwrap_or_default();
            assert!(!log.contains("error"), "{log}");
            fs::read_to_string(self.path(&out))
                .unwrap_or_default()
                .contains("ready")
        });
    }

    /// Kills a site's proxy (0: the clients', 1: the servers') with SIGKILL and starts another one.
    pub(crate) fn replace_proxy(&mut self, which: usize) {
        self.programs[2 + which].kill().unwrap();
        let proxy = self.proxies[which].clone();
        self.start_proxy(&proxy);
        self.programs.swap_remove(2 + which);
    }

    /// Serves `file` at the server's site.
    pub(crate) fn serve(&self, file: &Path) -> HttpServer {
        self.serve_at(SERVER, file)
    }

    /// Serves `file` at another address of the server's site.
    pub(crate) fn serve_at(&self, address: Ipv4Addr, file: &Path) -> HttpServer {
        let host = self.topology.host("b").unwrap();
        let address = SocketAddrV4::new(address, 80);
        HttpServer::start(host, address, file, CongestionControl::Cubic, false).unwrap()
    }

    /// Fetches it with curl at the client's site.
    pub(crate) fn curl(&self) -> Vec<u8> {
        self.curl_with(&[])
    }

    /// The same from an address of the clients' site.
    pub(crate) fn curl_from(&self, address: &str) -> Vec<u8> {
        self.curl_with(&["--interface", address])
    }

    /// Ends the proxies as Ctrl-C does, and waits for their end.
    pub(crate) fn stop_proxies(mut self) -> Sites {
        // The routers were started first.
        for proxy in self.programs.iter_mut().skip(2) {
            proxy.terminate(super::PATIENCE).unwrap();
        }
        self
    }

    fn curl_with(&self, more: &[&str]) -> Vec<u8> {
        let got = self.path("got");
        let url = format!("http://{SERVER}/file");
        let output = got.to_str().unwrap();
        let arguments = ["--max-time", "100", "--output", output, &url];
        let host = self.topology.host("a").unwrap();
        let arguments = CURL.iter().chain(&arguments).chain(more);
        let arguments: Vec<&str> = arguments.copied().collect();
        host.run("curl", &arguments).unwrap();
        fs::read(got).unwrap()
    }

    pub(crate) fn status(&self, site: &str) -> Value {
        let mut command = whimbrel();
        command.args(["tcp-proxy", "status", "--json", "--socket"]);
        command.arg(self.status_socket(site));
        let (code, out, errors) = finished(&mut command);
        assert_eq!(code, 0, "{errors}");
        serde_json::from_str(&out).unwrap()
    }
}
