//! `key ...`: keys and certificates of NDN identities.

mod certificates;
mod passphrase;
mod private;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use whimbrel_keychain::{Keychain, KeychainError};
use whimbrel_ndn_packet::Name;
use whimbrel_ndn_packet::certificate::identity_of_key;

use super::{Outcome, out};
use crate::exit::{Exit, Failure};

#[derive(Subcommand, Debug)]
pub(crate) enum KeyCommand {
    /// Create a key and its self-signed certificate; the first one is the default
    #[command(
        after_help = "Examples:\n  whimbrel key gen /example/alice\n  whimbrel key gen /example/camera --type ed25519"
    )]
    Gen(private::Generate),
    /// List identities and their keys; * marks the defaults
    #[command(after_help = "Example:\n  whimbrel key list --certificates")]
    List(private::List),
    /// Show a key: an identity's default key, or the named key
    #[command(after_help = "Example:\n  whimbrel key show /example/alice")]
    Show(private::Show),
    /// Set the default identity, key or certificate
    #[command(after_help = "Example:\n  whimbrel key default /example/alice")]
    Default(private::Choose),
    /// Delete a key with its certificates, or an identity with all its keys
    #[command(after_help = "Example:\n  whimbrel key delete /example/alice/KEY/%8F%01")]
    Delete(private::Delete),
    /// Export a key and its certificate under a passphrase, as `ndnsec export` does
    #[command(after_help = "Example:\n  whimbrel key export /example/alice -o alice.safebag")]
    Export(private::Export),
    /// Import a key and its certificate from such a file, as `ndnsec import` does
    #[command(after_help = "Example:\n  whimbrel key import alice.safebag")]
    Import(private::Import),
    /// Print a certificate request, as `ndnsec sign-req` does
    #[command(after_help = "Example:\n  whimbrel key sign-req /example/alice > alice.req")]
    SignReq(private::Request),
    /// Certificates
    #[command(subcommand)]
    Cert(certificates::CertificateCommand),
}

/// The keychain's folder.
#[derive(Args, Debug, Clone)]
pub(crate) struct KeychainPlace {
    /// The folder of the keychain; by default ~/.whimbrel/keychain
    #[arg(long = "keychain", env = "WHIMBREL_KEYCHAIN", value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl KeychainPlace {
    fn folder(&self) -> Result<PathBuf, Failure> {
        Ok(self
            .folder
            .clone()
            .map_or_else(Keychain::default_folder, Ok)?)
    }

    /// Opens the keychain; creates an empty one if it does not exist.
    pub(crate) fn open(&self) -> Result<Keychain, Failure> {
        opened(self.folder()?)
    }

    /// Opens the keychain if it exists.
    pub(crate) fn open_if_there(&self) -> Result<Option<Keychain>, Failure> {
        // Without a home there is no keychain either.
        let Ok(folder) = self.folder() else {
            return Ok(None);
        };
        if folder.exists() {
            opened(folder).map(Some)
        } else {
            Ok(None)
        }
    }
}

fn opened(folder: PathBuf) -> Result<Keychain, Failure> {
    let keychain = Keychain::open(folder)?;
    for problem in keychain.problems() {
        tracing::warn!(%problem, "the keychain");
    }
    Ok(keychain)
}

impl From<KeychainError> for Failure {
    fn from(error: KeychainError) -> Failure {
        let exit = match &error {
            KeychainError::Disk { .. } => Exit::Write,
            KeychainError::NoHome
            | KeychainError::Foreign(_)
            | KeychainError::Empty
            | KeychainError::UnknownIdentity(_)
            | KeychainError::UnknownKey(_)
            | KeychainError::UnknownCertificate(_)
            | KeychainError::NoKeyName(_)
            | KeychainError::Exists { .. } => Exit::Usage,
            _ => Exit::Other,
        };
        let hint = match &error {
            KeychainError::Empty => "; `whimbrel key gen NAME` creates one",
            KeychainError::UnknownIdentity(_) | KeychainError::UnknownKey(_) => {
                "; see `whimbrel key list`"
            }
            KeychainError::UnknownCertificate(_) => "; see `whimbrel key cert list`",
            _ => "",
        };
        Failure::new(exit, format!("{error}{hint}"))
    }
}

pub(crate) fn run(command: KeyCommand) -> Outcome {
    match command {
        KeyCommand::Gen(arguments) => private::generate(&arguments),
        KeyCommand::List(arguments) => private::list(&arguments),
        KeyCommand::Show(arguments) => private::show(&arguments),
        KeyCommand::Default(arguments) => private::choose(&arguments),
        KeyCommand::Delete(arguments) => private::delete(&arguments),
        KeyCommand::Export(arguments) => private::export(&arguments),
        KeyCommand::Import(arguments) => private::import(&arguments),
        KeyCommand::SignReq(arguments) => private::request(&arguments),
        KeyCommand::Cert(command) => certificates::run(&command),
    }
}

/// Parses a name of the command line.
fn name(text: &str) -> Result<Name, String> {
    super::ndn::name(text)
}

/// Returns the key that `name` denotes: itself, or the default key of an identity.
fn key_of(keychain: &Keychain, name: Option<&Name>) -> Result<Name, KeychainError> {
    let identity = match name {
        Some(name) if identity_of_key(name.as_ref()).is_some() => {
            let known = keychain.keys().any(|key| key == name);
            return if known {
                Ok(name.clone())
            } else {
                Err(KeychainError::UnknownKey(name.clone()))
            };
        }
        Some(identity) => identity.clone(),
        None => keychain.default_identity().ok_or(KeychainError::Empty)?,
    };
    keychain
        .default_key(&identity)
        .cloned()
        .ok_or(KeychainError::UnknownIdentity(identity))
}

/// Microseconds since 1970, the versions of certificates.
fn unix_micros() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Writes to a file, or to standard output.
fn write_text(path: Option<&Path>, text: &str, secret: bool) -> Result<(), Failure> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
        out(text);
        return Ok(());
    };
    let mode = if secret { 0o600 } else { 0o666 };
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(path)?;
        file.write_all(text.as_bytes())
    };
    write().map_err(|error| {
        Failure::new(
            Exit::Write,
            format!("cannot write {}: {error}", path.display()),
        )
    })
}

/// Reads a file, or standard input.
fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    use std::io::Read;
    let read = || -> std::io::Result<Vec<u8>> {
        if path.as_os_str() != "-" {
            return std::fs::read(path);
        }
        let mut content = Vec::new();
        std::io::stdin().read_to_end(&mut content)?;
        Ok(content)
    };
    read().map_err(|error| {
        Failure::new(
            Exit::Usage,
            format!("cannot read {}: {error}", path.display()),
        )
    })
}
