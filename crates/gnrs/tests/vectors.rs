//! The examples of `docs/protocols/vectors/gnrs.txt` decode to their stated meaning, and encode
//! from it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write;
use std::path::Path;

use crate::support::{EPOCH, binding, keys, router, said};
use whimbrel_core::Guid;
use whimbrel_gnrs::wire::{Code, Frame, Message, Page, RecordBuffer};
use whimbrel_gnrs::{Address, GroupAdmission, Pointer, Record, RecordKey, RecordView, Statement};

/// Returns the name, frame and meaning of each example in the file.
fn examples() -> Vec<(&'static str, Vec<u8>, String)> {
    let address = |na, preference, weight| Address {
        na: Guid([na; 32]),
        preference,
        weight,
    };
    let host = binding(
        1,
        1_800_000_000_000_000,
        60_000,
        vec![address(0x11, 0, 1), address(0x12, 1, 500)],
    );
    let gone = Record::binding(
        &keys(2),
        &Statement {
            removed: true,
            ..said(2, 60_000, vec![])
        },
    )
    .unwrap();
    let content = Guid([0xcc; 32]);
    let provider =
        Record::provider(&keys(3), content, &said(3, 60_000, vec![router(0x13)])).unwrap();
    let films = Pointer {
        alias: "films".parse().unwrap(),
        content,
        size: 1_048_576,
    };
    let films = Record::pointer(&keys(4), &films, &said(4, 60_000, vec![])).unwrap();
    let revoked = Record::revocation(&keys(5), Some(keys(6).guid()), EPOCH).unwrap();
    let admission = GroupAdmission::sign(&keys(7), None, EPOCH + 60_000);
    let joined = Record::membership(&keys(8), &admission, &said(8, 60_000, vec![])).unwrap();
    let below =
        Record::membership_of_group(&keys(8), &admission, &said(9, 60_000, vec![])).unwrap();
    let guid = keys(1).guid();
    let mut one = RecordBuffer::default();
    one.push(&host);
    let mut other = RecordBuffer::default();
    other.push(&provider);
    let view = |record: &'static Record| Record::parse(record.as_bytes()).unwrap();
    let (host, gone): (&'static Record, &'static Record) =
        (Box::leak(Box::new(host)), Box::leak(Box::new(gone)));
    let (films, revoked): (&'static Record, &'static Record) =
        (Box::leak(Box::new(films)), Box::leak(Box::new(revoked)));
    let joined: &'static Record = Box::leak(Box::new(joined));
    let below: &'static Record = Box::leak(Box::new(below));
    let cookie = 0x1122_3344_5566_7788;
    let frame = |id, cookie, code, message| Frame {
        id,
        cookie,
        code,
        message,
    };
    let page = |first, more, records| Page {
        first,
        more,
        records,
    };
    let none = RecordBuffer::default();
    let frames = [
        (
            "look-up-padded",
            frame(
                1,
                0,
                Code::Ok,
                Message::Lookup {
                    guid,
                    first: 0,
                    padding: 16,
                },
            ),
        ),
        (
            "look-up-continued",
            frame(
                2,
                cookie,
                Code::Ok,
                Message::Lookup {
                    guid: content,
                    first: 5,
                    padding: 0,
                },
            ),
        ),
        (
            "insert-binding",
            frame(3, 0, Code::Ok, Message::Insert { record: view(host) }),
        ),
        (
            "insert-removal",
            frame(4, cookie, Code::Ok, Message::Insert { record: view(gone) }),
        ),
        (
            "insert-pointer",
            frame(
                8,
                0,
                Code::Ok,
                Message::Insert {
                    record: view(films),
                },
            ),
        ),
        (
            "insert-revocation",
            frame(
                9,
                0,
                Code::Ok,
                Message::Insert {
                    record: view(revoked),
                },
            ),
        ),
        (
            "insert-membership",
            frame(
                11,
                0,
                Code::Ok,
                Message::Insert {
                    record: view(joined),
                },
            ),
        ),
        (
            "insert-membership-of-a-group",
            frame(
                12,
                0,
                Code::Ok,
                Message::Insert {
                    record: view(below),
                },
            ),
        ),
        (
            "watch",
            frame(
                5,
                cookie,
                Code::Ok,
                Message::Watch {
                    guid,
                    lease_secs: 30,
                },
            ),
        ),
        (
            "unwatch",
            frame(6, cookie, Code::Ok, Message::Unwatch { guid }),
        ),
        (
            "push-ack",
            frame(7, cookie, Code::Ok, Message::PushAck { guid }),
        ),
        (
            "look-up-answer",
            frame(
                1,
                cookie,
                Code::Ok,
                Message::LookupAnswer {
                    guid,
                    page: page(0, false, one.list()),
                },
            ),
        ),
        (
            "look-up-answer-truncated",
            frame(
                2,
                cookie,
                Code::Ok,
                Message::LookupAnswer {
                    guid: content,
                    page: page(5, true, other.list()),
                },
            ),
        ),
        (
            "not-found",
            frame(
                1,
                cookie,
                Code::NotFound,
                Message::LookupAnswer {
                    guid,
                    page: page(0, false, none.list()),
                },
            ),
        ),
        (
            "insert-answer",
            frame(
                3,
                cookie,
                Code::Ok,
                Message::InsertAnswer {
                    guid,
                    version: 1_800_000_000_000_000,
                },
            ),
        ),
        (
            "insert-answer-stale",
            frame(
                4,
                cookie,
                Code::Stale,
                Message::InsertAnswer { guid, version: 9 },
            ),
        ),
        (
            "watch-answer",
            frame(
                5,
                cookie,
                Code::Ok,
                Message::WatchAnswer {
                    guid,
                    lease_secs: 30,
                    page: page(0, false, one.list()),
                },
            ),
        ),
        (
            "unwatch-answer",
            frame(6, cookie, Code::Ok, Message::UnwatchAnswer { guid }),
        ),
        (
            "push",
            frame(
                7,
                cookie,
                Code::Ok,
                Message::Push {
                    guid,
                    records: one.list(),
                },
            ),
        ),
        (
            "list",
            frame(
                10,
                cookie,
                Code::Ok,
                Message::List {
                    after: RecordKey {
                        subject: content,
                        provider: guid,
                    },
                },
            ),
        ),
        (
            "list-answer",
            frame(
                10,
                cookie,
                Code::Ok,
                Message::ListAnswer {
                    records: one.list(),
                },
            ),
        ),
        (
            "refused-need-cookie",
            frame(5, cookie, Code::NeedCookie, Message::Refused),
        ),
    ];
    frames
        .iter()
        .map(|(name, frame)| {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            (*name, bytes, meaning(frame))
        })
        .collect()
}

