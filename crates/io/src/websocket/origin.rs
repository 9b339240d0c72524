//! The web pages that may connect: a browser names the page's origin in every handshake (RFC 6455,
//! section 10.2; RFC 6454).

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use tungstenite::handshake::server::{Callback, ErrorResponse, Request, Response};
use tungstenite::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

/// Bound of the refused origins that are logged one by one: pages choose their origins.
const MAX_LOGGED_ORIGINS: usize = 64;
/// Bound of the logged octets of a refused origin.
const MAX_LOGGED_OCTETS: usize = 256;

/// The reason why a text is not an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// The text is not of the form scheme://host:port.
    #[error(
        "'{0}' is no origin: one looks like https://app.example or http://localhost:8080, without a path"
    )]
    Malformed(String),
    /// `null`, which stands for all pages without an origin.
    #[error(
        "the origin 'null' names no page: files, sandboxed frames and redirected requests of any site have it"
    )]
    Null,
}

/// Scheme, host and port of a page in the form that browsers use: in lower case, and without the
/// default port of the scheme.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WebOrigin(String);

impl FromStr for WebOrigin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<WebOrigin, OriginError> {
        if text == "null" {
            return Err(OriginError::Null);
        }
        let malformed = || OriginError::Malformed(text.chars().take(MAX_LOGGED_OCTETS).collect());
        let uri: Uri = text.parse().map_err(|_| malformed())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(malformed());
        };
        let bare = uri.path() == "/" && uri.query().is_none() && !authority.as_str().contains('@');
        let host = authority.host();
        // The parser removes a fragment and ignores a port that is not a number.
        let port_is_right = match authority.as_str().strip_prefix(host) {
            Some("") => true,
            Some(_) => authority.port_u16().is_some(),
            None => false,
        };
        if host.is_empty() || !bare || !port_is_right || text.contains('#') {
            return Err(malformed());
        }
        let scheme = scheme.to_ascii_lowercase();
        let port = authority
            .port_u16()
            .filter(|port| own_port(&scheme) != Some(*port));
        let mut origin = format!("{scheme}://{}", host.to_ascii_lowercase());
        if let Some(port) = port {
            origin.push_str(&format!(":{port}"));
        }
        Ok(WebOrigin(origin))
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn own_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    }
}

/// The pages that a WebSocket listener admits. A client that sends no origin is not a page and is
/// always admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// Every page of every site, including pages without an origin.
    Any,
    /// Pages of these origins; an empty set admits no page.
    Only(BTreeSet<WebOrigin>),
}

impl Default for AllowedOrigins {
    /// Returns a list that admits no page.
    fn default() -> AllowedOrigins {
        AllowedOrigins::Only(BTreeSet::new())
    }
}

impl AllowedOrigins {
    /// Reads a list of origins; `*` among them allows all.
    pub fn parse<'a>(
        list: impl IntoIterator<Item = &'a str>,
    ) -> Result<AllowedOrigins, OriginError> {
        let mut origins = BTreeSet::new();
        let mut any = false;
        for text in list {
            match text {
                "*" => any = true,
                origin => {
                    origins.insert(origin.parse()?);
                }
            }
        }
        Ok(if any {
            AllowedOrigins::Any
        } else {
            AllowedOrigins::Only(origins)
        })
    }

    fn allow(&self, origin: &str) -> bool {
        match self {
            AllowedOrigins::Any => true,
            AllowedOrigins::Only(origins) => origin
                .parse()
                .is_ok_and(|origin: WebOrigin| origins.contains(&origin)),
        }
    }
}

/// The allowed origins of one listener, and the refused ones that are in the log.
#[derive(Debug, Default)]
pub(crate) struct OriginGate {
    allowed: AllowedOrigins,
    logged: RefCell<BTreeSet<String>>,
}

impl OriginGate {
    pub(crate) fn new(allowed: AllowedOrigins) -> Rc<OriginGate> {
        Rc::new(OriginGate {
            allowed,
            logged: RefCell::default(),
        })
    }

    /// Returns the origin that a handshake names, if any. An origin that is not admitted is an
    /// error.
    fn admit(&self, headers: &HeaderMap) -> Result<Option<String>, String> {
        let named: Vec<&HeaderValue> = headers.get_all(header::ORIGIN).iter().collect();
        match named.as_slice() {
            [] => Ok(None),
            // Browsers send exactly one.
            [one] if one.to_str().is_ok_and(|origin| self.allowed.allow(origin)) => {
                Ok(Some(shown(&named)))
            }
            _ => Err(shown(&named)),
        }
    }

