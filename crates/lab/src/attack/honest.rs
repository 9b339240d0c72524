//! Honest users, who notice an attack or do not.

use core::time::Duration;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use serde_json::Value;
use whimbrel_ndn_packet::{Interest, Name};

use super::arena::{Arena, PREFIX};
use super::{NEWCOMERS, Plane, Sample};
use crate::LabError;

/// How long exchanges, or the bytes of a fetch, are counted at most, and the part of an attack that one
/// count may take: a sample has up to five.
const COUNTED: Duration = Duration::from_secs(1);
const PART_OF_ATTACK: u32 = 6;
/// How often exchanges are counted for a sample.
const COUNTS: usize = 3;
/// An exchange is given up after this time.
const GIVEN_UP: Duration = Duration::from_millis(100);
/// A newcomer gets in within this time, the start of its program included.
const ENTRY: Duration = Duration::from_millis(1_500);
/// A fetch that brings nothing is given up after this time.
const FETCH: Duration = Duration::from_secs(20);
/// Fetches in a sample, each a new program.
const FETCHES: usize = 5;

/// The honest host and a program on the target.
pub(super) struct Honest<'a> {
    arena: &'a Arena,
    plane: Plane,
    // A neighbour of the NDN router, which is there before the attack.
    neighbour: Option<UdpSocket>,
    first: core::cell::Cell<u64>,
    counted: Duration,
}

impl<'a> Honest<'a> {
    pub(super) fn new(arena: &'a Arena, plane: Plane, lasts: Duration) -> Honest<'a> {
        Honest {
            arena,
            plane,
            neighbour: neighbour(arena, plane).ok(),
            first: core::cell::Cell::new(0),
            counted: COUNTED.min(lasts / PART_OF_ATTACK),
        }
    }

    pub(super) fn sample(&self) -> Result<Sample, LabError> {
        let rates: Result<Vec<f64>, LabError> = match self.plane {
            Plane::Native => (0..FETCHES).map(|_| self.fetch()).collect(),
            Plane::Ndn => (0..COUNTS).map(|_| self.exchanges()).collect(),
        };
        let rate = median(rates?);
        let mut entries = Vec::new();
        for _ in 0..NEWCOMERS {
            let began = Instant::now();
            let got_in = self.newcomer()?;
            let took = began.elapsed();
            if got_in && took <= ENTRY {
                entries.push(took.as_secs_f64() * 1e3);
            }
        }
        Ok(Sample {
            rate,
            newcomers: entries.len() as u32,
            entry_ms: (!entries.is_empty()).then(|| median(entries)),
            memory: self.arena.memory()?,
        })
    }

    /// Returns the rate of a fetch from its first data on, for as long as is counted: what a flood does
    /// to a newcomer is measured apart. Zero if there are no data in time.
    fn fetch(&self) -> Result<f64, LabError> {
        let router = self.arena.listener(Plane::Native, true)?.to_string();
        let mut command = self.arena.command(&["get", "--json", "--router", &router]);
        command.arg("-o").arg("/dev/null").arg(&self.arena.film);
        let mut program = self.arena.honest_speaker("film", command)?;
        let mut first: Option<(Instant, u64)> = None;
        let mut last = None;
        for line in program.lines_until(Instant::now() + FETCH) {
            let event: Value = serde_json::from_str(&line.text).unwrap_or_default();
            let bytes = match event["event"].as_str() {
                Some("progress") => event["progress"]["bytes"].as_u64().unwrap_or_default(),
                Some("done") => self.arena.film_bytes,
                _ => continue,
            };
            if bytes == 0 {
                continue;
            }
            let (began, _) = *first.get_or_insert((line.at, bytes));
            last = Some((line.at, bytes));
            if bytes == self.arena.film_bytes || line.at >= began + self.counted {
                break;
            }
        }
        // A program that is asked to end takes its request back, so that nothing is stored for it.
        program.process().terminate(FETCH)?;
        Ok(match (first, last) {
            (Some((began, before)), Some((end, after))) if end > began => {
                8.0 * (after - before) as f64 / end.duration_since(began).as_secs_f64()
            }
            _ => 0.0,
        })
    }

    /// Exchanges of the neighbour for each second that is counted, one after the other.
    fn exchanges(&self) -> Result<f64, LabError> {
        let Some(socket) = &self.neighbour else {
            return Ok(0.0);
        };
        let counting = || -> io::Result<u32> {
            let (end, mut answered) = (Instant::now() + self.counted, 0);
            let mut buffer = [0; 9_000];
            while Instant::now() < end {
                let number = self.first.get();
                self.first.set(number + 1);
                socket.send(&ping(number))?;
                // Answers to what was given up come late.
                match socket.recv(&mut buffer) {
                    // Data, bare or behind link headers: a Nack is shorter.
                    Ok(len) => answered += u32::from(len > 1_000),
                    Err(error) if is_late(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(answered)
        };
        let answered = counting().map_err(LabError::system("exchange packets"))?;
        Ok(f64::from(answered) / self.counted.as_secs_f64())
    }

    fn newcomer(&self) -> Result<bool, LabError> {
        match self.plane {
            Plane::Native => {
                let router = self.arena.listener(Plane::Native, true)?.to_string();
                let arguments = ["get", "--quiet", "--timeout", "1.5s", "--router", &router];
                let mut command = self.arena.command(&arguments);
                command.arg("-o").arg("/dev/null").arg(&self.arena.letter);
                self.arena.succeeds(false, command, ENTRY + FETCH)
            }
            Plane::Ndn => {
                let transport = "tcp://127.0.0.1:6363";
                let arguments = [
                    "ndn",
                    "ping",
                    "--quiet",
                    "--count",
                    "1",
                    "--timeout",
                    "1000",
                ];
                let mut command = self.arena.command(&arguments);
                command.args(["--transport", transport, PREFIX]);
                self.arena.succeeds(true, command, ENTRY)
            }
        }
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn neighbour(arena: &Arena, plane: Plane) -> Result<UdpSocket, LabError> {
    let router: SocketAddr = arena.listener(plane, true)?;
    let open = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(router)?;
        socket.set_read_timeout(Some(GIVEN_UP))?;
        Ok(socket)
    };
    arena
        .honest()?
        .enter(open)?
        .map_err(LabError::system("open a socket"))
}

/// An Interest that the honest producer answers.
fn ping(number: u64) -> Vec<u8> {
    let name: Name = format!("{PREFIX}/ping/{number}")
        .parse()
        .unwrap_or_default();
    Interest {
        nonce: Some((number as u32).to_be_bytes()),
        ..Interest::new(name)
    }
    .encode()
}
