//! Serves the time under an NDN prefix: each Interest for `/PREFIX/SOMETHING` is answered with a Data of its own name.
//!
//! `cargo run -p whimbrel-node --example ndn_time -- /example/time`, and then `whimbrel ndn peek -p /example/time/now`
#![allow(clippy::disallowed_methods, reason = "it tells the time")]

use std::error::Error;
use std::time::{Duration, SystemTime};

use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::face::{NdnFace, NdnServed};

/// How long an answer is fresh.
const FRESH: Duration = Duration::from_millis(100);

/// Serves the time until the result is dropped.
pub(crate) fn serve_time(face: &NdnFace, prefix: Name) -> Result<NdnServed, Box<dyn Error>> {
    let signer = face.signer();
    let serving = face.serve(prefix, move |interest| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let text = format!("{}\n", now.unwrap_or_default().as_millis());
        signer.data(interest.name.to_name(), text, FRESH)
    });
    Ok(serving?.wait()?)
}

#[allow(dead_code, reason = "a test has the function alone")]
fn main() -> Result<(), Box<dyn Error>> {
    let prefix = std::env::args().nth(1).ok_or("ndn_time PREFIX")?;
    let face = NdnFace::attach(None)?;
    let _served = serve_time(&face, prefix.parse()?)?;
    loop {
        std::thread::park();
    }
}
