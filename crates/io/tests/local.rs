//! Unix stream sockets: framing, back-pressure, and the socket file.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the driver have threads and clocks"
)]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Script, idle_rounds, pattern, script_loop, until, until_both};
use tempfile::TempDir;
use whimbrel_core::{PortEvent, PortId, PortOrigin, PortRequest};
use whimbrel_io::{EventLoop, IoError, StreamLimits, UnixListenerConfig};

const LARGE: usize = 4 << 20;
/// `nogroup` of Debian.
const NOBODYS_GROUP: u32 = 65_534;

fn framed(frame: &[u8]) -> Vec<u8> {
    let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(frame);
    bytes
}

/// Returns a listening loop, and the directory of its socket, which lives as long as it is kept.
fn server(change: impl FnOnce(&mut UnixListenerConfig)) -> (EventLoop<Script>, PathBuf, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("whimbrel.sock");
    let mut config = UnixListenerConfig::new("programs", &path);
    change(&mut config);
    let mut server = script_loop();
    server.sockets().add_unix_listener(config).unwrap();
    (server, path, directory)
}

fn attach(server: &mut EventLoop<Script>, path: &Path) -> (UnixStream, PortId) {
    let newest = |server: &EventLoop<Script>| server.snapshot().ports.last().map(|it| it.port);
    let before = newest(server);
    let stream = UnixStream::connect(path).unwrap();
    stream.set_nonblocking(true).unwrap();
    until(server, "a port for the program", |server| {
        newest(server) > before
    });
    (stream, PortId(newest(server).unwrap()))
}

