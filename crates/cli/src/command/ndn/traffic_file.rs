//! Configuration files of the traffic generator.
//!
//! Facts: ndn-traffic-generator's sample configurations: blocks of `Key=Value` lines; a line that
//! does not begin with a letter ends a block, so comments (`#`) and empty lines separate them. Keys
//! are those of [`client`] and [`server`].

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use whimbrel_core::suggest::hint;
use whimbrel_ndn_packet::{ContentType, Name};
use whimbrel_transport::SharedSigner;
use whimbrel_transport::traffic::{Append, TrafficPattern};

use crate::exit::{Exit, Failure};

const CLIENT_KEYS: [&str; 10] = [
    "Name",
    "TrafficPercentage",
    "NameAppendBytes",
    "NameAppendSequenceNumber",
    "CanBePrefix",
    "MustBeFresh",
    "NonceDuplicationPercentage",
    "InterestLifetime",
    "NextHopFaceId",
    "ExpectedContent",
];
const SERVER_KEYS: [&str; 7] = [
    "Name",
    "ContentDelay",
    "FreshnessPeriod",
    "ContentType",
    "ContentBytes",
    "Content",
    "SigningInfo",
];

/// A server's answer under one prefix.
pub(super) struct ServerPattern {
    pub(super) name: Name,
    pub(super) delay: Duration,
    pub(super) freshness: Duration,
    pub(super) content_type: ContentType,
    pub(super) content: Bytes,
    /// As `--signing`.
    pub(super) signing: Option<String>,
}

struct Field<'a> {
    line: usize,
    key: &'a str,
    value: &'a str,
}

impl Field<'_> {
    fn number<T: std::str::FromStr>(&self) -> Result<T, String> {
        self.value.parse().map_err(|_| {
            format!(
                "line {}: {} is not a number: '{}'",
                self.line, self.key, self.value
            )
        })
    }

    fn on(&self) -> bool {
        matches!(self.value, "1" | "true" | "yes" | "on")
    }

    fn millis(&self) -> Result<Duration, String> {
        self.number().map(Duration::from_millis)
    }

    fn name(&self) -> Result<Name, String> {
        super::name(self.value).map_err(|error| format!("line {}: {error}", self.line))
    }

    fn unknown(&self, known: &[&str]) -> String {
        format!(
            "line {}: unknown key '{}'{}",
            self.line,
            self.key,
            hint(self.key, known.iter().copied())
        )
    }
}

fn blocks(text: &str) -> Result<Vec<Vec<Field<'_>>>, String> {
    let mut blocks = vec![Vec::new()];
    for (line, content) in text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
    {
        if !content.starts_with(|first: char| first.is_ascii_alphabetic()) {
            blocks.push(Vec::new());
            continue;
        }
        let (key, value) = content
            .split_once('=')
            .ok_or_else(|| format!("line {line}: no Key=Value"))?;
        let value = value.trim().trim_matches('"');
        if let Some(block) = blocks.last_mut() {
            block.push(Field {
                line,
                key: key.trim(),
                value,
            });
        }
    }
    blocks.retain(|block| !block.is_empty());
    Ok(blocks)
}

