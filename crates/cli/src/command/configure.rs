//! `config sample|check`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use whimbrel_node::config::{Draft, Kind, sample};

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
    /// Check a file: report everything that would stop or silently change a start on this machine
    #[command(after_help = "Example:\n  whimbrel config check router.toml")]
    Check {
        /// The configuration file
        file: PathBuf,
        /// The kind of node; by default that of its sections
        #[arg(long = "for", value_name = "NODE")]
        node: Option<NodeKind>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum NodeKind {
    Router,
    Host,
    Gnrs,
}

impl From<NodeKind> for Kind {
    fn from(node: NodeKind) -> Kind {
        match node {
            NodeKind::Router => Kind::Router,
            NodeKind::Host => Kind::Host,
            NodeKind::Gnrs => Kind::Gnrs,
        }
    }
}

pub(crate) fn run(command: &ConfigCommand) -> Outcome {
    match command {
        ConfigCommand::Sample { node } => out(&sample((*node).into())),
        ConfigCommand::Check { file, node } => {
            let draft = Draft::read(file)?;
            draft.plan(node.map_or_else(|| draft.kind(), Kind::from))?;
            out(&format!("{}: no errors\n", file.display()));
        }
    }
    Ok(Exit::Done)
}
