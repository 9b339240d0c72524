//! Options of a fetch.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use whimbrel_core::RttOptions;
use whimbrel_ndn_packet::signature::sha256;
use whimbrel_ndn_packet::{DataRef, Name, SignatureType};

use crate::congestion::{WindowKind, WindowOptions};
use crate::path::PathOptions;
use crate::rtt::NDNGET;

/// How the name of the segments is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// By an Interest for `/name/32=metadata` (RDR); a name that ends in a version is used as it
    /// is.
    Metadata,
    /// By an Interest for any Data under the name, as ndn-cxx' `SegmentFetcher` does.
    Prefix,
    /// Not at all: segment numbers directly follow the name.
    None,
}

/// The order in which the program gets segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// In order.
    InOrder,
    /// As they arrive, each with its offset in bytes. Requires that all segments but the last one
    /// have the same size.
    AsTheyCome,
}

/// Verifies Data.
pub trait Verifier: Send {
    /// Returns `Err` with the reason in words if the Data is invalid.
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

/// The verification of each Data. A Data that fails is requested again, as often as a lost one.
#[derive(Default)]
pub enum Verify {
    /// No verification, as `ndnget`.
    #[default]
    None,
    /// The signature must be a correct SHA-256 digest: integrity, not origin.
    Digest,
    /// By the program.
    With(Box<dyn Verifier>),
}

impl Verify {
    /// Returns `Err` with the reason if the Data is invalid.
    pub fn check(&mut self, data: &DataRef<'_>) -> Result<(), String> {
        match self {
            Verify::None => Ok(()),
            Verify::Digest if data.signature_info.typ != SignatureType::DigestSha256 => {
                Err(String::from("signed with a key, not with a digest"))
            }
            Verify::Digest if sha256(&[data.signed_portion]) != data.signature_value => {
                Err(String::from("the digest does not match the content"))
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

/// The choice of paths among those found, where more are known than may be used ([PTP §5.D] and
/// its appendix).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// In each interval the path with the least bandwidth makes room for a random one.
    Bandwidth,
    /// A random one makes room for a random one.
    Random,
    /// The fewest hops.
    Hops,
    /// The shortest round trips.
    Latency,
    /// The steadiest round trips.
    Steadiness,
    /// Short and steady: the sum of round trip and variation.
    Hybrid,
}

/// Several paths, found by probing: a consumer of PTP.
///
/// A share of the Interests for segments are probes; routers that know tags answer with the path
/// that each took. Until a path is known, and if none is ever found, Interests go by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multipath {
    /// Maximum of paths in use, 1 to 64; "at most N paths" ([PTP §3-B]), 10 in its evaluation.
    pub most: u16,
    /// Interval at which a path may be replaced.
    pub review: Duration,
    /// Interval of probes, at least 1 ms.
    pub probing: Duration,
    /// The choice among known paths.
    pub select: Selection,
    /// The law of the paths that are found; `None`: that of the fetch.
    pub law: Option<WindowKind>,
    /// Paths are used beside the name, and only once two are known; the name is always used. So a
    /// fetch does no worse than without paths. The first probe waits for 500 ms, so that
    /// short fetches send none.
    pub beside_name: bool,
}

impl Default for Multipath {
    /// Returns the paper's: 10 paths, 10 probes a second, one replacement each 10 s by bandwidth.
    fn default() -> Multipath {
        Multipath {
            most: 10,
            review: Duration::from_secs(10),
            probing: Duration::from_millis(100),
            select: Selection::Bandwidth,
            law: None,
            beside_name: false,
        }
    }
}

/// Options of a [`super::Fetcher`]; the defaults are `ndnget`'s if it has the option.
#[derive(Debug)]
pub struct FetchOptions {
    /// How the segments' name is found.
    pub discovery: Discovery,
    /// MustBeFresh in the Interests for segments (discovery always has it).
    pub must_be_fresh: bool,
    /// InterestLifetime.
    pub lifetime: Duration,
    /// Maximum of retransmissions per segment before the fetch fails; `None` without limit.
    pub retries: Option<u32>,
    /// For so long Nacks `NoRoute` are put up with: routes come back, and producers restart.
    pub no_route_patience: Duration,
    /// The paths; if empty, one on the first face.
    pub paths: Vec<PathOptions>,
    /// Find paths by probing and use several; see [`Multipath`].
    pub multipath: Option<Multipath>,
    /// Of the random choices among paths.
    pub path_seed: u64,
    /// An Interest is lost after this many Data of later Interests on its path, 1 or 2; `None`: only
    /// timeouts tell, as in `ndnget`. Data of caches do not count ([PTP §5.C.1]; two are the
    /// extension of section 5.E for networks that reorder).
    pub lost_after: Option<u8>,
    /// Congestion window of each path.
    pub window: WindowOptions,
    /// Retransmission timeout of each path. Unused with a fixed window.
    pub rto: RttOptions,
    /// Do not shrink the window at congestion marks.
    pub ignore_marks: bool,
    /// Shrink the window at most once in a round trip ("conservative window adaptation").
    pub once_per_round_trip: bool,
    /// The order in which the program gets segments.
    pub delivery: Delivery,
    /// Fetches only the first N segments; `None`: all.
    pub first_segments: Option<NonZeroU64>,
    /// Maximum of segments in flight or waiting for the program (ndn-cxx: 25,000).
    pub max_segments: usize,
    /// Maximum of bytes in flight or waiting for the program.
    pub max_bytes: usize,
    /// How Data is verified.
    pub verify: Verify,
    /// ForwardingHint of all Interests.
    pub forwarding_hint: Vec<Name>,
    /// Minimum interval between two [`super::FetchEvent::Progress`]; zero for none.
    pub progress_interval: Duration,
    /// Report every change of the window.
    pub log_window: bool,
    /// Report every round trip.
    pub log_rtt: bool,
}

impl Default for FetchOptions {
    fn default() -> FetchOptions {
        FetchOptions {
            discovery: Discovery::Metadata,
            must_be_fresh: false,
            lifetime: Duration::from_secs(4),
            retries: Some(15),
            no_route_patience: Duration::ZERO,
            paths: Vec::new(),
            multipath: None,
            path_seed: 1,
            lost_after: None,
            window: WindowOptions::default(),
            rto: NDNGET,
            ignore_marks: false,
            once_per_round_trip: true,
            delivery: Delivery::InOrder,
            first_segments: None,
            max_segments: 25_000,
            max_bytes: 64 * 1024 * 1024,
            verify: Verify::None,
            forwarding_hint: Vec::new(),
            progress_interval: Duration::from_millis(200),
            log_window: false,
            log_rtt: false,
        }
    }
}