/// Returns the name in a block, all of whose keys must be `known`: a slip in `Name` is a key that is
/// unknown, and not only one that is missing.
fn name_of(block: &[Field<'_>], known: &[&str]) -> Result<Name, String> {
    if let Some(field) = block.iter().find(|field| !known.contains(&field.key)) {
        return Err(field.unknown(known));
    }
    let line = block.first().map_or(0, |field| field.line);
    let field = block.iter().find(|field| field.key == "Name");
    field
        .ok_or_else(|| format!("line {line}: this block has no Name"))?
        .name()
}

/// Parses a client's patterns.
pub(super) fn client(text: &str) -> Result<Vec<TrafficPattern>, String> {
    let mut patterns = Vec::new();
    for block in blocks(text)? {
        let mut pattern = TrafficPattern::new(name_of(&block, &CLIENT_KEYS)?);
        for field in &block {
            match field.key {
                "Name" => {}
                "TrafficPercentage" => pattern.share = field.number()?,
                "NameAppendBytes" => pattern.append = Append::RandomBytes(field.number()?),
                "NameAppendSequenceNumber" => {
                    pattern.append = Append::SequenceNumber(field.number()?)
                }
                "CanBePrefix" => pattern.can_be_prefix = field.on(),
                "MustBeFresh" => pattern.must_be_fresh = field.on(),
                "NonceDuplicationPercentage" => {
                    pattern.nonce_duplication = field.number::<f64>()? / 100.0
                }
                "InterestLifetime" => pattern.lifetime = field.millis()?,
                "NextHopFaceId" => pattern.next_hop_face_id = Some(field.number()?),
                "ExpectedContent" => {
                    pattern.expected_content = Some(Bytes::from(field.value.to_owned()))
                }
                _ => return Err(field.unknown(&CLIENT_KEYS)),
            }
        }
        patterns.push(pattern);
    }
    if patterns.is_empty() {
        Err(String::from("it holds no block of Key=Value lines"))
    } else {
        Ok(patterns)
    }
}

/// Parses a server's patterns.
pub(super) fn server(text: &str) -> Result<Vec<ServerPattern>, String> {
    let mut patterns = Vec::new();
    for block in blocks(text)? {
        let mut pattern = ServerPattern {
            name: name_of(&block, &SERVER_KEYS)?,
            delay: Duration::ZERO,
            freshness: Duration::ZERO,
            content_type: ContentType::Blob,
            content: Bytes::new(),
            signing: None,
        };
        for field in &block {
            match field.key {
                "Name" => {}
                "ContentDelay" => pattern.delay = field.millis()?,
                "FreshnessPeriod" => pattern.freshness = field.millis()?,
                "ContentType" => pattern.content_type = ContentType::from_code(field.number()?),
                "ContentBytes" => {
                    pattern.content = vec![b'x'; field.number::<usize>()?.min(8000)].into()
                }
                "Content" => pattern.content = Bytes::from(field.value.to_owned()),
                "SigningInfo" => pattern.signing = Some(field.value.to_owned()),
                _ => return Err(field.unknown(&SERVER_KEYS)),
            }
        }
        patterns.push(pattern);
    }
    if patterns.is_empty() {
        Err(String::from("it holds no block of Key=Value lines"))
    } else {
        Ok(patterns)
    }
}

/// Reads a configuration file and parses it with `read`.
pub(super) fn load<T>(
    path: &Path,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Failure> {
    let wrong = |why: String| Failure::new(Exit::Usage, format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    read(&text).map_err(wrong)
}

impl ServerPattern {
    /// Converts to the application's form.
    pub(super) fn rule(self, signer: SharedSigner) -> whimbrel_transport::traffic::TrafficRule {
        whimbrel_transport::traffic::TrafficRule {
            name: self.name,
            delay: self.delay,
            freshness: self.freshness,
            content_type: self.content_type,
            content: self.content,
            signer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_client_become_patterns() {
        let text = "# comment\nTrafficPercentage=20\nName=/example/A\nNameAppendBytes=3\n\n\
                    ##########\nName=/example/B\nNameAppendSequenceNumber=10\nMustBeFresh=1\nInterestLifetime=500\n\
                    NonceDuplicationPercentage=50\n";
        let patterns = client(text).unwrap();
        assert_eq!(patterns.len(), 2);
        assert_eq!(
            (patterns[0].share, patterns[0].append),
            (20.0, Append::RandomBytes(3))
        );
        let second = &patterns[1];
        assert_eq!(second.name.to_string(), "/example/B");
        assert_eq!(second.append, Append::SequenceNumber(10));
        assert!(second.must_be_fresh && second.nonce_duplication == 0.5);
        assert_eq!(second.lifetime, Duration::from_millis(500));
    }

    #[test]
    fn blocks_of_a_server_become_rules() {
        let text = "Name=/example/A\nContentDelay=10\nFreshnessPeriod=1000\nContentBytes=5\n#\nName=/example/B\nContent=\"hello\"\n";
        let patterns = server(text).unwrap();
        assert_eq!(patterns[0].content, "xxxxx");
        assert_eq!(
            (patterns[0].delay, patterns[0].freshness),
            (Duration::from_millis(10), Duration::from_secs(1))
        );
        assert_eq!(patterns[1].content, "hello");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, expected) in [
            ("", "no block"),
            ("\n\nName=x", "line 3"),
            ("TrafficPercentage=1", "no Name"),
            ("Nam=/a", "unknown key 'Nam'; did you mean 'Name'?"),
            ("Name=/a\nNameAppendBytes=x", "line 2"),
            ("Name=/a\nColour=red", "unknown key 'Colour'"),
            ("Name /a", "no Key=Value"),
        ] {
            let error = client(text).err().unwrap_or_default();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
