//! Errors of a keychain.

use std::io;
use std::path::PathBuf;

use whimbrel_ndn_packet::{CertificateError, KeyError, Name, SafeBagError};

use crate::ownership::ForeignPath;

/// Why an operation on a keychain failed.
#[derive(Debug, thiserror::Error)]
pub enum KeychainError {
    /// Neither a folder nor HOME is given.
    #[error("the environment variable HOME is not set: name the keychain's folder")]
    NoHome,
    /// The disk or its permissions.
    #[error("{path}: {error}", path = path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another user could have prepared the folder, or could change it.
    #[error("the keychain: {0}")]
    Foreign(#[from] ForeignPath),
    /// A file of the keychain is damaged.
    #[error("{path}: {why}; move the file away, or restore it from a backup", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Other users may read a private key.
    #[error("{path}: other users may read this private key: run chmod 600 on it", path = path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The keychain is empty.
    #[error("the keychain is empty: generate a key, or import a safe bag")]
    Empty,
    /// The identity has no key.
    #[error("the keychain has no key of {0}: list its identities, or generate a key")]
    UnknownIdentity(Name),
    /// The key does not exist.
    #[error("the keychain has no key {0}: list its keys")]
    UnknownKey(Name),
    /// The certificate does not exist.
    #[error("the keychain has no certificate {0}: list its certificates")]
    UnknownCertificate(Name),
    /// A name is not that of a key.
    #[error("{0} is not the name of a key: /<identity>/KEY/<key-id>")]
    NoKeyName(Name),
    /// The name is taken by another key or certificate.
    #[error("the keychain already has another {what} {name}: delete it first")]
    Exists {
        /// A key or a certificate.
        what: &'static str,
        /// Its name.
        name: Name,
    },
    /// A certificate's public key differs from that of the key in its name.
    #[error("the public key of the certificate {0} differs from the keychain's key of that name")]
    OtherKey(Name),
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A certificate cannot be decoded or made.
    #[error("the certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// A safe bag cannot be decoded or made.
    #[error(transparent)]
    SafeBag(#[from] SafeBagError),
}
