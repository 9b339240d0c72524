//! Publishes a file under an NDN name, or fetches one to a file.
//!
//! `cargo run -p whimbrel-node --example ndn_copy -- put /example/film film.mp4`
//! `cargo run -p whimbrel-node --example ndn_copy -- get /example/film copy.mp4`

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::face::{NdnFace, NdnServed};
use whimbrel_transport::{FetchOptions, Verify};

/// Publishes a file until the result is dropped.
pub(crate) fn put(face: &NdnFace, name: Name, file: &Path) -> Result<NdnServed, Box<dyn Error>> {
    let content = std::fs::read(file)?;
    Ok(face.publish_bytes(name, content)?.wait()?)
}

/// Fetches to a file, piece by piece. Returns its length.
pub(crate) fn get(face: &NdnFace, name: Name, file: &Path) -> Result<u64, Box<dyn Error>> {
    let options = FetchOptions {
        verify: Verify::Digest,
        ..FetchOptions::default()
    };
    let mut pieces = face.fetch_pieces(name, options)?;
    let mut output = File::create(file)?;
    let mut length = 0;
    while let Some((_, piece)) = pieces.next_piece()? {
        output.write_all(&piece)?;
        length += piece.len() as u64;
    }
    Ok(length)
}

#[allow(dead_code, reason = "a test has the functions alone")]
fn main() -> Result<(), Box<dyn Error>> {
    let usage = "ndn_copy put|get NAME FILE";
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [action, name, file] = words.as_slice() else {
        return Err(usage.into());
    };
    let face = NdnFace::attach(None)?;
    match action.as_str() {
        "put" => {
            let _served = put(&face, name.parse()?, Path::new(file))?;
            loop {
                std::thread::park();
            }
        }
        "get" => {
            get(&face, name.parse()?, Path::new(file))?;
            Ok(())
        }
        _ => Err(usage.into()),
    }
}