    /// Logs a refusal: each origin once, up to a bound.
    fn tell(&self, origin: String) {
        let mut logged = self.logged.borrow_mut();
        if logged.len() < MAX_LOGGED_ORIGINS && !logged.contains(&origin) {
            tracing::warn!(
                ?origin,
                "refused a web page: its origin is not among allowed_origins"
            );
            logged.insert(origin);
        }
    }
}

/// Returns the beginning of the headers, whose contents may be anything.
fn shown(values: &[&HeaderValue]) -> String {
    let texts = values
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let all = texts.collect::<Vec<_>>().join(", ");
    all.chars().take(MAX_LOGGED_OCTETS).collect()
}

/// Checks the origin in one handshake.
#[derive(Debug)]
pub(super) struct OriginCheck {
    pub(super) gate: Rc<OriginGate>,
    /// Receives the origin of an admitted page.
    pub(super) found: Rc<OnceCell<String>>,
}

impl Callback for OriginCheck {
    fn on_request(self, request: &Request, response: Response) -> Result<Response, ErrorResponse> {
        match self.gate.admit(request.headers()) {
            Ok(None) => Ok(response),
            Ok(Some(origin)) => {
                // It is empty, because a connection has one handshake.
                let _ = self.found.set(origin);
                Ok(response)
            }
            Err(origin) => {
                self.gate.tell(origin);
                Err(refusal())
            }
        }
    }
}

fn refusal() -> ErrorResponse {
    let body = "This page's origin is not among the allowed_origins of the server.\n";
    let mut response = ErrorResponse::new(Some(body.to_owned()));
    *response.status_mut() = StatusCode::FORBIDDEN;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::CONTENT_LENGTH, body.len().into());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_as_browsers_write_them() {
        for (written, meant) in [
            ("https://app.example", "https://app.example"),
            ("HTTPS://App.Example:443/", "https://app.example"),
            ("http://app.example:80", "http://app.example"),
            ("http://app.example:443", "http://app.example:443"),
            ("http://localhost:8080", "http://localhost:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[::1]", "http://[::1]"),
            ("moz-extension://0f-1e", "moz-extension://0f-1e"),
        ] {
            let origin: WebOrigin = written.parse().unwrap();
            assert_eq!(origin.to_string(), meant, "{written}");
        }
    }

    #[test]
    fn invalid_origins_are_refused() {
        for text in [
            "",
            "app.example",
            "app.example:443",
            "/",
            "https://",
            "https:app.example",
            "https://app.example/page",
            "https://app.example?query",
            "https://app.example#part",
            "https://app.example:port",
            "https://app.example:",
            "https://user@app.example",
            "https://app.example, https://other.example",
            "https://app.example https://other.example",
            "https://b\u{fc}cher.example",
        ] {
            let outcome: Result<WebOrigin, _> = text.parse();
            assert!(
                matches!(outcome, Err(OriginError::Malformed(_))),
                "{text}: {outcome:?}"
            );
        }
        assert_eq!("null".parse::<WebOrigin>(), Err(OriginError::Null));
    }

    #[test]
    fn listed_pages_and_all_programs_are_admitted() {
        let headers = |origins: &[&str]| {
            let mut headers = HeaderMap::new();
            for origin in origins {
                headers.append(header::ORIGIN, origin.parse().unwrap());
            }
            headers
        };
        let none = OriginGate::new(AllowedOrigins::default());
        assert_eq!(none.admit(&headers(&[])), Ok(None));
        assert!(none.admit(&headers(&["https://app.example"])).is_err());
        let list = ["https://app.example", "https://other.example"];
        let some = OriginGate::new(AllowedOrigins::parse(list).unwrap());
        for (origins, taken) in [
            (&["https://app.example"][..], true),
            (&["https://app.example:444"], false),
            (&["http://app.example"], false),
            (&["null"], false),
            (&[""], false),
            (&list, false),
        ] {
            assert_eq!(some.admit(&headers(origins)).is_ok(), taken, "{origins:?}");
        }
        let any = OriginGate::new(AllowedOrigins::parse(["*"]).unwrap());
        assert_eq!(any.admit(&headers(&["null"])), Ok(Some("null".into())));
        assert!(AllowedOrigins::parse(["*", "rubbish"]).is_err());
    }

    #[test]
    fn few_refused_origins_are_remembered() {
        let gate = OriginGate::new(AllowedOrigins::default());
        for number in 0..1_000 {
            gate.tell(format!("https://{number}.example"));
        }
        assert_eq!(gate.logged.borrow().len(), MAX_LOGGED_ORIGINS);
    }
}
