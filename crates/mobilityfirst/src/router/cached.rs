//! Copies in a router, with clients that ask for the same content.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_content::{ChunkSize, ChunkTree};
use whimbrel_core::Guid;
use whimbrel_core::identity::{PublicKey, Signature};

use super::hostile::name;
use super::store::Purpose;
use super::tests::{Net, SOURCE, config, join, port};
use super::{RouterConfig, RouterCounters};
use crate::chunk::Chunk;
use crate::wire::{
    ChunkRanges, ContentKind, Data, NetworkHeader, OfferUse, Reliability, Request, ServiceId,
    SignedOffer, Transport, UpperProtocol,
};

const CHUNK: usize = 16 << 10;
const CHUNKS: u32 = 6;

/// A source (neighbour 1), clients (neighbours 2 to 4) and a content.
struct Scene {
    net: Net,
    bytes: Vec<u8>,
    tree: ChunkTree,
}

fn client(number: usize) -> Guid {
    name(number as u8)
}

impl Scene {
    fn new(cache: u64) -> Scene {
        let mut config = RouterConfig { ..config() };
        config.store.cache = cache;
        let names = [*SOURCE, client(2), client(3), client(4)];
        let mut net = Net::with_config(&names, config);
        let len = CHUNK * (CHUNKS as usize - 1) + 100;
        let bytes: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
        let size = ChunkSize::from_code(14).expect("a size");
        let tree = ChunkTree::from_reader(&bytes[..], size, &mut |_| {}).expect("a tree");
        for (guid, at) in [
            (tree.root(), 1),
            (client(2), 2),
            (client(3), 3),
            (client(4), 4),
        ] {
            assert!(net.with_router(|it, _| it.binding.attachments.insert(guid, port(at), 1)));
        }
        Scene { net, bytes, tree }
    }

    fn ask(&mut self, number: usize, chunks: ChunkRanges) {
        let content = self.tree.root();
        let service = ServiceId::CONTENT_REQUEST.with(ServiceId::DELAY_TOLERANT);
        let upper = UpperProtocol::Transport;
        let mut header = NetworkHeader::new(service, upper, client(number), content);
        header.extensions.request = Some(number as u64);
        let request = Request::new(content, 20, Reliability::Nack, chunks);
        let request = Transport::Request(request);
        self.net.send(number, Chunk::of_transport(header, &request));
        self.net.run(Duration::from_millis(200));
    }

    /// The source sends a chunk to a client; its bytes are changed if it lies.
    fn serve(&mut self, to: usize, index: u32, lies: bool) {
        let chunk = self.chunk(to, index, lies);
        self.net.send(1, chunk);
        self.net.run(Duration::from_millis(200));
    }

    fn chunk(&self, to: usize, index: u32, lies: bool) -> Chunk {
        let size = ChunkSize::from_code(14).expect("a size");
        let proof = self.tree.proof(index.into(), size).expect("a proof");
        let mut encoded = Vec::new();
        proof.encode(&mut encoded);
        let start = index as usize * CHUNK;
        let mut payload = self.bytes[start..self.bytes.len().min(start + CHUNK)].to_vec();
        payload[0] ^= u8::from(lies);
        let service = ServiceId::CONTENT_RESPONSE.with(ServiceId::DELAY_TOLERANT);
        let upper = UpperProtocol::Transport;
        let mut header = NetworkHeader::new(service, upper, *SOURCE, client(to));
        header.extensions.request = Some(to as u64);
        let data = Data {
            content: self.tree.root(),
            index,
            chunk_log2: 14,
            content_len: self.bytes.len() as u64,
            kind: ContentKind::File,
            reliability: Reliability::Nack,
            file_name: String::new(),
            proof: encoded.into(),
            payload: payload.into(),
        };
        Chunk::of_transport(header, &Transport::Data(data))
    }

