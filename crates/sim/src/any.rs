//! Machines of different types in one simulation.

use core::any::Any;

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};

/// Any machine, with its events converted to `E`. Each call is one indirect call; for many frames
/// and few kinds of nodes, an enum is faster.
pub struct AnyMachine<E> {
    inner: Box<dyn Erased<E>>,
}

impl<E: 'static> AnyMachine<E> {
    /// Wraps `machine` and converts each of its events with `into_event`.
    pub fn new<M: Machine + 'static>(
        machine: M,
        into_event: impl FnMut(M::Event) -> E + 'static,
    ) -> AnyMachine<E> {
        AnyMachine {
            inner: Box::new(Mapped {
                machine,
                into_event,
            }),
        }
    }

    /// Wraps a `machine` whose events need no conversion.
    pub fn plain<M: Machine<Event = E> + 'static>(machine: M) -> AnyMachine<E> {
        AnyMachine::new(machine, |event| event)
    }

    /// Returns the wrapped machine if it is an `M`.
    pub fn get<M: Machine + 'static>(&self) -> Option<&M> {
        self.inner.machine().downcast_ref()
    }

    /// Returns the wrapped machine if it is an `M`.
    pub fn get_mut<M: Machine + 'static>(&mut self) -> Option<&mut M> {
        self.inner.machine_mut().downcast_mut()
    }
}

struct Mapped<M, F> {
    machine: M,
    into_event: F,
}

/// [`Machine`] without its associated type, which can be cast back to the concrete type.
trait Erased<E>: Machine<Event = E> {
    fn machine(&self) -> &dyn Any;
    fn machine_mut(&mut self) -> &mut dyn Any;
}

impl<E, M: Machine + 'static, F: FnMut(M::Event) -> E + 'static> Erased<E> for Mapped<M, F> {
    fn machine(&self) -> &dyn Any {
        &self.machine
    }

    fn machine_mut(&mut self) -> &mut dyn Any {
        &mut self.machine
    }
}

impl<E, M: Machine, F: FnMut(M::Event) -> E> Machine for Mapped<M, F> {
    type Event = E;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        self.machine.handle_port(now, port, event);
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        self.machine.handle_refusal(now, token, refusal);
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        self.machine.handle_frames(now, port, frames);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.machine.handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.machine.poll_transmit(now, max_segments, buffer)
    }

    fn poll_event(&mut self) -> Option<E> {
        self.machine.poll_event().map(&mut self.into_event)
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.machine.poll_port_request()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.machine.poll_timeout()
    }
}

impl<E> Machine for AnyMachine<E> {
    type Event = E;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        self.inner.handle_port(now, port, event);
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        self.inner.handle_refusal(now, token, refusal);
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        self.inner.handle_frames(now, port, frames);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.inner.handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.inner.poll_transmit(now, max_segments, buffer)
    }

    fn poll_event(&mut self) -> Option<E> {
        self.inner.poll_event()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.inner.poll_port_request()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.inner.poll_timeout()
    }
}
