//! Passphrases: from a file, or prompted for on the terminal.

use std::path::PathBuf;

use clap::Args;
use zeroize::Zeroizing;

use crate::exit::{Exit, Failure};

#[derive(Args, Debug)]
pub(super) struct PassphraseArguments {
    /// Read the passphrase from the first line of this file; by default prompt for it
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl PassphraseArguments {
    /// Reads the passphrase of an encrypted key.
    pub(super) fn read(&self) -> Result<Zeroizing<String>, Failure> {
        self.in_file().unwrap_or_else(|| ask("Passphrase: "))
    }

    /// Chooses a new passphrase: typed twice, not empty.
    pub(super) fn choose(&self) -> Result<Zeroizing<String>, Failure> {
        let chosen = match self.in_file() {
            Some(read) => read?,
            None => {
                let chosen = ask("Passphrase: ")?;
                if *ask("Repeat the passphrase: ")? != *chosen {
                    return Err(Failure::new(Exit::Usage, "the two passphrases differ"));
                }
                chosen
            }
        };
        if chosen.is_empty() {
            return Err(Failure::new(
                Exit::Usage,
                "the passphrase is empty: choose one",
            ));
        }
        Ok(chosen)
    }

    fn in_file(&self) -> Option<Result<Zeroizing<String>, Failure>> {
        let path = self.passphrase_file.as_ref()?;
        let content = std::fs::read_to_string(path).map(Zeroizing::new);
        let first = content
            .map(|content| Zeroizing::new(content.lines().next().unwrap_or_default().to_owned()));
        Some(first.map_err(|error| {
            Failure::new(
                Exit::Usage,
                format!("cannot read {}: {error}", path.display()),
            )
        }))
    }
}

fn ask(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    rpassword::prompt_password(prompt).map(Zeroizing::new).map_err(|error| {
        let text =
            format!("no terminal to ask for the passphrase ({error}); give it with --passphrase-file FILE");
        Failure::new(Exit::Usage, text)
    })
}
