//! `whimbrel tcp-proxy` on the nodes of a plan. A proxy takes the packets between the ends of its
//! loads by the kernel's routes for their addresses.

use std::path::PathBuf;

use serde_json::Value;
use whimbrel_node::tcp_proxy::key;

use super::daemons::{Daemons, socket_of};
use crate::LabError;
use crate::scenario::load::Plane;
use crate::scenario::node::Role;
use crate::scenario::proxies::{Part, part, prefix};

impl Daemons<'_> {
    /// Starts the proxies that loads use, and waits until their prefixes are registered.
    pub(super) fn start_proxies(&mut self) -> Result<(), LabError> {
        let plan = self.plan;
        let nodes: Vec<usize> = plan.network.with_role(Role::TcpProxy).collect();
        for node in nodes {
            let part = part(&plan.loads, node);
            if !part.distant.is_empty() {
                self.start_proxy(node, &part)?;
            }
        }
        Ok(())
    }

    fn start_proxy(&mut self, node: usize, part: &Part) -> Result<(), LabError> {
        let key = self.secret()?;
        let address = |of: usize, towards: usize| {
            self.topology
                .address_towards(self.name(of), self.name(towards))
        };
        let prefix_of = |node: usize| prefix(self.name(node)).to_string();
        let mut command = self.command(&["tcp-proxy", "both", "--json", "--prefix"]);
        command.arg(prefix_of(node)).arg("--key").arg(key);
        for (distant, known) in &part.distant {
            let to = address(*distant, known.near)?;
            let route = format!("{to}={},{}", prefix_of(known.proxy), known.protocol);
            command.args(["--route", &route]);
        }
        for (near, distant) in &part.clients {
            command.args(["--source", &address(*near, *distant)?.to_string()]);
        }
        for (near, distant) in &part.servers {
            command.args(["--allow", &address(*near, *distant)?.to_string()]);
        }
        if let Some(paths) = part.tuning.paths {
            command.args(["--paths", &paths.to_string()]);
        }
        if let Some(policy) = part.tuning.duplex {
            let file = self.folder.join(format!("{}.proxy.toml", self.name(node)));
            std::fs::write(&file, format!("duplex = \"{policy}\"\n"))
                .map_err(LabError::system(format!("make {}", file.display())))?;
            command.arg("--config").arg(file);
        }
        let forwarder = socket_of(self.folder, Plane::Ndn, self.name(node));
        command.arg("--transport");
        command.arg(format!("unix://{}", forwarder.display()));
        command.arg("--socket").arg(self.proxy_socket(node));
        let is_ready = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["event"] == "ready").then(String::new)
        };
        self.serving(node, command, is_ready).map(drop)
    }

    /// Returns the file with the secret that all proxies share, which is made if need be.
    fn secret(&self) -> Result<PathBuf, LabError> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.folder.join("tcp-proxy.key");
        if !path.exists() {
            let failed = || LabError::system(format!("make {}", path.display()));
            let secret = key::generate()
                .map_err(std::io::Error::other)
                .map_err(failed())?;
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(&path);
            file.and_then(|mut file| std::io::Write::write_all(&mut file, secret.as_bytes()))
                .map_err(failed())?;
        }
        Ok(path)
    }

    fn proxy_socket(&self, node: usize) -> PathBuf {
        self.folder.join(format!("{}.proxy.sock", self.name(node)))
    }

    /// Returns the status of a node's proxy; null if it does not answer.
    pub(super) fn proxy_status(&self, node: usize) -> Value {
        let mut command = self.command(&["tcp-proxy", "status", "--json", "--socket"]);
        command.arg(self.proxy_socket(node));
        let output = command.output().ok();
        output
            .and_then(|output| serde_json::from_slice(&output.stdout).ok())
            .unwrap_or_default()
    }
}
