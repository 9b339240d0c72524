//! `completions` and `man`: what a shell and a manual reader need to know of the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Outcome, out};
use crate::arguments::Arguments;
use crate::exit::{Exit, Failure};

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  whimbrel completions bash > ~/.local/share/bash-completion/completions/whimbrel"
)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  whimbrel man ~/.local/share/man/man1 && man whimbrel-get\n\n\
                  Exit code 6: a page cannot be written."
)]
pub(crate) struct Man {
    /// The folder for the pages; created if it does not exist
    folder: PathBuf,
}

pub(crate) fn completions(command: &Completions) -> Outcome {
    let mut script = Vec::new();
    let mut arguments = Arguments::command();
    clap_complete::generate(command.shell, &mut arguments, "whimbrel", &mut script);
    out(&String::from_utf8_lossy(&script));
    Ok(Exit::Done)
}

/// Writes a page for the command and for each of its subcommands.
pub(crate) fn man(command: &Man) -> Outcome {
    let folder = &command.folder;
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), folder))
        .map_err(|fault| {
            Failure::new(
                Exit::Write,
                format!("cannot write manual pages to {}: {fault}", folder.display()),
            )
        })?;
    Ok(Exit::Done)
}
