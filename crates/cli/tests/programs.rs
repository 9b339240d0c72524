//! The interface for programs, in Rust: each row of the table in docs/programs.md, between two real hosts.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

#[path = "../../client/examples/mirror.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod mirror;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{Network, PATIENCE, await_that, finished, name_of, noise, whimbrel};
use whimbrel_client::stated::{StatedOptions, read_admission, read_service_key};
use whimbrel_client::{
    AttachOptions, Client, ContentSource, GetOptions, Guid, OfferRule, OfferVerdict, ProgramError,
    PublishOptions, SendOptions, SendState, TransferOptions,
};

const MIB: usize = 1 << 20;
/// A row of the table of calls.
type Row = fn(&Ends);

/// Two programs, one at each host.
struct Ends {
    network: Network,
    here: Client,
    there: Client,
    names: [Guid; 2],
}

fn attach(socket: &Path) -> Client {
    let options = AttachOptions {
        reconnect_for: PATIENCE,
    };
    Client::attach_at(socket, options).unwrap()
}

impl Ends {
    fn start() -> Ends {
        let network = Network::start(None);
        let [here, there] = [0, 1].map(|index| attach(&network.host_socket(index)));
        let names =
            [&here, &there].map(|client| client.name().unwrap().wait_for(PATIENCE).unwrap());
        Ends {
            network,
            here,
            there,
            names,
        }
    }

    /// Sends with the receiver's word, and returns it.
    fn send(&self, bytes: &[u8], name: &str) -> whimbrel_client::Upload {
        let options = SendOptions {
            until_delivered: true,
            ..SendOptions::default()
        };
        let source = ContentSource::of_bytes(bytes.to_vec().into(), name);
        self.here.send(self.names[1], source, options).unwrap()
    }
}

fn attach_and_name(ends: &Ends) {
    let keys = [0, 1].map(|index| ends.network.guid_of(&format!("host-{index}")));
    assert_eq!(ends.names.map(|name| name.to_string()), keys);
    let status = ends.here.status().unwrap().wait_for(PATIENCE).unwrap();
    assert!(status.contains(&keys[0]));
    let missing = Client::attach_at(Path::new("/nowhere/host.sock"), AttachOptions::default());
    let text = missing.unwrap_err().to_string();
    assert!(
        text.contains("no daemon answers on /nowhere/host.sock"),
        "{text}"
    );
}

fn publish_and_get_bytes(ends: &Ends) {
    let bytes = noise(3 * MIB + 5, 1);
    let published = ends.there.publish_bytes(bytes.clone(), "noise").unwrap();
    assert_eq!(published.content().to_string(), name_of(&bytes));
    published.announced().wait_for(PATIENCE).unwrap();
    let download = ends
        .here
        .get(published.content(), GetOptions::default())
        .unwrap();
    assert!(download.bytes().wait_for(PATIENCE).unwrap() == bytes);
    let empty = ends.there.publish_bytes(Vec::new(), "").unwrap();
    empty.announced().wait_for(PATIENCE).unwrap();
    let download = ends
        .here
        .get(empty.content(), GetOptions::default())
        .unwrap();
    assert_eq!(download.bytes().wait_for(PATIENCE).unwrap().len(), 0);
}

fn publish_and_get_a_file(ends: &Ends) {
    let bytes = noise(2 * MIB, 2);
    let [from, to] = ["from", "to"].map(|name| ends.network.path(name));
    fs::write(&from, &bytes).unwrap();
    let published = ends.there.publish_file(&from).unwrap();
    published.announced().wait_for(PATIENCE).unwrap();
    let options = GetOptions {
        in_order: false,
        ..GetOptions::default()
    };
    let download = ends.here.get(published.content(), options).unwrap();
    let length = download.to_file(&to).unwrap().wait_for(PATIENCE).unwrap();
    assert_eq!(length, bytes.len() as u64);
    assert!(fs::read(&to).unwrap() == bytes);
    let missing = ends.there.publish_file(&ends.network.path("missing"));
    let text = missing.unwrap_err().to_string();
    assert!(text.contains("cannot read"), "{text}");
    let folder = ends.there.publish_file(ends.network.folder.path());
    assert!(folder.unwrap_err().to_string().contains("is not a file"));
}

