//! Uploads and the clients that ask for them.

use whimbrel_core::PortId;

use super::*;
use crate::local::Publish;
use crate::wire::{ContentKind, UpperProtocol};

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
