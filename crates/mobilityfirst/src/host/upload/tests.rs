//! Uploads and the clients that ask for them.

use whimbrel_core::PortId;

use super::*;
use crate::host::effects::Action;
use crate::local::{Publish, SendContent, SendState};
use crate::wire::{ContentKind, OfferTerms, OfferUse, UpperProtocol, WindowAdvice, WindowVerdict};

const PROGRAM: App = App::Inner(1);

fn offered(publish: Publish) -> Offer {
    Offer {
        app: PROGRAM,
        publish,
        options: TransferOptions::default(),
    }
}

/// A client asks for the first `count` contents. Returns how many uploads there are for it.
fn ask(uploads: &mut Uploads, effects: &mut Effects, client: u8, way: Way, count: u8) -> usize {
    for content in 1..=count {
        let content = Guid([content; 32]);
        let (service, upper) = (ServiceId::CONTENT_REQUEST, UpperProtocol::Transport);
        let header = NetworkHeader::new(service, upper, Guid([client; 32]), content);
        let request = Request {
            content,
            chunk_log2: 16,
            is_exact: false,
            window: None,
            reliability: Reliability::Nack,
            chunks: ChunkRanges::all(),
        };
        let presence = Presence::MayBeUnderWay;
        uploads.handle_wanted(Time::ZERO, way, &header, request, presence, effects);
    }
    let of_client = |key: &&Key| key.client == Guid([client; 32]) && key.way == way;
    uploads.by_key.keys().filter(of_client).count()
}

#[test]
fn a_client_that_asks_for_everything_leaves_uploads_to_others() {
    let mut uploads = Uploads::new(Guid([200; 32]), 64, &mut SeededRng::new(1));
    let mut effects = Effects::default();
    for content in 1..=100 {
        let publish = Publish {
            content: Guid([content; 32]),
            content_len: 1 << 20,
            kind: ContentKind::File,
            file_name: String::new(),
        };
        uploads.publish(Time::ZERO, offered(publish), &mut effects);
    }
    let mut of = |client, way, count| ask(&mut uploads, &mut effects, client, way, count);
    assert_eq!(of(1, Way::Uplink, 100), 32);
    assert_eq!(of(2, Way::Uplink, 100), 16);
    // An inbound peer that claims the same name is another one.
    assert_eq!(of(2, Way::Caller(PortId(7)), 100), 8);
    assert_eq!(of(3, Way::Uplink, 1), 1);
    assert_eq!(effects.counters.drops["too-many-uploads"], 68 + 84 + 92);
}

/// Whoever knows the id of a request can send notices of a proxy in any name.
#[test]
fn notices_of_any_number_of_proxies_take_a_bounded_memory() {
    let mut uploads = Uploads::new(Guid([200; 32]), 64, &mut SeededRng::new(1));
    let mut effects = Effects::default();
    let (content, client) = (Guid([1; 32]), Guid([7; 32]));
    let publish = Publish {
        content,
        content_len: 1 << 20,
        kind: ContentKind::File,
        file_name: String::new(),
    };
    uploads.publish(Time::ZERO, offered(publish), &mut effects);
    assert_eq!(ask(&mut uploads, &mut effects, 7, Way::Uplink, 1), 1);
    for number in 0..20_000u16 {
        let [high, low] = number.to_be_bytes();
        let mut proxy = Guid([9; 32]);
        (proxy.0[0], proxy.0[1]) = (high, low);
        let (service, upper) = (ServiceId::CONTENT_REQUEST, UpperProtocol::Transport);
        let header = NetworkHeader::new(service, upper, proxy, uploads.guid);
        // Each second one: half of all numbers that a chunk can have, in ranges of one.
        let mut chunks = ChunkRanges::default();
        (0..2_000).for_each(|index| chunks.insert(index * 2));
        chunks.insert_range(1 << 20..u32::MAX);
        let notice = Notice {
            content,
            source: uploads.guid,
            destination: client,
            chunks,
            stored: 0,
            limit: 1,
        };
        uploads.handle_store(Time::ZERO, &header, notice, &mut effects);
    }
    let upload = uploads.by_key.values().next().unwrap();
    assert_eq!(upload.stored.len(), MAX_PROXIES);
    // A MiB has 16 chunks of 64 KiB.
    assert!(upload.stored.values().all(|chunks| chunks.count() == 8));
}

