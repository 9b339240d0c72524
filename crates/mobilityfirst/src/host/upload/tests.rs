//! Uploads and the clients that ask for them.

use whimbrel_core::PortId;

use super::one::{MAX_PROXIES, Upload};
use super::*;
use crate::host::catalogue::Offer;
use crate::host::effects::Action;
use crate::local::{LocalEvent, Publish, SendContent, SendState};
use crate::wire::{ContentKind, OfferTerms, OfferUse, UpperProtocol, WindowAdvice, WindowVerdict};

const PROGRAM: App = App::Inner(1);

fn name(number: u8) -> Guid {
    Guid([number; 32])
}

fn publish(content: Guid, content_len: u64) -> Publish {
    Publish {
        content,
        content_len,
        kind: ContentKind::File,
        file_name: String::new(),
    }
}

/// A request for all chunks of a content.
fn request(content: Guid) -> Request {
    Request::new(content, 16, Reliability::Nack, ChunkRanges::all())
}

fn header(from: Guid, to: Guid) -> NetworkHeader {
    let (service, upper) = (ServiceId::CONTENT_REQUEST, UpperProtocol::Transport);
    NetworkHeader::new(service, upper, from, to)
}

/// The uploads of a host, and what they want done.
struct Source {
    uploads: Uploads,
    effects: Effects,
}

impl Source {
    /// A host with a bound of uploads, which offers the first contents of a MiB.
    fn new(max_transfers: usize, contents: u8) -> Source {
        let mut effects = Effects::default();
        let mut uploads = Uploads::new(name(200), max_transfers, &mut SeededRng::new(1));
        for content in 1..=contents {
            let offer = Offer {
                app: PROGRAM,
                publish: publish(name(content), 1 << 20),
                options: TransferOptions::default(),
            };
            uploads.contents.publish(Time::ZERO, offer, &mut effects);
        }
        Source { uploads, effects }
    }

    /// What programs have been told of what they send.
    fn states(&mut self) -> Vec<SendState> {
        let actions = core::iter::from_fn(|| self.effects.next());
        let states = actions.filter_map(|action| match action {
            Action::Tell(_, LocalEvent::Sending { state, .. }) => Some(state),
            _ => None,
        });
        states.collect()
    }

    fn handle_wanted(&mut self, way: Way, header: &NetworkHeader, request: Request) {
        let (presence, effects) = (Presence::MayBeUnderWay, &mut self.effects);
        (self.uploads).handle_wanted(Time::ZERO, way, header, request, presence, effects);
    }

    /// A client asks for the first `count` contents. Returns how many uploads there are for it.
    fn ask(&mut self, client: u8, way: Way, count: u8) -> usize {
        for content in (1..=count).map(name) {
            self.handle_wanted(way, &header(name(client), content), request(content));
        }
        let of_client = |key: &&Key| key.client == name(client) && key.way == way;
        self.uploads.by_key.keys().filter(of_client).count()
    }

    fn first(&mut self) -> Option<&mut Upload> {
        self.uploads.by_key.iter_mut().next().map(|(_, it)| it)
    }
}

/// A notice about chunks of the first content, for client 7.
fn notice(source: &Source, chunks: ChunkRanges) -> Notice {
    Notice {
        content: name(1),
        source: source.uploads.guid,
        destination: name(7),
        chunks,
        stored: 0,
        limit: 1,
    }
}

#[test]
fn a_client_that_asks_for_everything_leaves_uploads_to_others() {
    let mut source = Source::new(64, 100);
    assert_eq!(source.ask(1, Way::Uplink, 100), 32);
    assert_eq!(source.ask(2, Way::Uplink, 100), 16);
    // An inbound peer that claims the same name is another one.
    assert_eq!(source.ask(2, Way::Caller(PortId(7)), 100), 8);
    assert_eq!(source.ask(3, Way::Uplink, 1), 1);
    let drops = &source.effects.counters.drops;
    assert_eq!(drops["too-many-uploads"], 68 + 84 + 92);
}

