//! The formats of a keychain's files.

use std::io;
use std::path::Path;

use bytes::Bytes;
use whimbrel_ndn_packet::certificate::identity_of_key;
use whimbrel_ndn_packet::signature::sha256;
use whimbrel_ndn_packet::{Certificate, Name, PrivateKey};
use zeroize::Zeroizing;

use crate::error::KeychainError;
use crate::{folder, text};

pub(crate) fn disk(path: &Path, error: io::Error) -> KeychainError {
    KeychainError::Disk {
        path: path.to_owned(),
        error,
    }
}

/// Names may be long and have any octets: a digest serves as file name.
pub(crate) fn file_name(name: &Name, extension: &str) -> String {
    let digest = sha256(&[name.as_ref().value()]);
    format!(
        "{}.{extension}",
        hex::encode(digest.get(..16).unwrap_or_default())
    )
}

/// Returns the name as a text line, then PEM; OpenSSL skips the lines before PEM.
pub(crate) fn key_text(name: &Name, key: &PrivateKey) -> Result<Zeroizing<String>, KeychainError> {
    let body = Zeroizing::new(text::encode(&key.to_pkcs8()?));
    Ok(Zeroizing::new(format!(
        "Name: {name}\n-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----\n",
        body.as_str()
    )))
}

pub(crate) fn read_key(path: &Path) -> Result<(Name, PrivateKey), KeychainError> {
    let damaged = |why: String| KeychainError::Damaged {
        path: path.to_owned(),
        why,
    };
    let content = folder::read(path).map_err(|error| disk(path, error))?;
    let content =
        Zeroizing::new(content.ok_or_else(|| disk(path, io::ErrorKind::NotFound.into()))?);
    let text = str::from_utf8(&content).map_err(|_| damaged("it is not text".to_owned()))?;
    let uri = text.lines().find_map(|line| line.strip_prefix("Name: "));
    let uri = uri.ok_or_else(|| damaged("it has no line with the name of the key".to_owned()))?;
    let name: Name = uri
        .trim()
        .parse()
        .map_err(|error| damaged(format!("the name of the key: {error}")))?;
    if identity_of_key(name.as_ref()).is_none() {
        return Err(damaged(format!("{name} is not the name of a key")));
    }
    let body = text::pem_body(text).ok_or_else(|| damaged("it has no PEM block".to_owned()))?;
    let der = text::base64(body).map_err(|_| damaged("its PEM block is not base64".to_owned()))?;
    let key = PrivateKey::from_pkcs8(&der).map_err(|error| damaged(error.to_string()))?;
    Ok((name, key))
}

pub(crate) fn read_certificate(path: &Path) -> Result<Certificate, KeychainError> {
    let damaged = |why: String| KeychainError::Damaged {
        path: path.to_owned(),
        why,
    };
    let content = folder::read(path).map_err(|error| disk(path, error))?;
    let content = content.ok_or_else(|| disk(path, io::ErrorKind::NotFound.into()))?;
    let octets = text::decode(&content).map_err(|error| damaged(error.to_string()))?;
    Certificate::decode(Bytes::from(octets)).map_err(|error| damaged(error.to_string()))
}
