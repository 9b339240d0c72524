//! What each link of a host with several has brought for a fetch.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use whimbrel_client::AttachedSession;
use whimbrel_client::session::{Answer, ProgramSession, Question};

/// How long a host that has just delivered everything is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// One link's part of a fetch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LinkShare {
    /// The other end's address.
    pub peer: String,
    /// Bytes of chunks that came by it meanwhile, for whatever program.
    pub bytes: u64,
}

/// What of a host's report is read here.
#[derive(Debug, Deserialize)]
struct Report {
    links: Vec<LinkReport>,
}

#[derive(Debug, Deserialize)]
struct LinkReport {
    peer: String,
    caller: bool,
    hop: HopReport,
}

#[derive(Debug, Deserialize)]
struct HopReport {
    chunk_bytes_received: u64,
    #[serde(default)]
    chunk_bytes_delivered: u64,
}

/// Bytes of chunks on one link of a host, for whatever program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LinkBytes {
    /// The other end's address.
    pub peer: String,
    /// Bytes that came by it.
    pub received: u64,
    /// Bytes that went by it and arrived at the other end.
    pub delivered: u64,
}

impl LinkBytes {
    /// Returns what it has carried since an earlier report.
    pub fn since(&self, before: &[LinkBytes]) -> LinkBytes {
        let before = before.iter().find(|before| before.peer == self.peer);
        let (received, delivered) = before.map_or((0, 0), |it| (it.received, it.delivered));
        LinkBytes {
            peer: self.peer.clone(),
            received: self.received.saturating_sub(received),
            delivered: self.delivered.saturating_sub(delivered),
        }
    }
}

/// Returns what a host's report says of the links that it has made.
pub fn link_bytes(report: &str) -> Vec<LinkBytes> {
    let report: Option<Report> = serde_json::from_str(report).ok();
    let links = report.into_iter().flat_map(|report| report.links);
    let own = links.filter(|link| !link.caller);
    own.map(|link| LinkBytes {
        peer: link.peer,
        received: link.hop.chunk_bytes_received,
        delivered: link.hop.chunk_bytes_delivered,
    })
    .collect()
}

/// What the links had brought before.
#[derive(Debug, Default)]
pub(super) struct LinkShares {
    /// The number of the question.
    number: u32,
    before: Vec<LinkBytes>,
}

impl LinkShares {
    /// Asks at the beginning.
    pub(super) fn ask(session: &mut ProgramSession) -> LinkShares {
        LinkShares {
            number: session.ask(Question::Status),
            before: Vec::new(),
        }
    }

    /// Reads the answer, once it is there.
    pub(super) fn read(&mut self, session: &mut ProgramSession) {
        if let Some(Answer::Status(json)) = session.take_answer(self.number) {
            self.before = link_bytes(&json);
        }
    }

    /// Asks again at the end. None for a host with one link, or one that does not answer soon.
    pub(super) fn since(&mut self, host: &mut AttachedSession<'_>) -> Vec<LinkShare> {
        let until = Instant::now() + PATIENCE;
        let number = host.session().ask(Question::Status);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if host.step(left).is_err() {
                break;
            }
            self.read(host.session());
            if let Some(Answer::Status(json)) = host.session().take_answer(number) {
                return self.beyond(link_bytes(&json));
            }
        }
        Vec::new()
    }

    fn beyond(&self, after: Vec<LinkBytes>) -> Vec<LinkShare> {
        if after.len() < 2 {
            return Vec::new();
        }
        let share = |link: &LinkBytes| LinkShare {
            peer: link.peer.clone(),
            bytes: link.since(&self.before).received,
        };
        after.iter().map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(links: &[(&str, u64)]) -> String {
        let link = |(peer, bytes): &(&str, u64)| {
            serde_json::json!({
                "peer": peer, "caller": false, "hop": { "chunk_bytes_received": bytes }
            })
        };
        serde_json::json!({ "links": links.iter().map(link).collect::<Vec<_>>() }).to_string()
    }

    #[test]
    fn what_links_had_brought_before_does_not_count() {
        let shares = LinkShares {
            number: 1,
            before: link_bytes(&report(&[("a", 100), ("b", 0)])),
        };
        let after = shares.beyond(link_bytes(&report(&[("a", 150), ("b", 70)])));
        let bytes: Vec<(&str, u64)> = after.iter().map(|it| (&*it.peer, it.bytes)).collect();
        assert_eq!(bytes, [("a", 50), ("b", 70)]);
        assert!(shares.beyond(link_bytes(&report(&[("a", 150)]))).is_empty());
    }
}