/// Whoever knows the id of a request can send notices of a proxy in any name.
#[test]
fn notices_of_any_number_of_proxies_take_a_bounded_memory() {
    let mut source = Source::new(64, 1);
    assert_eq!(source.ask(7, Way::Uplink, 1), 1);
    for number in 0..20_000u16 {
        let mut proxy = name(9);
        proxy.0[..2].copy_from_slice(&number.to_be_bytes());
        // Each second one: half of all numbers that a chunk can have, in ranges of one.
        let mut chunks = ChunkRanges::default();
        (0..2_000).for_each(|index| chunks.insert(index * 2));
        chunks.insert_range(1 << 20..u32::MAX);
        let (header, notice) = (header(proxy, name(200)), notice(&source, chunks));
        let effects = &mut source.effects;
        (source.uploads).handle_store(Time::ZERO, &header, notice, effects);
    }
    let upload = source.first().unwrap();
    assert_eq!(upload.stored.len(), MAX_PROXIES);
    // A MiB has 16 chunks of 64 KiB.
    assert!(upload.stored.values().all(|chunks| chunks.count() == 8));
}

#[test]
fn another_run_of_a_client_gets_what_was_sent_to_the_former_one() {
    let header = header(name(1), name(2));
    let asked = Asked {
        header: &header,
        options: TransferOptions::default(),
        reliability: Reliability::Nack,
        chunk_size: ChunkSize::from_code(16).expect("a size"),
        window: None,
        count: 9,
    };
    let mut upload = Upload::new(&asked, Time::ZERO);
    let was_sent = |upload: &Upload, index| upload.sent.iter().any(|sent| sent.contains(index));
    upload.note_request(Some(1));
    upload.note_sent(Time::ZERO, 3);
    // The same download asks again: it may be on its way.
    upload.note_request(Some(1));
    assert!(was_sent(&upload, 3));
    upload.note_request(Some(2));
    assert!(!was_sent(&upload, 3));
    // Two downloads that ask by turns.
    upload.note_sent(Time::ZERO, 4);
    for id in [1, 2, 1] {
        upload.note_request(Some(id));
        assert!(was_sent(&upload, 4), "{id}");
    }
}

#[test]
fn a_notice_of_kept_chunks_is_believed_of_the_own_router_alone() {
    let mut source = Source::new(64, 1);
    assert_eq!(source.ask(7, Way::Uplink, 1), 1);
    let (own, other) = (name(8), name(9));
    let notice = notice(&source, ChunkRanges::from(0..u32::MAX));
    let Source { uploads, effects } = &mut source;
    let mut kept_after = |by: Guid, id: Option<u64>, is_delegated: bool| {
        (uploads.delegations).set(PROGRAM, name(1), is_delegated, effects);
        let mut header = header(by, name(200));
        header.extensions.request = id;
        uploads.handle_kept(Some(own), &header, &notice, effects);
        let status = uploads.delegated_status(8);
        status.first().map(|it| (it.kept, it.chunks))
    };
    assert_eq!(kept_after(own, None, false), None);
    assert_eq!(kept_after(other, None, true), None);
    assert_eq!(kept_after(own, Some(77), true), None);
    assert_eq!(kept_after(own, None, true), Some((16, 16)));
    assert_eq!(effects.counters.drops["forged-kept"], 2);
    // A router that restarts has forgotten it.
    uploads.note_forgotten(&other);
    assert_eq!(uploads.delegated_status(8).len(), 1);
    uploads.note_forgotten(&own);
    assert!(uploads.delegated_status(8).is_empty());
}

/// "The sender starts at an initial end-to-end sending window" [MFTP §3.4.2], and stops after it.
#[test]
fn a_source_sends_a_window_and_waits_for_the_next_advice() {
    let mut source = Source::new(64, 1);
    let told = |source: &mut Source, chunks: u16, wanted: ChunkRanges| {
        let mut header = header(name(7), name(1));
        header.extensions.request = Some(5);
        let verdict = WindowVerdict::Maintain;
        let request = Request {
            is_exact: true,
            window: Some(WindowAdvice { verdict, chunks }),
            chunks: wanted,
            ..request(name(1))
        };
        source.handle_wanted(Way::Uplink, &header, request);
        let mut upload = source.first();
        let next = || upload.as_mut().and_then(|it| it.next());
        core::iter::from_fn(next).collect::<Vec<u32>>()
    };
    // The last one of sixteen first.
    assert_eq!(told(&mut source, 3, ChunkRanges::all()), [15, 0, 1]);
    assert_eq!(told(&mut source, 2, ChunkRanges::default()), [2, 3]);
    // Lost ones first.
    assert_eq!(told(&mut source, 2, ChunkRanges::from(1..2)), [1, 4]);
    // What comes back, and what a proxy stores, is no part of the window.
    let upload = source.first().unwrap();
    upload.take_back(4);
    assert_eq!(upload.next(), Some(4));
    upload.note_stored(name(9), &ChunkRanges::from(0..2));
    assert_eq!(
        [upload.next(), upload.next(), upload.next()],
        [Some(5), Some(6), None]
    );
    // A closed window takes the request back.
    assert!(told(&mut source, 0, ChunkRanges::default()).is_empty());
    assert_eq!(source.uploads.len(), 0);
}

