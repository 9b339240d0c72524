//! Interest and Data between two programs through one thread, over Unix sockets: `cargo bench -p
//! whimbrel-io --bench exchange`.
//!
//! A consumer keeps a window of 40 byte packets in flight, a producer answers each with one of
//! about 1000 bytes; both are plain threads that read and write in large pieces. Between them is,
//! by turns, a bare relay (a thread that reads from one and writes to the other, without looking at
//! the bytes) and one event loop with a machine that hands each packet on, parsed by the loop's
//! framing. `per core second` divides by the processor time of the thread between, the kernel's
//! part included, so that it says the same on a busy machine. Compare only within a run.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::error::Error;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};
use whimbrel_io::{Clock, EventLoop, StreamLimits};

const INTEREST: usize = 40;
const DATA: usize = 1000;
/// Packets in flight in a bulk measurement.
const WINDOW: usize = 256;
/// Replies of the producer per write.
const BATCH: usize = 256;

/// A TLV block of `size` bytes (at least 256 if above 254).
fn block(kind: u8, size: usize) -> Vec<u8> {
    let mut bytes = match u8::try_from(size - 2) {
        Ok(length) if length < 253 => vec![kind, length],
        _ => [&[kind, 253][..], &((size - 4) as u16).to_be_bytes()].concat(),
    };
    bytes.resize(size, 7);
    bytes
}

/// Forwards packets from each of two ports to the other.
#[derive(Default)]
struct Relay {
    queued: [Vec<u8>; 2],
    blocked: [bool; 2],
    /// True if each packet is a separate transmit, as with a machine that does not know about
    /// streams.
    one_by_one: bool,
    /// True if it has a deadline that never passes, so that each wait has a limit.
    has_deadline: bool,
    /// One of the two has disconnected.
    over: bool,
}

impl Machine for Relay {
    type Event = ();
    fn handle_port(&mut self, _: Time, port: PortId, event: PortEvent) {
        match event {
            PortEvent::Blocked => self.blocked[port.0 as usize] = true,
            PortEvent::Writable => self.blocked[port.0 as usize] = false,
            PortEvent::Down => self.over = true,
            _ => {}
        }
    }
    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, _: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            self.queued[1 - port.0 as usize].extend_from_slice(frame);
        }
    }
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let port = (0..2).find(|port| !self.queued[*port].is_empty() && !self.blocked[*port])?;
        let queued = &mut self.queued[port];
        let size = if self.one_by_one {
            let size = if queued[0] == 5 { INTEREST } else { DATA };
            let at = queued.len() - size;
            buffer.extend_from_slice(&queued[at..]);
            queued.truncate(at);
            size
        } else {
            buffer.append(queued);
            buffer.len()
        };
        Some(Transmit {
            port: PortId(port as u32),
            size,
            segment_size: None,
        })
    }
    fn poll_event(&mut self) -> Option<()> {
        std::mem::take(&mut self.over).then_some(())
    }
    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.has_deadline
            .then(|| Deadline::new(Time::from_secs(1_000_000), "never"))
    }
}

/// Requests `total` packets.
fn consume(mut stream: UnixStream, total: usize, window: usize) -> std::io::Result<()> {
    let interests = block(5, INTEREST).repeat(window);
    let mut buffer = vec![0; 256 << 10];
    let (mut asked, mut got) = (0, 0);
    while got / DATA < total {
        let free = (window - (asked - got / DATA)).min(total - asked);
        stream.write_all(&interests[..free * INTEREST])?;
        asked += free;
        got += stream.read(&mut buffer)?;
    }
    Ok(())
}

/// Replies until the other end hangs up.
fn produce(mut stream: UnixStream) -> std::io::Result<()> {
    let data = block(6, DATA).repeat(BATCH);
    let mut buffer = vec![0; 256 << 10];
    let (mut asked, mut answered) = (0, 0);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => asked += count,
        }
        while answered < asked / INTEREST {
            let count = (asked / INTEREST - answered).min(BATCH);
            stream.write_all(&data[..count * DATA])?;
            answered += count;
        }
    }
}

