//! `docs/protocols/vectors/mobilityfirst.txt` holds what `docs/protocols/mobilityfirst.md` says,
//! byte for byte.
//!
//! Each vector is decoded and compared with the value that it stands for, and that value is encoded
//! again.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{Guid, GuidPrefix};
use whimbrel_gnrs::{GroupAdmission, Record};
use whimbrel_mobilityfirst::chunk::{Chunk, Message};
use whimbrel_mobilityfirst::local::{
    AcceptOffer, ContentOffer, Get, LocalEvent, LocalRequest, MembershipChange, OfferId,
    OfferVerdict, Publish, SendContent, SendState, ServiceKey, greeting,
};
use whimbrel_mobilityfirst::local::{Delivery, MissingParts, Service, Storage, TransferOptions};
use whimbrel_mobilityfirst::wire;
use whimbrel_mobilityfirst::wire::{
    ChunkRanges, ContentKind, Control, ControlCode, Credit, Data, DropReason, Echo, Flow,
    MemberList, NetworkHeader, Notice, OfferTerms, OfferUse, Presence, PresenceCode, Reliability,
    Request, ServiceId, SignedOffer, Transport, UpperProtocol, WindowAdvice, WindowVerdict,
};

const CLIENT: Guid = Guid([0xc1; 32]);
const SERVER: Guid = Guid([0x5e; 32]);
const CONTENT: Guid = Guid([0xab; 32]);
const ACCESS_ROUTER: Guid = Guid([0xa3; 32]);
const REQUEST_ID: Option<u64> = Some(0x8877_6655_4433_2211);

fn header(
    service: ServiceId,
    upper: UpperProtocol,
    source: Guid,
    destination: Guid,
) -> NetworkHeader {
    NetworkHeader {
        source_address: ACCESS_ROUTER,
        ..NetworkHeader::new(service, upper, source, destination)
    }
}

fn request() -> Chunk {
    let service = ServiceId::CONTENT_REQUEST.with(ServiceId::DELAY_TOLERANT);
    let mut header = header(service, UpperProtocol::Transport, CLIENT, CONTENT);
    header.extensions.via = Some(SERVER);
    header.extensions.request = REQUEST_ID;
    let chunks = [0, 1, 2, 7].into_iter().collect();
    let request = Request {
        content: CONTENT,
        chunk_log2: 20,
        is_exact: false,
        window: Some(WindowAdvice {
            verdict: WindowVerdict::Increase,
            chunks: 16,
        }),
        reliability: Reliability::Nack,
        chunks,
    };
    Chunk::of_transport(header, &Transport::Request(request))
}

fn data() -> Chunk {
    let service = ServiceId::CONTENT_RESPONSE.with(ServiceId::DELAY_TOLERANT);
    let mut header = header(service, UpperProtocol::Transport, SERVER, CLIENT);
    header.destination_address = ACCESS_ROUTER;
    header.extensions.lifetime_ms = Some(60_000);
    header.extensions.nack_timeout_ms = Some(5_000);
    header.extensions.request = REQUEST_ID;
    let data = Data {
        content: CONTENT,
        index: 2,
        chunk_log2: 16,
        content_len: 131_077,
        kind: ContentKind::File,
        reliability: Reliability::Ack,
        file_name: "maß.txt".into(),
        proof: Bytes::from_static(b"\x01proof"),
        payload: Bytes::from_static(b"bytes"),
    };
    Chunk::of_transport(header, &Transport::Data(data))
}

/// The same, of the key of 32 octets 07, to a client that has not requested it.
fn offered() -> Chunk {
    let keys = KeyPair::from_secret(&[7; 32]);
    let mut chunk = data();
    let header = &mut chunk.header;
    (header.source, header.destination_address) = (keys.guid(), Guid::NONE);
    let terms = OfferTerms {
        destination: CLIENT,
        id: REQUEST_ID.unwrap_or_default(),
        content: CONTENT,
        content_len: 131_077,
        kind: ContentKind::File,
        file_name: "maß.txt",
    };
    let offer = SignedOffer::sign(&keys, &terms, OfferUse::File, 1_800_000_000_000);
    assert!(offer.is_by(&keys.guid(), &terms));
    chunk.header.extensions.offer = Some(offer.into());
    chunk
}