/// Reads available bytes, at most `limit`.
fn read_some(stream: &mut UnixStream, into: &mut Vec<u8>, limit: usize) {
    let mut buffer = vec![0; limit];
    match stream.read(&mut buffer) {
        Ok(count) => into.extend_from_slice(&buffer[..count]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
}

/// Runs the server until the program has been disconnected.
fn until_disconnected(server: &mut EventLoop<Script>, stream: &mut UnixStream) {
    let mut byte = [0; 1];
    until(server, "the end of the connection", |_| {
        match stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    });
}

#[test]
fn a_frame_of_four_mebibytes_arrives_whole_from_pieces_of_any_size() {
    let (mut server, path, _directory) = server(|_| {});
    let (mut program, port) = attach(&mut server, &path);
    let frames = [
        pattern(LARGE, 1),
        b"small".to_vec(),
        pattern(70_000, 2),
        pattern(LARGE, 3),
    ];
    let stream: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
    let mut rest = &stream[..];
    let mut piece = 1;
    until(&mut server, "all frames", |server| {
        while !rest.is_empty() {
            match program.write(&rest[..rest.len().min(piece)]) {
                Ok(written) => rest = &rest[written..],
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
            piece = piece * 3 % 99_991 + 1;
        }
        server.machine().inbox.len() == frames.len()
    });
    assert!(
        server.machine().frames_from(port) == frames,
        "intact and in order"
    );
    let info = &server.machine().ports[&port];
    assert_eq!(
        (info.origin, info.label.as_str()),
        (PortOrigin::Local, "programs")
    );
    assert!(info.peer.starts_with("process "), "{}", info.peer);
}

#[test]
fn two_loops_exchange_frames_of_all_sizes_in_both_directions() {
    let (mut server, path, _directory) = server(|_| {});
    server.machine_mut().echo = true;
    let mut client = script_loop();
    let port = client
        .sockets()
        .add_unix_client("daemon", &path, StreamLimits::default())
        .unwrap();
    let mut sent = Vec::new();
    for (number, size) in [1, 100, 65_531, 65_532, 65_533, 1 << 20, LARGE, 3]
        .into_iter()
        .enumerate()
    {
        sent.push(pattern(size, number));
        client.machine_mut().send(port, vec![pattern(size, number)]);
    }
    // Many frames in one transmit, the last one shorter.
    let mut many: Vec<Vec<u8>> = (0..200).map(|number| pattern(9_000, number)).collect();
    many.last_mut().unwrap().truncate(5);
    sent.extend(many.clone());
    client.machine_mut().send(port, many);
    until_both(&mut client, &mut server, "all answers", |client, _| {
        client.machine().inbox.len() == sent.len()
    });
    assert!(
        client.machine().frames_from(port) == sent,
        "every frame intact and in order"
    );
    assert!(server.snapshot().ports[0].counters.drops.total() == 0);
}

#[test]
fn a_program_that_does_not_read_blocks_only_itself_and_loses_nothing() {
    let (mut server, path, _directory) = server(|_| {});
    let (mut slow, slow_port) = attach(&mut server, &path);
    let (mut quick, quick_port) = attach(&mut server, &path);
    let frames: Vec<Vec<u8>> = (0..40).map(|number| pattern(300_000, number)).collect();
    for frame in &frames {
        server.machine_mut().send(slow_port, vec![frame.clone()]);
    }
    until(&mut server, "the slow one to be blocked", |server| {
        server.machine().blocked.contains(&slow_port)
    });
    server
        .machine_mut()
        .send(quick_port, vec![b"still served".to_vec()]);
    let mut got = Vec::new();
    until(&mut server, "the other's frame", |_| {
        read_some(&mut quick, &mut got, 100);
        got.len() == 16
    });
    assert_eq!(got, framed(b"still served"));
    assert!(!server.machine().blocked.contains(&quick_port));
    idle_rounds(&mut server);
    assert!(
        server.machine().outbox.len() > 20,
        "unsent frames stay with the machine"
    );

    let expected: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
    let mut got = Vec::new();
    until(&mut server, "all frames", |_| {
        read_some(&mut slow, &mut got, 50_000);
        got.len() >= expected.len()
    });
    assert!(got == expected, "every byte in order");
    assert!(!server.machine().blocked.contains(&slow_port));
    let reports = &server.machine().reports;
    assert!(reports.contains(&(slow_port, PortEvent::Writable)));
}

#[test]
fn a_machine_that_writes_on_although_blocked_is_buffered_to_a_bound_and_then_cut_off() {
    let limits = StreamLimits {
        max_frame: 1000,
        max_unsent: 20_000,
        ..StreamLimits::default()
    };
    let (mut server, path, _directory) = server(|config| config.limits = limits);
    let (mut program, port) = attach(&mut server, &path);
    server.machine_mut().ignores_blocking = true;
    let frames = 20_000;
    for number in 0..frames {
        server.machine_mut().send(port, vec![pattern(1000, number)]);
    }
    until(&mut server, "the port to go down", |server| {
        server.machine().down(port)
    });
    let mut got = Vec::new();
    let start = Instant::now();
    loop {
        let mut buffer = [0; 65_536];
        match program.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => got.extend_from_slice(&buffer[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(start.elapsed() < PATIENCE);
    }
    let whole: Vec<u8> = (0..got.len().div_ceil(1004))
        .flat_map(|n| framed(&pattern(1000, n)))
        .collect();
    assert!(
        whole.starts_with(&got),
        "the bytes that arrived have no hole"
    );
    assert!(got.len() < frames * 1004);
    let snapshot = server.snapshot();
    assert_eq!(snapshot.closed_transports.overflow_closed, 1);
    assert!(snapshot.closed_ports.drops.blocked >= 1);
}

#[test]
fn a_length_beyond_the_limit_ends_the_connection_and_no_other() {
    let (mut server, path, _directory) = server(|config| config.limits.max_frame = 1000);
    let (mut bad, bad_port) = attach(&mut server, &path);
    let (mut good, good_port) = attach(&mut server, &path);
    bad.write_all(&framed(b"fine so far")).unwrap();
    bad.write_all(&1001u32.to_be_bytes()).unwrap();
    until_disconnected(&mut server, &mut bad);
    assert_eq!(
        server.machine().frames_from(bad_port),
        [b"fine so far".to_vec()]
    );
    assert!(server.machine().down(bad_port));
    assert_eq!(server.snapshot().closed_transports.oversize_closed, 1);
    good.write_all(&framed(&[7; 1000])).unwrap();
    until(&mut server, "the frame of the other", |server| {
        server.machine().frames_from(good_port) == [vec![7; 1000]]
    });
}

#[test]
fn a_program_that_leaves_takes_its_port_down_and_half_a_frame_is_counted() {
    let (mut server, path, _directory) = server(|_| {});
    let (mut program, port) = attach(&mut server, &path);
    program.write_all(&framed(b"last words")).unwrap();
    program.write_all(&framed(b"cut off")[..6]).unwrap();
    drop(program);
    until(&mut server, "the port to go down", |server| {
        server.machine().down(port)
    });
    assert_eq!(server.machine().frames_from(port), [b"last words".to_vec()]);
    assert_eq!(server.snapshot().closed_transports.truncated, 1);
}

#[test]
fn output_before_a_close_still_arrives() {
    let (mut server, path, _directory) = server(|_| {});
    let (mut program, port) = attach(&mut server, &path);
    let frame = pattern(LARGE, 9);
    server.machine_mut().send(port, vec![frame.clone()]);
    server
        .machine_mut()
        .requests
        .push_back(PortRequest::Close(port));
    until(&mut server, "the port to go down", |server| {
        server.machine().down(port)
    });
    let expected = framed(&frame);
    let mut got = Vec::new();
    until(&mut server, "the whole frame", |_| {
        read_some(&mut program, &mut got, 100_000);
        got.len() >= expected.len()
    });
    assert!(got == expected);
    until_disconnected(&mut server, &mut program);
    until(&mut server, "the connection to be gone", |server| {
        server.snapshot().transports.len() == 1
    });
}

#[test]
fn programs_beyond_the_maximum_are_refused_and_room_is_made_by_leaving() {
    let (mut server, path, _directory) = server(|config| config.max_connections = 1);
    let (first, port) = attach(&mut server, &path);
    let mut second = UnixStream::connect(&path).unwrap();
    second.set_nonblocking(true).unwrap();
    until_disconnected(&mut server, &mut second);
    assert_eq!(server.snapshot().transports[0].counters.refused, 1);
    drop(first);
    until(&mut server, "the first to be gone", |server| {
        server.machine().down(port)
    });
    let (_third, third_port) = attach(&mut server, &path);
    assert_ne!(third_port, port, "a port number is never used again");
}

#[test]
fn programs_that_ask_for_nothing_give_way_to_new_ones_and_those_at_work_do_not() {
    let (mut server, path, _directory) = server(|config| {
        config.max_connections = 3;
        config.idle_frames = Some(1);
    });
    let (mut greeting, _) = attach(&mut server, &path);
    let (mut at_work, at_work_port) = attach(&mut server, &path);
    let (mut silent, _) = attach(&mut server, &path);
    greeting.write_all(&framed(b"hello")).unwrap();
    at_work.write_all(&framed(b"hello")).unwrap();
    at_work.write_all(&framed(b"a request")).unwrap();
    until(&mut server, "three frames", |server| {
        let ports = server.snapshot().ports;
        ports
            .iter()
            .map(|it| it.counters.received_frames)
            .sum::<u64>()
            == 3
    });
    // Nobody has been silent for long.
    let mut early = UnixStream::connect(&path).unwrap();
    early.set_nonblocking(true).unwrap();
    until_disconnected(&mut server, &mut early);
    std::thread::sleep(Duration::from_millis(1100));
    let (_first, first_port) = attach(&mut server, &path);
    let (_second, second_port) = attach(&mut server, &path);
    until_disconnected(&mut server, &mut greeting);
    until_disconnected(&mut server, &mut silent);
    assert!(
        ![at_work_port, first_port, second_port]
            .iter()
            .any(|port| server.machine().down(*port))
    );
    assert_eq!(server.snapshot().transports[0].counters.evicted, 2);
}

#[test]
fn a_stale_socket_file_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stale.sock");
    // Unlike this crate's listener, that of std leaves its file behind.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let mut server = script_loop();
    server
        .sockets()
        .add_unix_listener(UnixListenerConfig::new("programs", &path))
        .unwrap();
    attach(&mut server, &path);
}

#[test]
fn a_socket_file_in_use_is_left_alone() {
    let (mut first, path, _directory) = server(|_| {});
    let error = script_loop()
        .sockets()
        .add_unix_listener(UnixListenerConfig::new("second", &path))
        .unwrap_err();
    assert!(matches!(&error, IoError::SocketPathInUse { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&path.display().to_string()) && text.contains("ss -lxp"),
        "{text}"
    );
    attach(&mut first, &path);
}

#[test]
fn a_file_other_than_a_socket_is_never_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("thesis.txt");
    fs::write(&path, "ten years of work").unwrap();
    let error = script_loop()
        .sockets()
        .add_unix_listener(UnixListenerConfig::new("programs", &path))
        .unwrap_err();
    assert!(matches!(&error, IoError::SocketPathTaken { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "ten years of work");
}

#[test]
fn the_socket_file_has_the_mode_asked_for_and_goes_with_the_loop() {
    for mode in [0o600, 0o660, 0o666] {
        let (server, path, _directory) = server(|config| config.mode = mode);
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, mode);
        drop(server);
        assert!(!path.exists());
    }
}

/// Only root may give a file to a group that it is not in; for other users the group is one of their own, and the
/// mode alone tells.
#[test]
fn the_socket_file_has_the_group_asked_for() {
    let root = rustix::process::geteuid().is_root();
    let group = if root {
        NOBODYS_GROUP
    } else {
        rustix::process::getegid().as_raw()
    };
    let (_server, path, _directory) = server(|config| {
        config.mode = 0o660;
        config.group = Some(group);
    });
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.gid(), group);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o660);
}

#[test]
fn the_socket_file_of_a_successor_is_not_removed() {
    let (server, path, _directory) = server(|_| {});
    fs::remove_file(&path).unwrap();
    let _successor = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(path.exists());
}

#[test]
fn attaching_without_a_listener_names_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nobody.sock");
    let error = script_loop()
        .sockets()
        .add_unix_client("daemon", &path, StreamLimits::default())
        .unwrap_err();
    assert!(matches!(&error, IoError::NobodyListens { .. }), "{error}");
    assert!(error.to_string().contains("nobody.sock"), "{error}");
}

#[test]
fn memory_of_large_frames_is_released_without_disturbing_the_connection() {
    let (mut server, path, _directory) = server(|_| {});
    let (mut program, port) = attach(&mut server, &path);
    for number in 0..2 {
        let frame = framed(&pattern(LARGE, number));
        let mut rest = &frame[..];
        until(&mut server, "the frame", |server| {
            if let Ok(written) = program.write(rest) {
                rest = &rest[written..];
            }
            server.machine().frames_from(port).len() == number + 1
        });
        let returns = |server: &EventLoop<Script>| {
            server.snapshot().transports_total().memory_returns == number as u64 + 1
        };
        assert!(!returns(&server), "the memory is kept while frames come");
        until(&mut server, "the memory's return", |server| returns(server));
    }
    assert!(server.machine().frames_from(port) == [pattern(LARGE, 0), pattern(LARGE, 1)]);
}
