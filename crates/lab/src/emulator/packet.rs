//! Packet buffers, which are used repeatedly.

use std::cell::RefCell;
use std::rc::Rc;

use whimbrel_sim::link::{Markable, mark_ip};

/// Bound of the bytes of the unused buffers together.
const MAX_IDLE_BYTES: usize = 64 << 20;

/// Unused buffers of one size.
#[derive(Clone, Debug)]
pub(super) struct PacketPool {
    idle: Rc<RefCell<Vec<Box<[u8]>>>>,
    size: usize,
}

/// One packet. Its buffer returns to its pool when it is dropped, wherever in the link model that
/// happens.
#[derive(Debug)]
pub(super) struct Packet {
    buffer: Box<[u8]>,
    length: usize,
    pool: PacketPool,
}

impl PacketPool {
    /// Returns a pool of buffers of `size` bytes.
    pub(super) fn new(size: usize) -> PacketPool {
        PacketPool {
            idle: Rc::default(),
            size,
        }
    }

    /// Returns a packet with a length of zero; the contents of its buffer are arbitrary.
    pub(super) fn take(&self) -> Packet {
        let idle = self.idle.borrow_mut().pop();
        let buffer = idle.unwrap_or_else(|| vec![0; self.size].into());
        Packet {
            buffer,
            length: 0,
            pool: self.clone(),
        }
    }
}

impl Packet {
    /// Returns the whole buffer, to read a packet into.
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Sets the length of the packet in the buffer.
    pub(super) fn set_length(&mut self, length: usize) {
        self.length = length.min(self.buffer.len());
    }
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl AsMut<[u8]> for Packet {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.length]
    }
}

impl Markable for Packet {
    fn mark(&mut self) -> bool {
        mark_ip(self.as_mut())
    }
}

impl Clone for Packet {
    fn clone(&self) -> Packet {
        let mut copy = self.pool.take();
        copy.set_length(self.length);
        copy.as_mut().copy_from_slice(self.as_ref());
        copy
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        let mut idle = self.pool.idle.borrow_mut();
        if idle.len() < MAX_IDLE_BYTES / self.pool.size.max(1) {
            idle.push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_packet_lends_its_buffer_to_the_next_and_a_copy_has_its_own() {
        let pool = PacketPool::new(8);
        let mut packet = pool.take();
        packet.buffer()[..3].copy_from_slice(b"abc");
        packet.set_length(3);
        let mut copy = packet.clone();
        copy.as_mut()[0] = b'x';
        assert_eq!((packet.as_ref(), copy.as_ref()), (&b"abc"[..], &b"xbc"[..]));
        let at = packet.as_ref().as_ptr();
        drop(packet);
        assert_eq!(pool.take().buffer().as_ptr(), at);
    }
}