fn notice(reason: Option<DropReason>) -> Chunk {
    let notice = Notice {
        content: CONTENT,
        source: SERVER,
        destination: CLIENT,
        chunks: ChunkRanges::from(3..9),
        stored: 6 << 20,
        limit: 100 << 20,
    };
    let transport = match reason {
        Some(reason) => Transport::Drop(notice, reason),
        None => Transport::Store(notice),
    };
    let mut header = header(
        ServiceId::DELAY_TOLERANT,
        UpperProtocol::Transport,
        ACCESS_ROUTER,
        SERVER,
    );
    header.extensions.request = REQUEST_ID;
    Chunk::of_transport(header, &transport)
}

fn kept() -> Chunk {
    let mut chunk = notice(None);
    if let Ok(Transport::Store(notice)) = chunk.transport() {
        chunk.message = Message::of_transport(&Transport::Kept(notice));
    }
    chunk
}

fn delegated() -> Chunk {
    let mut chunk = data();
    chunk.header.extensions.delegate = true;
    chunk
}

/// The same, to a group whose members are the client and the server, at two networks.
fn grouped() -> Chunk {
    let mut chunk = data();
    let header = &mut chunk.header;
    header.service = header.service.with(ServiceId::MULTICAST);
    header.destination = Record::group_of(&CLIENT);
    header.destination_address = Guid::NONE;
    let networks = [(ACCESS_ROUTER, vec![CLIENT]), (CONTENT, vec![SERVER])];
    let lists = MemberList::of(networks.into_iter().collect());
    header.extensions.members = lists.into_iter().next().unwrap_or_default();
    chunk
}

/// The copy for one of them that is away.
fn for_member() -> Chunk {
    let mut chunk = data();
    chunk.header.extensions.group = Some(Box::new(Record::group_of(&CLIENT)));
    chunk
}

/// The copy for the members of the server, which is a group and a member of the one that the chunk was sent to.
fn for_group_below() -> Chunk {
    let mut chunk = for_member();
    let header = &mut chunk.header;
    header.service = header.service.with(ServiceId::MULTICAST);
    header.destination = Record::group_of(&SERVER);
    header.destination_address = Guid::NONE;
    header.extensions.above = vec![Record::group_of(&CONTENT)];
    header.extensions.nack_routers = Some(3);
    chunk
}

fn lost() -> Chunk {
    let chunks = ChunkRanges::from(3..9);
    let notice = Notice {
        content: CONTENT,
        source: SERVER,
        destination: CLIENT,
        chunks,
        stored: 0,
        limit: 0,
    };
    let mut header = header(
        ServiceId::DELAY_TOLERANT,
        UpperProtocol::Transport,
        ACCESS_ROUTER,
        CLIENT,
    );
    header.extensions.request = REQUEST_ID;
    Chunk::of_transport(header, &Transport::Lost(notice))
}

fn resend() -> Chunk {
    let chunks = [4, 5, 8].into_iter().collect();
    let request = Request::new(CONTENT, 20, Reliability::Nack, chunks);
    let mut header = header(
        ServiceId::DELAY_TOLERANT,
        UpperProtocol::Transport,
        CLIENT,
        SERVER,
    );
    header.extensions.request = REQUEST_ID;
    Chunk::of_transport(header, &Transport::Resend(request))
}

