//! Contents that only those with a key can read: what crosses routers, and is stored there, is encrypted.

use core::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};
use chacha20::ChaCha20Legacy;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use whimbrel_core::Guid;
use zeroize::Zeroize;

/// Length of a key in bytes.
pub const KEY_LEN: usize = 16;
/// Longest name of a file that is hidden, in bytes: its text has at most 255.
const MAX_NAME: usize = 190;
/// Bytes before the list of a folder: its length.
const LIST_AT: usize = 8;

/// The key of an encrypted content, or of a folder of them.
///
/// A content is encrypted with ChaCha20, so that each byte stays at its offset: a chunk is read without the others, and a
/// transfer resumes anywhere. Chunks are verified by the name of the encrypted content, which protects it from changes. One
/// key encrypts one content under one name of a file: it follows from both.
#[derive(Clone, PartialEq, Eq)]
pub struct ContentKey([u8; KEY_LEN]);

impl ContentKey {
    /// Returns the key of a file for a sender with this secret: the same for the same bytes under the same name, so that a
    /// sender that starts again offers what it has offered before.
    pub fn of_file(secret: &[u8; 32], plain: &Guid, file_name: &str) -> ContentKey {
        let context = "whimbrel 2026 key of an encrypted file";
        derived(context, secret, plain, file_name)
    }

    /// Returns the key of a folder with this list for a sender with this secret.
    pub fn of_folder(secret: &[u8; 32], list: &Guid, file_name: &str) -> ContentKey {
        let context = "whimbrel 2026 key of an encrypted folder";
        derived(context, secret, list, file_name)
    }

    /// Returns the key with these bytes.
    pub fn new(bytes: [u8; KEY_LEN]) -> ContentKey {
        ContentKey(bytes)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Returns the key of a content in the encrypted folder with this key.
    pub fn of_member(&self, plain: &Guid) -> ContentKey {
        derived(
            "whimbrel 2026 key in an encrypted folder",
            &self.0,
            plain,
            "",
        )
    }

    /// Encrypts the bytes at `offset` of a content, or decrypts them.
    pub fn apply(&self, offset: u64, bytes: &mut [u8]) {
        let key = blake3::derive_key("whimbrel 2026 bytes of an encrypted content", &self.0);
        apply(&key, offset, bytes);
    }

    /// Returns the text that stands for a file's name. A name that is too long is cut off.
    pub fn hide_name(&self, name: &str) -> String {
        let end = name.floor_char_boundary(MAX_NAME);
        let mut bytes = name.as_bytes()[..end].to_vec();
        apply(&self.name_key(), 0, &mut bytes);
        Base64UrlUnpadded::encode_string(&bytes)
    }

    /// Returns the name that such a text stands for.
    pub fn name(&self, hidden: &str) -> Option<String> {
        let mut bytes = Base64UrlUnpadded::decode_vec(hidden).ok()?;
        apply(&self.name_key(), 0, &mut bytes);
        String::from_utf8(bytes).ok()
    }

    fn name_key(&self) -> [u8; 32] {
        blake3::derive_key("whimbrel 2026 name of an encrypted content", &self.0)
    }
}

impl Drop for ContentKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A key is not for logs.
impl fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContentKey")
    }
}

/// The name takes part because it is encrypted, too: two names under one key would give away their difference.
fn derived(context: &str, secret: &[u8], plain: &Guid, file_name: &str) -> ContentKey {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    hasher.update(secret);
    hasher.update(plain.as_bytes());
    hasher.update(file_name.as_bytes());
    let mut key = [0; KEY_LEN];
    hasher.finalize_xof().fill(&mut key);
    ContentKey(key)
}

/// Every key is of one content, so that the nonce may be the same.
fn apply(key: &[u8; 32], offset: u64, bytes: &mut [u8]) {
    let mut cipher = ChaCha20Legacy::new(key.into(), &[0; 8].into());
    cipher.seek(offset);
    cipher.apply_keystream(bytes);
}

/// Puts the names of the encrypted contents of a folder behind its list. They are in the order in which the list needs them
/// first.
pub fn encode_list(list: &[u8], names: &[Guid]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LIST_AT + list.len() + size_of_val(names));
    bytes.extend_from_slice(&(list.len() as u64).to_be_bytes());
    bytes.extend_from_slice(list);
    names
        .iter()
        .for_each(|name| bytes.extend_from_slice(name.as_bytes()));
    bytes
}

/// Returns the list of an encrypted folder and the names behind it, or `None` if these bytes are none.
pub fn decode_list(bytes: &[u8]) -> Option<(&[u8], Vec<Guid>)> {
    let (len, rest) = bytes.split_first_chunk::<LIST_AT>()?;
    let len = usize::try_from(u64::from_be_bytes(*len)).ok()?;
    let (list, names) = rest.split_at_checked(len)?;
    let (names, []) = names.as_chunks::<32>() else {
        return None;
    };
    Some((list, names.iter().map(|name| Guid(*name)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(number: u8) -> ContentKey {
        ContentKey::new([number; KEY_LEN])
    }

    proptest! {
        #[test]
        fn any_part_decrypts_by_itself(bytes in prop::collection::vec(any::<u8>(), 1..500), at in 0u64..1 << 50, from in any::<prop::sample::Index>()) {
            let mut whole = bytes.clone();
            key(7).apply(at, &mut whole);
            let from = from.index(bytes.len());
            let mut part = whole[from..].to_vec();
            key(7).apply(at + from as u64, &mut part);
            prop_assert_eq!(&part[..], &bytes[from..]);
        }

        #[test]
        fn names_come_back_and_any_text_is_one_or_none(name in "\\PC{0,300}", other in "\\PC{0,60}") {
            let hidden = key(1).hide_name(&name);
            prop_assert!(hidden.len() <= 255);
            let shown = key(1).name(&hidden).unwrap();
            prop_assert!(name.starts_with(&shown) && (shown == name || name.len() > MAX_NAME));
            let _ = key(1).name(&other);
        }

        #[test]
        fn lists_come_back_and_any_bytes_are_one_or_none(
            list in prop::collection::vec(any::<u8>(), 0..100),
            names in prop::collection::vec(any::<[u8; 32]>().prop_map(Guid), 0..5),
            other in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let bytes = encode_list(&list, &names);
            prop_assert_eq!(decode_list(&bytes), Some((&list[..], names)));
            let _ = decode_list(&other);
        }
    }

    /// Two contents under one key would give away their difference.
    #[test]
    fn every_content_has_a_key_of_its_own() {
        let (plain, secret) = (Guid([3; 32]), [4; 32]);
        let file = ContentKey::of_file(&secret, &plain, "film");
        let folder = ContentKey::of_folder(&secret, &plain, "film");
        let keys = [
            file.of_member(&plain),
            folder.of_member(&plain),
            file.clone(),
            folder,
            ContentKey::of_file(&secret, &plain, "film.mkv"),
            ContentKey::of_file(&[5; 32], &plain, "film"),
            ContentKey::of_file(&secret, &Guid([6; 32]), "film"),
        ];
        for (at, one) in keys.iter().enumerate() {
            assert!(keys[..at].iter().all(|other| other != one), "{at}");
        }
        assert_eq!(format!("{file:?}"), "ContentKey");
    }
}
