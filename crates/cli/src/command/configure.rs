//! `config sample|check`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use whimbrel_node::config::{Config, Kind, sample};

use super::{Outcome, out};
use crate::exit::Exit;

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Print a commented sample
    #[command(after_help = "Example:\n  whimbrel config sample router > router.toml")]
    Sample {
        /// The kind of node
        node: NodeKind,
    },
    /// Check a file; reports line and column of the first error
    #[command(after_help = "Example:\n  whimbrel config check router.toml")]
    Check {
        /// The configuration file
        file: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum NodeKind {
    Router,
    Host,
    Gnrs,
}

pub(crate) fn run(command: &ConfigCommand) -> Outcome {
    match command {
        ConfigCommand::Sample { node } => out(&sample(match node {
            NodeKind::Router => Kind::Router,
            NodeKind::Host => Kind::Host,
            NodeKind::Gnrs => Kind::Gnrs,
        })),
        ConfigCommand::Check { file } => {
            Config::load(file)?;
            out(&format!("{}: no errors\n", file.display()));
        }
    }
    Ok(Exit::Done)
}