fn messages() -> Chunk {
    let texts: [&'static [u8]; 2] = [b"on my way", b""];
    let one = |(id, text): (u64, &'static [u8])| wire::Message {
        id,
        channel: 7,
        payload: Bytes::from_static(text),
    };
    let all = (0x1122_3344_5566_7788..).zip(texts).map(one).collect();
    Chunk::of_transport(message().header, &Transport::Messages(all))
}

fn message() -> Chunk {
    let message = wire::Message {
        id: 0x1122_3344_5566_7788,
        channel: 7,
        payload: Bytes::from_static(b"on my way"),
    };
    let header = header(
        ServiceId::DELAY_TOLERANT,
        UpperProtocol::Transport,
        CLIENT,
        SERVER,
    );
    Chunk::of_transport(header, &Transport::Message(message))
}

fn small(header: NetworkHeader, encode: impl FnOnce(&mut Vec<u8>)) -> Chunk {
    let mut head = Vec::new();
    encode(&mut head);
    Chunk {
        header,
        message: Message {
            head: head.into(),
            body: Bytes::new(),
        },
    }
}

fn echo() -> Chunk {
    let echo = Echo {
        reply: true,
        id: 0x1122_3344_5566_7788,
        sequence: 9,
        padding: vec![0; 3],
    };
    small(
        header(ServiceId::UNICAST, UpperProtocol::Echo, SERVER, CLIENT),
        |out| echo.encode(out),
    )
}

fn control(message: &Control) -> Chunk {
    let header = NetworkHeader::new(
        ServiceId::NEIGHBOUR,
        UpperProtocol::Control,
        ACCESS_ROUTER,
        CLIENT,
    );
    small(header, |out| message.encode(out))
}

/// To a router that is no neighbour.
fn to_router(source: Guid, message: &Control) -> Chunk {
    let (service, upper) = (ServiceId::UNICAST, UpperProtocol::Control);
    let mut header = NetworkHeader::new(service, upper, source, ACCESS_ROUTER);
    header.destination_address = ACCESS_ROUTER;
    small(header, |out| message.encode(out))
}

fn vectors() -> Vec<(&'static str, &'static str, Chunk)> {
    let outcome = Control::Outcome {
        guid: CLIENT,
        version: 1_767_225_600_000_000,
        code: ControlCode::Registered,
    };
    let credit = Control::Credit(Credit {
        flow: Flow::offered(SERVER, CLIENT),
        octets: 16_384,
        spare: false,
        lease: Duration::from_secs(3),
    });
    let left = to_router(
        CLIENT,
        &Control::Left {
            record: Bytes::from_static(b"\x01\x02\x03\x04"),
        },
    );
    let asked = Presence {
        guid: CLIENT,
        nonce: 0x1122_3344_5566_7788,
        code: PresenceCode::Asked,
    };
    let presence = to_router(SERVER, &Control::Presence(asked));
    vec![
        (
            "request",
            "Request for chunks 0 to 2 and 7 of 1 MiB, bound to a holder by the via extension",
            request(),
        ),
        (
            "data",
            "Data: the last chunk of 64 KiB of a content of 131,077 bytes, lifetime 60 s, ACK wanted",
            data(),
        ),
        (
            "offered",
            "Data that the client has not requested: the same, offered by the key of 32 octets 07",
            offered(),
        ),
        (
            "delegated",
            "Data whose source asks its access router to keep a copy",
            delegated(),
        ),
        (
            "grouped",
            "Data for a group: the copy for the client at the access router, and for the server elsewhere",
            grouped(),
        ),
        (
            "for-member",
            "Data for a group: the copy for the client, which is away",
            for_member(),
        ),
        (
            "for-group-below",
            "Data for a group: the copy for a group below it, which it has reached by one between them; requests pass 3 routers with copies",
            for_group_below(),
        ),
        (
            "kept",
            "Store, detail 1: the access router keeps copies of the chunks 3 to 8",
            kept(),
        ),
        (
            "store",
            "Store: chunks 3 to 8, 6 MiB of 100 MiB held for the flow",
            notice(None),
        ),
        (
            "drop",
            "Drop: the same chunks, evicted",
            notice(Some(DropReason::Evicted)),
        ),
        (
            "lost",
            "Lost: the router that had taken over chunks 3 to 8 has restarted",
            lost(),
        ),
        (
            "resend",
            "Resend: chunks 4, 5 and 8 did not survive that",
            resend(),
        ),
        ("message", "Message on channel 7: \"on my way\"", message()),
        (
            "messages",
            "Two Messages in one chunk: \"on my way\", and an empty one",
            messages(),
        ),
        (
            "echo",
            "Echo reply, sequence 9, three bytes of padding",
            echo(),
        ),
        (
            "challenge",
            "Challenge",
            control(&Control::Challenge {
                nonce: [0x11; 16],
                unix_ms: 1_800_000_000_000,
            }),
        ),
        ("outcome", "Outcome: registered", control(&outcome)),
        (
            "credit",
            "Credit: 16 KiB more of what a source offers, and then nothing, for 3 s",
            control(&credit),
        ),
        (
            "ask",
            "Ask: does the neighbour speak for the server?",
            control(&Control::Ask { guid: SERVER }),
        ),
        (
            "vouch",
            "Vouch: a record (here four bytes)",
            control(&Control::Vouch {
                record: Bytes::from_static(b"\x01\x02\x03\x04"),
            }),
        ),
        ("left", "Left: a record (here four bytes)", left),
        (
            "presence",
            "Presence: is the client attached there?",
            presence,
        ),
        (
            "ask-members",
            "AskMembers: who are the members of this group?",
            control(&Control::AskMembers {
                group: Record::group_of(&CLIENT),
            }),
        ),
        (
            "members",
            "Members: the client and the server",
            control(&Control::Members {
                group: Record::group_of(&CLIENT),
                members: vec![CLIENT, SERVER],
            }),
        ),
    ]
}

fn bytes_of(chunk: &Chunk) -> Bytes {
    let (head, body) = chunk.clone().into_pieces();
    [head, body].concat().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn file(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/protocols/vectors")
        .join(name)
}

/// The lines of a file of vectors.
fn read(name: &str) -> Vec<(String, Vec<u8>)> {
    let text = std::fs::read_to_string(file(name)).expect("the file");
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, hex) = line.split_once(' ').expect("a vector");
            (name.to_owned(), unhex(hex))
        })
        .collect()
}

