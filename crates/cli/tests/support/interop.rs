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