    /// Returns what a client has got; the chunks carry the id of its request.
    fn got(&self, number: usize) -> Vec<u32> {
        let data = self
            .net
            .chunks(number)
            .iter()
            .filter(|it| it.data().is_some());
        let of_request = |it: &&Chunk| it.header.extensions.request == Some(number as u64);
        assert!(data.clone().all(|it| of_request(&it)));
        self.net.received(number).keys().copied().collect()
    }

    /// Returns the chunks that the source was asked for, with the clients that asked.
    fn asked(&self) -> Vec<(Guid, ChunkRanges)> {
        let requests = self
            .net
            .chunks(1)
            .iter()
            .filter_map(|it| match it.transport() {
                Ok(Transport::Request(request)) => Some((it.header.source, request.chunks)),
                _ => None,
            });
        requests.collect()
    }

    fn counters(&self) -> &RouterCounters {
        &self.net.router().effects.counters
    }

    fn cached(&self) -> u64 {
        let copies = self.net.router().proxy.store().copies();
        copies.bytes(Purpose::Cached)
    }
}

fn all() -> ChunkRanges {
    ChunkRanges::all()
}

#[test]
fn a_second_client_gets_copies_and_the_source_is_asked_once() {
    let mut scene = Scene::new(1 << 20);
    scene.ask(2, all());
    for index in (0..CHUNKS).rev() {
        scene.serve(2, index, false);
    }
    scene.ask(3, all());
    assert_eq!(scene.got(3), Vec::from_iter(0..CHUNKS));
    assert_eq!(scene.got(2), Vec::from_iter(0..CHUNKS));
    assert_eq!(scene.asked().len(), 1);
    let payloads: Vec<Bytes> = scene.net.received(3).into_values().collect();
    assert_eq!(payloads.concat(), scene.bytes);
    let counters = scene.counters();
    assert_eq!((counters.chunks_cached, counters.copies_sent), (6, 6));
    // The copies count once, and nothing else is held when all is quiet.
    scene.net.run(Duration::from_secs(20));
    let memory = scene.net.router().memory();
    assert_eq!(
        (memory.copied_bytes, memory.total()),
        (scene.cached(), scene.cached())
    );
    assert_eq!(scene.net.router().cache.fetches.clients(), 0);
}

#[test]
fn clients_that_ask_at_the_same_time_wait_for_what_the_first_one_fetches() {
    let mut scene = Scene::new(1 << 20);
    for number in 2..5 {
        scene.ask(number, all());
    }
    assert_eq!(scene.asked().len(), 1);
    for index in 0..CHUNKS {
        scene.serve(2, index, false);
        for number in 2..5 {
            assert_eq!(scene.got(number).len(), index as usize + 1);
        }
    }
    // A repeated request of one that waits does not leave, one of the client that fetches does.
    assert_eq!(scene.asked().len(), 1);
    assert_eq!(scene.net.router().cache.fetches.clients(), 0);
}

#[test]
fn a_request_goes_on_for_what_is_not_here() {
    let mut scene = Scene::new(1 << 20);
    scene.ask(2, ChunkRanges::from(0..1));
    // 64 small chunks are one of those that were asked for.
    scene.serve(2, 1, false);
    scene.serve(2, 5, false);
    scene.net.run(Duration::from_secs(5));
    scene.ask(3, all());
    assert_eq!(scene.got(3), [1, 5]);
    let mut rest = ChunkRanges::from(0..5);
    rest.remove_range(1..2);
    assert_eq!(scene.asked()[1], (client(3), rest));
}

#[test]
fn a_fetch_that_dies_is_continued_by_one_that_waits() {
    let mut scene = Scene::new(1 << 20);
    for number in 2..5 {
        scene.ask(number, all());
    }
    scene.serve(2, 0, false);
    assert_eq!(scene.got(4), [0]);
    // Its link is down, or its source has gone.
    scene.net.run(Duration::from_secs(4));
    let asked = scene.asked();
    assert_eq!((asked.len(), asked[1].0), (2, client(3)));
    assert!(!asked[1].1.contains(0) && asked[1].1.contains(5));
    for index in 1..CHUNKS {
        scene.serve(3, index, false);
    }
    assert_eq!(scene.got(4), Vec::from_iter(0..CHUNKS));
    assert_eq!(scene.got(3), Vec::from_iter(0..CHUNKS));
}

