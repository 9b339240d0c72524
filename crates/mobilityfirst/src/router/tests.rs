//! A router and the hops of its neighbours, on the test bed.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use whimbrel_core::{
    Deadline, Guid, Machine, OpenRefusal, PortEvent, PortId, PortOrigin, PortRequest, PortToken,
    SeededRng, Time, Transmit, WallClock,
};
use whimbrel_gnrs::{Address, GroupAdmission, KeyPair, Record, Statement};
use whimbrel_link::{Buffer, Hop, HopConfig, HopEvent};
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::{AnyMachine, DuplexLink, testbed};

use super::effects::Action;
use super::hostile::{name, plain_hop};
use super::store::StoreLimits;
use super::{NextHop, ProxyPolicy, Route, Router, RouterConfig, WaitReason};
use crate::chunk::Chunk;
use crate::links::ChunkToSend;
use crate::wire::{
    ChunkRanges, ContentKind, Control, Credit, Data, DropReason, Flow, NetworkHeader, Presence,
    PresenceCode, Reliability, Request, ServiceId, Transport, UpperProtocol,
};

pub(super) const UNIX_MS: u64 = 1_767_225_600_000;
pub(super) static ROUTER: LazyLock<Guid> = LazyLock::new(|| name(251));
pub(super) static SOURCE: LazyLock<Guid> = LazyLock::new(|| name(252));
static OTHER_SOURCE: LazyLock<Guid> = LazyLock::new(|| name(253));
const STEP: Duration = Duration::from_millis(1);

/// A neighbour's hop, and the chunks that it has received whole.
pub(super) struct Neighbour {
    hop: Hop,
    port: Option<PortId>,
    buffer: Buffer,
    pub(super) received: Vec<Chunk>,
}

impl Neighbour {
    fn note(&mut self) {
        while let Some(event) = self.hop.poll_event() {
            if let HopEvent::Received { chunk, room } = event {
                drop(room);
                let chunk = Chunk::decode(&chunk).expect("a chunk");
                self.received.push(chunk);
            }
        }
    }
}

impl Machine for Neighbour {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, _: Time, port: PortId, event: PortEvent) {
        match event {
            PortEvent::Up(_) => self.port = Some(port),
            PortEvent::Down => self.port = None,
            _ => {}
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, _: PortId, frames: &[&[u8]]) {
        for frame in frames {
            self.hop.handle_frame(now, frame, &mut self.buffer);
        }
        self.note();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.hop.handle_timeout(now, &mut self.buffer);
        self.note();
    }

    fn poll_transmit(&mut self, now: Time, most: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let port = self.port?;
        let (size, segment_size) = self.hop.poll_transmit(now, most, buffer)?;
        Some(Transmit {
            port,
            size,
            segment_size,
        })
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.port?;
        self.hop.poll_timeout()
    }
}

/// A router (node 0) and its neighbours (from node 1 on).
pub(super) struct Net {
    bed: testbed::Net<AnyMachine<()>>,
}

pub(super) fn config() -> RouterConfig {
    RouterConfig {
        guid: *ROUTER,
        wall: WallClock::new(UNIX_MS),
        hop: plain_hop(*ROUTER),
        buffer_packets: 4096,
        store: StoreLimits {
            cache: 0,
            total: 64 << 20,
            per_flow: 64 << 20,
            lifetime: Duration::from_secs(60),
        },
        routes: Vec::new(),
        default_route: None,
        name_servers: Vec::new(),
        proxy: ProxyPolicy::default(),
        // By weights: what each branch gets is known.
        split: crate::split::SplitConfig {
            scheduler: crate::split::Scheduler::Weights,
            ..Default::default()
        },
    }
}

/// Returns the router's port to a neighbour.
pub(super) fn port(neighbour: usize) -> PortId {
    PortId(2 * (neighbour as u32 - 1))
}

impl Net {
    /// Returns a router with a neighbour of each of these names.
    pub(super) fn new(names: &[Guid]) -> Net {
        Net::with_routes(names, Vec::new())
    }

    /// Returns the same with static routes.
    fn with_routes(names: &[Guid], routes: Vec<Route>) -> Net {
        Net::with_config(names, RouterConfig { routes, ..config() })
    }

    pub(super) fn with_config(names: &[Guid], config: RouterConfig) -> Net {
        let chosen: Vec<PortOrigin> = (0..)
            .map(PortOrigin::Configured)
            .take(names.len())
            .collect();
        Net::with_origins(names, &chosen, config)
    }

