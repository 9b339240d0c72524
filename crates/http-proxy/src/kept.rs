//! Requests that could not be answered at once: they are kept, repeated when the link returns, and listed on a page
//! of the proxy.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;

/// Maximum number of kept and listed requests.
const MAX_KEPT: usize = 256;
/// A request that was answered within this time is not listed.
const LISTED_AFTER: Duration = Duration::from_secs(10);

/// The host of the page.
pub const PAGE: &str = "proxy.whimbrel";

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeptState {
    /// It is unanswered.
    Waiting,
    /// It is answered; the response is stored if that is permitted.
    Answered(StatusCode),
    /// It was abandoned.
    GivenUp,
}

#[derive(Debug)]
struct KeptRequest {
    url: String,
    since: Instant,
    state: KeptState,
}

/// The waiting requests, and those that have waited.
#[derive(Debug)]
pub struct KeptRequests {
    /// How long a request is kept.
    patience: Duration,
    inner: Mutex<KeptList>,
}

#[derive(Debug, Default)]
struct KeptList {
    next: u64,
    requests: BTreeMap<u64, KeptRequest>,
}

impl KeptRequests {
    /// Returns an empty list.
    pub fn new(patience: Duration) -> KeptRequests {
        KeptRequests {
            patience,
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeptList> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request. Returns its number; `None` if too many wait.
    pub fn begin(&self, now: Instant, url: &str) -> Option<u64> {
        let mut inner = self.lock();
        if inner.requests.len() >= MAX_KEPT {
            let mut requests = inner.requests.iter();
            let over = requests.find(|(_, request)| request.state != KeptState::Waiting);
            let number = *over?.0;
            inner.requests.remove(&number);
        }
        let number = inner.next;
        inner.next += 1;
        let request = KeptRequest {
            url: url.to_owned(),
            since: now,
            state: KeptState::Waiting,
        };
        inner.requests.insert(number, request);
        Some(number)
    }

    /// Returns true if a request is worth another attempt.
    pub fn is_worth_it(&self, now: Instant, number: u64) -> bool {
        let inner = self.lock();
        let request = inner.requests.get(&number);
        request.is_some_and(|request| now.duration_since(request.since) < self.patience)
    }

    /// Records the state of a request. One that had to wait stays listed.
    pub fn end(&self, now: Instant, number: u64, state: KeptState) {
        let mut inner = self.lock();
        let Some(request) = inner.requests.get_mut(&number) else {
            return;
        };
        request.state = state;
        if now.duration_since(request.since) < LISTED_AFTER {
            inner.requests.remove(&number);
        }
    }

    /// Returns the page that lists them, newest first.
    pub fn page(&self, now: Instant) -> String {
        let inner = self.lock();
        let mut rows = String::new();
        for request in inner.requests.values().rev() {
            let age = now.duration_since(request.since);
            if age < LISTED_AFTER {
                continue;
            }
            let state = match request.state {
                KeptState::Waiting => "waiting".to_owned(),
                KeptState::Answered(status) => format!("here: {status}"),
                KeptState::GivenUp => "given up".to_owned(),
            };
            let url = escaped(&request.url);
            let seconds = age.as_secs();
            // Writing to a string does not fail.
            let _ = writeln!(
                rows,
                "<tr><td><a href=\"{url}\">{url}</a><td>{state}<td>{seconds} s ago"
            );
        }
        if rows.is_empty() {
            rows = "<tr><td>No request waits.".to_owned();
        }
        format!(
            "<!DOCTYPE html><meta charset=utf-8><meta http-equiv=refresh content=10><title>Requests that wait</title>\
             <h1>Requests that wait</h1><table>{rows}</table>"
        )
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_had_to_wait_are_listed_and_bounded() {
        let (kept, start) = (KeptRequests::new(Duration::from_secs(100)), Instant::now());
        let quick = kept.begin(start, "http://quick/").unwrap();
        kept.end(
            start + Duration::from_secs(1),
            quick,
            KeptState::Answered(StatusCode::OK),
        );
        let slow = kept.begin(start, "http://slow/?<script>\"'&").unwrap();
        let later = start + Duration::from_secs(20);
        let page = kept.page(later);
        assert!(
            !page.contains("quick") && page.contains("waiting<td>20 s"),
            "{page}"
        );
        assert!(
            page.contains("http://slow/?&lt;script&gt;&quot;&#39;&amp;")
                && !page.contains("<script"),
            "{page}"
        );
        assert!(
            kept.is_worth_it(later, slow)
                && !kept.is_worth_it(start + Duration::from_secs(100), slow)
        );
        kept.end(later, slow, KeptState::Answered(StatusCode::OK));
        assert!(kept.page(later).contains("here: 200 OK"));
        // One that is over gives way; when all wait, no other one is kept.
        for number in 0..MAX_KEPT {
            assert!(kept.begin(later, &number.to_string()).is_some());
        }
        assert!(kept.begin(later, "one more").is_none());
        assert!(!kept.page(later + Duration::from_secs(20)).contains("slow"));
    }
}
