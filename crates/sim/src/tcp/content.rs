//! What ends send each other: a pattern that shows bytes that are lost, moved or changed.

use smoltcp::socket::tcp;

/// Returns the byte at `position`: the pattern's length is prime, so that shifted data is detected.
fn byte(position: u64) -> u8 {
    (position % 251) as u8
}

/// Returns the bytes of the pattern from `position` on.
fn pattern(position: u64) -> impl Iterator<Item = u8> {
    let begin = byte(position);
    (begin..=250).chain((0..=250).cycle())
}

/// Bytes on their way out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outgoing {
    length: u64,
    sent: u64,
}

impl Outgoing {
    pub(super) fn new(length: u64) -> Outgoing {
        Outgoing { length, sent: 0 }
    }

    /// True if all of it was passed to TCP.
    pub(super) fn is_over(&self) -> bool {
        self.sent == self.length
    }

    /// Passes as much to TCP as fits. Returns how much.
    pub(super) fn pour(&mut self, socket: &mut tcp::Socket<'_>) -> u64 {
        let before = self.sent;
        while !self.is_over() && socket.can_send() {
            let position = self.sent;
            let left = usize::try_from(self.length - position).unwrap_or(usize::MAX);
            let wrote = socket.send(|buffer| {
                let count = buffer.len().min(left);
                for (place, value) in buffer[..count].iter_mut().zip(pattern(position)) {
                    *place = value;
                }
                (count, count)
            });
            match wrote {
                Ok(count) if count > 0 => self.sent += count as u64,
                _ => break,
            }
        }
        self.sent - before
    }
}

/// Takes what has arrived, of which the first byte is at `position`. Returns its number of bytes, and how
/// many of them differ from the pattern's.
pub(super) fn drain(socket: &mut tcp::Socket<'_>, position: u64) -> (u64, u64) {
    let (mut count, mut wrong) = (0, 0);
    while socket.can_recv() {
        let taken = socket.recv(|bytes| {
            let expected = pattern(position + count);
            let odd = bytes.iter().zip(expected).filter(|(got, it)| *got != it);
            (bytes.len(), (bytes.len() as u64, odd.count() as u64))
        });
        let Ok((more, odd)) = taken else { break };
        (count, wrong) = (count + more, wrong + odd);
    }
    (count, wrong)
}