fn meaning(frame: &Frame<'_>) -> String {
    let mut text = format!(
        "id={} cookie={:#x} code={:?} ",
        frame.id, frame.cookie, frame.code
    );
    let page_text = |page: &Page<'_>| format!("first={} more={}", page.first, page.more);
    let mut list = Vec::new();
    let told = match &frame.message {
        Message::Lookup {
            guid,
            first,
            padding,
        } => {
            format!("LOOKUP guid={guid} first={first} padding={padding}")
        }
        Message::Insert { record } => {
            list.push(*record);
            "INSERT".to_string()
        }
        Message::Watch { guid, lease_secs } => format!("WATCH guid={guid} lease={lease_secs}"),
        Message::Unwatch { guid } => format!("UNWATCH guid={guid}"),
        Message::PushAck { guid } => format!("PUSH-ACK guid={guid}"),
        Message::LookupAnswer { guid, page } => {
            list.extend(page.records.iter());
            format!("LOOKUP-ANSWER guid={guid} {}", page_text(page))
        }
        Message::InsertAnswer { guid, version } => {
            format!("INSERT-ANSWER guid={guid} version={version}")
        }
        Message::WatchAnswer {
            guid,
            lease_secs,
            page,
        } => {
            list.extend(page.records.iter());
            format!(
                "WATCH-ANSWER guid={guid} lease={lease_secs} {}",
                page_text(page)
            )
        }
        Message::UnwatchAnswer { guid } => format!("UNWATCH-ANSWER guid={guid}"),
        Message::Push { guid, records } => {
            list.extend(records.iter());
            format!("PUSH guid={guid}")
        }
        Message::List { after } => {
            format!("LIST subject={} provider={}", after.subject, after.provider)
        }
        Message::ListAnswer { records } => {
            list.extend(records.iter());
            "LIST-ANSWER".to_string()
        }
        Message::Refused => "REFUSED".to_string(),
    };
    text.push_str(&told);
    list.iter().for_each(|record| describe(record, &mut text));
    text
}