/// Sends a content of 100 bytes, whose offer has the same number, to a client.
fn push(source: &mut Source, client: Guid, number: u8) {
    push_of(
        source,
        PROGRAM,
        client,
        number,
        100,
        TransferOptions::default(),
    );
}

fn push_of(
    source: &mut Source,
    app: App,
    client: Guid,
    number: u8,
    len: u64,
    options: TransferOptions,
) {
    let content = name(number);
    let keys = whimbrel_gnrs::KeyPair::from_secret(&[3; 32]);
    let send = SendContent {
        request: number.into(),
        destination: client,
        options,
        proposed: OfferUse::File,
        content: publish(content, len),
    };
    let mut header = header(client, content);
    header.extensions.request = Some(number.into());
    let terms = OfferTerms {
        destination: client,
        id: number.into(),
        content,
        content_len: len,
        kind: ContentKind::File,
        file_name: "",
    };
    let pushed = Pushed {
        send: &send,
        offer: SignedOffer::sign(&keys, &terms, OfferUse::File, 0),
        header: &header,
        request: Request::new(content, 18, Reliability::Nack, ChunkRanges::all()),
    };
    let effects = &mut source.effects;
    (source.uploads).push_content(Time::ZERO, app, pushed, effects);
}

/// The number of members decides about the size of chunks, so that nothing leaves before it is known.
#[test]
fn chunks_for_a_group_have_the_size_that_its_members_afford() {
    let mut options = TransferOptions::default();
    options.delivery.service = crate::local::Service::Multicast;
    let group = name(9);
    let key = Key {
        content: name(1),
        client: group,
        way: Way::Uplink,
        is_sent: true,
    };
    let sent = || {
        let mut source = Source::new(64, 0);
        push_of(&mut source, PROGRAM, group, 1, 2_000_000, options);
        let upload = source.uploads.by_key.get_mut(&key).unwrap();
        assert_eq!(upload.next(), None);
        source
    };
    for (members, code) in [(3, 15), (30, 16), (200, 18)] {
        let mut source = sent();
        let members: Vec<Guid> = (10..).take(members).map(name).collect();
        let (uploads, effects) = (&mut source.uploads, &mut source.effects);
        uploads.note_members(Time::ZERO, group, &members, effects);
        let upload = uploads.by_key.get_mut(&key).unwrap();
        assert_eq!(upload.chunk_size.code(), code);
        assert!(upload.next().is_some());
    }
    // A router that does not know them is not waited for.
    let mut source = sent();
    let (uploads, effects) = (&mut source.uploads, &mut source.effects);
    uploads.check_uploads(Time::from_millis(400), effects);
    assert_eq!(uploads.by_key.get_mut(&key).unwrap().next(), None);
    uploads.check_uploads(Time::from_millis(600), effects);
    let upload = uploads.by_key.get_mut(&key).unwrap();
    assert_eq!(upload.chunk_size.code(), 18);
    assert!(upload.next().is_some());
}

/// More contents than an inbox receives at the same time leave in turn.
#[test]
fn of_many_contents_for_one_receiver_some_leave_at_a_time() {
    let mut source = Source::new(4096, 0);
    let client = name(7);
    for number in 1..=100 {
        push(&mut source, client, number);
    }
    let leave = |source: &mut Source| {
        let uploads = source.uploads.by_key.iter_mut();
        let next = uploads.filter_map(|(key, upload)| upload.next().map(|_| key.content.0[0]));
        next.collect::<Vec<u8>>()
    };
    assert_eq!(leave(&mut source), (1..=32).collect::<Vec<u8>>());
    assert_eq!(leave(&mut source), [0; 0]);
    // The receiver has two of them.
    for content in [5, 6].map(name) {
        let key = Key {
            content,
            client,
            way: Way::Uplink,
            is_sent: true,
        };
        let chunk = ChunkRanges::from(0..1);
        (source.uploads).note_confirmed(&key, &chunk, &mut source.effects);
    }
    assert_eq!(leave(&mut source), [33, 34]);
}