fn get_in_pieces(ends: &Ends) {
    let bytes = noise(5 * MIB, 3);
    let published = ends.there.publish_bytes(bytes.clone(), "pieces").unwrap();
    published.announced().wait_for(PATIENCE).unwrap();
    let mut download = ends
        .here
        .get(published.content(), GetOptions::default())
        .unwrap();
    let mut collected = Vec::new();
    while let Some(piece) = download.next_piece().wait_for(PATIENCE).unwrap() {
        assert_eq!(piece.offset, collected.len() as u64);
        collected.extend_from_slice(&piece.data);
    }
    assert!(collected == bytes);
    let progress = download.progress().unwrap();
    assert!(progress.is_complete);
    assert_eq!(
        (progress.length, &*progress.file_name),
        (Some(5 * MIB as u64), "pieces")
    );
    let download = ends
        .here
        .get(published.content(), GetOptions::default())
        .unwrap();
    let mut copied = Vec::new();
    assert_eq!(download.copy_to(&mut copied).unwrap(), 5 * MIB as u64);
    assert!(copied == bytes);
}

fn get_what_nobody_has(ends: &Ends) {
    let name: Guid = name_of(b"nobody has this").parse().unwrap();
    let download = ends.here.get(name, GetOptions::default()).unwrap();
    let error = download.bytes().wait_for(PATIENCE).unwrap_err();
    assert!(matches!(error, ProgramError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("check the name"), "{error}");
    let large = ends.there.publish_bytes(noise(MIB, 4), "").unwrap();
    large.announced().wait_for(PATIENCE).unwrap();
    let options = GetOptions {
        limit: Some(1000),
        ..GetOptions::default()
    };
    let download = ends.here.get(large.content(), options).unwrap();
    let error = download.bytes().wait_for(PATIENCE).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("1048576 bytes long and the limit is 1000"),
        "{text}"
    );
}

fn cancel_a_transfer(ends: &Ends) {
    let published = ends.there.publish_bytes(noise(64 * MIB, 5), "").unwrap();
    published.announced().wait_for(PATIENCE).unwrap();
    let mut download = ends
        .here
        .get(published.content(), GetOptions::default())
        .unwrap();
    assert!(download.next_piece().wait_for(PATIENCE).unwrap().is_some());
    assert_eq!(ends.here.transfers().len(), 1);
    drop(download);
    assert!(ends.here.transfers().is_empty());
    await_that("the host has no transfer either", || {
        let status = ends.network.host_status(0);
        status["transfers"].as_array().is_none_or(Vec::is_empty)
    });
    // A call that is given up is one that is cancelled.
    let download = ends
        .here
        .get(published.content(), GetOptions::default())
        .unwrap();
    let error = download
        .bytes()
        .wait_for(Duration::from_millis(1))
        .unwrap_err();
    assert!(matches!(error, ProgramError::TimedOut(_)), "{error}");
    assert!(ends.here.transfers().is_empty());
}

fn send_and_receive(ends: &Ends) {
    let mut inbox = ends.there.inbox(OfferRule::default()).unwrap();
    let bytes = noise(2 * MIB + 1, 6);
    let upload = ends.send(&bytes, "report");
    let offered = inbox.next_offer().wait_for(PATIENCE).unwrap();
    assert_eq!(offered.offer().id.sender, ends.names[0]);
    assert_eq!(offered.offer().content.file_name, "report");
    let download = offered.accept().unwrap();
    assert!(download.bytes().wait_for(PATIENCE).unwrap() == bytes);
    let outcome = upload.outcome().wait_for(PATIENCE).unwrap();
    assert_eq!(outcome.state, SendState::Delivered);
}

