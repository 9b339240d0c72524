//! `config sample|check`.

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use whimbrel_core::WallClock;
use whimbrel_keychain::small_file;
use whimbrel_node::config::{ConfigError, Draft, Kind, Plan, sample};
use whimbrel_node::tcp_proxy::{ProxyConfig, config};

use super::node::{planes, with_rivals};
use super::{Outcome, out};
use crate::exit::{Exit, Failure};
use crate::logging::note;

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
    TcpProxy,
}

impl NodeKind {
    /// Returns the kind of node; `None` for a TCP proxy, whose file has a schema of its own.
    const fn kind(self) -> Option<Kind> {
        match self {
            NodeKind::Router => Some(Kind::Router),
            NodeKind::Host => Some(Kind::Host),
            NodeKind::Gnrs => Some(Kind::Gnrs),
            NodeKind::TcpProxy => None,
        }
    }
}

pub(crate) fn run(command: &ConfigCommand) -> Outcome {
    match command {
        ConfigCommand::Sample { node } => match node.kind() {
            Some(kind) => out(&sample(kind)),
            None => out(config::SAMPLE),
        },
        ConfigCommand::Check { file, node } => {
            let mut remark = String::new();
            // Once: a pipe has its text only for the first reader.
            let text = small_file::read_text(file).map_err(|source| ConfigError::Read {
                path: file.clone(),
                source,
            })?;
            if is_proxy(&text, *node) {
                check_proxy(file, &text)?;
            } else {
                let draft = with_rivals(Draft::parse(file, &text)?);
                let kind = node.and_then(NodeKind::kind);
                let checked = draft.check_here(kind.unwrap_or_else(|| draft.kind()))?;
                if let Some(awaited) = &checked.awaited {
                    note(&awaited.to_string());
                }
                remark = remark_on(&checked.plan);
            }
            out(&format!("{}: no errors{remark}\n", file.display()));
        }
    }
    Ok(Exit::Done)
}

/// Returns what a start needs beside the file, and which planes of a router it starts.
fn remark_on(plan: &Plan) -> String {
    match plan {
        Plan::Host(plan) if plan.links.is_empty() => {
            String::from("; it has no [[link]], so `whimbrel host run` needs --router HOST:PORT")
        }
        Plan::Router(plan) => format!("; {}", planes(plan)),
        _ => String::new(),
    }
}

fn is_proxy(text: &str, node: Option<NodeKind>) -> bool {
    match node {
        Some(node) => node.kind().is_none(),
        None => ProxyConfig::looks_like(text),
    }
}

/// Checks everything but the forwarder and the device, which only a start can tell.
fn check_proxy(file: &Path, text: &str) -> Result<(), Failure> {
    let config = ProxyConfig::parse(file, text)?;
    config.plan(config.role(), WallClock::new(0))?;
    Ok(())
}
