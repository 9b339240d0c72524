//! Sending on a UDP socket, with as many frames per system call as the kernel accepts.

use std::io;
use std::net::{IpAddr, SocketAddr};

use quinn_udp::EcnCodepoint;
use rustix::io::Errno;
use whimbrel_core::{Machine, PortId, Time};

use super::endpoint::UdpEndpoint;
use super::path_mtu::{LARGEST_PAYLOAD, Route, next_lower};
use super::socket::batching;
use crate::counters::{DropReason, PortCounters};
use crate::poller::Poller;
use crate::side::MachineSide;
use crate::transport::FramesToSend;

/// The outcome of sending some frames.
#[derive(Debug, Default)]
struct Outcome {
    /// The kernel refuses the source address, which is the one that the peer sent to.
    source_refused: bool,
    /// The kernel's buffer is full; the frames from this offset on are unsent.
    blocked_at: Option<usize>,
    /// The longest frame that was too long for the path.
    too_long: Option<usize>,
}

impl UdpEndpoint {
    /// Sends the frames of one transmit. Frames that the kernel cannot accept now are kept, and all
    /// ports are blocked.
    pub(crate) fn send<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        out: FramesToSend<'_>,
    ) {
        let id = out.transmit.port;
        let frame_count = out.frame_count();
        let (Some(way), Some(port)) = (self.way(now, id), side.get_mut(id)) else {
            return;
        };
        if self.unsent.port.is_some() {
            port.counters.drops.count(DropReason::Blocked, frame_count);
            return;
        }
        let outcome = self.send_frames(way, out.frames(), out.segment(), &mut port.counters);
        self.note_source(id, &outcome);
        if let Some(at) = outcome.blocked_at {
            let (start, segment) = (out.frames_start() + at, out.segment());
            std::mem::swap(out.buffer, &mut self.unsent.bytes);
            self.unsent.port = Some(id);
            self.unsent.start = start;
            self.unsent.segment = segment;
            poller.set_interest(&self.socket, self.token, true, true);
            self.report_blocked(side, now, true);
        }
        self.narrow(side, now, id, outcome.too_long);
    }

    /// Sends the kept frames. The ports become writable when all of them are sent.
    pub(crate) fn flush<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) {
        let Some(id) = self.unsent.port else { return };
        let mut outcome = Outcome::default();
        // The port may have been closed while its frames waited; they are discarded then.
        if let (Some(way), Some(port)) = (self.way(now, id), side.get_mut(id)) {
            let bytes = std::mem::take(&mut self.unsent.bytes);
            let unsent = bytes.get(self.unsent.start..).unwrap_or_default();
            outcome = self.send_frames(way, unsent, self.unsent.segment, &mut port.counters);
            self.unsent.bytes = bytes;
            self.note_source(id, &outcome);
        }
        match outcome.blocked_at {
            Some(at) => self.unsent.start += at,
            None => {
                self.unsent.port = None;
                poller.set_interest(&self.socket, self.token, true, false);
                self.report_blocked(side, now, false);
            }
        }
        self.narrow(side, now, id, outcome.too_long);
    }

    fn way(&mut self, now: Time, id: PortId) -> Option<Way> {
        let peer = self.peers.get_mut(&id)?;
        let source = peer.source.as_mut().and_then(|source| source.choose(now));
        Some(Way {
            destination: peer.destination,
            source,
            ecn: peer.sends_ecn.then_some(EcnCodepoint::Ect0),
        })
    }

    fn note_source(&mut self, id: PortId, outcome: &Outcome) {
        if outcome.source_refused
            && let Some(peer) = self.peers.get_mut(&id)
            && let Some(source) = &mut peer.source
        {
            tracing::info!(
                label = %self.config.label, peer = %peer.address,
                "the address that this peer called is gone or cannot be sent from; the routes choose"
            );
            source.refused();
        }
    }

    /// Returns true while frames wait for the kernel.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.port.is_some()
    }

    fn report_blocked<M: Machine>(&self, side: &mut MachineSide<M>, now: Time, blocked: bool) {
        for port in self.peers.keys() {
            side.set_blocked(now, *port, blocked);
        }
    }

    /// Lowers the MTU after a frame of `too_long` bytes was refused: to that of the route, or else
    /// to the next common size.
    fn narrow<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        id: PortId,
        too_long: Option<usize>,
    ) {
        let Some(too_long) = too_long else { return };
        let mtu = match self.payload_on(id, Route::payload_of_refusal) {
            Some(route) if route < too_long => route,
            _ => next_lower(too_long),
        };
        side.lower_mtu(now, id, mtu);
    }

    /// Returns the bytes per call: the limit of offload, within the capacity of one call.
    fn piece(&self, segment: usize) -> usize {
        let offload = if self.config.segmentation_offload {
            self.state.max_gso_segments()
        } else {
            1
        };
        offload.min(LARGEST_PAYLOAD / segment).max(1) * segment
    }

    fn send_frames(
        &mut self,
        mut way: Way,
        frames: &[u8],
        segment: usize,
        counters: &mut PortCounters,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let mut at = 0;
        let mut suspected = false;
        let mut tried_again = false;
        // An empty frame takes one turn, too.
        while at < frames.len() || (frames.is_empty() && at == 0) {
            let piece = frames.len().min(at + self.piece(segment));
            let contents = frames.get(at..piece).unwrap_or_default();
            let count = contents.len().div_ceil(segment).max(1);
            self.counters.send_calls += 1;
            let transmit = quinn_udp::Transmit {
                destination: way.destination,
                ecn: way.ecn,
                contents,
                segment_size: (count > 1).then_some(segment),
                src_ip: way.source,
            };
            match self.state.try_send((&self.socket).into(), &transmit) {
                Ok(()) => {
                    counters.sent_frames += count as u64;
                    counters.sent_bytes += contents.len() as u64;
                    self.counters.offload_failures += u64::from(std::mem::take(&mut suspected));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.counters.would_block += 1;
                    outcome.blocked_at = Some(at);
                    return outcome;
                }
                Err(error) if refuses_the_source(&error) && way.source.is_some() => {
                    // The address that the peer sent to may be unusable as a source (a subnet's
                    // broadcast address), or may have left this machine.
                    way.source = None;
                    outcome.source_refused = true;
                    self.restore_offload();
                    continue;
                }
                Err(error) if refuses_the_call(&error) && count > 1 => {
                    // `quinn-udp` has switched offload off by now, so the same frames are tried one
                    // by one.
                    suspected = true;
                    continue;
                }
                Err(_) if !std::mem::replace(&mut tried_again, true) => {
                    // An earlier datagram's error is returned instead of sending this one, so it is
                    // tried again.
                    continue;
                }
                Err(error) => {
                    if std::mem::take(&mut suspected) || refuses_the_call(&error) {
                        self.restore_offload();
                    }
                    let reason = DropReason::of(&error);
                    if reason == DropReason::PathTooNarrow {
                        outcome.too_long = outcome.too_long.max(Some(contents.len().min(segment)));
                    }
                    counters.drops.count(reason, count as u64);
                }
            }
            tried_again = false;
            at = piece.max(1);
        }
        outcome
    }

    /// `quinn-udp` switches offload off for good at the first EIO or EINVAL. If single frames fail
    /// as well, offload was not the cause (a device whose MTU shrank, an unreachable address).
    fn restore_offload(&mut self) {
        if let Ok(state) = batching(&self.socket) {
            self.state = state;
        }
    }
}

