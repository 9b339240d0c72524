//! Discovery of the segments' name.
//!
//! RDR ("realtime data retrieval"): an Interest for `/name/32=metadata` with CanBePrefix and
//! MustBeFresh is answered by `/name/32=metadata/VERSION/SEGMENT`, whose content is the Name
//! element of the newest version (ndn-cxx `metadata-object`).

use whimbrel_core::Time;
use whimbrel_ndn_packet::{Component, ContentType, DataRef, Interest, Name, NameRef, tlv, types};

use super::event::FetchError;
use super::options::{Discovery, FetchOptions};
use crate::exchange::Exchange;

/// The result of discovery.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Discovered {
    /// Segments follow this name.
    Name(Name),
    /// The answer is itself a segment: the name before its number, and its number.
    Segment(Name, u64),
    /// The answer is the whole content.
    Whole(Name),
}

/// Returns the Interest of discovery; `None` if discovery is not needed.
pub(super) fn exchange(name: &Name, options: &FetchOptions, now: Time) -> Option<Exchange> {
    let asked = match options.discovery {
        Discovery::None => return None,
        Discovery::Metadata if is_versioned(name.as_ref()) => return None,
        Discovery::Metadata => name.child(Component::keyword("metadata").as_ref()),
        Discovery::Prefix => name.clone(),
    };
    let interest = Interest {
        can_be_prefix: true,
        must_be_fresh: true,
        lifetime: Some(options.lifetime),
        forwarding_hint: options.forwarding_hint.clone(),
        ..Interest::new(asked)
    };
    let mut exchange = Exchange::new(interest, options.retries, now);
    exchange.endure_no_route(options.no_route_patience);
    Some(exchange)
}

fn is_versioned(name: NameRef<'_>) -> bool {
    name.last()
        .is_some_and(|last| last.number_of(types::VERSION).is_some())
}

/// Parses the answer.
pub(super) fn read(
    name: &Name,
    discovery: Discovery,
    data: &DataRef<'_>,
) -> Result<Discovered, FetchError> {
    let invalid = |reason: &str| FetchError::Metadata {
        name: name.clone(),
        reason: reason.to_owned(),
    };
    if data.content_type == ContentType::Nack {
        return Err(invalid("the producer refuses the Interest"));
    }
    if discovery == Discovery::Metadata {
        let asked = name.len() + 1;
        let number = |at: usize, typ| {
            data.name
                .get(at)
                .and_then(|component| component.number_of(typ))
        };
        let is_metadata = data.name.len() == asked + 2
            && number(asked, types::VERSION).is_some()
            && number(asked + 1, types::SEGMENT).is_some();
        if !is_metadata || data.content_type != ContentType::Blob {
            return Err(invalid("its name is not one of metadata"));
        }
        let versioned =
            first_name(data.content).ok_or_else(|| invalid("its content has no name"))?;
        if !is_versioned(versioned) {
            return Err(invalid("the name in its content does not end in a version"));
        }
        return Ok(Discovered::Name(versioned.to_name()));
    }
    let segment = data
        .name
        .last()
        .and_then(|last| last.number_of(types::SEGMENT));
    Ok(match segment {
        Some(number) => {
            Discovered::Segment(data.name.prefix(data.name.len() - 1).to_name(), number)
        }
        None => Discovered::Whole(data.name.to_name()),
    })
}

/// Returns the first Name element; elements before it are ignored.
fn first_name(content: &[u8]) -> Option<NameRef<'_>> {
    let mut reader = tlv::Reader::new(content);
    loop {
        let element = reader.element().ok()??;
        if element.typ == types::NAME {
            return NameRef::from_value(element.value).ok();
        }
    }
}