/// A program whose send another one replaces is told so, and does not wait for ever.
#[test]
fn of_two_sends_of_the_same_content_to_a_receiver_the_first_one_ends() {
    let mut source = Source::new(64, 0);
    push(&mut source, name(7), 1);
    push(&mut source, name(7), 1);
    assert_eq!(source.states(), [], "a program that repeats its send");
    let options = TransferOptions::default();
    push_of(&mut source, App::Inner(2), name(7), 1, 100, options);
    assert_eq!(source.states(), [SendState::Replaced]);
}

/// A sent content, and what its receiver says of it.
struct Sent(Source);

impl Sent {
    const ID: u64 = 5;
    const CONTENT: Guid = Guid([Sent::ID as u8; 32]);

    fn new() -> Sent {
        let mut source = Source::new(64, 0);
        push(&mut source, name(7), Sent::ID as u8);
        Sent(source)
    }

    fn header(&self, id: u64) -> NetworkHeader {
        let mut header = header(name(7), self.0.uploads.guid);
        header.extensions.request = Some(id);
        header
    }

    fn ask(&mut self, id: u64, chunks: ChunkRanges) {
        let request = Request {
            chunks,
            ..request(Sent::CONTENT)
        };
        let header = self.header(id);
        self.0.handle_wanted(Way::Uplink, &header, request);
    }

    fn acknowledge(&mut self) {
        let (header, ack) = (self.header(Sent::ID), request(Sent::CONTENT));
        let Source { uploads, effects } = &mut self.0;
        uploads.handle_ack(Time::ZERO, Way::Uplink, &header, &ack, effects);
    }

    fn check(&mut self, now: Time) {
        self.0.uploads.check_uploads(now, &mut self.0.effects);
    }

    /// Returns true if each upload has these chunks to send.
    fn is_pending(&self, chunks: &ChunkRanges) -> bool {
        let mut uploads = self.0.uploads.by_key.iter();
        uploads.all(|(_, upload)| upload.pending == *chunks)
    }

    /// Returns of each upload whether its content is sent without a request.
    fn left(&self) -> Vec<bool> {
        self.0
            .uploads
            .by_key
            .keys()
            .map(|key| key.is_sent)
            .collect()
    }

    /// Returns the ends that the program was told of.
    fn ends(&mut self) -> Vec<SendState> {
        self.0.states()
    }
}

/// A receiver confirms a content, and says that it wants no further chunk of it: the messages take different
/// times, and either may be lost.
#[test]
fn a_stop_that_overtakes_the_confirmation_is_no_refusal() {
    let mut sent = Sent::new();
    sent.ask(Sent::ID, ChunkRanges::default());
    assert!(sent.is_pending(&ChunkRanges::default()));
    assert_eq!(sent.ends(), []);
    sent.acknowledge();
    assert_eq!(sent.ends(), [SendState::Delivered]);
    // The confirmation is lost: the receiver is probed, and says it again.
    let mut sent = Sent::new();
    sent.ask(Sent::ID, ChunkRanges::default());
    let later = Time::ZERO + Duration::from_secs(20);
    sent.check(later);
    assert_eq!(sent.ends(), [SendState::Leaving]);
    assert!(sent.is_pending(&ChunkRanges::from(0..1)));
    // It has forgotten it, and asks.
    sent.ask(Sent::ID, ChunkRanges::all());
    sent.acknowledge();
    assert_eq!(sent.ends(), [SendState::Delivered]);
}

#[test]
fn a_request_for_a_content_that_is_sent_too_is_an_upload_of_its_own() {
    let mut sent = Sent::new();
    sent.ask(99, ChunkRanges::all());
    assert_eq!(sent.left().len(), 2);
    // Its end is not that of the other.
    sent.ask(99, ChunkRanges::default());
    assert_eq!(sent.left(), [true]);
    sent.ask(99, ChunkRanges::all());
    sent.acknowledge();
    assert_eq!(sent.ends(), [SendState::Delivered]);
    assert_eq!(sent.left(), [false]);
}