fn describe(record: &RecordView<'_>, text: &mut String) {
    let (kind, removed) = (record.kind(), record.is_removal());
    let (subject, key, version) = (record.subject(), record.key(), record.version());
    let (issued, expires) = (record.issued_ms(), record.expires_ms());
    write!(
        text,
        " record={kind:?} removed={removed} subject={subject} key={key} version={version}"
    )
    .unwrap();
    write!(text, " issued={issued} expires={expires} addresses=").unwrap();
    for Address {
        na,
        preference,
        weight,
    } in record.addresses()
    {
        write!(text, "{na}/{preference}/{weight},").unwrap();
    }
    if let Some(Pointer {
        alias,
        content,
        size,
    }) = record.as_pointer()
    {
        write!(text, " alias={alias} size={size} content={content}").unwrap();
    }
    if let Some(admission) = record.as_admission() {
        let (group, until) = (admission.group, admission.expires_ms);
        let member = admission
            .member
            .map_or("anyone".to_owned(), |it| it.to_string());
        write!(text, " group={group} admitted={member} until={until}").unwrap();
    }
    if let Some(successor) = record.successor() {
        write!(text, " successor={successor}").unwrap();
    }
}

fn vector_file() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols/vectors/gnrs.txt")
}

#[test]
fn the_examples_in_the_documentation_are_read_and_written_alike() {
    let text = std::fs::read_to_string(vector_file()).unwrap();
    let mut found = Vec::new();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    for example in lines.chunks(3) {
        let [name, frame, means] = example else {
            panic!("three lines each: {example:?}")
        };
        let field =
            |line: &'_ str, label: &str| line.strip_prefix(label).unwrap().trim().to_string();
        let bytes = hex::decode(field(frame, "frame:")).unwrap();
        let decoded = Frame::decode(&bytes).unwrap();
        assert_eq!(meaning(&decoded), field(means, "means:"));
        let mut again = Vec::new();
        decoded.encode(&mut again);
        assert_eq!(again, bytes);
        found.push((field(name, "name:"), bytes, field(means, "means:")));
    }
    let expected: Vec<_> = examples()
        .into_iter()
        .map(|(name, bytes, means)| (name.to_string(), bytes, means))
        .collect();
    assert_eq!(found, expected);
    assert!(found.iter().all(|(_, bytes, _)| {
        let Message::Insert { record } = Frame::decode(bytes).unwrap().message else {
            return true;
        };
        record.verify(EPOCH) == Ok(())
    }));
}

/// `cargo test -p whimbrel-gnrs --test all vectors:: -- --ignored` rewrites the file after a change of
/// the format.
#[test]
#[ignore = "writes the file that the other test reads"]
fn write_the_examples() {
    let mut text = String::from(
        "# Frames of the GNRS protocol (docs/protocols/gnrs.md) and what they mean. Three lines each.\n\
         # Keys have 32 equal secret bytes: 01... signs the binding, 02... the removal, 03... the provider record,\n\
         # 04... the pointer, 05... the revocation, 07... the admission to a group, 08... the membership.\n",
    );
    for (name, bytes, means) in examples() {
        write!(
            text,
            "\nname: {name}\nframe: {}\nmeans: {means}\n",
            hex::encode(bytes)
        )
        .unwrap();
    }
    std::fs::write(vector_file(), text).unwrap();
}
