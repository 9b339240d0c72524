//! Messages of who has not seen a request.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use core::time::Duration;
use std::sync::{Arc, Mutex};

use crate::support::relay::Verdict;
use crate::world::{Content, World};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::chunk::Chunk;
use whimbrel_mobilityfirst::wire::{
    ChunkRanges, DropReason, NetworkHeader, Notice, ServiceId, Transport, UpperProtocol,
};

/// Answers the first request with what a forger would send, and lets all others pass.
struct Forger {
    request_id: fn(Option<u64>) -> Option<u64>,
    seen: Arc<Mutex<Vec<Option<u64>>>>,
}

impl Forger {
    fn watch(&self, chunk: &Chunk) -> Verdict {
        let Ok(Transport::Request(request)) = chunk.transport() else {
            return Verdict::Pass;
        };
        let (client, id) = (chunk.header.source, chunk.header.extensions.request);
        let mut seen = self.seen.lock().unwrap();
        seen.push(id);
        if seen.len() > 1 {
            return Verdict::Pass;
        }
        let notice = Notice {
            content: request.content,
            source: client,
            destination: request.content,
            chunks: ChunkRanges::default(),
            stored: 0,
            limit: 0,
        };
        let forged = |reason| {
            let (service, upper) = (ServiceId::UNICAST, UpperProtocol::Transport);
            let mut header = NetworkHeader::new(service, upper, Guid([1; 32]), client);
            header.extensions.request = (self.request_id)(id);
            Chunk::of_transport(header, &Transport::Drop(notice.clone(), reason))
        };
        use DropReason::{NoSuchName, NotServed, TooLarge};
        let reasons = [NotServed, NotServed, NotServed, NoSuchName].into_iter();
        let reasons = reasons.chain([TooLarge; 9]);
        Verdict::Answer(reasons.map(forged).collect())
    }
}

/// A fetch of a served content, whose first request is answered by a forger. Returns whether it
/// failed, whether it was completed, and the ids of its requests.
fn fetch(request_id: fn(Option<u64>) -> Option<u64>) -> (bool, bool, Vec<Option<u64>>) {
    let mut world = World::new();
    let (server, client) = (world.attach(0), world.attach(1));
    let content = Content::new(200_000, 1);
    world.serve(server, &content);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let forger = Forger {
        request_id,
        seen: seen.clone(),
    };
    world.watch(Box::new(move |chunk| forger.watch(chunk)));
    world.get(client, 1, &content, false);
    world.run_until(Duration::from_secs(20), |it| it.has(client, 1));
    let failed = world.programs[client].failed.contains(&1);
    let ids = seen.lock().unwrap().clone();
    (failed, world.has(client, 1), ids)
}

#[test]
fn drops_without_the_id_of_the_request_end_nothing() {
    for wrong in [|_| None, |id: Option<u64>| id.map(|id| id ^ 1)] {
        let (failed, completed, ids) = fetch(wrong);
        assert!(!failed && completed);
        // The id stays the same while the download goes on.
        assert!(
            ids.len() == 2 && ids[0].is_some() && ids[0] == ids[1],
            "{ids:?}"
        );
    }
}

/// The same of a node on the way is believed: it could as well send nothing.
#[test]
fn drops_with_the_id_of_the_request_are_believed() {
    let (failed, completed, _) = fetch(|id| id);
    assert!(failed && !completed);
}
