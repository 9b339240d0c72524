//! A tunnel of userspace WireGuard (boringtun) between two hosts, set up by WireGuard's
//! cross-platform interface: no `wg` is needed.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use whimbrel_lab::{Process, Topology};

use super::await_that;

/// Where `scripts/throughput` has put it.
const PROGRAM: &str = "WHIMBREL_BORINGTUN";
const PORT: u16 = 51820;
/// The usual MTU of WireGuard's devices: 1500 less its headers, which may be those of IPv6.
const MTU: &str = "1420";

/// One end, in a host.
struct End {
    device: String,
    process: Process,
}

impl End {
    /// One thread for each of the two processors.
    fn start(topology: &Topology, host: &str) -> Option<End> {
        let program = std::env::var_os(PROGRAM)?;
        // The sockets of all of them are in one folder, and one that vanishes ends its program.
        let device = format!("w{host}{}", std::process::id());
        let mut command = Command::new(program);
        command.args([
            "--foreground",
            "--disable-drop-privileges",
            "--threads",
            "2",
        ]);
        command
            .arg(&device)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let process = topology.host(host).unwrap().spawn(command).unwrap();
        let end = End { device, process };
        await_that("boringtun answers", || {
            UnixStream::connect(end.socket()).is_ok()
        });
        Some(end)
    }

    fn socket(&self) -> PathBuf {
        PathBuf::from(format!("/var/run/wireguard/{}.sock", self.device))
    }

    fn asks(&self, question: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(question.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("errno=0\n"), "{question}: {answer}");
        answer
    }

    /// Gives it a key. Returns the public one.
    fn set_key(&self, key: u8) -> String {
        let mut command = String::from("set=1\nprivate_key=");
        for _ in 0..32 {
            write!(command, "{key:02x}").unwrap();
        }
        self.asks(&format!("{command}\nlisten_port={PORT}\n\n"));
        let answer = self.asks("get=1\n\n");
        let public = answer
            .lines()
            .find_map(|line| line.strip_prefix("own_public_key="));
        public.unwrap().to_owned()
    }
}

/// A tunnel between the hosts `a` and `b` of a topology over their link `ab`.
pub(crate) struct Tunnel {
    ends: [End; 2],
}

impl Tunnel {
    /// The address in the tunnel of host `b`.
    pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 204, 0, 2);

    /// Returns nothing if the environment names no boringtun.
    pub(crate) fn start(topology: &Topology) -> Option<Tunnel> {
        let sites = [("a", Ipv4Addr::new(10, 204, 0, 1)), ("b", Tunnel::SERVER)];
        let ends = [End::start(topology, "a")?, End::start(topology, "b")?];
        let keys = [ends[0].set_key(1), ends[1].set_key(2)];
        for (index, (site, address)) in sites.into_iter().enumerate() {
            let (other, other_address) = sites[1 - index];
            let endpoint = topology.address_of(other, "ab").unwrap();
            let (end, key) = (&ends[index], &keys[1 - index]);
            end.asks(&format!(
                "set=1\npublic_key={key}\nendpoint={endpoint}:{PORT}\nallowed_ip={other_address}/32\n\n"
            ));
            let host = topology.host(site).unwrap();
            let (device, address) = (&end.device, format!("{address}/24"));
            for arguments in [
                &["address", "add", &address, "dev", device][..],
                &["link", "set", device, "mtu", MTU, "up"],
            ] {
                host.run("ip", arguments).unwrap();
            }
        }
        Some(Tunnel { ends })
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        for end in &mut self.ends {
            let _ = end.process.kill();
            let _ = std::fs::remove_file(end.socket());
        }
    }
}
