//! Attacks of callers that have proven their names on the listener of hosts and routers
//! ([mobilityfirst.md], "Router", item 0).
//!
//! [mobilityfirst.md]: ../../../../docs/protocols/mobilityfirst.md

use core::time::Duration;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use bytes::Bytes;
use rand_core::Rng;
use whimbrel_core::{Guid, KeyPair, SeededRng, Time};
use whimbrel_gnrs::{Address, Record, Statement};
use whimbrel_link::{Buffer, Hop, HopConfig, HopEvent, Lane};
use whimbrel_mobilityfirst::chunk::{self, Chunk};
use whimbrel_mobilityfirst::wire::{
    ATTACH_CONTEXT, ChunkRanges, Control, Message, NetworkHeader, Reliability, Request, ServiceId,
    Transport, UpperProtocol, attach_statement,
};

use super::socket::udp;
use super::{Assault, Attack, Plane, Sent};
use crate::LabError;
use crate::process::wait_readable;

/// Octets of the frames of a caller, and its room for what comes, in packets.
const MTU: usize = 1472;
const ROOM: usize = 256;
/// Octets of a message to nobody, and of a chunk of which only the beginning is sent.
const MESSAGE_LEN: usize = 1_000;
const CHUNK_LEN: usize = 1 << 20;
/// Sizes of the chunks that are requested, as powers of two: 1 MiB, and the smallest, 16 KiB.
const LARGE_CHUNK_LOG2: u8 = 20;
const SMALL_CHUNK_LOG2: u8 = 14;
/// Callers that begin chunks, and how many frames of theirs one stands for that is sent.
const BEGINNERS: usize = 16;
const WITHHELD: u64 = 50;
/// Frames that a caller sends in any case, so that its name is proven.
const HANDSHAKE_FRAMES: u64 = 8;
/// Of a host's record.
const LIFETIME_MS: u64 = 300_000;
/// A caller that may send nothing now looks again after this time.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) const REQUESTS: Attack = Attack {
    name: "proven-requests",
    what: "a proven caller requests contents that do not exist",
    plane: Plane::Native,
    is_proven: true,
    run: |assault| {
        assail(assault, 1, 1, |caller, number| {
            let content = caller.invented();
            Some(request(caller, content, LARGE_CHUNK_LOG2, number))
        })
    },
};

pub(super) const SOURCES: Attack = Attack {
    name: "proven-sources",
    what: "a proven caller sends in the names of hosts that do not exist",
    plane: Plane::Native,
    is_proven: true,
    run: |assault| {
        assail(assault, 1, 1, |caller, number| {
            let (source, destination) = (caller.invented(), caller.invented());
            let message = Message {
                id: number,
                channel: 0,
                payload: Bytes::from(vec![0; MESSAGE_LEN]),
            };
            let header = header(ServiceId::UNICAST, source, destination);
            Some(Chunk::of_transport(header, &Transport::Message(message)))
        })
    },
};

pub(super) const ATTACHMENTS: Attack = Attack {
    name: "proven-attachments",
    what: "a proven caller attaches hosts, rightly signed: itself anew, and new ones, by turns",
    plane: Plane::Native,
    is_proven: true,
    run: |assault| {
        assail(assault, 1, 1, |caller, number| {
            let router = caller.neighbour?;
            let challenge = caller.challenge?;
            let new = (number % 2 == 1).then(|| caller.new_keys());
            let keys = new.as_ref().unwrap_or(&caller.keys);
            let addresses = vec![Address::new(router)];
            let mut statement = Statement::new(challenge.unix_ms, LIFETIME_MS, addresses);
            statement.version += number;
            let record = Record::binding(keys, &statement).ok()?;
            let signed = attach_statement(&router, &challenge.nonce, statement.version);
            let attach = Control::Attach {
                record: Bytes::copy_from_slice(record.as_bytes()),
                signature: keys.sign(ATTACH_CONTEXT, &signed).0,
            };
            let mut payload = Vec::new();
            attach.encode(&mut payload);
            let header = NetworkHeader::new(
                ServiceId::NEIGHBOUR,
                UpperProtocol::Control,
                caller.keys.guid(),
                router,
            );
            Some(chunk(header, payload))
        })
    },
};

pub(super) const REPETITIONS: Attack = Attack {
    name: "proven-repetitions",
    what: "a proven caller requests a film in small chunks, takes none, and repeats its request",
    plane: Plane::Native,
    is_proven: true,
    run: |assault| {
        let film: Guid = assault.arena.film.parse().unwrap_or(Guid::NONE);
        assail(assault, 1, 1, |caller, _| {
            caller.takes_chunks = false;
            Some(request(caller, film, SMALL_CHUNK_LOG2, 1))
        })
    },
};

pub(super) const BEGINNINGS: Attack = Attack {
    name: "proven-beginnings",
    what: "16 proven callers begin chunks of 1 MiB, and send one frame of 50",
    plane: Plane::Native,
    is_proven: true,
    run: |assault| {
        assail(assault, BEGINNERS, WITHHELD, |caller, _| {
            let header = header(ServiceId::UNICAST, caller.keys.guid(), caller.invented());
            Some(chunk(header, vec![0; CHUNK_LEN]))
        })
    },
};

fn header(service: ServiceId, source: Guid, destination: Guid) -> NetworkHeader {
    NetworkHeader::new(service, UpperProtocol::Transport, source, destination)
}

