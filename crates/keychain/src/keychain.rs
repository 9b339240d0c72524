//! Identities, their keys, the keys' certificates.
//!
//! | in the folder | content |
//! |---|---|
//! | `keys/*.pem` | a private key each: a line `Name: ...`, then PKCS#8 as PEM, not encrypted; mode 600 |
//! | `certificates/*.cert` | a certificate each: base64, as `ndnsec cert-dump` prints it |
//! | `defaults` | the user's defaults: lines `identity ...`, `key ...`, `certificate ...` |
//! | `lock` | held while a process changes the keychain |
//!
//! Several processes may use one keychain: each change is atomic, and other processes see it when
//! they open the keychain again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rand_core::CryptoRng;
use whimbrel_ndn_packet::certificate::{identity_of_key, key_name};
use whimbrel_ndn_packet::{
    Certificate, CertificateDraft, Component, KeySigner, KeyType, Name, PrivateKey, SafeBag,
    ValidityPeriod,
};

use crate::defaults::Defaults;
use crate::entries::{disk, file_name, key_text, read_certificate, read_key};
pub use crate::error::KeychainError;
use crate::ownership::{self, Origin};
use crate::validator::Validator;
use crate::{folder, small_file, text};

/// Validity of a new key's self-signed certificate: about 20 years, as with `ndnsec`. Trust in a
/// key rests on its name; this certificate only carries it.
const OWN_VALIDITY: u64 = 20 * 365 * 86_400;

/// A choice of signing key.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum SignBy {
    /// The default key of the default identity.
    #[default]
    Default,
    /// The default key of this identity.
    Identity(Name),
    /// This key.
    Key(Name),
    /// The key of this certificate, under the name of the certificate.
    Certificate(Name),
}

/// A keychain. The folder is read once, when it is opened; private keys are read when they are
/// used.
#[derive(Debug)]
pub struct Keychain {
    folder: PathBuf,
    keys: BTreeSet<Name>,
    certificates: BTreeMap<Name, Certificate>,
    defaults: Defaults,
    problems: Vec<KeychainError>,
}

impl Keychain {
    /// Returns the default folder of a user's keychain: `~/.whimbrel/keychain`.
    pub fn default_folder() -> Result<PathBuf, KeychainError> {
        let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
        Ok(home
            .ok_or(KeychainError::NoHome)?
            .join(".whimbrel")
            .join("keychain"))
    }

