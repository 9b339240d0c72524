//! A Data as text and JSON.

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use whimbrel_ndn_packet::{DataRef, KeyLocatorRef, SignatureType};

use super::in_millis;
use crate::logging::is_printable;

/// Bytes shown of content that is not text.
const SHOWN: usize = 32;

/// For scripts: content as text if it is UTF-8, else as base64.
pub(super) fn data_json(data: &DataRef<'_>) -> Value {
    let text = std::str::from_utf8(data.content).ok();
    json!({
        "name": data.name.to_string(),
        "content_type": data.content_type.code(),
        "freshness_ms": in_millis(data.freshness),
        "final_block_id": data.final_block_id.map(|last| last.to_string()),
        "signature_type": data.signature_info.typ.code(),
        "key_locator": key_locator(data),
        "size": data.content.len(),
        "content": text,
        "content_base64": text.is_none().then(|| Base64::encode_string(data.content)),
    })
}

/// For people: all of the packet except the content.
pub(super) fn data_text(data: &DataRef<'_>) -> String {
    let mut text = format!("{}\n", data.name);
    text += &format!(
        "  content: {} bytes of type {:?}\n",
        data.content.len(),
        data.content_type
    );
    if !data.freshness.is_zero() {
        text += &format!("  fresh for: {} ms\n", data.freshness.as_millis());
    }
    if let Some(last) = data.final_block_id {
        text += &format!("  last segment: {last}\n");
    }
    let by = key_locator(data).map_or(String::new(), |key| format!(" by {key}"));
    text += &format!(
        "  signature: {}{by}\n",
        signature_type(data.signature_info.typ)
    );
    text
}

/// Content for a terminal: verbatim if it is text.
pub(super) fn content_text(content: &[u8]) -> String {
    match std::str::from_utf8(content) {
        Ok(text) if text.chars().all(is_printable) => {
            let end = if text.ends_with('\n') || text.is_empty() {
                ""
            } else {
                "\n"
            };
            format!("{text}{end}")
        }
        _ => {
            let more = if content.len() > SHOWN { " ..." } else { "" };
            format!(
                "{}{more}\n",
                hex::encode(content.get(..SHOWN).unwrap_or(content))
            )
        }
    }
}

fn key_locator(data: &DataRef<'_>) -> Option<String> {
    data.signature_info
        .key_locator
        .map(|locator| match locator {
            KeyLocatorRef::Name(name) => name.to_string(),
            KeyLocatorRef::Digest(digest) => format!("digest {}", hex::encode(digest)),
        })
}

/// Returns the name of a signature type.
pub(crate) fn signature_type(typ: SignatureType) -> String {
    match typ {
        SignatureType::DigestSha256 => String::from("SHA-256 digest"),
        SignatureType::Sha256WithRsa => String::from("RSA with SHA-256"),
        SignatureType::Sha256WithEcdsa => String::from("ECDSA with SHA-256"),
        SignatureType::HmacWithSha256 => String::from("HMAC with SHA-256"),
        SignatureType::Ed25519 => String::from("Ed25519"),
        SignatureType::Null => String::from("none"),
        SignatureType::Other(code) => format!("type {code}"),
    }
}
