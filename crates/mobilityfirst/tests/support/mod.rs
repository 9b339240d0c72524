//! Contents, configurations and the name server that tests of whole networks share.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

pub(crate) mod relay;

use core::time::Duration;
use std::rc::Rc;

use bytes::Bytes;
use whimbrel_content::{ChunkSize, ChunkTree};
use whimbrel_core::{Guid, SeededRng, WallClock};
use whimbrel_gnrs::{MemoryStore, Server, ServerConfig, StoreLimits as RecordLimits};
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::HostEvent;
use whimbrel_mobilityfirst::local::{Get, Publish, ReadChunk, TransferOptions};
use whimbrel_mobilityfirst::router::{ProxyPolicy, RouterConfig, store::StoreLimits};
use whimbrel_mobilityfirst::split::SplitConfig;
use whimbrel_mobilityfirst::wire::ContentKind;
use whimbrel_sim::AnyMachine;

pub(crate) const WALL: WallClock = WallClock::new(1_767_225_600_000);
/// Bytes that Ethernet, IP and UDP add to a frame.
pub(crate) const OVERHEAD: u32 = 66;
/// The program on each host.
pub(crate) const APP: u32 = 1;

/// Bytes with a name.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) bytes: Bytes,
    tree: Rc<ChunkTree>,
}

impl Content {
    /// `len` bytes of noise, others for another seed.
    pub(crate) fn new(len: usize, seed: u64) -> Content {
        let mut rng = SeededRng::new(seed);
        let words = (0..len.div_ceil(8)).flat_map(|_| rng.next_word().to_le_bytes());
        let bytes: Vec<u8> = words.take(len).collect();
        let tree = ChunkTree::from_reader(&bytes[..], ChunkSize::MIN, &mut |_| {}).unwrap();
        Content {
            bytes: bytes.into(),
            tree: Rc::new(tree),
        }
    }

    pub(crate) fn name(&self) -> Guid {
        self.tree.root()
    }

    /// Reads a chunk as a program does that serves the content.
    pub(crate) fn read(&self, index: u32, chunk_log2: u8) -> Option<ReadChunk> {
        let chunk_size = ChunkSize::from_code(chunk_log2)?;
        let range = chunk_size.range(index.into(), self.bytes.len() as u64)?;
        let mut proof = Vec::new();
        let proven = self.tree.proof(index.into(), chunk_size);
        proven.ok()?.encode(&mut proof);
        Some(ReadChunk {
            proof: proof.into(),
            data: self.bytes.slice(range.start as usize..range.end as usize),
        })
    }

    /// Checks a chunk that came, and returns where it begins.
    pub(crate) fn check(&self, index: u32, chunk_log2: u8, data: &Bytes) -> usize {
        let at = (index as usize) << chunk_log2;
        assert_eq!(*data, self.bytes.slice(at..at + data.len()), "at {at}");
        at
    }

    pub(crate) fn publish(&self) -> Publish {
        Publish {
            content: self.name(),
            content_len: self.bytes.len() as u64,
            kind: ContentKind::File,
            file_name: String::new(),
        }
    }
}

/// A program's request for a content, whose chunks may come in any order.
pub(crate) fn get(request: u32, content: Guid, chunk_log2: u8) -> Get {
    Get {
        request,
        content,
        options: TransferOptions {
            chunk_log2,
            ..TransferOptions::default()
        },
        in_order: false,
        credit: 16,
        resume: Bytes::new(),
    }
}

/// A router without routes and name server, with the limits of a daemon.
pub(crate) fn router_config(guid: Guid, hop: HopConfig) -> RouterConfig {
    RouterConfig {
        guid,
        wall: WALL,
        hop,
        buffer_packets: 32_768,
        store: StoreLimits {
            cache: 0,
            total: 1 << 30,
            per_flow: 256 << 20,
            lifetime: Duration::from_secs(600),
        },
        routes: Vec::new(),
        default_route: None,
        name_servers: Vec::new(),
        proxy: ProxyPolicy::default(),
        split: SplitConfig::default(),
    }
}

/// A name server that keeps these records in memory.
pub(crate) fn name_server(store: MemoryStore) -> AnyMachine<HostEvent> {
    let server = Server::new(ServerConfig::default(), WALL, [7; 32], store);
    AnyMachine::new(server, |event| panic!("{event:?}"))
}

pub(crate) fn no_records() -> MemoryStore {
    MemoryStore::new(RecordLimits::default())
}