    /// The router's ports to its neighbours have these origins.
    pub(super) fn with_origins(
        names: &[Guid],
        origins: &[PortOrigin],
        config: RouterConfig,
    ) -> Net {
        let hops = names.iter().map(|name| plain_hop(*name));
        Net::with_hops(hops.collect(), origins, config)
    }

    /// The neighbours' hops are configured so.
    pub(super) fn with_hops(
        hops: Vec<HopConfig>,
        origins: &[PortOrigin],
        config: RouterConfig,
    ) -> Net {
        let neighbours = hops.len();
        let mut bed = testbed::Net::new(1);
        let mut router = Router::new(config, SeededRng::new(1));
        let plain = hops.iter().zip(origins).filter(|(hop, _)| hop.plain);
        for (hop, _) in plain.filter(|(_, origin)| origin.is_chosen()) {
            router.believe(hop.reception.guid());
        }
        bed.add_mortal("router", AnyMachine::new(router, |_| ()));
        let wire = LinkSpec::new(100_000_000, Duration::from_millis(1));
        for (number, hop) in (1..).zip(hops) {
            let rng = SeededRng::new(number as u64 + 10);
            let neighbour = Neighbour {
                hop: Hop::new(hop, rng, bed.now()),
                port: None,
                buffer: Buffer::new(4096),
                received: Vec::new(),
            };
            let neighbour = AnyMachine::new(neighbour, |never| match never {});
            bed.add_mortal(&format!("neighbour {number}"), neighbour);
            let link = DuplexLink::symmetric(wire.clone());
            let link = link.with_origins(origins[number - 1], PortOrigin::Configured(0));
            let connection = bed.connect(0, number, &link).expect("a link");
            assert_eq!(connection.a, port(number));
        }
        let mut net = Net { bed };
        net.run(Duration::from_secs(1));
        for number in 1..=neighbours {
            net.neighbour(number, |it, _| it.received.clear());
        }
        net
    }

    /// Carries frames both ways for this time.
    pub(super) fn run(&mut self, span: Duration) {
        self.bed.run_for(span);
    }

    pub(super) fn router(&self) -> &Router {
        self.bed[0].get().expect("the router")
    }

    /// Calls into the router.
    pub(super) fn with_router<R>(&mut self, call: impl FnOnce(&mut Router, Time) -> R) -> R {
        self.bed
            .with(0, |it, now| call(it.get_mut().expect("the router"), now))
    }

    /// Calls into a neighbour.
    pub(super) fn neighbour<R>(
        &mut self,
        number: usize,
        call: impl FnOnce(&mut Neighbour, Time) -> R,
    ) -> R {
        self.bed.with(number, |it, now| {
            call(it.get_mut().expect("a neighbour"), now)
        })
    }

    /// Returns all that a neighbour has received.
    pub(super) fn chunks(&self, neighbour: usize) -> &[Chunk] {
        let neighbour: &Neighbour = self.bed[neighbour].get().expect("a neighbour");
        &neighbour.received
    }

    /// A neighbour sends a chunk.
    pub(super) fn send(&mut self, neighbour: usize, chunk: Chunk) {
        let (head, body) = chunk.into_pieces();
        self.neighbour(neighbour, |it, now| it.hop.send(now, 1, head, body));
    }

    /// A neighbour of this name holds back what the source sends to `destination`, but for `credit`.
    pub(super) fn hold_back(
        &mut self,
        neighbour: usize,
        name: Guid,
        destination: Guid,
        credit: u32,
    ) {
        let flow = Flow::requested(*SOURCE, destination);
        self.with_router(|it, _| it.links.note_passed(port(neighbour), flow));
        let credit = Control::Credit(Credit {
            flow,
            octets: credit,
            spare: false,
            lease: Duration::from_secs(32),
        });
        self.send(neighbour, super::hostile::control(name, &credit));
        self.run(Duration::from_millis(100));
    }

    /// Returns the payloads of the data chunks that a neighbour has received, by chunk index.
    pub(super) fn received(&self, neighbour: usize) -> BTreeMap<u32, Bytes> {
        let received = self.chunks(neighbour).iter();
        let data = received.filter_map(Chunk::data);
        data.map(|data| (data.index, data.payload)).collect()
    }
}

