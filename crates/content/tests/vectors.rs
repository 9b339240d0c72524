//! The vectors of docs/protocols/vectors/content.txt, decoded independently of the encoder.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::BTreeMap;

use whimbrel_content::{
    Assembly, ChunkSize, ChunkTree, ContentKey, Folder, Kind, Modified, Offer, Proof, Top,
    proven_length, verify_chunk,
};
use whimbrel_core::Guid;

const VECTORS: &str = include_str!("../../../docs/protocols/vectors/content.txt");

struct Vector {
    fields: BTreeMap<&'static str, &'static str>,
}

impl Vector {
    fn text(&self, key: &str) -> &'static str {
        self.fields
            .get(key)
            .unwrap_or_else(|| panic!("no {key} in {:?}", self.fields))
    }
    fn number(&self, key: &str) -> u64 {
        self.text(key).parse().unwrap()
    }
    fn bytes(&self, key: &str) -> Vec<u8> {
        hex::decode(self.text(key)).unwrap()
    }
    fn guid(&self, key: &str) -> Guid {
        self.text(key).parse().unwrap()
    }
}

fn vectors(kind: &str) -> Vec<Vector> {
    let lines = VECTORS.lines().filter(|line| !line.starts_with('#'));
    let found: Vec<Vector> = lines
        .filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))
        .map(|fields| Vector {
            fields: fields
                .split(' ')
                .map(|field| field.split_once('=').unwrap())
                .collect(),
        })
        .collect();
    assert!(!found.is_empty(), "no vectors of kind {kind}");
    found
}

fn content(len: u64) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

fn tree(len: u64) -> ChunkTree {
    ChunkTree::from_reader(&content(len)[..], ChunkSize::GROUP, &mut |_| {}).unwrap()
}

#[test]
fn every_line_is_of_a_tested_kind() {
    let kinds = [
        "name",
        "proof",
        "folder",
        "tree",
        "download",
        "encrypted",
        "hidden",
    ];
    let tested: usize = kinds.iter().map(|kind| vectors(kind).len()).sum();
    assert_eq!(
        tested,
        VECTORS
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count()
    );
}

/// Made with other programs: see the remarks in the file.
#[test]
fn encrypted_contents_are_as_published() {
    for vector in vectors("encrypted") {
        let key = ContentKey::new(vector.bytes("key").try_into().unwrap());
        let mut bytes = vector.bytes("bytes");
        key.apply(vector.number("at"), &mut bytes);
        assert_eq!(bytes, vector.bytes("plain"));
        let member = key.of_member(&vector.guid("content"));
        assert_eq!(member.as_bytes()[..], vector.bytes("member"));
    }
    for vector in vectors("hidden") {
        let key = ContentKey::new(vector.bytes("key").try_into().unwrap());
        assert_eq!(
            key.name(vector.text("text")).as_deref(),
            Some(vector.text("name"))
        );
        assert_eq!(key.hide_name(vector.text("name")), vector.text("text"));
    }
}

#[test]
fn names_are_as_published() {
    for vector in vectors("name") {
        assert_eq!(tree(vector.number("len")).root(), vector.guid("root"));
    }
}

#[test]
fn proofs_are_as_published_and_verify() {
    for vector in vectors("proof") {
        let (len, index) = (vector.number("len"), vector.number("index"));
        let size = ChunkSize::from_bytes(vector.number("chunk")).unwrap();
        let published = vector.bytes("proof");
        let (proof, rest) = Proof::decode(&published).unwrap();
        assert!(rest.is_empty());
        assert_eq!(tree(len).proof(index, size), Ok(proof.clone()));
        let range = size.range(index, len).unwrap();
        let data = &content(len)[range.start as usize..range.end as usize];
        let root = Guid(*blake3::hash(&content(len)).as_bytes());
        assert_eq!(verify_chunk(root, len, size, index, data, &proof), Ok(()));
        let bounds = vector.number("least")..=vector.number("most");
        assert_eq!(proven_length(len, size, index), Some(bounds));
    }
}

#[test]
fn folders_are_as_published() {
    let (mut paths, mut tops) = (Vec::new(), Vec::new());
    for vector in vectors("folder") {
        let bytes = vector.bytes("listing");
        assert_eq!(Guid(*blake3::hash(&bytes).as_bytes()), vector.guid("name"));
        let listing = Folder::decode(&bytes).unwrap();
        assert_eq!(listing.refused, []);
        assert_eq!(listing.folder.encode(), bytes);
        tops.extend(listing.folder.top().copied());
        for entry in listing.folder.entries() {
            assert_eq!(entry.modified.seconds, -1);
            assert_eq!(
                entry.mode & 0o100 != 0,
                entry.path.as_bytes() != b"notes.txt" && entry.path.as_bytes() != b"bin-old/\xff"
            );
            match &entry.kind {
                Kind::File {
                    length, content, ..
                } => {
                    assert_eq!(tree(*length).root(), *content);
                }
                Kind::Folder => {}
                Kind::Link { target } => assert_eq!(&target[..], b"../notes.txt"),
            }
            paths.push(entry.path.as_bytes().to_vec());
        }
        for pack in listing.folder.packs() {
            assert_eq!(tree(pack.length.into()).root(), pack.content);
        }
    }
    let expected: [&[u8]; 6] = [
        b"bin",
        b"bin/link",
        b"bin/run",
        b"bin-old/\xff",
        b"empty",
        b"notes.txt",
    ];
    assert_eq!(paths, expected.repeat(2));
    let modified = Modified {
        seconds: 1_700_000_000,
        nanoseconds: 999_999_999,
    };
    assert_eq!(
        tops,
        [Top {
            mode: 0o700,
            modified
        }]
    );
}

#[test]
fn tree_records_are_as_published() {
    for vector in vectors("tree") {
        let expected = tree(vector.number("len"));
        assert_eq!(
            ChunkTree::decode(&vector.bytes("record")),
            Ok(expected.clone())
        );
        assert_eq!(expected.encode(), vector.bytes("record"));
    }
}

#[test]
fn download_records_are_as_published() {
    let len = 7 * 65536 - 9;
    let (bytes, tree) = (content(len), tree(len));
    for vector in vectors("download") {
        let mut assembly = Assembly::new(tree.root(), 1 << 30);
        for index in vector
            .text("have")
            .split(',')
            .filter_map(|index| index.parse().ok())
        {
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
            assert!(assembly.commit(assembly.check(&offer).unwrap()));
        }
        assembly.note_delivered(vector.number("delivered"));
        assert_eq!(assembly.encode(), vector.bytes("record"));
        let resumed = Assembly::decode(&vector.bytes("record")).unwrap();
        assert_eq!(resumed.verified(), assembly.verified());
        assert_eq!(resumed.deliverable(), assembly.deliverable());
        assert_eq!(resumed.expected_len(), assembly.expected_len());
    }
}
