//! File formats of certificates and safe bags.

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

/// Characters of a line of base64, as `ndnsec` and PEM have them.
const LINE: usize = 64;

/// Why a file is not an NDN packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file holds neither base64 (as ndnsec prints it), nor PEM, nor an NDN packet")]
pub struct NotEncoded;

/// Encodes as `ndnsec` prints certificates and safe bags: base64 in lines of 64 characters.
pub fn encode(octets: &[u8]) -> String {
    let text = Base64::encode_string(octets);
    let mut lines = String::with_capacity(text.len() + text.len() / LINE + 1);
    for (at, character) in text.chars().enumerate() {
        if at > 0 && at % LINE == 0 {
            lines.push('\n');
        }
        lines.push(character);
    }
    lines.push('\n');
    lines
}

/// Decodes a file: base64 with white space anywhere, PEM with any label and headers, or the packet
/// itself, which begins with the type of a Data or of a safe bag.
pub fn decode(file: &[u8]) -> Result<Vec<u8>, NotEncoded> {
    if let Some(0x06 | 0x80) = file.first() {
        return Ok(file.to_vec());
    }
    let text = str::from_utf8(file).map_err(|_| NotEncoded)?;
    Ok(base64(pem_body(text).unwrap_or(text))?.to_vec())
}

/// Returns the text between the lines `-----BEGIN x-----` and `-----END x-----`, without headers;
/// `None` if there is no such block.
pub(crate) fn pem_body(text: &str) -> Option<&str> {
    let (_, after_begin) = text.split_once("-----BEGIN ")?;
    let (_, body) = after_begin.split_once("-----")?;
    let (body, _) = body.split_once("-----END ")?;
    // Headers such as "Name: /a" end with an empty line.
    match body.trim_start().split_once("\n\n") {
        Some((headers, rest)) if headers.contains(':') => Some(rest),
        _ => Some(body),
    }
}

pub(crate) fn base64(text: &str) -> Result<Zeroizing<Vec<u8>>, NotEncoded> {
    let packed: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
    if packed.is_empty() {
        return Err(NotEncoded);
    }
    Base64::decode_vec(&packed)
        .map(Zeroizing::new)
        .map_err(|_| NotEncoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn files_are_read_in_every_form() {
        let packet = [0x06, 0x03, 1, 2, 3];
        let plain = Base64::encode_string(&packet);
        for file in [
            plain.clone(),
            format!("{plain}\n"),
            format!("  {}\r\n{}\n\n", &plain[..3], &plain[3..]),
            format!("-----BEGIN NDN CERT-----\n{plain}\n-----END NDN CERT-----\n"),
            format!(
                "-----BEGIN NDN CERT-----\nName: /a/KEY\nSigType: x\n\n{plain}\n-----END NDN CERT-----"
            ),
        ] {
            assert_eq!(decode(file.as_bytes()), Ok(packet.to_vec()), "{file}");
        }
        assert_eq!(decode(&packet), Ok(packet.to_vec()));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for file in [
            &b""[..],
            b" \n",
            b"\xff\xfe",
            b"no certificate!",
            b"Bg=",
            b"-----BEGIN X-----\n-----END X-----",
        ] {
            assert_eq!(decode(file), Err(NotEncoded), "{file:?}");
        }
    }

    proptest! {
        #[test]
        fn octets_survive_being_text(octets in prop::collection::vec(any::<u8>(), 1..400)) {
            let text = encode(&octets);
            prop_assert!(text.ends_with('\n') && text.lines().all(|line| line.len() <= LINE));
            prop_assert_eq!(decode(text.as_bytes()), Ok(octets));
        }

        #[test]
        fn any_file_is_read_or_refused(file in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,100}") {
            let _ = (decode(&file), decode(text.as_bytes()), decode(format!("-----BEGIN {text}").as_bytes()));
        }
    }
}
