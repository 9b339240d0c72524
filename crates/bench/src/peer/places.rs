//! The network of `peer`, and the processes on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use whimbrel_lab::scenario::{Plan, netns};
use whimbrel_lab::{Namespace, Topology};

use super::PeerCarrier;
use crate::BenchError;
use crate::processes::{Programs, Ready};

const WIRE: &str = "A-B";
const PEER_PORT: u16 = 4433;

/// The program that moves the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Whimbrel,
    /// Over a link that is not encrypted.
    Plain,
    /// With a runtime of this many threads.
    Quinn(usize),
    KernelTcp,
}

impl Side {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Side::Whimbrel => "Whimbrel",
            Side::Plain => "plain Whimbrel",
            Side::Quinn(_) => "quinn",
            Side::KernelTcp => "kernel TCP",
        }
    }
}

/// The network of `peer.toml`, server A and client B.
pub(super) struct Places<'a> {
    pub(super) programs: Programs<'a>,
    pub(super) file: PathBuf,
    pub(super) topology: Topology,
    mtu: usize,
}

impl<'a> Places<'a> {
    pub(super) fn build(
        programs: Programs<'a>,
        file: PathBuf,
        plan: &Plan,
    ) -> Result<Places<'a>, BenchError> {
        Ok(Places {
            programs,
            file,
            topology: netns::topology(plan, plan.seed)?,
            mtu: plan.network.mtu(),
        })
    }

    /// Returns the received file.
    pub(super) fn output(&self) -> PathBuf {
        self.programs.folder.join("arrived")
    }

    /// Returns a file as large as the received one, which holds memory for it between transfers.
    pub(super) fn reserve(&self) -> PathBuf {
        self.programs.folder.join("reserve")
    }

    pub(super) fn fetching_host(&self) -> Result<&Namespace, BenchError> {
        Ok(self.topology.host("B")?)
    }

    /// Starts the servers on A and their companions on B.
    pub(super) fn start(&self, side: Side) -> Result<Ready, BenchError> {
        match side {
            Side::Whimbrel | Side::Plain => {
                let (a, address) = (
                    self.topology.host("A")?,
                    self.topology.address_of("A", WIRE)?,
                );
                self.programs.whimbrel_directly(
                    a,
                    address,
                    [&self.file, &self.output()],
                    side == Side::Plain,
                )
            }
            Side::Quinn(threads) => self.peer(PeerCarrier::Quic, threads),
            Side::KernelTcp => self.peer(PeerCarrier::Tcp, 1),
        }
    }

    fn peer(&self, carrier: PeerCarrier, threads: usize) -> Result<Ready, BenchError> {
        let address = format!("{}:{PEER_PORT}", self.topology.address_of("A", WIRE)?);
        let certificate = self.programs.folder.join("certificate.der");
        let (mtu, threads) = (self.mtu.to_string(), threads.to_string());
        let command = |end| {
            [
                "bench",
                end,
                "--carrier",
                carrier.name(),
                "--threads",
                &threads,
                "--mtu",
                &mtu,
                "--address",
                &address,
            ]
        };
        let paths = |file| {
            [
                Path::new("--certificate"),
                certificate.as_path(),
                Path::new("--file"),
                file,
            ]
        };
        let (server, _) = self.programs.await_line(
            self.topology.host("A")?,
            &command("peer-server"),
            &paths(&self.file),
            "listening",
        )?;
        let mut fetch = Command::new(self.programs.program);
        fetch
            .args(command("peer-client"))
            .args(paths(&self.output()));
        Ok(Ready {
            servers: vec![("serve", server)],
            fetch,
        })
    }
}