fn refuse_by_rule_and_by_hand(ends: &Ends) {
    let rule = OfferRule {
        senders: Some(BTreeSet::from([ends.names[0]])),
        max_size: Some(MIB as u64),
    };
    let mut inbox = ends.there.inbox(rule).unwrap();
    let too_long = ends.send(&noise(MIB + 1, 7), "long");
    let error = too_long.outcome().wait_for(PATIENCE).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it is longer than the receiver accepts"),
        "{error}"
    );
    let unusable = ends.send(&noise(1000, 8), "short");
    let offered = inbox.next_offer().wait_for(PATIENCE).unwrap();
    offered.refuse(OfferVerdict::Unusable).unwrap();
    let error = unusable.outcome().wait_for(PATIENCE).unwrap_err();
    assert!(
        error.to_string().contains("the receiver cannot use it"),
        "{error}"
    );
    ends.there.inbox(OfferRule::default()).unwrap();
}

fn message_a_channel(ends: &Ends) {
    let mut reader = ends.there.listen(77).unwrap();
    let received = std::iter::repeat_with(|| {
        ends.here
            .message(ends.names[1], 77, b"on my way".to_vec())
            .unwrap();
        reader
            .next_message()
            .wait_for(Duration::from_millis(200))
            .ok()
    });
    let message = received.take(100).flatten().next().unwrap();
    assert_eq!(
        (message.from, &message.payload[..]),
        (ends.names[0], &b"on my way"[..])
    );
    let error = ends
        .here
        .message(ends.names[1], 77, vec![0; 40_000])
        .unwrap_err();
    assert!(error.to_string().contains("at most 32768 bytes"), "{error}");
}

fn ping_a_name(ends: &Ends) {
    let from = ends
        .here
        .ping(ends.names[1])
        .unwrap()
        .wait_for(PATIENCE)
        .unwrap();
    assert_eq!(from, ends.names[1]);
}

/// Returns options as the other languages state them.
fn stated(storage: &str, service: &str) -> TransferOptions {
    let options = StatedOptions {
        chunk_size: Some(16_384),
        reliability: "ack",
        nack_timeout: Some(Duration::from_secs(2)),
        storage,
        service,
    };
    options.transfer().unwrap()
}

fn choose_how_contents_travel(ends: &Ends) {
    let bytes = noise(100_000, 11);
    let options = PublishOptions {
        transfer: stated("1 h", "unicast"),
        delegate: true,
    };
    let source = ContentSource::of_bytes(bytes.clone().into(), "");
    let published = ends.there.publish_with(source, options).unwrap();
    published.announced().wait_for(PATIENCE).unwrap();
    let options = GetOptions {
        transfer: stated("never", "multihoming"),
        ..GetOptions::default()
    };
    let mut download = ends.here.get(published.content(), options).unwrap();
    let mut collected = Vec::new();
    while let Some(piece) = download.next_piece().wait_for(PATIENCE).unwrap() {
        assert!(piece.data.len() <= 16_384, "{}", piece.data.len());
        collected.extend_from_slice(&piece.data);
    }
    assert!(collected == bytes);
    let mut inbox = ends.there.inbox(OfferRule::default()).unwrap();
    let options = SendOptions {
        transfer: stated("2 h", "default"),
        until_delivered: true,
        ..SendOptions::default()
    };
    let source = ContentSource::of_bytes(bytes.clone().into(), "");
    let upload = ends.here.send(ends.names[1], source, options).unwrap();
    let offered = inbox.next_offer().wait_for(PATIENCE).unwrap();
    let received = offered.accept().unwrap().bytes().wait_for(PATIENCE);
    assert!(received.unwrap() == bytes);
    upload.outcome().wait_for(PATIENCE).unwrap();
    let wrong = StatedOptions {
        chunk_size: Some(1000),
        ..StatedOptions::default()
    };
    let text = wrong.transfer().unwrap_err().to_string();
    assert!(text.starts_with("chunk_size"), "{text}");
}

/// Makes the key of a service, and admissions of a group for anyone and for a service.
pub(crate) fn prepare_names(folder: &Path) {
    let run = |words: &[&str]| {
        let (code, out, err) = finished(whimbrel().current_dir(folder).args(words));
        assert_eq!(code, 0, "{err}");
        out
    };
    let name = run(&["id", "new", "service"]);
    run(&["group", "create", "team"]);
    run(&["group", "admit", "team", "anyone", "-o", "admission"]);
    run(&["group", "admit", "team", name.trim(), "-o", "another"]);
}