/// `WHIMBREL_WRITE_VECTORS=1 cargo test -p whimbrel-mobilityfirst --test all vectors::` writes the file
/// anew.
#[test]
fn the_file_holds_every_vector_and_each_means_what_it_says() {
    if std::env::var_os("WHIMBREL_WRITE_VECTORS").is_some() {
        let mut text = String::from(
            "# Chunks of docs/protocols/mobilityfirst.md: a line `name hexadecimal-digits`, its meaning above it.\n\
             # client = c1.., server = 5e.., content = ab.., access router = a3.. (32 bytes each)\n",
        );
        for (name, meaning, chunk) in vectors() {
            text.push_str(&format!(
                "\n# {meaning}\n{name} {}\n",
                hex(&bytes_of(&chunk))
            ));
        }
        std::fs::write(file("mobilityfirst.txt"), text).expect("the file");
    }
    let read = read("mobilityfirst.txt");
    let expected = vectors();
    assert_eq!(read.len(), expected.len());
    for ((name, bytes), (expected_name, _, chunk)) in read.into_iter().zip(expected) {
        assert_eq!(name, expected_name);
        assert_eq!(
            hex(&bytes),
            hex(&bytes_of(&chunk)),
            "{name} is encoded differently"
        );
        let decoded = Chunk::decode(&bytes.into()).expect(expected_name);
        assert_eq!(decoded.header, chunk.header, "{name}");
        match chunk.header.upper {
            UpperProtocol::Transport => {
                let whole = Bytes::from([chunk.message.head, chunk.message.body].concat());
                assert_eq!(decoded.transport(), Transport::decode(&whole), "{name}");
                assert!(decoded.transport().is_ok(), "{name}");
            }
            UpperProtocol::Echo => assert!(Echo::decode(&decoded.message.head).is_ok(), "{name}"),
            UpperProtocol::Control => {
                assert!(Control::decode(&decoded.message.head).is_ok(), "{name}")
            }
        }
    }
}

fn request_frame(request: &LocalRequest) -> Vec<u8> {
    let mut head = Vec::new();
    let tail = request.encode_head(&mut head);
    [&head[..], &tail].concat()
}

fn event_frame(event: &LocalEvent) -> Vec<u8> {
    let mut head = Vec::new();
    let tail = event.encode_head(&mut head);
    [&head[..], &tail].concat()
}

/// An offer of the server.
fn offer() -> ContentOffer {
    ContentOffer {
        id: OfferId {
            sender: SERVER,
            number: 9,
        },
        issued_ms: 1_800_000_000_000,
        proposed: OfferUse::Note,
        content: Publish {
            content: CONTENT,
            content_len: 131_077,
            kind: ContentKind::File,
            file_name: "maß.txt".into(),
        },
    }
}