#[test]
fn another_run_of_a_client_gets_what_was_sent_to_the_former_one() {
    let header = NetworkHeader::new(
        ServiceId::UNICAST,
        UpperProtocol::Transport,
        Guid([1; 32]),
        Guid([2; 32]),
    );
    let asked = Asked {
        header: &header,
        options: TransferOptions::default(),
        reliability: Reliability::Nack,
        chunk_size: ChunkSize::from_code(16).expect("a size"),
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
    let mut uploads = Uploads::new(Guid([200; 32]), 64, &mut SeededRng::new(1));
    let mut effects = Effects::default();
    let (content, client) = (Guid([1; 32]), Guid([7; 32]));
    let publish = Publish {
        content,
        content_len: 1 << 20,
        kind: ContentKind::File,
        file_name: String::new(),
    };
    uploads.publish(Time::ZERO, offered(publish), &mut effects);
    assert_eq!(ask(&mut uploads, &mut effects, 7, Way::Uplink, 1), 1);
    let (own, other) = (Guid([8; 32]), Guid([9; 32]));
    let notice = Notice {
        content,
        source: uploads.guid,
        destination: client,
        chunks: ChunkRanges::from(0..u32::MAX),
        stored: 0,
        limit: 1,
    };
    let mut kept_after = |by: Guid, id: Option<u64>, is_delegated: bool| {
        uploads.delegate(PROGRAM, content, is_delegated, &mut effects);
        let (service, upper) = (ServiceId::DELAY_TOLERANT, UpperProtocol::Transport);
        let mut header = NetworkHeader::new(service, upper, by, uploads.guid);
        header.extensions.request = id;
        uploads.handle_kept(Some(own), &header, &notice, &mut effects);
        uploads
            .delegated_status(8)
            .first()
            .map(|it| (it.kept, it.chunks))
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
    let mut uploads = Uploads::new(Guid([200; 32]), 64, &mut SeededRng::new(1));
    let mut effects = Effects::default();
    let (content, client) = (Guid([1; 32]), Guid([7; 32]));
    let publish = Publish {
        content,
        content_len: 1 << 20,
        kind: ContentKind::File,
        file_name: String::new(),
    };
    uploads.publish(Time::ZERO, offered(publish), &mut effects);
    let mut told = |uploads: &mut Uploads, window: u16, chunks: ChunkRanges| {
        let (service, upper) = (ServiceId::UNICAST, UpperProtocol::Transport);
        let mut header = NetworkHeader::new(service, upper, client, content);
        header.extensions.request = Some(5);
        let request = Request {
            content,
            chunk_log2: 16,
            is_exact: true,
            window: Some(WindowAdvice {
                verdict: WindowVerdict::Maintain,
                chunks: window,
            }),
            reliability: Reliability::Nack,
            chunks,
        };
        let (way, presence) = (Way::Uplink, Presence::MayBeUnderWay);
        uploads.handle_wanted(Time::ZERO, way, &header, request, presence, &mut effects);
        let mut upload = uploads.by_key.values_mut().next();
        let next = || upload.as_mut().and_then(|it| it.next());
        core::iter::from_fn(next).collect::<Vec<u32>>()
    };
    // The last one of sixteen first.
    assert_eq!(told(&mut uploads, 3, ChunkRanges::all()), [15, 0, 1]);
    assert_eq!(told(&mut uploads, 2, ChunkRanges::default()), [2, 3]);
    // Lost ones first.
    assert_eq!(told(&mut uploads, 2, ChunkRanges::from(1..2)), [1, 4]);
    // What comes back, and what a proxy stores, is no part of the window.
    let upload = uploads.by_key.values_mut().next().unwrap();
    upload.take_back(4);
    assert_eq!(upload.next(), Some(4));
    upload.note_stored(Guid([9; 32]), &ChunkRanges::from(0..2));
    assert_eq!(
        [upload.next(), upload.next(), upload.next()],
        [Some(5), Some(6), None]
    );
    // A closed window takes the request back.
    assert!(told(&mut uploads, 0, ChunkRanges::default()).is_empty());
    assert!(uploads.by_key.is_empty());
}

fn request_for(content: Guid, chunks: ChunkRanges) -> Request {
    Request {
        content,
        chunk_log2: 16,
        is_exact: false,
        window: None,
        reliability: Reliability::Nack,
        chunks,
    }
}

/// Sends a content of 100 bytes, whose offer has the same number, to a client.
fn push(uploads: &mut Uploads, effects: &mut Effects, client: Guid, number: u8) {
    let content = Guid([number; 32]);
    let keys = whimbrel_gnrs::KeyPair::from_secret(&[3; 32]);
    let send = SendContent {
        request: number.into(),
        destination: client,
        options: TransferOptions::default(),
        proposed: OfferUse::File,
        content: Publish {
            content,
            content_len: 100,
            kind: ContentKind::File,
            file_name: String::new(),
        },
    };
    let (service, upper) = (ServiceId::CONTENT_REQUEST, UpperProtocol::Transport);
    let mut header = NetworkHeader::new(service, upper, client, content);
    header.extensions.request = Some(number.into());
    let terms = OfferTerms {
        destination: client,
        id: number.into(),
        content,
        content_len: 100,
        kind: ContentKind::File,
        file_name: "",
    };
    let offer = SignedOffer::sign(&keys, &terms, OfferUse::File, 0);
    let pushed = Pushed {
        send: &send,
        offer,
        header: &header,
        request: request_for(content, ChunkRanges::all()),
    };
    uploads.push_content(Time::ZERO, PROGRAM, pushed, effects);
}

/// More contents than an inbox receives at the same time leave in turn.
#[test]
fn of_many_contents_for_one_receiver_some_leave_at_a_time() {
    let mut uploads = Uploads::new(Guid([200; 32]), 4096, &mut SeededRng::new(1));
    let mut effects = Effects::default();
    let client = Guid([7; 32]);
    for number in 1..=100 {
        push(&mut uploads, &mut effects, client, number);
    }
    let leave = |uploads: &mut Uploads| {
        let next = uploads.by_key.iter_mut().filter_map(|(key, upload)| {
            upload.next()?;
            Some(key.content.0[0])
        });
        next.collect::<Vec<u8>>()
    };
    assert_eq!(leave(&mut uploads), (1..=32).collect::<Vec<u8>>());
    assert_eq!(leave(&mut uploads), [0; 0]);
    // The receiver has two of them.
    for number in [5, 6] {
        let key = *uploads
            .by_key
            .keys()
            .find(|it| it.content.0[0] == number)
            .unwrap();
        uploads.note_confirmed(&key, &ChunkRanges::from(0..1), &mut effects);
    }
    assert_eq!(leave(&mut uploads), [33, 34]);
}

/// A sent content, and what its receiver says of it.
struct Sent {
    uploads: Uploads,
    effects: Effects,
    client: Guid,
    content: Guid,
}

impl Sent {
    const ID: u64 = 5;

    fn new() -> Sent {
        let mut sent = Sent {
            uploads: Uploads::new(Guid([200; 32]), 64, &mut SeededRng::new(1)),
            effects: Effects::default(),
            client: Guid([7; 32]),
            content: Guid([Sent::ID as u8; 32]),
        };
        push(
            &mut sent.uploads,
            &mut sent.effects,
            sent.client,
            Sent::ID as u8,
        );
        sent
    }

    fn header(&self, id: u64) -> NetworkHeader {
        let (service, upper) = (ServiceId::UNICAST, UpperProtocol::Transport);
        let mut header = NetworkHeader::new(service, upper, self.client, self.uploads.guid);
        header.extensions.request = Some(id);
        header
    }

    fn ask(&mut self, id: u64, chunks: ChunkRanges) {
        let (header, request) = (self.header(id), request_for(self.content, chunks));
        let (way, presence) = (Way::Uplink, Presence::MayBeUnderWay);
        let effects = &mut self.effects;
        (self.uploads).handle_wanted(Time::ZERO, way, &header, request, presence, effects);
    }

    fn acknowledge(&mut self) {
        let (header, ack) = (
            self.header(Sent::ID),
            request_for(self.content, ChunkRanges::all()),
        );
        let effects = &mut self.effects;
        (self.uploads).handle_ack(Time::ZERO, Way::Uplink, &header, &ack, effects);
    }

    /// Returns the ends that the program was told of.
    fn ends(&mut self) -> Vec<SendState> {
        let actions = core::iter::from_fn(|| self.effects.next());
        let states = actions.filter_map(|action| match action {
            Action::Tell(_, LocalEvent::Sending { state, .. }) => Some(state),
            _ => None,
        });
        states.collect()
    }
}

/// A receiver confirms a content, and says that it wants no further chunk of it: the messages take different
/// times, and either may be lost.
#[test]
fn a_stop_that_overtakes_the_confirmation_is_no_refusal() {
    let mut sent = Sent::new();
    sent.ask(Sent::ID, ChunkRanges::default());
    assert!(sent.uploads.by_key.values().all(|it| it.pending.is_empty()));
    assert_eq!(sent.ends(), []);
    sent.acknowledge();
    assert_eq!(sent.ends(), [SendState::Delivered]);
    // The confirmation is lost: the receiver is probed, and says it again.
    let mut sent = Sent::new();
    sent.ask(Sent::ID, ChunkRanges::default());
    let later = Time::ZERO + Duration::from_secs(20);
    sent.uploads.check_uploads(later, &mut sent.effects);
    assert_eq!(sent.ends(), [SendState::Leaving]);
    let pending = |it: &Upload| it.pending == ChunkRanges::from(0..1);
    assert!(sent.uploads.by_key.values().all(pending));
    // It has forgotten it, and asks.
    sent.ask(Sent::ID, ChunkRanges::all());
    sent.acknowledge();
    assert_eq!(sent.ends(), [SendState::Delivered]);
}

#[test]
fn a_request_for_a_content_that_is_sent_too_is_an_upload_of_its_own() {
    let mut sent = Sent::new();
    sent.ask(99, ChunkRanges::all());
    assert_eq!(sent.uploads.len(), 2);
    // Its end is not that of the other.
    sent.ask(99, ChunkRanges::default());
    let left: Vec<bool> = sent.uploads.by_key.keys().map(|key| key.is_sent).collect();
    assert_eq!(left, [true]);
    sent.ask(99, ChunkRanges::all());
    sent.acknowledge();
    assert_eq!(sent.ends(), [SendState::Delivered]);
    let left: Vec<bool> = sent.uploads.by_key.keys().map(|key| key.is_sent).collect();
    assert_eq!(left, [false]);
}
