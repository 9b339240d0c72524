//! What can go wrong with a keychain.

use std::io;
use std::path::PathBuf;

use whimbrel_ndn_packet::{CertificateError, KeyError, Name, SafeBagError};

/// Why a keychain cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum KeychainError {
    /// Neither a folder nor a home is known.
    #[error("the environment variable HOME is not set: say which folder holds the keychain")]
    NoHome,
    /// The disk or its permissions.
    #[error("{path}: {error}", path = path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A file of the keychain cannot be understood.
    #[error("{path}: {why}; move the file away, or restore it from a backup", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Others may read a private key.
    #[error("{path}: others than you may read this private key: run chmod 600 on it", path = path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// There is nothing in it.
    #[error("the keychain holds no key: make one, or import a safe bag")]
    Empty,
    /// No key has this identity.
    #[error("the keychain holds no key of {0}: list its identities, or make a key")]
    UnknownIdentity(Name),
    /// There is no key of this name.
    #[error("the keychain holds no key {0}: list its keys")]
    UnknownKey(Name),
    /// There is no certificate of this name.
    #[error("the keychain holds no certificate {0}: list its certificates")]
    UnknownCertificate(Name),
    /// A name is not that of a key.
    #[error("{0} is not the name of a key: /<identity>/KEY/<key-id>")]
    NoKeyName(Name),
    /// Something else has this name.
    #[error("the keychain already holds another {what} {name}: delete it first")]
    Exists {
        /// A key or a certificate.
        what: &'static str,
        /// Its name.
        name: Name,
    },
    /// A certificate is about another key than the one of its name.
    #[error("the certificate {0} holds another public key than the keychain has under that name")]
    OtherKey(Name),
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A certificate cannot be read or made.
    #[error("the certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// A safe bag cannot be read or made.
    #[error(transparent)]
    SafeBag(#[from] SafeBagError),
}