/// Contents of frames between a program and its host: requests, then events.
fn local_requests() -> Vec<(&'static str, LocalRequest)> {
    let options = TransferOptions {
        chunk_log2: 20,
        reliability: Some(Reliability::Nack),
        nack_timeout_ms: 5_000,
        delivery: Delivery {
            storage: Storage::Lifetime(60_000),
            service: Service::Unicast,
        },
    };
    let get = Get {
        request: 7,
        content: CONTENT,
        options,
        in_order: true,
        credit: 8,
        resume: Bytes::new(),
    };
    let message = LocalRequest::Message {
        channel: 7,
        destination: SERVER,
        delivery: Delivery {
            storage: Storage::Never,
            service: Service::Anycast,
        },
        payload: Bytes::from_static(b"on my way"),
    };
    let names = LocalRequest::Names {
        request: 7,
        prefix: GuidPrefix::new("abab").expect("a prefix"),
    };
    let get_from = LocalRequest::GetFrom {
        caller: SERVER,
        get: get.clone(),
    };
    let callers = LocalRequest::Callers {
        request: 1,
        change: String::from(r#"{"allow":["abab"]}"#),
    };
    vec![
        ("callers", callers),
        ("get", LocalRequest::Get(get.clone())),
        ("get-from", get_from),
        ("publish", LocalRequest::Publish(offer().content, options)),
        ("status", LocalRequest::Status { request: 1 }),
        ("message", message),
        ("listen", LocalRequest::Listen { channel: 7 }),
        ("names", names),
        (
            "send",
            LocalRequest::Send(SendContent {
                request: 7,
                destination: CLIENT,
                options: TransferOptions::default(),
                proposed: OfferUse::Bundle,
                content: offer().content,
            }),
        ),
        (
            "delegate",
            LocalRequest::Delegate {
                content: CONTENT,
                is_on: true,
            },
        ),
        (
            "join",
            LocalRequest::Join {
                admission: GroupAdmission::sign(
                    &KeyPair::from_secret(&[7; 32]),
                    None,
                    1_800_000_000_000,
                ),
                change: MembershipChange::Join,
            },
        ),
        (
            "join-as-a-group",
            LocalRequest::Join {
                admission: GroupAdmission::sign(
                    &KeyPair::from_secret(&[7; 32]),
                    None,
                    1_800_000_000_000,
                ),
                change: MembershipChange::JoinAsGroup,
            },
        ),
        (
            "members",
            LocalRequest::Members {
                request: 7,
                group: CLIENT,
            },
        ),
        ("take-offers", LocalRequest::TakeOffers),
        (
            "attach",
            LocalRequest::Attach {
                key: ServiceKey([7; 32]),
            },
        ),
        (
            "accept",
            LocalRequest::Accept(AcceptOffer {
                id: offer().id,
                get,
            }),
        ),
        (
            "settle",
            LocalRequest::Settle {
                id: offer().id,
                content: CONTENT,
                verdict: OfferVerdict::InboxFull,
            },
        ),
    ]
}

fn local_events() -> Vec<(&'static str, LocalEvent)> {
    let complete = LocalEvent::Complete {
        request: 7,
        content_len: 131_077,
    };
    let published = LocalEvent::Published {
        content: CONTENT,
        code: ControlCode::Unreachable,
    };
    let message = LocalEvent::Message {
        channel: 7,
        from: CLIENT,
        payload: Bytes::from_static(b"on my way"),
    };
    let names = LocalEvent::Names {
        request: 7,
        names: vec![CONTENT],
    };
    vec![
        ("complete", complete),
        ("published", published),
        ("message-event", message),
        ("names-event", names),
        (
            "sending",
            LocalEvent::Sending {
                request: 7,
                state: SendState::Taken,
                taken: 131_077,
                stored: 65_536,
            },
        ),
        ("offered", LocalEvent::Offered(offer())),
        (
            "incomplete",
            LocalEvent::Incomplete {
                request: 7,
                missing: MissingParts {
                    content_len: Some(131_077),
                    bytes: 65_541,
                    ranges: std::iter::once(65_536..131_077).collect(),
                },
            },
        ),
    ]
}

/// As above: `WHIMBREL_WRITE_VECTORS=1` writes the file anew.
#[test]
fn local_frames_are_what_the_file_says() {
    let mut expected = vec![("greeting", greeting().to_vec())];
    let requests = local_requests();
    expected.extend(requests.iter().map(|(name, it)| (*name, request_frame(it))));
    let events = local_events();
    expected.extend(events.iter().map(|(name, it)| (*name, event_frame(it))));
    if std::env::var_os("WHIMBREL_WRITE_VECTORS").is_some() {
        let mut text = String::from(
            "# Contents of frames of docs/protocols/local.md, without their length: the greeting, requests, events.\n\
             # client = c1.., server = 5e.., content = ab.. (32 bytes each)\n",
        );
        for (name, bytes) in &expected {
            text.push_str(&format!("{name} {}\n", hex(bytes)));
        }
        std::fs::write(file("local.txt"), text).expect("the file");
    }
    let read = read("local.txt");
    let hexed = |(name, bytes): (&str, &[u8])| format!("{name} {}", hex(bytes));
    let written: Vec<String> = expected
        .iter()
        .map(|(name, it)| hexed((name, it)))
        .collect();
    let found: Vec<String> = read.iter().map(|(name, it)| hexed((name, it))).collect();
    assert_eq!(found, written);
    for (_, request) in requests {
        let decoded = LocalRequest::decode(&request_frame(&request).into());
        assert_eq!(decoded, Ok(request));
    }
    for (_, event) in events {
        let decoded = LocalEvent::decode(&event_frame(&event).into());
        assert_eq!(decoded, Ok(event));
    }
}