fn reach_services_and_groups(ends: &Ends) {
    let folder = ends.network.folder.path();
    prepare_names(folder);
    let key = read_service_key(&folder.join("service")).unwrap();
    let attached = ends.there.attach_service(key).unwrap();
    let service = attached.wait_for(PATIENCE).unwrap();
    let mut reader = ends.there.listen(78).unwrap();
    let delivery = stated("default", "anycast").delivery;
    let received = std::iter::repeat_with(|| {
        let text = b"to the nearest".to_vec();
        let sent = ends.here.message_with(service, 78, delivery, text);
        sent.unwrap();
        let next = reader.next_message();
        next.wait_for(Duration::from_millis(200)).ok()
    });
    let message = received.take(100).flatten().next().unwrap();
    assert_eq!(&message.payload[..], b"to the nearest");
    let admission = |file: &str| {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        read_admission(&text).unwrap()
    };
    let joined = ends.there.join_group(admission("admission")).unwrap();
    let group = joined.wait_for(PATIENCE).unwrap();
    let left = ends.there.leave_group(admission("admission")).unwrap();
    assert_eq!(left.wait_for(PATIENCE).unwrap(), group);
    let refused = ends.there.join_group(admission("another")).unwrap();
    let text = refused.wait_for(PATIENCE).unwrap_err().to_string();
    assert!(text.contains("not for this host"), "{text}");
    assert!(read_admission("00").is_err());
}

fn continue_after_the_host_restarts(ends: &mut Ends) {
    let bytes = noise(48 * MIB, 9);
    let published = ends.there.publish_bytes(bytes.clone(), "").unwrap();
    published.announced().wait_for(PATIENCE).unwrap();
    let mut download = ends
        .here
        .get(published.content(), GetOptions::default())
        .unwrap();
    let mut collected = Vec::new();
    let piece = download.next_piece().wait_for(PATIENCE).unwrap().unwrap();
    collected.extend_from_slice(&piece.data);
    for index in [0, 1] {
        ends.network.hosts[index].take().unwrap().kill();
        await_that("the clients notice it", || {
            ![&ends.here, &ends.there][index].is_connected()
        });
        ends.network.start_host(index);
    }
    while let Some(piece) = download.next_piece().wait_for(PATIENCE).unwrap() {
        assert_eq!(piece.offset, collected.len() as u64);
        collected.extend_from_slice(&piece.data);
    }
    assert!(collected == bytes);
}

fn fail_if_the_host_stays_away(ends: &mut Ends) {
    let options = AttachOptions {
        reconnect_for: Duration::from_millis(300),
    };
    let client = Client::attach_at(&ends.network.host_socket(0), options).unwrap();
    let name: Guid = name_of(b"something").parse().unwrap();
    ends.network.hosts[0].take().unwrap().kill();
    await_that("the client notices it", || !client.is_connected());
    let download = client.get(name, GetOptions::default()).unwrap();
    let error = download.bytes().wait_for(PATIENCE).unwrap_err();
    assert!(matches!(error, ProgramError::HostGone(_)), "{error}");
    ends.network.start_host(0);
    ends.network.await_registered(0);
    await_that("the client is back", || client.is_connected());
}

fn detach_ends_everything(ends: &Ends) {
    let client = attach(&ends.network.host_socket(1));
    let published = client.publish_bytes(noise(MIB, 10), "").unwrap();
    published.announced().wait_for(PATIENCE).unwrap();
    let waiting = client.get(name_of(b"never").parse().unwrap(), GetOptions::default());
    client.detach();
    let error = waiting.unwrap().bytes().wait_for(PATIENCE).unwrap_err();
    assert!(matches!(error, ProgramError::Detached), "{error}");
    let error = client.status().unwrap_err();
    assert!(matches!(error, ProgramError::Detached), "{error}");
    let download = ends
        .here
        .get(published.content(), GetOptions::default())
        .unwrap();
    let error = download.bytes().wait_for(PATIENCE).unwrap_err();
    assert!(matches!(error, ProgramError::Failed { .. }), "{error}");
    client.detach();
}