/// Returns a chunk of content for `destination`.
pub(super) fn data(service: ServiceId, destination: Guid, index: u32, len: usize) -> Chunk {
    let service = service.with(ServiceId::DELAY_TOLERANT);
    let header = NetworkHeader::new(service, UpperProtocol::Transport, *SOURCE, destination);
    let data = Data {
        content: name(7),
        index,
        chunk_log2: 20,
        content_len: 1 << 30,
        kind: ContentKind::File,
        reliability: Reliability::Nack,
        file_name: String::new(),
        proof: Bytes::new(),
        payload: Bytes::from(vec![index as u8; len]),
    };
    Chunk::of_transport(header, &Transport::Data(data))
}

/// Has the hosts on these ports be members of a group. Returns the name of its memberships.
pub(super) fn join(net: &mut Net, ports: &[usize]) -> Guid {
    let group = KeyPair::from_secret(&[70; 32]);
    let admission = GroupAdmission::sign(&group, None, u64::MAX);
    for neighbour in ports {
        let keys = KeyPair::from_secret(&[70 + *neighbour as u8; 32]);
        let port = port(*neighbour);
        net.with_router(|it, now| {
            let now_ms = it.config.wall.unix_millis(now);
            let said = Statement::new(now_ms, 60_000, Vec::new());
            let record = Record::membership(&keys, &admission, &said).expect("a record");
            assert!(it.binding.attachments.insert(keys.guid(), port, 1));
            let _ = it.binding.names.keep(now, port, record, |_| None);
        });
    }
    Record::group_of(&group.guid())
}

#[test]
fn the_copies_of_a_groups_chunk_share_memory_and_room() {
    let mut net = Net::new(&[*SOURCE, name(3), name(4)]);
    let group = join(&mut net, &[2, 3]);
    let (chunk, len) = (data(ServiceId::MULTICAST, group, 5, 100_000), 100_000);
    assert!(net.router().links.buffer().0 == 0);
    net.send(1, chunk);
    // Until the router has it and has passed it to two hops.
    let carried = |net: &Net, neighbour| net.router().links.neighbours.carried(port(neighbour));
    let mut seen = false;
    while carried(&net, 2).is_empty() && net.received(2).is_empty() {
        net.run(STEP);
        if let ([(_, first)], [(_, second)]) = (&carried(&net, 2)[..], &carried(&net, 3)[..]) {
            let pointer = |outgoing: &ChunkToSend| outgoing.chunk.message.head.as_ptr();
            assert_eq!(pointer(first), pointer(second));
            assert!(first.room.is_held() && second.room.is_held());
            // Counted once.
            assert!(net.router().memory().buffered_bytes < 2 * len);
            seen = true;
        }
    }
    assert!(seen);
    net.run(Duration::from_secs(1));
    let payload = Bytes::from(vec![5; 100_000]);
    for neighbour in [2, 3] {
        assert_eq!(
            net.received(neighbour),
            BTreeMap::from([(5, payload.clone())])
        );
    }
    assert_eq!(
        (net.router().links.buffer().0, net.router().memory().total()),
        (0, 0)
    );
}

#[test]
fn a_unicast_chunk_leaves_on_one_port_and_on_the_other_when_that_is_silent() {
    let host = name(9);
    let mut net = Net::new(&[*SOURCE, name(3), name(4)]);
    // The newest record was attached on port 3.
    assert!(net.with_router(|it, _| it.binding.attachments.insert(host, port(2), 1)));
    assert!(net.with_router(|it, _| it.binding.attachments.insert(host, port(3), 2)));
    net.send(1, data(ServiceId::UNICAST, host, 0, 1000));
    net.run(Duration::from_secs(1));
    assert_eq!((net.received(2).len(), net.received(3).len()), (0, 1));
    let router = net.bed.id(0);
    net.bed.sim_mut().close_port(router, port(3));
    net.send(1, data(ServiceId::UNICAST, host, 1, 1000));
    net.run(Duration::from_secs(1));
    assert_eq!((net.received(2).len(), net.received(3).len()), (1, 1));
}