/// The destination and source address of frames.
#[derive(Clone, Copy, Debug)]
struct Way {
    destination: SocketAddr,
    source: Option<IpAddr>,
    ecn: Option<EcnCodepoint>,
}

/// Linux returns `ENETUNREACH` for a datagram from an address that is not its own; an interface
/// that is being removed may cause other errors.
fn refuses_the_source(error: &io::Error) -> bool {
    let gone = [
        Errno::NETUNREACH,
        Errno::HOSTUNREACH,
        Errno::ADDRNOTAVAIL,
        Errno::NODEV,
        Errno::NETDOWN,
    ];
    let error_number = error.raw_os_error().map(Errno::from_raw_os_error);
    refuses_the_call(error) || error_number.is_some_and(|error| gone.contains(&error))
}

fn refuses_the_call(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::IO | Errno::INVAL)
    )
}

#[cfg(test)]
mod tests {
    #![allow(unsafe_code, reason = "no crate at hand sets SO_NO_CHECK")]

    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use whimbrel_core::{OpenRefusal, PortRequest, PortToken};

    use super::*;
    use crate::transport::Transport;
    use crate::{Clock, EventLoop, UdpConfig};

    /// Sends thirty frames of 1000 bytes once.
    struct Thirty(bool);

    impl Machine for Thirty {
        type Event = ();
        fn handle_port(&mut self, _: Time, _: PortId, _: whimbrel_core::PortEvent) {}
        fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

        fn handle_frames(&mut self, _: Time, _: PortId, _: &[&[u8]]) {}
        fn handle_timeout(&mut self, _: Time) {}
        fn poll_transmit(
            &mut self,
            _: Time,
            _: usize,
            buffer: &mut Vec<u8>,
        ) -> Option<whimbrel_core::Transmit> {
            if std::mem::replace(&mut self.0, true) {
                return None;
            }
            (0..30u8).for_each(|number| buffer.extend_from_slice(&[number; 1000]));
            Some(whimbrel_core::Transmit {
                port: PortId(0),
                size: 30_000,
                segment_size: Some(1000),
            })
        }
        fn poll_event(&mut self) -> Option<()> {
            None
        }
        fn poll_port_request(&mut self) -> Option<PortRequest> {
            None
        }

        fn poll_timeout(&self) -> Option<whimbrel_core::Deadline> {
            None
        }
    }

    #[test]
    fn frames_are_sent_one_by_one_when_offload_fails_at_run_time() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut event_loop = EventLoop::new(Clock::start(), Thirty(false)).unwrap();
        let config = UdpConfig::new("wire", "127.0.0.1:0".parse().unwrap());
        event_loop
            .sockets()
            .add_udp(config.neighbour("receiver", receiver.local_addr().unwrap()))
            .unwrap();
        let Some((_, Transport::Udp(endpoint))) = event_loop.sockets.transports.iter().next()
        else {
            panic!("no UDP link")
        };
        let on: libc::c_int = 1;
        // SAFETY: the option takes an `int`, which outlives the call. Without checksums the kernel
        // refuses offload (EIO).
        let set = unsafe {
            libc::setsockopt(
                endpoint.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        event_loop.step(Duration::ZERO, |_, _, ()| {}).unwrap();
        let mut buffer = [0; 2000];
        for number in 0..30u8 {
            assert_eq!(receiver.recv(&mut buffer).unwrap(), 1000);
            assert!(buffer[..1000].iter().all(|byte| *byte == number));
        }
        let snapshot = event_loop.snapshot();
        assert_eq!(snapshot.transports[0].counters.offload_failures, 1);
        assert_eq!(snapshot.ports[0].counters.drops.total(), 0);
    }
}
