//! An observer of a router: it sees content in transit, and may answer.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_core::{Guid, Time};

use super::hostile::name;
use super::tests::{Net, ROUTER, SOURCE, data, port};
use super::{Observer, Passing, Verdict};
use crate::chunk::Chunk;
use crate::wire::{
    ChunkRanges, Data, NetworkHeader, Reliability, Request, ServiceId, Transport, UpperProtocol,
};

/// Stores chunks in transit, and answers requests for one that it has.
#[derive(Default)]
struct Cache {
    kept: BTreeMap<(Guid, u32), Data>,
}

impl Observer for Cache {
    fn observe(&mut self, _: Time, chunk: &Chunk, passing: Passing) -> Verdict {
        let request = match passing {
            Passing::Data(data) => {
                self.kept.insert((data.content, data.index), data);
                return Verdict::Pass;
            }
            Passing::Request(request) | Passing::Nack(request) => request,
        };
        let wanted = request.chunks.iter().flatten();
        let kept: Option<Vec<Data>> = wanted
            .map(|index| self.kept.get(&(request.content, index)).cloned())
            .collect();
        let Some(kept) = kept else {
            return Verdict::Pass;
        };
        let answer = |data| {
            let service = ServiceId::CONTENT_RESPONSE.with(ServiceId::DELAY_TOLERANT);
            let (upper, to) = (UpperProtocol::Transport, chunk.header.source);
            let header = NetworkHeader::new(service, upper, *ROUTER, to);
            Chunk::of_transport(header, &Transport::Data(data))
        };
        Verdict::Answer(kept.into_iter().map(answer).collect())
    }
}

#[test]
fn an_observer_answers_a_request_from_its_own_copy() {
    let (client, content) = (name(9), name(7));
    let mut net = Net::new(&[*SOURCE, client]);
    for (guid, port) in [(client, port(2)), (content, port(1))] {
        assert!(net.with_router(|it, _| it.attachments.insert(guid, port, 1)));
    }
    net.with_router(|it, _| it.set_observer(Box::<Cache>::default()));
    let request = |chunks: ChunkRanges| {
        let service = ServiceId::CONTENT_REQUEST.with(ServiceId::DELAY_TOLERANT);
        let header = NetworkHeader::new(service, UpperProtocol::Transport, client, content);
        let request = Request {
            content,
            chunk_log2: 20,
            is_exact: false,
            window: None,
            reliability: Reliability::Nack,
            chunks,
        };
        Chunk::of_transport(header, &Transport::Request(request))
    };
    let requests = |net: &Net| net.chunks(1).len();
    // A request for other chunks goes to the source, whose chunk is stored in transit.
    net.send(2, request(ChunkRanges::from(4..5)));
    net.run(Duration::from_secs(1));
    assert_eq!((requests(&net), net.received(2).len()), (1, 0));
    net.send(1, data(ServiceId::CONTENT_RESPONSE, client, 4, 50_000));
    net.run(Duration::from_secs(1));
    let expected = BTreeMap::from([(4, Bytes::from(vec![4; 50_000]))]);
    assert_eq!(net.received(2), expected);
    // Requested again, it comes from the router.
    net.neighbour(2, |it, _| it.received.clear());
    net.send(2, request(ChunkRanges::from(4..5)));
    net.run(Duration::from_secs(1));
    assert_eq!(net.received(2), expected);
    assert_eq!(requests(&net), 1);
    // A request for chunks that it has only in part passes.
    net.send(2, request(ChunkRanges::from(4..6)));
    net.run(Duration::from_secs(1));
    assert_eq!(requests(&net), 2);
}