/// The router at this address says that it has a host, as soon as it is asked.
fn answer_for(router: &mut Router, now: Time, host: Guid, at: Guid) {
    let (binding, links, effects) = (&mut router.binding, &router.links, &mut router.effects);
    assert!(!binding.counts(now, host, at, links, effects));
    let Some(Action::Say(question)) = effects.next() else {
        panic!("no question");
    };
    let Ok(Control::Presence(about)) = Control::decode(&question.message.head) else {
        panic!("another message");
    };
    let code = PresenceCode::Here;
    let header = NetworkHeader {
        source: at,
        ..question.header
    };
    binding.handle_presence(now, &header, Presence { code, ..about }, effects);
    assert!(matches!(effects.next(), Some(Action::BindStored(name)) if name == host));
    assert!(binding.counts(now, host, at, links, effects));
}

/// The choice before any neighbour has acknowledged a packet: by weights alone.
#[test]
fn a_flow_is_divided_among_the_addresses_of_its_destination_by_weight() {
    let keys = KeyPair::from_secret(&[5; 32]);
    let addresses = [name(3), name(4)];
    let mut net = Net::new(&addresses);
    let [first, second] = addresses;
    let addresses = [(first, 3), (second, 1)].map(|(na, weight)| Address {
        weight,
        ..Address::new(na)
    });
    let statement = Statement::new(UNIX_MS, 60_000, addresses.to_vec());
    let record = Record::binding(&keys, &statement).expect("a record");
    net.with_router(|router, now| {
        assert!(
            router
                .binding
                .names
                .keep(now, port(1), record, |_| None)
                .is_ok()
        );
        for at in [first, second] {
            answer_for(router, now, keys.guid(), at);
        }
        for index in 0..40 {
            let chunk = data(ServiceId::MULTIHOMING, keys.guid(), index, 1000);
            router.say(now, chunk);
        }
        let waiting = |neighbour| router.links.neighbours.state(port(neighbour)).queue_bytes;
        let rates =
            [1, 2].map(|neighbour| router.links.neighbours.state(port(neighbour)).delivery_rate);
        assert!(rates.contains(&None), "{rates:?}");
        assert_eq!(waiting(1), 3 * waiting(2));
    });
    net.run(Duration::from_secs(1));
    assert_eq!((net.received(1).len(), net.received(2).len()), (30, 10));
    let reached = |neighbour| {
        let received = net.chunks(neighbour).iter();
        received.map(|chunk| chunk.header.destination_address)
    };
    assert!(reached(1).all(|address| address == first));
    assert!(reached(2).all(|address| address == second));
}

#[test]
fn static_routes_to_one_router_divide_a_flow_by_weight_and_keep_the_worse_one_in_reserve() {
    let names = [name(3), name(4), name(5)];
    let far = name(9);
    let route = |neighbour: usize, preference, weight| Route {
        preference,
        weight,
        ..Route::new(far, NextHop::Neighbour(names[neighbour]))
    };
    // The best routes are not written first.
    let routes = vec![route(2, 1, 9), route(0, 0, 3), route(1, 0, 1)];
    let mut net = Net::with_routes(&names, routes);
    let send = |net: &mut Net, service, indexes: core::ops::Range<u32>| {
        net.with_router(|router, now| {
            for index in indexes {
                router.say(now, data(service, far, index, 1000));
            }
        });
        net.run(Duration::from_secs(1));
        [1, 2, 3].map(|neighbour| net.received(neighbour).len())
    };
    assert_eq!(send(&mut net, ServiceId::UNICAST, 0..10), [10, 0, 0]);
    assert_eq!(send(&mut net, ServiceId::MULTIHOMING, 10..50), [40, 10, 0]);
    let router = net.bed.id(0);
    for neighbour in [1, 2] {
        net.bed.sim_mut().close_port(router, port(neighbour));
    }
    assert_eq!(send(&mut net, ServiceId::MULTIHOMING, 50..55), [40, 10, 5]);
}

/// Returns a router with little room, the neighbours 1 and 2 that send to the hosts at 3 and 4, and
/// a hold of the flow from 1 to 3 by the neighbour 3.
fn net_with_a_held_flow() -> (Net, [Guid; 2]) {
    let hosts = [name(8), name(9)];
    let small = RouterConfig {
        buffer_packets: 1024,
        store: StoreLimits {
            cache: 0,
            total: 1 << 20,
            ..config().store
        },
        ..config()
    };
    let mut net = Net::with_config(&[*SOURCE, *OTHER_SOURCE, name(3), name(4)], small);
    let all = [*SOURCE, *OTHER_SOURCE, hosts[0], hosts[1]];
    for (host, neighbour) in all.into_iter().zip(1..) {
        assert!(net.with_router(|it, _| it.binding.attachments.insert(host, port(neighbour), 1)));
    }
    net.hold_back(3, name(3), hosts[0], 0);
    (net, hosts)
}

