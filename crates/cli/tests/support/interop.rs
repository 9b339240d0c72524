//! Programs of others that tests run: `scripts/setup --check` installs what they need.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the programs; `None` if they are not installed and need not be.
pub(crate) struct Interop {
    pub(crate) sources: PathBuf,
    pub(crate) installed: PathBuf,
}

impl Interop {
    pub(crate) fn find() -> Option<Interop> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let named = std::env::var_os("WHIMBREL_INTEROP").map(PathBuf::from);
        let installed = named.clone().unwrap_or_else(|| root.join("target/interop"));
        let is_there = |part: &str| installed.join(part).exists();
        if named.is_none() && !(is_there("ndnts/version") && is_there("tcp/version")) {
            eprintln!(
                "SKIPPED: there is no {}; scripts/setup --check installs it",
                installed.display()
            );
            return None;
        }
        Some(Interop {
            sources: root.join("interop"),
            installed,
        })
    }

    /// Returns NDNd's program; `None` if it is not built and need not be.
    pub(crate) fn ndnd() -> Option<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let named = std::env::var_os("WHIMBREL_NDND").map(PathBuf::from);
        let is_named = named.is_some();
        let program = named.unwrap_or_else(|| root.join("target/interop/ndnd/ndnd"));
        if !is_named && !program.exists() {
            eprintln!("SKIPPED: there is no NDNd; scripts/setup --check builds it where Go is");
            return None;
        }
        Some(program)
    }

    pub(crate) fn python(&self, program: &str) -> Command {
        let mut command = Command::new(self.installed.join("python/bin/python"));
        command.arg(self.sources.join(format!("python/{program}.py")));
        command
    }

    /// Returns a program that is part of python-ndn.
    pub(crate) fn python_own(&self, program: &str) -> Command {
        Command::new(self.installed.join("python/bin").join(program))
    }

    pub(crate) fn ndnts(&self, program: &str) -> Command {
        let mut command = Command::new(self.node());
        command.arg(self.sources.join(format!("ndnts/{program}.mjs")));
        command
    }

    pub(crate) fn node(&self) -> PathBuf {
        self.installed.join("node")
    }

    /// Returns a server for ordinary TCP programs.
    pub(crate) fn tcp(&self, program: &str) -> Command {
        let mut command = Command::new(self.node());
        command.arg(self.sources.join(format!("tcp/{program}.mjs")));
        command
    }
}

/// Returns NDNd's tool that controls the forwarder behind a socket.
pub(crate) fn ndnd_tool(program: &Path, socket: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("fw").env(
        "NDN_CLIENT_TRANSPORT",
        format!("unix://{}", socket.display()),
    );
    command
}
