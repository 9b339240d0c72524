//! Throughput of one loop to another on this machine, and the cost of a gigabyte: `cargo bench -p
//! whimbrel-io`.
//!
//! A sender keeps a window of frames in flight, a receiver acknowledges every 32nd frame. Each runs
//! on a thread of its own; the processor time is that of the thread, the kernel's part included (on
//! loopback the sender's thread also does most of the receiving kernel's work). The figures hold
//! for this machine and moment; compare only within a run.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::error::Error;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};
use whimbrel_io::{Clock, EventLoop, InboundLimits, LoopHandle, Snapshot, StreamLimits, UdpConfig};

const ACK_EVERY: u64 = 32;
/// Frames in flight count as lost after this long without an acknowledgement.
const GIVE_UP: Duration = Duration::from_millis(50);

struct Sender {
    port: PortId,
    frame: Vec<u8>,
    total: u64,
    sent: u64,
    acknowledged: u64,
    window: u64,
    blocked: bool,
    last_ack: Time,
    lost: u64,
    done: bool,
}

impl Machine for Sender {
    type Event = ();
    fn handle_port(&mut self, _: Time, _: PortId, event: PortEvent) {
        match event {
            PortEvent::Blocked => self.blocked = true,
            PortEvent::Writable => self.blocked = false,
            _ => {}
        }
    }
    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, _: PortId, frames: &[&[u8]]) {
        for frame in frames {
            if let Some(count) = frame.first_chunk() {
                self.acknowledged = self.acknowledged.max(u64::from_be_bytes(*count));
                self.last_ack = now;
            }
        }
    }
    fn handle_timeout(&mut self, now: Time) {
        if now >= self.last_ack + GIVE_UP && self.acknowledged < self.sent {
            self.lost += self.sent - self.acknowledged;
            self.sent = self.acknowledged;
            self.last_ack = now;
        }
    }
    fn poll_transmit(
        &mut self,
        _: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        // No call carries more than 64 KiB, so a larger transmit gains nothing.
        let max_segments = max_segments.min((65_536 / self.frame.len()).max(1));
        let free = (self.acknowledged + self.window).saturating_sub(self.sent);
        let count = free
            .min(max_segments as u64)
            .min(self.total.saturating_sub(self.sent));
        // A call for a few frames costs as much as one for many.
        let enough = count >= self.window.div_ceil(2).min(max_segments as u64)
            || self.sent + count == self.total;
        if self.blocked || count == 0 || !enough {
            return None;
        }
        let size = self.frame.len() * count as usize;
        (0..count).for_each(|_| buffer.extend_from_slice(&self.frame));
        self.sent += count;
        Some(Transmit {
            port: self.port,
            size,
            segment_size: (count > 1).then_some(self.frame.len()),
        })
    }
    fn poll_event(&mut self) -> Option<()> {
        (self.acknowledged >= self.total && !std::mem::replace(&mut self.done, true)).then_some(())
    }
    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        (self.acknowledged < self.sent)
            .then(|| Deadline::new(self.last_ack + GIVE_UP, "acknowledgement"))
    }
}

#[derive(Default)]
struct Receiver {
    port: Option<PortId>,
    frames: u64,
    acknowledge_every: u64,
    acknowledged: u64,
    total: u64,
}

impl Machine for Receiver {
    type Event = ();
    fn handle_port(&mut self, _: Time, _: PortId, _: PortEvent) {}
    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, _: Time, port: PortId, frames: &[&[u8]]) {
        for _ in frames {
            self.port = Some(port);
            self.frames += 1;
        }
    }
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let due = self.frames >= self.acknowledged + self.acknowledge_every
            || (self.frames >= self.total && self.acknowledged < self.frames);
        let port = self.port.filter(|_| due)?;
        self.acknowledged = self.frames;
        buffer.extend_from_slice(&self.frames.to_be_bytes());
        Some(Transmit {
            port,
            size: 8,
            segment_size: None,
        })
    }
    fn poll_event(&mut self) -> Option<()> {
        None
    }
    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

/// The resources that one thread used.
struct Cost {
    seconds: f64,
    snapshot: Snapshot,
}

fn run<M: Machine + 'static>(
    mut event_loop: EventLoop<M>,
    on_event: impl FnMut(&mut M, Time, M::Event),
) -> Result<Cost, whimbrel_io::IoError> {
    let before = clock_gettime(ClockId::ThreadCPUTime);
    event_loop.run(on_event)?;
    let after = clock_gettime(ClockId::ThreadCPUTime);
    let seconds =
        (after.tv_sec - before.tv_sec) as f64 + (after.tv_nsec - before.tv_nsec) as f64 / 1e9;
    Ok(Cost {
        seconds,
        snapshot: event_loop.snapshot(),
    })
}

