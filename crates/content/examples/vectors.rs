//! Prints `docs/protocols/vectors/content.txt`: `cargo run -p whimbrel-content --example vectors`.
#![allow(
    clippy::unwrap_used,
    reason = "what is computed here is right or the vectors are not to be had"
)]

use whimbrel_content::{
    Assembly, ChunkSize, ChunkTree, Entry, Folder, Kind, Modified, Offer, Pack, RelativePath, Spot,
    Top, proven_length,
};
use whimbrel_core::Guid;

const KIB: u64 = 1024;

fn content(len: u64) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

fn tree(len: u64) -> ChunkTree {
    ChunkTree::from_reader(&content(len)[..], ChunkSize::GROUP, &mut |_| {}).unwrap()
}

fn main() {
    println!("# Test vectors of docs/protocols/content.md. One to a line: kind, then key=value.");
    println!(
        "# Content of length n is the bytes 0, 1, ... 250, 0, 1, ... up to n. Numbers are decimal, bytes hexadecimal."
    );
    println!("# Printed by: cargo run -p whimbrel-content --example vectors");
    println!("# A content's name is its BLAKE3 hash, whatever the chunk size.");
    for len in [
        0,
        1,
        1023,
        1024,
        1025,
        64 * KIB - 1,
        64 * KIB,
        64 * KIB + 1,
        192 * KIB,
        1024 * KIB + 1,
    ] {
        println!("name len={len} root={}", tree(len).root());
    }
    println!("# least and most are the lengths that the chunk, once verified, leaves possible.");
    for (len, chunk, indices) in [
        (1000, 64 * KIB, &[0][..]),
        (64 * KIB + 1, 64 * KIB, &[0, 1]),
        (5 * 64 * KIB, 64 * KIB, &[0, 3, 4]),
        (7 * 64 * KIB - 9, 64 * KIB, &[0, 4, 5, 6]),
        (7 * 64 * KIB - 9, 128 * KIB, &[0, 2, 3]),
        (3 * 1024 * KIB + 77, 1024 * KIB, &[0, 2, 3]),
    ] {
        let size = ChunkSize::from_bytes(chunk).unwrap();
        for &index in indices {
            let mut proof = Vec::new();
            tree(len).proof(index, size).unwrap().encode(&mut proof);
            let (least, most) = proven_length(len, size, index).unwrap().into_inner();
            println!(
                "proof len={len} chunk={chunk} index={index} least={least} most={most} proof={}",
                hex::encode(proof)
            );
        }
    }
    println!(
        "# A folder of three files, one of them in a pack, an empty folder and a link; name is the listing's own. Then with its own permissions and time."
    );
    for folder in [Folder::default(), folder(), private(folder())] {
        let listing = folder.encode();
        println!(
            "folder name={} listing={}",
            blake3::hash(&listing),
            hex::encode(listing)
        );
    }
    println!("# A provider's cache of the hashes of 192 KiB in groups of 64 KiB.");
    println!(
        "tree len={} record={}",
        192 * KIB,
        hex::encode(tree(192 * KIB).encode())
    );
    println!(
        "# A download of 448 KiB less 9 bytes, limit 1 GiB, in chunks of 64 KiB: have is what is verified, delivered how much was read."
    );
    for (have, delivered) in [(&[][..], 0), (&[0, 1, 3], 70000), (&[0, 6], 0)] {
        let assembly = assembly(7 * 64 * KIB - 9, have, delivered);
        let have: Vec<String> = have.iter().map(u64::to_string).collect();
        println!(
            "download have={} delivered={delivered} record={}",
            have.join(","),
            hex::encode(assembly.encode())
        );
    }
}

fn folder() -> Folder {
    let entry = |path: &[u8], mode, kind| Entry {
        path: RelativePath::new(path).unwrap(),
        mode,
        modified: Modified {
            seconds: -1,
            nanoseconds: 5,
        },
        kind,
    };
    let file = |length, packed| Kind::File {
        length,
        content: Guid(*blake3::hash(&content(length)).as_bytes()),
        packed,
    };
    let pack = Pack {
        content: Guid(*blake3::hash(&content(1025)).as_bytes()),
        length: 1025,
    };
    let spot = Spot { pack: 0, offset: 0 };
    let target = Box::from(*b"../notes.txt");
    let entries = vec![
        entry(b"notes.txt", 0o644, file(65_537, None)),
        entry(b"bin/run", 0o755, file(1025, Some(spot))),
        entry(b"bin", 0o755, Kind::Folder),
        entry(b"bin/link", 0o777, Kind::Link { target }),
        entry(b"bin-old/\xff", 0o600, file(0, None)),
        entry(b"empty", 0o700, Kind::Folder),
    ];
    Folder::new(vec![pack], entries).unwrap()
}

fn private(folder: Folder) -> Folder {
    let modified = Modified {
        seconds: 1_700_000_000,
        nanoseconds: 999_999_999,
    };
    let top = Top {
        mode: 0o700,
        modified,
    };
    folder.with_top(top).unwrap()
}

fn assembly(len: u64, have: &[u64], delivered: u64) -> Assembly {
    let (bytes, tree) = (content(len), tree(len));
    let mut assembly = Assembly::new(tree.root(), 1 << 30);
    for &index in have {
        let range = ChunkSize::GROUP.range(index, len).unwrap();
        let data = &bytes[range.start as usize..range.end as usize];
        let proof = tree.proof(index, ChunkSize::GROUP).unwrap();
        let offer = Offer {
            chunk_size: ChunkSize::GROUP,
            index,
            claimed_len: len,
            data,
            proof: &proof,
        };
        assembly.commit(assembly.check(&offer).unwrap());
    }
    assembly.note_delivered(delivered);
    assembly
}
