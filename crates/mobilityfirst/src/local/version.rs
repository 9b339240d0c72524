//! The first frame of each side: its protocol version.

use thiserror::Error;

/// The version of the local protocol that this program speaks.
pub const LOCAL_VERSION: u16 = 2;
/// The first bytes of the first frame: no message of the protocol has such a type.
const MAGIC: [u8; 4] = *b"WHLP";

/// Why the connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VersionMismatch {
    /// The version differs.
    #[error(
        "the other side speaks version {theirs} of the local protocol, this program version {LOCAL_VERSION}: \
         the daemon and the command must be of the same release"
    )]
    Other {
        /// Its version.
        theirs: u16,
    },
    /// Its first frame has no version.
    #[error(
        "the other side names no version of the local protocol, this program speaks version {LOCAL_VERSION}: \
         the daemon and the command must be of the same release"
    )]
    None,
}

/// Returns the content of the first frame.
pub fn greeting() -> [u8; 6] {
    let [high, low] = LOCAL_VERSION.to_be_bytes();
    let [a, b, c, d] = MAGIC;
    [a, b, c, d, high, low]
}

/// Checks the first frame of the other side. A later version may append to it.
pub fn check_greeting(frame: &[u8]) -> Result<(), VersionMismatch> {
    let version = frame
        .strip_prefix(&MAGIC)
        .and_then(|rest| rest.first_chunk::<2>());
    match version.map(|version| u16::from_be_bytes(*version)) {
        Some(LOCAL_VERSION) => Ok(()),
        Some(theirs) => Err(VersionMismatch::Other { theirs }),
        None => Err(VersionMismatch::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_version_is_taken() {
        assert_eq!(check_greeting(&greeting()), Ok(()));
        let mut later = greeting();
        later[5] += 1;
        let theirs = LOCAL_VERSION + 1;
        assert_eq!(
            check_greeting(&later),
            Err(VersionMismatch::Other { theirs })
        );
        for none in [&b""[..], b"WHL", b"WHLP\0", b"\x07\0\0\0\x01"] {
            assert_eq!(check_greeting(none), Err(VersionMismatch::None));
        }
    }
}