#[test]
fn a_client_that_stops_leaves_the_fetch_to_another_one() {
    let mut scene = Scene::new(1 << 20);
    scene.ask(2, all());
    scene.ask(3, all());
    scene.ask(2, ChunkRanges::default());
    scene.net.run(Duration::from_secs(1));
    let asked = scene.asked();
    assert_eq!(asked.last().map(|it| it.0), Some(client(3)));
}

#[test]
fn false_chunks_are_not_copied_and_do_not_keep_a_fetch_alive() {
    let mut scene = Scene::new(1 << 20);
    scene.ask(2, all());
    scene.ask(3, all());
    for index in 0..CHUNKS {
        scene.serve(2, index, true);
    }
    assert_eq!((scene.cached(), scene.got(3).len()), (0, 0));
    assert_eq!(scene.counters().drops.get("unproven-copy"), Some(&6));
    scene.net.run(Duration::from_secs(6));
    assert_eq!(scene.asked().last().map(|it| it.0), Some(client(3)));
}

#[test]
fn the_cache_keeps_what_was_asked_for_last_and_gives_way_to_stored_chunks() {
    let mut scene = Scene::new(3 * (CHUNK as u64 + 3000));
    scene.ask(2, all());
    for index in 0..4 {
        scene.serve(2, index, false);
    }
    assert!(scene.cached() > 2 * CHUNK as u64 && scene.cached() < 4 * CHUNK as u64);
    scene.ask(3, all());
    assert_eq!(scene.got(3), [1, 2, 3]);
    let mut scene = Scene::new(1 << 20);
    scene.net.with_router(|it, _| it.proxy.set_total(200_000));
    scene.ask(2, all());
    for index in 0..CHUNKS {
        scene.serve(2, index, false);
    }
    assert!(scene.cached() > 5 * CHUNK as u64);
    for index in 0..9 {
        let absent = super::tests::data(ServiceId::UNICAST, name(77), index, 20_000);
        scene.net.send(1, absent);
    }
    scene.net.run(Duration::from_secs(1));
    let store = scene.net.router().proxy.store();
    assert_eq!((store.len(), scene.cached()), (8, 0));
}

#[test]
fn without_a_cache_nothing_is_copied() {
    let mut scene = Scene::new(0);
    scene.ask(2, all());
    scene.serve(2, 0, false);
    scene.ask(3, all());
    assert_eq!((scene.asked().len(), scene.cached()), (2, 0));
}

pub(super) fn offer() -> SignedOffer {
    SignedOffer {
        proposed: OfferUse::File,
        issued_ms: 1,
        key: PublicKey([1; 32]),
        signature: Signature([2; 64]),
    }
}

impl Scene {
    /// The source is attached here, and delegates chunks.
    fn delegating(total: u64) -> Scene {
        let mut scene = Scene::new(0);
        scene.net.with_router(|it, _| {
            assert!(it.binding.attachments.insert(*SOURCE, port(1), 1));
            it.proxy.set_total(total);
        });
        scene
    }

    fn delegate(&mut self, to: usize, index: u32, offer: Option<SignedOffer>, lies: bool) {
        let mut chunk = self.chunk(to, index, lies);
        chunk.header.extensions.delegate = true;
        chunk.header.extensions.offer = offer.map(Box::new);
        self.net.send(1, chunk);
        self.net.run(Duration::from_millis(200));
    }

    fn kept(&self) -> u64 {
        let copies = self.net.router().proxy.store().copies();
        copies.bytes(Purpose::Kept)
    }

    /// Returns the chunks that the source was told are kept, and those that it was told are not.
    fn told(&self) -> (ChunkRanges, ChunkRanges) {
        let (mut kept, mut gone) = (ChunkRanges::default(), ChunkRanges::default());
        for chunk in self.net.chunks(1) {
            match chunk.transport() {
                Ok(Transport::Kept(notice)) => kept.union(&notice.chunks),
                Ok(Transport::Drop(notice, _)) => gone.union(&notice.chunks),
                _ => {}
            }
        }
        (kept, gone)
    }

