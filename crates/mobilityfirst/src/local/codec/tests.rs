//! Round trips, and bytes of strangers.

use super::super::Publish;
use super::super::options::tests::{any_delivery, any_options};
use super::*;
use proptest::prelude::*;
use whimbrel_content::{Assembly, ChunkSize, ChunkTree, Offer, Proof};

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from)
}

fn any_request() -> impl Strategy<Value = LocalRequest> {
    prop_oneof![
        (
            any::<u32>(),
            any::<[u8; 32]>(),
            any_options(),
            any::<bool>(),
            bytes(),
            prop::option::of(any::<[u8; 32]>()),
        )
            .prop_map(|(request, content, options, in_order, resume, caller)| {
                let get = Get {
                    request,
                    content: Guid(content),
                    options,
                    in_order,
                    credit: 8,
                    resume,
                };
                match caller.map(Guid) {
                    Some(caller) => LocalRequest::GetFrom { caller, get },
                    None => LocalRequest::Get(get),
                }
            }),
        any::<u32>().prop_map(|request| LocalRequest::Cancel { request }),
        any::<u32>().prop_map(|request| LocalRequest::Consumed { request }),
        (
            any::<[u8; 32]>(),
            any::<u64>(),
            "[a-zäß]{0,20}",
            any_options()
        )
            .prop_map(|(content, content_len, file_name, options)| {
                LocalRequest::Publish(
                    Publish {
                        content: Guid(content),
                        content_len,
                        kind: ContentKind::ALL[(content_len % 2) as usize],
                        file_name,
                    },
                    options,
                )
            }),
        any::<[u8; 32]>().prop_map(|content| LocalRequest::Withdraw {
            content: Guid(content)
        }),
        (any::<u64>(), prop::option::of((bytes(), bytes()))).prop_map(|(read, chunk)| {
            let chunk = chunk.map(|(proof, data)| ReadChunk { proof, data });
            LocalRequest::ReadDone { read, chunk }
        }),
        (any::<u32>(), any::<[u8; 32]>(), any::<u32>(), any::<u16>()).prop_map(
            |(request, destination, sequence, padding)| LocalRequest::Ping {
                request,
                destination: Guid(destination),
                sequence,
                padding
            }
        ),
        any::<[u8; 32]>().prop_map(|key| LocalRequest::Attach {
            key: ServiceKey(key)
        }),
        any::<u32>().prop_map(|request| LocalRequest::Status { request }),
        (any::<u32>(), any::<[u8; 32]>()).prop_map(|(request, group)| LocalRequest::Members {
            request,
            group: Guid(group)
        }),
        (any::<[u8; 32]>(), any::<u64>(), 0usize..3).prop_map(|(secret, until, change)| {
            let keys = whimbrel_gnrs::KeyPair::from_secret(&secret);
            let admission = GroupAdmission::sign(&keys, (change > 0).then(|| keys.guid()), until);
            let change = [
                MembershipChange::Leave,
                MembershipChange::Join,
                MembershipChange::JoinAsGroup,
            ][change];
            LocalRequest::Join { admission, change }
        }),
        (any::<u32>(), ".{0,40}")
            .prop_map(|(request, change)| LocalRequest::Interfaces { request, change }),
        (any::<u32>(), ".{0,40}")
            .prop_map(|(request, change)| LocalRequest::Callers { request, change }),
        any::<u32>().prop_map(|channel| LocalRequest::Listen { channel }),
        (any::<u32>(), "[0-9a-f]{4,63}").prop_map(|(request, text)| LocalRequest::Names {
            request,
            prefix: GuidPrefix::new(&text).unwrap(),
        }),
        (any::<u32>(), any::<[u8; 32]>(), any_delivery(), bytes()).prop_map(
            |(channel, destination, delivery, payload)| LocalRequest::Message {
                channel,
                destination: Guid(destination),
                delivery,
                payload
            }
        ),
    ]
}