/// Copies both ways until one end hangs up.
fn relay(a: UnixStream, b: UnixStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let mut ready = [
            PollFd::new(&a, PollFlags::IN),
            PollFd::new(&b, PollFlags::IN),
        ];
        poll(&mut ready, None)?;
        let [from_a, from_b] = ready.map(|one| !one.revents().is_empty());
        for (wanted, mut from, mut to) in [(from_a, &a, &b), (from_b, &b, &a)] {
            if wanted {
                match from.read(&mut buffer)? {
                    0 => return Ok(()),
                    count => to.write_all(&buffer[..count])?,
                }
            }
        }
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn measure(
    name: &str,
    total: usize,
    window: usize,
    between: impl FnOnce(UnixStream, UnixStream) -> Result<String, Box<dyn Error + Send + Sync>>
    + Send
    + 'static,
) -> Result<(), Box<dyn Error>> {
    let (consumer, left) = UnixStream::pair()?;
    let (right, producer) = UnixStream::pair()?;
    for end in [&consumer, &left, &right, &producer] {
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(end.as_fd(), 1 << 20);
    }
    let middle = thread::spawn(move || {
        let before = cpu_seconds();
        between(left, right).map(|note| (cpu_seconds() - before, note))
    });
    let producing = thread::spawn(move || produce(producer));
    let start = Instant::now();
    consume(consumer, total, window)?;
    let elapsed = start.elapsed().as_secs_f64();
    let (seconds, note) = middle
        .join()
        .map_err(|_| "the thread between panicked")?
        .map_err(|e| e.to_string())?;
    producing.join().map_err(|_| "the producer panicked")??;
    println!(
        "{name:<36} {:>9.0} exchanges/s  {:>9.0} per core second  {note}",
        total as f64 / elapsed,
        total as f64 / seconds
    );
    Ok(())
}

fn through_the_loop(
    name: &str,
    total: usize,
    window: usize,
    machine: Relay,
    idle_connections: usize,
) -> Result<(), Box<dyn Error>> {
    measure(name, total, window, move |left, right| {
        let mut event_loop = EventLoop::new(Clock::start(), machine)?;
        event_loop
            .sockets()
            .add_unix_stream("a", "consumer", left, StreamLimits::tlv(8800))?;
        event_loop
            .sockets()
            .add_unix_stream("b", "producer", right, StreamLimits::tlv(8800))?;
        let mut idle = Vec::new();
        for _ in 0..idle_connections {
            let (here, there) = UnixStream::pair()?;
            event_loop.sockets().add_unix_stream(
                "idle",
                "nobody",
                here,
                StreamLimits::tlv(8800),
            )?;
            idle.push(there);
        }
        let stop = event_loop.handle();
        event_loop.run(|_, _, ()| stop.stop())?;
        let snapshot = event_loop.snapshot();
        let calls = snapshot.system_calls() as f64 / total as f64;
        Ok(format!(
            "{calls:.3} calls and {:.4} rounds each",
            snapshot.event_loop.rounds as f64 / total as f64
        ))
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo test --benches` needs a short trial only.
    let total = if std::env::args().any(|argument| argument == "--bench") {
        3_000_000
    } else {
        20_000
    };
    let bare = |left, right| {
        relay(left, right)?;
        Ok(String::new())
    };
    measure("bare relay", total, WINDOW, bare)?;
    through_the_loop("event loop", total, WINDOW, Relay::default(), 0)?;
    through_the_loop(
        "event loop, one packet per transmit",
        total,
        WINDOW,
        Relay {
            one_by_one: true,
            ..Relay::default()
        },
        0,
    )?;
    through_the_loop(
        "event loop, 400 idle connections",
        total,
        WINDOW,
        Relay::default(),
        400,
    )?;
    measure("bare relay, one in flight", total / 20, 1, bare)?;
    through_the_loop(
        "event loop, one in flight",
        total / 20,
        1,
        Relay::default(),
        0,
    )?;
    let with_deadline = Relay {
        has_deadline: true,
        ..Relay::default()
    };
    through_the_loop(
        "event loop, one in flight, deadline",
        total / 20,
        1,
        with_deadline,
        0,
    )
}