fn request(caller: &ProvenCaller, content: Guid, chunk_log2: u8, id: u64) -> Chunk {
    let request = Request {
        content,
        chunk_log2,
        is_exact: false,
        window: None,
        reliability: Reliability::default(),
        chunks: ChunkRanges::all(),
    };
    let mut header = header(ServiceId::CONTENT_REQUEST, caller.keys.guid(), content);
    header.extensions.request = Some(id);
    Chunk::of_transport(header, &Transport::Request(request))
}

fn chunk(header: NetworkHeader, payload: Vec<u8>) -> Chunk {
    let (head, body) = (payload.into(), Bytes::new());
    let message = chunk::Message { head, body };
    Chunk { header, message }
}

/// `callers` send what `make` makes of ever new numbers until the attack is over, but only one of
/// `withheld` frames that are due once their names are proven.
fn assail(
    assault: &Assault<'_>,
    callers: usize,
    withheld: u64,
    make: impl Fn(&mut ProvenCaller, u64) -> Option<Chunk> + Sync,
) -> Result<Sent, LabError> {
    let target = assault.target(Plane::Native)?;
    assault.there(|| {
        let callers: io::Result<Vec<ProvenCaller>> = (0..callers as u64)
            .map(|number| ProvenCaller::new(target, number, withheld))
            .collect();
        let mut callers = callers?;
        let (mut sent, all) = (Sent::default(), callers.len());
        assault.flood(&mut sent, |number| {
            let caller = &mut callers[number as usize % all];
            caller.hear()?;
            if caller.hop.takes(Lane::DEFAULT)
                && let Some(chunk) = make(caller, number)
            {
                let (now, (head, body)) = (caller.now(), chunk.into_pieces());
                caller.hop.send(now, number, head, body);
            }
            caller.speak()
        })?;
        sent.drawn = callers.iter().map(|it| it.heard).sum();
        sent.packets = callers.iter().map(|it| it.frames).sum();
        Ok(sent)
    })
}

#[derive(Clone, Copy)]
struct Challenge {
    nonce: [u8; 16],
    unix_ms: u64,
}

/// A caller that keeps to the protocol of the hop.
struct ProvenCaller {
    socket: UdpSocket,
    keys: KeyPair,
    rng: SeededRng,
    hop: Hop,
    room: Buffer,
    began: Instant,
    withheld: u64,
    due: u64,
    neighbour: Option<Guid>,
    challenge: Option<Challenge>,
    /// False: room is kept, so that soon nothing more can come.
    takes_chunks: bool,
    /// Frames that it has sent, and octets that have come.
    frames: u64,
    heard: u64,
}

impl ProvenCaller {
    fn new(target: SocketAddr, number: u64, withheld: u64) -> io::Result<ProvenCaller> {
        let mut rng = SeededRng::stream(number, "attack");
        let keys = keys(&mut rng);
        let config = HopConfig::sealed(&keys, secret(&mut rng), MTU);
        Ok(ProvenCaller {
            socket: udp(target)?,
            hop: Hop::new(config, rng.clone(), Time::ZERO),
            keys,
            rng,
            room: Buffer::new(ROOM),
            began: Instant::now(),
            withheld,
            due: 0,
            neighbour: None,
            challenge: None,
            takes_chunks: true,
            frames: 0,
            heard: 0,
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Returns a name that nobody has.
    fn invented(&mut self) -> Guid {
        Guid(secret(&mut self.rng))
    }

    fn new_keys(&mut self) -> KeyPair {
        keys(&mut self.rng)
    }

    /// Handles what has come and what is due.
    fn hear(&mut self) -> io::Result<()> {
        let mut buffer = [0; 1 << 16];
        let now = self.now();
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(len) => {
                    self.heard += len as u64;
                    self.hop.handle_frame(now, &buffer[..len], &mut self.room);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.hop.poll_timeout().is_some_and(|it| it.at <= now) {
            self.hop.handle_timeout(now, &mut self.room);
        }
        while let Some(event) = self.hop.poll_event() {
            match event {
                HopEvent::Up { neighbour, .. } => self.neighbour = Some(neighbour),
                HopEvent::Received { chunk, room } => {
                    if self.takes_chunks {
                        drop(room);
                        self.hop.room_released(now, &mut self.room);
                    }
                    self.challenge = challenge_in(&chunk).or(self.challenge);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends what may be sent now. Returns its octets.
    fn speak(&mut self) -> io::Result<usize> {
        let (now, mut octets) = (self.now(), 0);
        let mut frame = Vec::new();
        while let Some((len, _)) = self.hop.poll_transmit(now, 1, &mut frame) {
            self.due += u64::from(self.frames >= HANDSHAKE_FRAMES);
            if self.due.is_multiple_of(self.withheld) {
                match self.socket.send(&frame[..len]) {
                    Ok(sent) => {
                        self.frames += 1;
                        octets += sent;
                    }
                    // The wire is full, and the frame is lost.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            frame.clear();
        }
        if octets == 0 {
            wait_readable(&self.socket, Instant::now() + PAUSE)?;
        }
        Ok(octets)
    }
}

fn challenge_in(bytes: &Bytes) -> Option<Challenge> {
    let chunk = Chunk::decode(bytes).ok()?;
    if chunk.header.upper != UpperProtocol::Control {
        return None;
    }
    match Control::decode(&chunk.message.head).ok()? {
        Control::Challenge { nonce, unix_ms } => Some(Challenge { nonce, unix_ms }),
        _ => None,
    }
}

fn secret(rng: &mut SeededRng) -> [u8; 32] {
    let mut secret = [0; 32];
    rng.fill_bytes(&mut secret);
    secret
}

fn keys(rng: &mut SeededRng) -> KeyPair {
    KeyPair::generate(&mut secret(rng))
}
