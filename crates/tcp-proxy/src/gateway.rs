//! A proxy with its network device: one machine.

use std::collections::VecDeque;

use whimbrel_core::{
    Deadline, Endpoint, Machine, OpenRefusal, PortEvent, PortId, PortOrigin, PortRequest,
    PortToken, Time, Transmit,
};
use whimbrel_transport::AppFace;

use crate::connection::Packet;
use crate::proxy::Proxy;

/// The request for the device. The face's machine must use others.
pub const DEVICE: PortToken = PortToken(1 << 32);

/// A machine with NDN faces whose application is a proxy.
pub trait HoldsProxy: Machine {
    /// Returns the proxy.
    fn proxy(&self) -> &Proxy;

    /// The proxy, mutable; the machine is drained afterwards.
    fn proxy_mut(&mut self) -> &mut Proxy;
}

impl HoldsProxy for AppFace<Proxy> {
    fn proxy(&self) -> &Proxy {
        self.application()
    }

    fn proxy_mut(&mut self) -> &mut Proxy {
        self.application_mut()
    }
}

/// An event of a gateway.
#[derive(Debug)]
pub enum GatewayEvent<E> {
    /// Of the faces or the proxy.
    Face(E),
    /// The device is there.
    DeviceUp,
    /// The device is gone: it was deleted.
    DeviceDown,
    /// The device cannot be created.
    DeviceRefused(OpenRefusal),
}

/// A proxy between a network device, whose packets are the frames of one port, and its NDN faces.
pub struct Gateway<F: HoldsProxy> {
    face: F,
    device: Option<PortId>,
    blocked: bool,
    request: Option<PortRequest>,
    /// The packet that did not fit in the last transmit.
    held: Option<Packet>,
    events: VecDeque<GatewayEvent<F::Event>>,
}

impl<F: HoldsProxy> Gateway<F> {
    /// Returns a gateway that requests `device`.
    pub fn new(device: Endpoint, face: F) -> Gateway<F> {
        Gateway {
            face,
            device: None,
            blocked: false,
            request: Some(PortRequest::Open {
                token: DEVICE,
                label: device.to_string(),
                endpoint: device,
            }),
            held: None,
            events: VecDeque::new(),
        }
    }

    /// Returns the machine with the faces.
    pub const fn face(&self) -> &F {
        &self.face
    }

    /// The machine with the faces, mutable; drain the gateway afterwards.
    pub const fn face_mut(&mut self) -> &mut F {
        &mut self.face
    }

    /// Returns the proxy.
    pub fn proxy(&self) -> &Proxy {
        self.face.proxy()
    }

    fn next(&mut self) -> Option<Packet> {
        let held = self.held.take();
        held.or_else(|| self.face.proxy_mut().poll_segment())
    }

    /// Writes packets of one size, the last one possibly shorter.
    fn write(&mut self, port: PortId, most: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let first = self.next()?;
        let size = first.len();
        let start = buffer.len();
        buffer.extend_from_slice(&first);
        for _ in 1..most {
            let Some(packet) = self.next() else {
                break;
            };
            if packet.len() > size {
                self.held = Some(packet);
                break;
            }
            buffer.extend_from_slice(&packet);
            if packet.len() < size {
                break;
            }
        }
        let written = buffer.len() - start;
        Some(Transmit {
            port,
            size: written,
            segment_size: (written > size).then_some(size),
        })
    }
}

impl<F: HoldsProxy> Machine for Gateway<F> {
    type Event = GatewayEvent<F::Event>;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        match &event {
            PortEvent::Up(info) if info.origin == PortOrigin::Opened(DEVICE) => {
                self.device = Some(port);
                self.blocked = false;
                self.events.push_back(GatewayEvent::DeviceUp);
            }
            PortEvent::Down if self.device == Some(port) => {
                self.device = None;
                self.events.push_back(GatewayEvent::DeviceDown);
            }
            PortEvent::Blocked if self.device == Some(port) => self.blocked = true,
            PortEvent::Writable if self.device == Some(port) => self.blocked = false,
            _ if self.device == Some(port) => {}
            _ => self.face.handle_port(now, port, event),
        }
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        if token == DEVICE {
            self.events.push_back(GatewayEvent::DeviceRefused(refusal));
        } else {
            self.face.handle_refusal(now, token, refusal);
        }
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        if self.device == Some(port) {
            let proxy = self.face.proxy_mut();
            frames
                .iter()
                .for_each(|packet| proxy.handle_segment(now, packet));
        } else {
            self.face.handle_frames(now, port, frames);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.face.handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some(port) = self.device.filter(|_| !self.blocked)
            && let Some(transmit) = self.write(port, max_segments, buffer)
        {
            return Some(transmit);
        }
        self.face.poll_transmit(now, max_segments, buffer)
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        let own = self.events.pop_front();
        own.or_else(|| self.face.poll_event().map(GatewayEvent::Face))
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        let own = self.request.take();
        own.or_else(|| self.face.poll_port_request())
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.face.poll_timeout()
    }
}
