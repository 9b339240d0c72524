//! Keys and certificates of an NDN user in a folder on disk, and the validation of packets with
//! them.
//!
//! | module | holds |
//! |---|---|
//! | [`keychain`] | [`Keychain`]: identities, their keys, the keys' certificates; signers; safe bags in and out |
//! | [`ownership`] | paths that another user could have prepared, or could change |
//! | [`small_file`] | files that are small by their nature, as keys and configurations |
//! | [`text`] | certificates and safe bags as files have them: base64 as `ndnsec` prints it, PEM, or plain octets |
//! | [`validator`] | [`Validator`]: is a packet signed by a key that chains to a trust anchor? |
//!
//! This crate draws no randomness and reads no clock: the caller passes a generator to generate or
//! export keys, and the time to validate.
#![forbid(unsafe_code)]

mod defaults;
mod entries;
mod error;
mod folder;
pub mod keychain;
pub mod ownership;
pub mod small_file;
pub mod text;
pub mod validator;

pub use error::KeychainError;
pub use keychain::{Keychain, SignBy};
pub use validator::{Rule, ValidationError, Validator};