/// Each end of a link between routers may call the other: there are two ports to one neighbour, and
/// chunks go by one of them while requests come by the other.
#[test]
fn what_is_under_way_to_a_neighbour_by_another_port_is_not_asked_for_again() {
    let (client, content, beyond) = (name(9), name(7), name(3));
    let mut net = Net::new(&[*SOURCE, beyond, beyond]);
    for (guid, neighbour, version) in [(content, 1, 1), (client, 2, 1), (client, 3, 2)] {
        assert!(net.with_router(|it, _| it.binding.attachments.insert(
            guid,
            port(neighbour),
            version
        )));
    }
    net.hold_back(3, beyond, client, 0);
    net.send(1, data(ServiceId::CONTENT_RESPONSE, client, 4, 50_000));
    net.run(Duration::from_millis(100));
    let service = ServiceId::CONTENT_REQUEST.with(ServiceId::DELAY_TOLERANT);
    let header = NetworkHeader::new(service, UpperProtocol::Transport, client, content);
    for (first, requests) in [(4, 0), (5, 1)] {
        let request = Request::new(
            content,
            20,
            Reliability::Nack,
            ChunkRanges::from(first..first + 1),
        );
        let request = Transport::Request(request);
        net.send(2, Chunk::of_transport(header.clone(), &request));
        net.run(Duration::from_millis(100));
        assert_eq!(net.chunks(1).len(), requests, "for chunk {first}");
        assert_eq!(net.router().effects.counters.requests_absorbed, 1);
    }
}

/// As after a crash of the client: the port of its former run counts as up for a while.
#[test]
fn what_is_under_way_to_a_former_run_of_a_neighbour_is_asked_for_again() {
    let (client, content, beyond) = (name(9), name(7), name(3));
    let mut net = Net::new(&[*SOURCE, beyond, beyond]);
    for (guid, neighbour, version) in [(content, 1, 1), (client, 2, 1)] {
        assert!(net.with_router(|it, _| it.binding.attachments.insert(
            guid,
            port(neighbour),
            version
        )));
    }
    net.hold_back(2, beyond, client, 0);
    let mut chunk = data(ServiceId::CONTENT_RESPONSE, client, 4, 50_000);
    chunk.header.extensions.request = Some(77);
    net.send(1, chunk);
    net.run(Duration::from_millis(100));
    assert!(net.with_router(|it, _| it.binding.attachments.insert(client, port(3), 2)));
    let service = ServiceId::CONTENT_REQUEST.with(ServiceId::DELAY_TOLERANT);
    let mut header = NetworkHeader::new(service, UpperProtocol::Transport, client, content);
    for (id, requests) in [(77, 0), (78, 1)] {
        header.extensions.request = Some(id);
        let request = Transport::Request(Request {
            is_exact: false,
            window: None,
            content,
            chunk_log2: 20,
            reliability: Reliability::Nack,
            chunks: ChunkRanges::from(4..5),
        });
        net.send(3, Chunk::of_transport(header.clone(), &request));
        net.run(Duration::from_millis(100));
        assert_eq!(net.chunks(1).len(), requests, "with id {id}");
    }
}

/// A request that a link has held up may come when its answer has gone. One of a later download, with
/// another id, counts.
#[test]
fn what_has_just_gone_is_not_asked_for_again_by_the_same_request() {
    let (client, content, beyond) = (name(9), name(7), name(3));
    let mut net = Net::new(&[*SOURCE, beyond]);
    for (guid, neighbour) in [(content, 1), (client, 2)] {
        assert!(net.with_router(|it, _| it.binding.attachments.insert(guid, port(neighbour), 1)));
    }
    let mut chunk = data(ServiceId::CONTENT_RESPONSE, client, 4, 50_000);
    chunk.header.extensions.request = Some(77);
    net.send(1, chunk);
    net.run(Duration::from_millis(500));
    assert_eq!(net.received(2).len(), 1);
    let service = ServiceId::CONTENT_REQUEST.with(ServiceId::DELAY_TOLERANT);
    let mut header = NetworkHeader::new(service, UpperProtocol::Transport, client, content);
    let request = Request::new(content, 20, Reliability::Nack, ChunkRanges::from(4..5));
    // At 0.5, 0.6 and 1.7 s.
    for (id, later, requests) in [(77, 100, 0), (78, 100, 1), (77, 1_000, 2)] {
        net.run(Duration::from_millis(later - 100));
        header.extensions.request = Some(id);
        let request = Transport::Request(request.clone());
        net.send(2, Chunk::of_transport(header.clone(), &request));
        net.run(Duration::from_millis(100));
        assert_eq!(
            net.chunks(1).len(),
            requests,
            "with id {id} after {later} ms"
        );
    }
}