fn any_event() -> impl Strategy<Value = LocalEvent> {
    prop_oneof![
        (
            any::<u32>(),
            any::<u32>(),
            any::<u64>(),
            any::<bool>(),
            0usize..2,
            "[a-zäß]{0,20}",
            bytes()
        )
            .prop_map(
                |(request, index, content_len, len_proven, kind, file_name, data)| {
                    let kind = ContentKind::ALL[kind];
                    LocalEvent::Chunk(LocalChunk {
                        request,
                        index,
                        chunk_log2: 20,
                        content_len,
                        len_proven,
                        kind,
                        file_name,
                        proof: Bytes::from_static(b"proof"),
                        verified: None,
                        data,
                    })
                }
            ),
        (any::<u32>(), 0usize..4).prop_map(|(request, at)| LocalEvent::State {
            request,
            state: TransferState::ALL[at]
        }),
        (any::<u32>(), any::<u64>()).prop_map(|(request, content_len)| LocalEvent::Complete {
            request,
            content_len
        }),
        (any::<u32>(), 0usize..5).prop_map(|(request, at)| LocalEvent::Failed {
            request,
            reason: FailReason::ALL[at]
        }),
        (any::<[u8; 32]>(), 0usize..6).prop_map(|(content, at)| LocalEvent::Published {
            content: Guid(content),
            code: ControlCode::ALL[at]
        }),
        (any::<u64>(), any::<[u8; 32]>(), any::<u32>(), any::<u8>()).prop_map(
            |(read, content, index, chunk_log2)| LocalEvent::Read {
                read,
                content: Guid(content),
                index,
                chunk_log2
            }
        ),
        (any::<u32>(), any::<u32>(), any::<[u8; 32]>()).prop_map(|(request, sequence, from)| {
            LocalEvent::Pong {
                request,
                sequence,
                from: Guid(from),
            }
        }),
        (any::<u32>(), "[a-z{}]{0,30}")
            .prop_map(|(request, json)| LocalEvent::Status { request, json }),
        (
            any::<u32>(),
            prop::collection::vec(any::<[u8; 32]>(), 0..=MAX_NAMES)
        )
            .prop_map(|(request, names)| LocalEvent::Names {
                request,
                names: names.into_iter().map(Guid).collect(),
            }),
        (any::<u32>(), any::<[u8; 32]>(), bytes()).prop_map(|(channel, from, payload)| {
            LocalEvent::Message {
                channel,
                from: Guid(from),
                payload,
            }
        }),
    ]
}

#[test]
fn no_frame_says_that_its_chunk_is_verified() {
    let data = Bytes::from_static(b"bytes");
    let tree = ChunkTree::from_reader(&data[..], ChunkSize::GROUP, &mut |_| {}).unwrap();
    let verified = Assembly::new(tree.root(), 5).check(&Offer {
        chunk_size: ChunkSize::GROUP,
        index: 0,
        claimed_len: 5,
        data: &data,
        proof: &Proof::default(),
    });
    let sent = LocalChunk {
        request: 1,
        index: 0,
        chunk_log2: 16,
        content_len: 5,
        len_proven: true,
        kind: ContentKind::File,
        file_name: String::new(),
        proof: Bytes::from_static(&[0]),
        verified: Some(verified.unwrap()),
        data,
    };
    let mut head = Vec::new();
    let tail = LocalEvent::Chunk(sent.clone()).encode_head(&mut head);
    let arrived = LocalEvent::decode(&whole(head, tail)).unwrap();
    let verified = None;
    let expected = LocalChunk { verified, ..sent };
    assert_eq!(arrived, LocalEvent::Chunk(expected));
}

fn whole(mut head: Vec<u8>, tail: Bytes) -> Bytes {
    head.extend_from_slice(&tail);
    head.into()
}

proptest! {
    #[test]
    fn requests_round_trip(request in any_request()) {
        let mut head = Vec::new();
        let tail = request.encode_head(&mut head);
        prop_assert_eq!(LocalRequest::decode(&whole(head, tail)), Ok(request));
    }

    #[test]
    fn events_round_trip(event in any_event()) {
        let mut head = Vec::new();
        let tail = event.encode_head(&mut head);
        prop_assert_eq!(LocalEvent::decode(&whole(head, tail)), Ok(event));
    }

    #[test]
    fn any_bytes_decode_or_are_refused(kind in 0u8..23, bytes in prop::collection::vec(any::<u8>(), 0..150)) {
        let mut frame = vec![kind];
        frame.extend_from_slice(&bytes);
        let _ = LocalRequest::decode(&frame.clone().into());
        let _ = LocalEvent::decode(&frame.into());
    }
}
