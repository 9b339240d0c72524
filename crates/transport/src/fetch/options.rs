//! How to fetch.

use core::fmt;
use core::time::Duration;

use whimbrel_core::RttOptions;
use whimbrel_ndn_packet::signature::sha256;
use whimbrel_ndn_packet::{DataRef, Name, SignatureType};

use crate::congestion::WindowOptions;
use crate::path::PathOptions;
use crate::rtt::NDNGET;

/// How the name under which the segments are is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// By asking for `/name/32=metadata` (RDR); a name that ends in a version is taken as it is.
    Metadata,
    /// By asking for anything that the name begins, as ndn-cxx' `SegmentFetcher` does.
    Prefix,
    /// Not at all: segments follow right after the name.
    None,
}

/// In which order the program gets segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// One after the other.
    InOrder,
    /// As they come, each with its place in bytes. Asks that all segments but the last one have the
    /// same size.
    AsTheyCome,
}

/// Says whether a Data is to be believed.
pub trait Verifier: Send {
    /// `Err` with the reason in words if it is not.
    fn verify(&mut self, data: &DataRef<'_>) -> Result<(), String>;
}

impl<F> Verifier for F
where
    F: for<'a> FnMut(&DataRef<'a>) -> Result<(), String> + Send,
{
    fn verify(&mut self, data: &DataRef<'_>) -> Result<(), String> {
        self(data)
    }
}

/// What is checked of each Data before it counts. A Data that fails is asked for again, as often as
/// one that is lost.
#[derive(Default)]
pub enum Verify {
    /// Nothing, as `ndnget`.
    #[default]
    None,
    /// That it has a SHA-256 digest for a signature and the digest is right: integrity, no origin.
    Digest,
    /// What the program says.
    With(Box<dyn Verifier>),
}

impl Verify {
    /// `Err` with the reason if the Data is not to be believed.
    pub fn check(&mut self, data: &DataRef<'_>) -> Result<(), String> {
        match self {
            Verify::None => Ok(()),
            Verify::Digest if data.signature_info.typ != SignatureType::DigestSha256 => {
                Err(String::from("it is signed with a key, not with a digest"))
            }
            Verify::Digest if sha256(&[data.signed_portion]) != data.signature_value => {
                Err(String::from("its digest does not match its content"))
            }
            Verify::Digest => Ok(()),
            Verify::With(verifier) => verifier.verify(data),
        }
    }
}

impl fmt::Debug for Verify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verify::None => "None",
            Verify::Digest => "Digest",
            Verify::With(_) => "With(..)",
        })
    }
}

/// Options of a [`super::Fetcher`]; the default is `ndnget`'s where it has one.
#[derive(Debug)]
pub struct FetchOptions {
    /// How the segments' name is found out.
    pub discovery: Discovery,
    /// MustBeFresh in the Interests for segments (discovery has it always).
    pub must_be_fresh: bool,
    /// InterestLifetime.
    pub lifetime: Duration,
    /// How often a segment is asked for again before the fetch fails; `None` without limit.
    pub retries: Option<u32>,
    /// The ways that Interests take; one by the first face without any.
    pub paths: Vec<PathOptions>,
    /// Congestion window of each path.
    pub window: WindowOptions,
    /// Retransmission time-out of each path. A fixed window does not use it.
    pub rto: RttOptions,
    /// Congestion marks do not shrink the window.
    pub ignore_marks: bool,
    /// The window shrinks at most once in a round trip ("conservative window adaptation").
    pub once_per_round_trip: bool,
    /// In which order the program gets segments.
    pub delivery: Delivery,
    /// Segments that may be under way or wait for the program (ndn-cxx: 25,000).
    pub most_segments: usize,
    /// Bytes that may be under way or wait for the program.
    pub most_bytes: usize,
    /// What is checked.
    pub verify: Verify,
    /// ForwardingHint of all Interests.
    pub forwarding_hint: Vec<Name>,
    /// At most one [`super::FetchEvent::Progress`] in this time; zero for none.
    pub progress_interval: Duration,
    /// Tell every change of the window.
    pub log_window: bool,
    /// Tell every round trip.
    pub log_rtt: bool,
}

impl Default for FetchOptions {
    fn default() -> FetchOptions {
        FetchOptions {
            discovery: Discovery::Metadata,
            must_be_fresh: false,
            lifetime: Duration::from_secs(4),
            retries: Some(15),
            paths: Vec::new(),
            window: WindowOptions::default(),
            rto: NDNGET,
            ignore_marks: false,
            once_per_round_trip: true,
            delivery: Delivery::InOrder,
            most_segments: 25_000,
            most_bytes: 64 * 1024 * 1024,
            verify: Verify::None,
            forwarding_hint: Vec::new(),
            progress_interval: Duration::from_millis(200),
            log_window: false,
            log_rtt: false,
        }
    }
}