    /// A client sends a message about chunks to the source.
    fn tell(&mut self, number: usize, id: u64, message: fn(Request) -> Transport) {
        let upper = UpperProtocol::Transport;
        let service = ServiceId::DELAY_TOLERANT;
        let mut header = NetworkHeader::new(service, upper, client(number), *SOURCE);
        header.extensions.request = Some(id);
        let request = Request::new(self.tree.root(), 14, Reliability::Nack, all());
        self.net
            .send(number, Chunk::of_transport(header, &message(request)));
        self.net.run(Duration::from_millis(200));
    }
}

/// "The immobile access router (acting as a transport proxy) will save a copy of the chunk in order to
/// respond to potential future NACKs" [MFTP §3.3].
#[test]
fn a_delegated_chunk_is_kept_told_and_sent_for_a_nack() {
    let mut scene = Scene::delegating(1 << 20);
    for index in 0..CHUNKS {
        scene.delegate(2, index, None, false);
    }
    assert_eq!(scene.told().0, ChunkRanges::from(0..CHUNKS));
    let marked = scene.net.chunks(2).iter();
    assert!(marked.clone().all(|it| !it.header.extensions.delegate));
    assert_eq!(scene.got(2).len(), CHUNKS as usize);
    scene.net.neighbour(1, |it, _| it.received.clear());
    for message in [Transport::Nack, Transport::Resend] {
        scene.net.neighbour(2, |it, _| it.received.clear());
        // What the neighbour took a moment ago is not sent again for a Nack.
        scene.net.run(Duration::from_secs(3));
        scene.tell(2, 2, message);
        assert_eq!(scene.got(2).len(), CHUNKS as usize);
    }
    assert!(scene.net.chunks(1).is_empty());
    // Another client may fetch it by its name.
    scene.ask(3, all());
    assert_eq!(scene.got(3).len(), CHUNKS as usize);
    // They end with the storage's lifetime.
    scene.net.run(Duration::from_secs(60));
    assert_eq!((scene.kept(), scene.net.router().memory().total()), (0, 0));
}

#[test]
fn copies_of_an_offer_are_for_its_receiver_and_end_with_its_acknowledgement() {
    let mut scene = Scene::delegating(1 << 20);
    for index in 0..CHUNKS {
        scene.delegate(2, index, Some(offer()), false);
    }
    let kept = scene.kept();
    assert!(kept > 0);
    scene.ask(3, all());
    assert!(scene.got(3).is_empty());
    // Another host's acknowledgement, and one without the offer's id, are none.
    scene.tell(3, 2, Transport::Ack);
    scene.tell(2, 7, Transport::Ack);
    assert_eq!(scene.kept(), kept);
    scene.tell(2, 2, Transport::Ack);
    assert_eq!(scene.kept(), 0);
}

#[test]
fn what_is_false_of_somebody_else_or_without_room_is_not_kept() {
    let mut scene = Scene::delegating(1 << 20);
    scene.delegate(2, 0, None, true);
    assert_eq!((scene.kept(), scene.told().0.count()), (0, 0));
    // The source is attached to another router.
    let mut scene = Scene::new(0);
    scene.delegate(2, 0, None, false);
    assert_eq!((scene.kept(), scene.got(2)), (0, vec![0]));
    let mut scene = Scene::delegating(30_000);
    for index in 0..3 {
        scene.delegate(2, index, None, false);
    }
    assert_eq!(scene.told().0, ChunkRanges::from(0..1));
    assert_eq!(scene.got(2), [0, 1, 2]);
    // A stored chunk takes the place of a copy, and the source learns that it is alone again.
    let absent = super::tests::data(ServiceId::UNICAST, name(77), 0, 20_000);
    scene.net.send(1, absent);
    scene.net.run(Duration::from_secs(1));
    assert_eq!((scene.kept(), scene.told().1), (0, ChunkRanges::from(0..1)));
}