fn await_in_a_runtime(ends: &Ends) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let [here, there] = [0, 1].map(|index| {
            let socket = ends.network.host_socket(index);
            Client::attach_in_runtime(&socket, AttachOptions::default()).unwrap()
        });
        let contents: Vec<Vec<u8>> = (20..28).map(|seed| noise(MIB, seed)).collect();
        let published: Vec<_> = contents
            .iter()
            .map(|bytes| there.publish_bytes(bytes.clone(), "").unwrap())
            .collect();
        let fetches: Vec<_> = published
            .iter()
            .map(|publication| {
                let (here, content) = (here.clone(), publication.content());
                let announced = publication.announced();
                tokio::spawn(async move {
                    announced.await?;
                    here.get(content, GetOptions::default())?.bytes().await
                })
            })
            .collect();
        for (fetch, bytes) in fetches.into_iter().zip(&contents) {
            let fetched = tokio::time::timeout(PATIENCE, fetch).await.unwrap();
            assert!(fetched.unwrap().unwrap() == *bytes);
        }
        // A task that is given up cancels its transfer.
        let name: Guid = name_of(b"not there").parse().unwrap();
        let mut reader = here.listen(5).unwrap();
        let ended = tokio::time::timeout(Duration::from_millis(50), reader.next_message()).await;
        assert!(ended.is_err());
        let get = here.get(name, GetOptions::default()).unwrap();
        drop(get.bytes());
        assert!(here.transfers().is_empty());
    });
}

#[test]
fn every_call_of_the_table_works_in_rust() {
    let mut ends = Ends::start();
    let rows: [(&str, Row); 12] = [
        ("attach_and_name", attach_and_name),
        ("publish_and_get_bytes", publish_and_get_bytes),
        ("publish_and_get_a_file", publish_and_get_a_file),
        ("get_in_pieces", get_in_pieces),
        ("get_what_nobody_has", get_what_nobody_has),
        ("cancel_a_transfer", cancel_a_transfer),
        ("send_and_receive", send_and_receive),
        ("refuse_by_rule_and_by_hand", refuse_by_rule_and_by_hand),
        ("message_a_channel", message_a_channel),
        ("ping_a_name", ping_a_name),
        ("choose_how_contents_travel", choose_how_contents_travel),
        ("reach_services_and_groups", reach_services_and_groups),
    ];
    for (row, test) in rows {
        println!("{row}");
        test(&ends);
    }
    println!("await_in_a_runtime");
    await_in_a_runtime(&ends);
    println!("continue_after_the_host_restarts");
    continue_after_the_host_restarts(&mut ends);
    println!("fail_if_the_host_stays_away");
    fail_if_the_host_stays_away(&mut ends);
    println!("detach_ends_everything");
    detach_ends_everything(&ends);
}

#[test]
fn the_mirror_of_the_example_has_what_its_origin_has() {
    let ends = Ends::start();
    let [origin, copy] = ["origin", "copy"].map(|name| ends.network.path(name));
    for folder in [&origin, &copy] {
        fs::create_dir(folder).unwrap();
    }
    let files = [
        ("one", noise(1000, 1)),
        ("two", noise(2 * MIB, 2)),
        ("none", Vec::new()),
    ];
    for (name, bytes) in &files {
        fs::write(origin.join(name), bytes).unwrap();
    }
    std::thread::scope(|scope| {
        let mirrored =
            scope.spawn(|| mirror::copy(&ends.there, &copy, true).map_err(|it| it.to_string()));
        mirror::publish(&ends.here, &origin, ends.names[1], true).unwrap();
        mirrored.join().unwrap().unwrap();
    });
    for (name, bytes) in &files {
        assert!(fs::read(copy.join(name)).unwrap() == *bytes, "{name}");
    }
}