    /// Opens the keychain in a folder, and creates the folder if it is missing. Refuses a folder that
    /// another user could have prepared. Skips files that cannot be read; [`Keychain::problems`]
    /// lists them.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Keychain, KeychainError> {
        let folder = folder.into();
        let is_default = Keychain::default_folder().is_ok_and(|own| folder.starts_with(own));
        let origin = if is_default {
            Origin::Default
        } else {
            Origin::Named
        };
        ownership::check(&folder, origin)?;
        for part in [
            folder.clone(),
            folder.join("keys"),
            folder.join("certificates"),
        ] {
            folder::create(&part).map_err(|error| KeychainError::Disk { path: part, error })?;
        }
        let mut keychain = Keychain {
            folder,
            keys: BTreeSet::new(),
            certificates: BTreeMap::new(),
            defaults: Defaults::default(),
            problems: Vec::new(),
        };
        keychain.load()?;
        Ok(keychain)
    }

    fn load(&mut self) -> Result<(), KeychainError> {
        let keys = self.folder.join("keys");
        for path in folder::files(&keys, "pem")
            .map_err(|error| KeychainError::Disk { path: keys, error })?
        {
            match read_key(&path) {
                Ok((name, _)) => {
                    self.keys.insert(name);
                }
                Err(problem) => self.problems.push(problem),
            }
            if folder::is_open_to_others(&path).unwrap_or(false) {
                self.problems.push(KeychainError::Exposed { path });
            }
        }
        let certificates = self.folder.join("certificates");
        let paths = folder::files(&certificates, "cert").map_err(|error| KeychainError::Disk {
            path: certificates,
            error,
        })?;
        for path in paths {
            match read_certificate(&path) {
                Ok(certificate) => {
                    self.certificates
                        .insert(certificate.name().clone(), certificate);
                }
                Err(problem) => self.problems.push(problem),
            }
        }
        self.defaults = self.read_defaults()?;
        Ok(())
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Skipped files, and private keys that other users may read.
    pub fn problems(&self) -> &[KeychainError] {
        &self.problems
    }

    /// Returns the identities of its keys, in canonical order.
    pub fn identities(&self) -> impl Iterator<Item = Name> {
        let identities: BTreeSet<Name> = self.keys.iter().map(identity_of).collect();
        identities.into_iter()
    }

    /// Returns the default signing identity: the chosen one, else the first.
    pub fn default_identity(&self) -> Option<Name> {
        let chosen = self
            .defaults
            .identity
            .clone()
            .filter(|identity| self.keys_of(identity).next().is_some());
        chosen.or_else(|| self.identities().next())
    }

    /// Returns the names of all keys, in canonical order.
    pub fn keys(&self) -> impl Iterator<Item = &Name> {
        self.keys.iter()
    }

    /// Returns the names of the keys of an identity.
    pub fn keys_of(&self, identity: &Name) -> impl Iterator<Item = &Name> {
        self.keys
            .iter()
            .filter(move |key| identity_of(key) == *identity)
    }

    /// Returns the default signing key of an identity: the chosen one, else the first.
    pub fn default_key(&self, identity: &Name) -> Option<&Name> {
        let chosen = self
            .defaults
            .keys
            .get(identity)
            .filter(|key| self.keys.contains(*key));
        chosen.or_else(|| self.keys_of(identity).next())
    }

    /// Returns all certificates, in canonical order of their names. They need not belong to keys in
    /// the keychain: it also keeps trust anchors and issuers' certificates.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.certificates.values()
    }

    /// Returns the certificates of a key.
    pub fn certificates_of(&self, key: &Name) -> impl Iterator<Item = &Certificate> {
        self.certificates
            .values()
            .filter(move |certificate| certificate.key_name() == key)
    }

    /// Returns the certificate with this name.
    pub fn certificate(&self, name: &Name) -> Result<&Certificate, KeychainError> {
        self.certificates
            .get(name)
            .ok_or_else(|| KeychainError::UnknownCertificate(name.clone()))
    }

    /// Returns the default certificate of a key: the chosen one, else the newest of another issuer,
    /// else the newest.
    pub fn default_certificate(&self, key: &Name) -> Option<&Certificate> {
        let chosen = self
            .defaults
            .certificates
            .get(key)
            .and_then(|name| self.certificates.get(name));
        chosen.or_else(|| {
            self.certificates_of(key)
                .max_by_key(|certificate| (!certificate.is_self_signed(), certificate.version()))
        })
    }

    /// Generates a key and its self-signed certificate, and returns the name of the key.
    /// `unix_micros` is the present time: the version of the certificate, which is valid from then
    /// on. The first key of an identity and the first identity become the defaults.
    pub fn generate(
        &mut self,
        identity: &Name,
        typ: KeyType,
        unix_micros: u64,
        rng: &mut impl CryptoRng,
    ) -> Result<Name, KeychainError> {
        let key = PrivateKey::generate(typ, rng)?;
        let name = key_name(identity, &key.public_key())?;
        let validity = ValidityPeriod::starting(unix_micros / 1_000_000, OWN_VALIDITY);
        let draft = CertificateDraft::new(
            name.clone(),
            Component::generic("self"),
            unix_micros,
            validity,
        );
        let certificate = draft.self_sign(&key)?;
        self.add_key(&name, &key)?;
        self.add_certificate(certificate)?;
        Ok(name)
    }

    /// Adds a private key. Adding the same key again is not an error.
    pub fn add_key(&mut self, name: &Name, key: &PrivateKey) -> Result<(), KeychainError> {
        let identity =
            identity_of_key(name.as_ref()).ok_or_else(|| KeychainError::NoKeyName(name.clone()))?;
        let _lock = self.lock()?;
        let path = self.key_path(name);
        if folder::read(&path)
            .map_err(|error| disk(&path, error))?
            .is_some()
        {
            let (_, other) = read_key(&path)?;
            if other.public_key() != key.public_key() {
                return Err(KeychainError::Exists {
                    what: "key",
                    name: name.clone(),
                });
            }
        }
        small_file::write(&path, key_text(name, key)?.as_bytes())
            .map_err(|error| disk(&path, error))?;
        // Record it, so that a later key with a smaller name does not replace it.
        let mut defaults = self.read_defaults()?;
        let identity = identity.to_name();
        let first_of_all = defaults.identity.is_none() && self.keys.is_empty();
        defaults
            .keys
            .entry(identity.clone())
            .or_insert_with(|| name.clone());
        if first_of_all {
            defaults.identity = Some(identity);
        }
        self.keys.insert(name.clone());
        self.write_defaults(defaults)
    }

    /// Adds a certificate: of a key in the keychain, or of an issuer. Adding the same one again is
    /// not an error.
    pub fn add_certificate(&mut self, certificate: Certificate) -> Result<(), KeychainError> {
        let name = certificate.name().clone();
        if self.keys.contains(certificate.key_name())
            && self.private_key(certificate.key_name())?.public_key() != *certificate.public_key()
        {
            return Err(KeychainError::OtherKey(name));
        }
        let _lock = self.lock()?;
        match self.certificates.get(&name) {
            Some(other) if *other == certificate => return Ok(()),
            Some(_) => {
                return Err(KeychainError::Exists {
                    what: "certificate",
                    name,
                });
            }
            None => {}
        }
        let path = self.certificate_path(&name);
        small_file::write(&path, text::encode(certificate.wire()).as_bytes())
            .map_err(|error| disk(&path, error))?;
        self.certificates.insert(name, certificate);
        Ok(())
    }

    /// Sets the default signing identity.
    pub fn set_default_identity(&mut self, identity: &Name) -> Result<(), KeychainError> {
        if self.keys_of(identity).next().is_none() {
            return Err(KeychainError::UnknownIdentity(identity.clone()));
        }
        self.choose(|defaults| defaults.identity = Some(identity.clone()))
    }

    /// Sets the default signing key of its identity.
    pub fn set_default_key(&mut self, key: &Name) -> Result<(), KeychainError> {
        self.must_have(key)?;
        self.choose(|defaults| {
            defaults.keys.insert(identity_of(key), key.clone());
        })
    }

    /// Sets the default certificate of its key.
    pub fn set_default_certificate(&mut self, name: &Name) -> Result<(), KeychainError> {
        let key = self.certificate(name)?.key_name().clone();
        self.choose(|defaults| {
            defaults.certificates.insert(key, name.clone());
        })
    }

    /// Deletes an identity with all its keys and their certificates.
    pub fn delete_identity(&mut self, identity: &Name) -> Result<(), KeychainError> {
        let keys: Vec<Name> = self.keys_of(identity).cloned().collect();
        if keys.is_empty() {
            return Err(KeychainError::UnknownIdentity(identity.clone()));
        }
        keys.iter().try_for_each(|key| self.delete_key(key))
    }

    /// Deletes a key and its certificates. Its signatures remain valid.
    pub fn delete_key(&mut self, key: &Name) -> Result<(), KeychainError> {
        self.must_have(key)?;
        let certificates: Vec<Name> = self
            .certificates_of(key)
            .map(|certificate| certificate.name().clone())
            .collect();
        certificates
            .iter()
            .try_for_each(|certificate| self.delete_certificate(certificate))?;
        let path = self.key_path(key);
        let _lock = self.lock()?;
        folder::remove(&path).map_err(|error| disk(&path, error))?;
        self.keys.remove(key);
        Ok(())
    }

    /// Deletes a certificate.
    pub fn delete_certificate(&mut self, name: &Name) -> Result<(), KeychainError> {
        self.certificate(name)?;
        let path = self.certificate_path(name);
        let _lock = self.lock()?;
        folder::remove(&path).map_err(|error| disk(&path, error))?;
        self.certificates.remove(name);
        Ok(())
    }

    /// Returns a private key.
    pub fn private_key(&self, name: &Name) -> Result<PrivateKey, KeychainError> {
        self.must_have(name)?;
        let path = self.key_path(name);
        let (found, key) = read_key(&path)?;
        if found == *name {
            Ok(key)
        } else {
            Err(KeychainError::Damaged {
                path,
                why: format!("it holds the key {found}"),
            })
        }
    }

    /// Returns a signer. Its key locator is the name of the key, or of the certificate if `by`
    /// names one.
    pub fn signer(&self, by: &SignBy) -> Result<KeySigner, KeychainError> {
        let key = match by {
            SignBy::Default => {
                let identity = self.default_identity().ok_or(KeychainError::Empty)?;
                return self.signer(&SignBy::Identity(identity));
            }
            SignBy::Identity(identity) => {
                let unknown = || KeychainError::UnknownIdentity(identity.clone());
                self.default_key(identity).ok_or_else(unknown)?
            }
            SignBy::Key(key) => key,
            SignBy::Certificate(name) => {
                let key = self.certificate(name)?.key_name();
                return Ok(self.private_key(key)?.signer(name.clone()));
            }
        };
        Ok(self.private_key(key)?.signer(key.clone()))
    }

    /// Exports a key and its certificate under a passphrase.
    pub fn export(
        &self,
        certificate: &Name,
        passphrase: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<SafeBag, KeychainError> {
        let certificate = self.certificate(certificate)?;
        let key = self.private_key(certificate.key_name())?;
        Ok(SafeBag::seal(certificate.clone(), &key, passphrase, rng)?)
    }

    /// Imports a key and its certificate from a safe bag, and returns the name of the key.
    pub fn import(&mut self, bag: &SafeBag, passphrase: &[u8]) -> Result<Name, KeychainError> {
        let key = bag.open(passphrase)?;
        let name = bag.certificate().key_name().clone();
        self.add_key(&name, &key)?;
        self.add_certificate(bag.certificate().clone())?;
        Ok(name)
    }

    /// Returns a validator that trusts these certificates, and knows all others of the keychain as
    /// intermediates.
    pub fn validator(&self, anchors: impl IntoIterator<Item = Certificate>) -> Validator {
        let mut validator = Validator::new(anchors);
        for certificate in self.certificates.values() {
            // It was decoded as a certificate before.
            let _ = validator.add_certificate(certificate.wire().clone());
        }
        validator
    }

    fn must_have(&self, key: &Name) -> Result<(), KeychainError> {
        if self.keys.contains(key) {
            Ok(())
        } else {
            Err(KeychainError::UnknownKey(key.clone()))
        }
    }

    fn choose(&mut self, choice: impl FnOnce(&mut Defaults)) -> Result<(), KeychainError> {
        let _lock = self.lock()?;
        let mut defaults = self.read_defaults()?;
        choice(&mut defaults);
        self.write_defaults(defaults)
    }

    fn lock(&self) -> Result<std::fs::File, KeychainError> {
        folder::lock(&self.folder).map_err(|error| disk(&self.folder, error))
    }

    /// Reads from the disk, where another process may have changed them.
    fn read_defaults(&self) -> Result<Defaults, KeychainError> {
        let path = self.folder.join("defaults");
        let content = folder::read(&path)
            .map_err(|error| disk(&path, error))?
            .unwrap_or_default();
        Ok(Defaults::parse(&String::from_utf8_lossy(&content)))
    }

    fn write_defaults(&mut self, defaults: Defaults) -> Result<(), KeychainError> {
        let path = self.folder.join("defaults");
        small_file::write(&path, defaults.text().as_bytes()).map_err(|error| disk(&path, error))?;
        self.defaults = defaults;
        Ok(())
    }

    fn key_path(&self, name: &Name) -> PathBuf {
        self.folder.join("keys").join(file_name(name, "pem"))
    }

    fn certificate_path(&self, name: &Name) -> PathBuf {
        self.folder
            .join("certificates")
            .join(file_name(name, "cert"))
    }
}

fn identity_of(key: &Name) -> Name {
    identity_of_key(key.as_ref())
        .map(|identity| identity.to_name())
        .unwrap_or_default()
}
