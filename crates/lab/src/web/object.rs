//! Objects whose paths state what they are: `/PAGE/OBJECT/OCTETS`.

use bytes::Bytes;
use http::{Response, StatusCode, header};

use super::site::object_at;

/// Largest object, octets.
pub const LARGEST: u32 = 16 << 20;

/// Returns the octet that an object consists of.
pub(super) fn octet_of(page: usize, object: usize) -> u8 {
    (page * 31 + object) as u8
}

/// Returns the path of an object.
pub(super) fn path_of(page: usize, object: usize, size: u32) -> String {
    format!("/{page}/{object}/{size}")
}

/// Answers a request for a path.
pub(super) fn answer(path: &str) -> Response<Bytes> {
    let mut parts = path.trim_start_matches('/').split('/');
    let mut number = || parts.next()?.parse::<usize>().ok();
    let named = (number(), number(), number());
    let found = match named {
        (Some(page), Some(object), Some(size)) if size <= LARGEST as usize => {
            let octets = vec![octet_of(page, object); size].into();
            Some(("application/octet-stream", octets))
        }
        _ => object_at(path),
    };
    let status = match found {
        Some(_) => StatusCode::OK,
        None => StatusCode::NOT_FOUND,
    };
    let (kind, body) = found.unwrap_or(("text/plain", Bytes::new()));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    // Each object is requested once: a cache on the way would take part in nothing.
    let no_store = header::HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}
