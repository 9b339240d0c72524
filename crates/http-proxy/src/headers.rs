//! Which header fields a proxy forwards, and which are hop-by-hop (RFC 9110 section 7.6).

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};

/// Hop-by-hop fields, in addition to those that `Connection` names.
const OF_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    WHOLE_BODY,
];

/// Between the two sides: the asker takes the body as a content.
pub const WHOLE_BODY: HeaderName = HeaderName::from_static("whimbrel-body");
/// The only value of [`WHOLE_BODY`].
pub const CONTENT: HeaderValue = HeaderValue::from_static("content");

/// The name of this proxy in `Via`.
pub const PSEUDONYM: &str = "whimbrel";

/// Removes the hop-by-hop fields.
pub fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

/// Adds this proxy to `Via`.
pub fn add_via(headers: &mut HeaderMap) {
    headers.append(header::VIA, HeaderValue::from_static("1.1 whimbrel"));
}

/// Returns true if the request has passed this kind of proxy too often and is in a loop.
pub fn is_circling(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::VIA).iter();
    let hops = values.filter(|value| value.as_bytes().ends_with(PSEUDONYM.as_bytes()));
    hops.count() >= 8
}