/// "Head-of-line blocking" [MFTP §3.4.3]: the flow that is held fills the queue and the storage.
#[test]
fn a_held_flow_that_fills_buffer_and_storage_gives_room_to_a_free_flow() {
    let (mut net, [held, free]) = net_with_a_held_flow();
    for index in 0..60 {
        net.send(1, data(ServiceId::UNICAST, held, index, 100_000));
    }
    net.run(Duration::from_secs(1));
    // Nothing more fits: neither into the buffer nor into the storage.
    let chunk = 100_000;
    let (used, capacity) = net.router().links.buffer();
    assert!((capacity - used) * 1472 < 2 * chunk, "{used}");
    let stored = net.router().proxy.store().bytes();
    assert!(stored + chunk as u64 > 1 << 20, "{stored}");
    for index in 0..10 {
        let mut chunk = data(ServiceId::UNICAST, free, index, 100_000);
        chunk.header.source = *OTHER_SOURCE;
        net.send(2, chunk);
    }
    net.run(Duration::from_secs(10));
    assert_eq!(net.received(4).len(), 10);
    assert!(net.received(3).is_empty());
    // The source of what was dropped has been told.
    let told = net.chunks(1).iter().filter_map(|it| it.transport().ok());
    let dropped: u64 = told
        .map(|it| match it {
            Transport::Drop(notice, DropReason::Evicted) => notice.chunks.count(),
            _ => 0,
        })
        .sum();
    let counted = net.router().effects.counters.drops.get("evicted");
    assert!(dropped > 0 && counted == Some(&dropped), "{dropped}");
}

#[test]
fn a_status_says_what_is_stored_for_whom_and_why_it_waits() {
    let (mut net, [held, _]) = net_with_a_held_flow();
    let absent = name(77);
    for index in 0..2 {
        let mut chunk = data(ServiceId::UNICAST, absent, index, 1000);
        chunk.header.source = *OTHER_SOURCE;
        net.send(2, chunk);
    }
    net.run(Duration::from_secs(1));
    for index in 0..12 {
        net.send(1, data(ServiceId::UNICAST, held, index, 100_000));
    }
    net.run(Duration::from_secs(1));
    let status = net.with_router(|it, now| it.status(now));
    let of = |destination| {
        let mut all = status.waiting.iter();
        let found = all.find(|it| it.destination == destination);
        found.map(|it| (it.chunks, it.bytes, it.reason))
    };
    let store = net.router().proxy.store();
    let bytes_of_absent = store.bytes_for(&absent);
    assert!(bytes_of_absent > 2 * 1000);
    let absent = of(absent);
    assert_eq!(absent, Some((2, bytes_of_absent, WaitReason::NoAddress)));
    let (chunks, bytes, reason) = of(held).expect("chunks of the held flow");
    assert_eq!(reason, WaitReason::HeldBack);
    assert_eq!(bytes + bytes_of_absent, store.bytes());
    assert_eq!(chunks + 2, store.len());
    // Most bytes first; the small ones have waited longer.
    let [first, second] = &status.waiting[..] else {
        panic!("two destinations");
    };
    assert!(first.bytes > second.bytes && first.since_s < second.since_s);
    assert!((1.5..2.0).contains(&second.since_s), "{}", second.since_s);
}

#[test]
fn a_status_names_a_silent_name_server_as_the_reason() {
    for (name_servers, why) in [
        (Vec::new(), WaitReason::NoAddress),
        (vec![99], WaitReason::NameServerSilent),
    ] {
        let config = RouterConfig {
            name_servers,
            ..config()
        };
        let mut net = Net::with_config(&[*SOURCE], config);
        net.send(1, data(ServiceId::UNICAST, name(77), 0, 1000));
        net.run(Duration::from_secs(20));
        let status = net.with_router(|it, now| it.status(now));
        let reasons: Vec<WaitReason> = status.waiting.iter().map(|it| it.reason).collect();
        assert_eq!(reasons, [why]);
    }
}