/// The id of the offer to a group.
const OFFER: u64 = 9;

fn member(number: usize) -> Guid {
    whimbrel_gnrs::KeyPair::from_secret(&[70 + number as u8; 32]).guid()
}

/// A source (neighbour 1) of a group whose members are neighbours 2 to 4.
struct GroupScene {
    scene: Scene,
    group: Guid,
    // The mark of requests, and those of the requests that have reached the source.
    nack_routers: Option<u8>,
    marks: Vec<Option<u8>>,
}

impl GroupScene {
    fn new(cache: u64) -> GroupScene {
        let mut scene = Scene::new(cache);
        let group = join(&mut scene.net, &[2, 3, 4]);
        GroupScene {
            scene,
            group,
            nack_routers: None,
            marks: Vec::new(),
        }
    }

    /// The source sends a chunk to the group, or again to a member.
    fn send(&mut self, index: u32, to: Option<Guid>) {
        let mut chunk = self.scene.chunk(1, index, false);
        let header = &mut chunk.header;
        header.destination = to.unwrap_or(self.group);
        match to {
            Some(_) => header.extensions.group = Some(Box::new(self.group)),
            None => header.service = header.service.with(ServiceId::MULTICAST),
        }
        header.extensions.request = Some(OFFER);
        header.extensions.offer = Some(offer().into());
        self.scene.net.send(1, chunk);
        self.run(200);
    }

    fn nack(&mut self, number: usize, id: u64, chunks: ChunkRanges) {
        self.send_nack(number, id, chunks);
        self.run(200);
    }

    fn send_nack(&mut self, number: usize, id: u64, chunks: ChunkRanges) {
        let (service, upper) = (ServiceId::DELAY_TOLERANT, UpperProtocol::Transport);
        let mut header = NetworkHeader::new(service, upper, member(number), *SOURCE);
        header.extensions.request = Some(id);
        header.extensions.nack_routers = self.nack_routers;
        let request = Request {
            content: self.scene.tree.root(),
            chunk_log2: 14,
            is_exact: false,
            window: None,
            reliability: Reliability::Nack,
            chunks,
        };
        let nack = Chunk::of_transport(header, &Transport::Nack(request));
        self.scene.net.send(number, nack);
    }

    fn run(&mut self, ms: u64) {
        self.scene.net.run(Duration::from_millis(ms));
    }

    /// Returns the chunks that a member has got since the last time.
    fn got(&mut self, number: usize) -> Vec<u32> {
        let got = self.scene.net.received(number).keys().copied().collect();
        self.scene
            .net
            .neighbour(number, |it, _| it.received.clear());
        got
    }

    /// Returns the requests that have reached the source since the last time.
    fn nacks(&mut self) -> Vec<(Guid, ChunkRanges)> {
        let chunks = self.scene.net.chunks(1).iter();
        let nacks = chunks.filter_map(|it| match it.transport() {
            Ok(Transport::Nack(request)) => Some((it, request.chunks)),
            _ => None,
        });
        let nacks: Vec<(&Chunk, ChunkRanges)> = nacks.collect();
        let marks = nacks
            .iter()
            .map(|(it, _)| it.header.extensions.nack_routers);
        self.marks = marks.collect();
        let nacks = nacks.into_iter();
        let nacks = nacks
            .map(|(it, chunks)| (it.header.source, chunks))
            .collect();
        self.scene.net.neighbour(1, |it, _| it.received.clear());
        nacks
    }
}

