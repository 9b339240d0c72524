//! `id new|show`.

use std::path::PathBuf;

use clap::Subcommand;
use whimbrel_node::keys;

use super::{Outcome, json_line, out};
use crate::exit::Exit;

#[derive(Subcommand, Debug)]
pub(crate) enum IdCommand {
    /// Create a key and print its name
    #[command(after_help = "Example:\n  whimbrel id new host.pem")]
    New {
        /// The file to write (PKCS#8 PEM, mode 0600); it must not exist
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the name of a key
    #[command(after_help = "Example:\n  whimbrel id show host.pem")]
    Show {
        /// The key file
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(command: &IdCommand) -> Outcome {
    let (keys, json) = match command {
        IdCommand::New { file, json } => (keys::create(file)?, *json),
        IdCommand::Show { file, json } => (keys::load(file)?, *json),
    };
    let (guid, public) = (keys.guid(), keys.public());
    if json {
        json_line(&serde_json::json!({ "guid": guid, "public_key": public.to_string() }));
    } else {
        out(&format!("{guid}\n"));
    }
    Ok(Exit::Done)
}