fn measure(
    name: &str,
    bytes: u64,
    sender: EventLoop<Sender>,
    receiver: impl FnOnce(&mut EventLoop<Receiver>) + Send + 'static,
) -> Result<(), Box<dyn Error>> {
    let frame = sender.machine().frame.len() as u64;
    let every = if sender.machine().window < 64 {
        1
    } else {
        ACK_EVERY
    };
    let machine = Receiver {
        acknowledge_every: every,
        total: bytes / frame,
        ..Receiver::default()
    };
    let (handle_out, handle_in) = std::sync::mpsc::channel::<LoopHandle<Receiver>>();
    let receiving = thread::spawn(move || {
        let mut event_loop = EventLoop::new(Clock::start(), machine)?;
        receiver(&mut event_loop);
        // If the other end has hung up, the measurement has failed and reports it there.
        let _ = handle_out.send(event_loop.handle());
        run(event_loop, |_, _, ()| {})
    });
    let receiving_handle = handle_in.recv()?;
    let stop = sender.handle();
    let start = Instant::now();
    let lost = std::cell::Cell::new(0);
    let sent = run(sender, |machine, _, ()| {
        lost.set(machine.lost);
        stop.stop();
    })?;
    let elapsed = start.elapsed().as_secs_f64();
    receiving_handle.stop();
    let received = receiving.join().map_err(|_| "the receiver panicked")??;
    let gigabytes = bytes as f64 / 1e9;
    println!(
        "{name:<34} {:>7.2} Gbit/s  CPU s/GB: send {:.3} receive {:.3}  calls/GB: send {:>7.0} receive {:>7.0}  lost {}",
        gigabytes * 8.0 / elapsed,
        sent.seconds / gigabytes,
        received.seconds / gigabytes,
        sent.snapshot.system_calls() as f64 / gigabytes,
        received.snapshot.system_calls() as f64 / gigabytes,
        lost.get(),
    );
    Ok(())
}

fn sender(
    frame: usize,
    bytes: u64,
    window_bytes: usize,
) -> Result<EventLoop<Sender>, whimbrel_io::IoError> {
    EventLoop::new(
        Clock::start(),
        Sender {
            port: PortId(0),
            frame: vec![7; frame],
            total: bytes / frame as u64,
            sent: 0,
            acknowledged: 0,
            window: (window_bytes / frame).max(1) as u64,
            blocked: false,
            last_ack: Time::ZERO,
            lost: 0,
            done: false,
        },
    )
}

fn udp(name: &str, path_mtu: usize, offload: bool, bytes: u64) -> Result<(), Box<dyn Error>> {
    let loopback = "127.0.0.1:0".parse()?;
    let mut sending = sender(path_mtu - 28, bytes, 1 << 20)?;
    // A free port is found by binding it here and releasing it for the receiver's thread.
    let free = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let config = UdpConfig {
        path_mtu,
        segmentation_offload: offload,
        ..UdpConfig::new("blast", loopback)
    };
    sending
        .sockets()
        .add_udp(config.neighbour("receiver", free))?;
    measure(name, bytes, sending, move |receiving| {
        let config = UdpConfig {
            path_mtu,
            ..UdpConfig::new("blast", free)
        };
        if let Err(error) = receiving
            .sockets()
            .add_udp(config.listen(InboundLimits::default()))
        {
            eprintln!("{error}");
        }
    })
}

fn unix(name: &str, frame: usize, bytes: u64) -> Result<(), Box<dyn Error>> {
    let (here, there) = UnixStream::pair()?;
    let mut sending = sender(frame, bytes, 4 << 20)?;
    sending
        .sockets()
        .add_unix_stream("local", "receiver", here, StreamLimits::default())?;
    measure(name, bytes, sending, move |receiving| {
        if let Err(error) =
            receiving
                .sockets()
                .add_unix_stream("local", "sender", there, StreamLimits::default())
        {
            eprintln!("{error}");
        }
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo test --benches` needs a short trial only.
    let bytes = if std::env::args().any(|argument| argument == "--bench") {
        2_000_000_000
    } else {
        20_000_000
    };
    udp("UDP 1472 byte frames", 1500, true, bytes)?;
    udp("UDP 1472 byte frames, no offload", 1500, false, bytes)?;
    udp("UDP 8972 byte frames", 9000, true, bytes)?;
    unix("Unix stream, 1 MiB frames", 1 << 20, bytes)?;
    unix("Unix stream, 1400 byte frames", 1400, bytes)
}