/// "We can exploit in-network transport proxies": a router on the way has what one member lacks, and asks once
/// for what many lack [MFTP §3.5].
#[test]
fn nacks_of_members_are_answered_from_copies_and_gathered_for_the_rest() {
    let mut it = GroupScene::new(1 << 20);
    for index in [0, 1, 2, 4, 5] {
        it.send(index, None);
    }
    // What a neighbour took a moment ago is not sent again for a Nack.
    it.run(3_000);
    for number in 2..5 {
        assert_eq!(it.got(number), [0, 1, 2, 4, 5]);
    }
    it.nack(2, OFFER, ChunkRanges::from(1..4));
    assert_eq!(it.got(2), [1, 2]);
    assert_eq!(it.nacks(), [(member(2), ChunkRanges::from(3..4))]);
    for number in [3, 4] {
        it.nack(number, OFFER, ChunkRanges::from(3..4));
    }
    assert_eq!(it.nacks(), []);
    // The repair for the one that has asked is for all of them.
    it.send(3, Some(member(2)));
    for number in 2..5 {
        assert_eq!(it.got(number), [3]);
    }
    it.run(10_000);
    assert_eq!(it.nacks(), []);
    assert_eq!(it.scene.net.router().cache.fetches.clients(), 0);
}

/// A host that has seen no chunk of the offer does not know its id.
#[test]
fn copies_of_a_groups_chunks_are_not_for_strangers() {
    let mut it = GroupScene::new(1 << 20);
    for index in 0..CHUNKS {
        it.send(index, None);
    }
    it.run(3_000);
    (2..5).for_each(|number| drop(it.got(number)));
    it.nack(2, OFFER + 1, ChunkRanges::from(1..2));
    assert_eq!(it.nacks(), [(member(2), ChunkRanges::from(1..2))]);
    it.scene.ask(3, all());
    it.run(3_000);
    for number in 2..5 {
        assert!(it.got(number).is_empty());
    }
}

#[test]
fn a_router_without_a_cache_passes_nacks_of_members_on() {
    let mut it = GroupScene::new(0);
    for index in 0..CHUNKS {
        it.send(index, None);
    }
    it.run(3_000);
    for number in 2..5 {
        it.nack(number, OFFER, ChunkRanges::from(1..2));
    }
    assert_eq!(it.nacks().len(), 3);
    assert_eq!(it.scene.cached(), 0);
}

/// "Transport proxies can be instructed through proper chunk marking, to discard retransmission requests that
/// exceed a number of traversed proxies without encountering the missing chunks."
#[test]
fn a_nack_ends_at_the_router_after_the_last_that_it_may_pass() {
    for (left, passes) in [(None, true), (Some(1), true), (Some(0), false)] {
        for cache in [1 << 20, 0] {
            let mut it = GroupScene::new(cache);
            it.send(0, None);
            it.run(3_000);
            it.nack_routers = left;
            it.nack(2, OFFER, ChunkRanges::from(0..2));
            // A router without a cache does not count.
            let is_caching = cache > 0;
            assert_eq!(it.nacks().len(), usize::from(passes || !is_caching));
            let marked = it.marks.pop();
            let lowered = left.and_then(|left| left.checked_sub(u8::from(is_caching)));
            assert!(marked.is_none_or(|marked| marked == lowered), "{left:?}");
            let dropped = it.scene.counters().drops.get("nack-limit");
            assert_eq!(dropped.is_some(), !passes && is_caching);
            if is_caching {
                assert!(it.got(2).contains(&0));
            }
            // Another member's request waits for none that was dropped.
            it.nack_routers = None;
            it.nack(3, OFFER, ChunkRanges::from(1..2));
            let asked = it.nacks().len();
            assert_eq!(asked, usize::from(!passes || !is_caching), "{left:?}");
        }
    }
}

#[test]
fn of_a_storm_of_nacks_the_source_hears_one_member() {
    let mut it = GroupScene::new(1 << 20);
    it.send(0, None);
    it.nacks();
    for _ in 0..50 {
        for number in 2..5 {
            it.send_nack(number, OFFER, ChunkRanges::from(1..CHUNKS));
        }
        it.run(20);
    }
    let nacks = it.nacks();
    assert!((1..=50).contains(&nacks.len()), "{}", nacks.len());
    assert!(nacks.iter().all(|(from, _)| *from == member(2)));
    let fetches = &it.scene.net.router().cache.fetches;
    assert_eq!(fetches.clients(), 3);
}
