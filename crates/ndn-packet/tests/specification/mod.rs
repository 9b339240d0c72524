//! Packets written by hand from the sentences of the specifications, which must be accepted or
//! refused.

mod data;
mod elements;
mod framing;
mod interests;
mod link_headers;
mod names;
mod wire;
