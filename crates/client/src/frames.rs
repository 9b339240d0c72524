//! The frames of `docs/protocols/local.md`, without a socket: bytes in, events out, and requests in, bytes out.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest, check_greeting, greeting};

use crate::error::LocalError;

/// The largest frame that a daemon sends or accepts, in bytes: the largest chunk with room for its
/// headers.
const MAX_FRAME: usize = (4 << 20) + (64 << 10);
/// The bytes of a frame's length.
const PREFIX: usize = 4;

/// The daemon's frames, on their way in.
#[derive(Debug, Default)]
pub struct EventFrames {
    prefix: [u8; PREFIX],
    prefix_filled: usize,
    body: BytesMut,
    body_filled: usize,
    // True once the daemon has said that it speaks this protocol.
    greeted: bool,
}

impl EventFrames {
    /// Returns the memory for the stream's next bytes. Never empty after [`EventFrames::next_event`]
    /// has returned `None`.
    pub fn room(&mut self) -> &mut [u8] {
        if self.prefix_filled < PREFIX {
            &mut self.prefix[self.prefix_filled..]
        } else {
            &mut self.body[self.body_filled..]
        }
    }

    /// Notes that the first `count` bytes of the room have arrived.
    pub fn note_filled(&mut self, count: usize) {
        if self.prefix_filled < PREFIX {
            self.prefix_filled += count;
        } else {
            self.body_filled += count;
        }
    }

    /// Returns the next event, once it is whole. Fails if the daemon speaks another version, or if the bytes
    /// are none of this protocol's.
    pub fn next_event(&mut self) -> Result<Option<LocalEvent>, LocalError> {
        let Some(frame) = self.next_frame()? else {
            return Ok(None);
        };
        if !self.greeted {
            check_greeting(&frame).map_err(LocalError::Version)?;
            self.greeted = true;
            return Ok(None);
        }
        LocalEvent::decode(&frame)
            .map(Some)
            .map_err(|fault| LocalError::Protocol(fault.to_string()))
    }

    fn next_frame(&mut self) -> Result<Option<Bytes>, LocalError> {
        if self.prefix_filled < PREFIX {
            return Ok(None);
        }
        let length = u32::from_be_bytes(self.prefix) as usize;
        if length > MAX_FRAME || length == 0 {
            return Err(LocalError::Protocol(format!("a frame of {length} bytes")));
        }
        if self.body.len() != length {
            self.body = BytesMut::zeroed(length);
            self.body_filled = 0;
        }
        if self.body_filled < length {
            return Ok(None);
        }
        self.prefix_filled = 0;
        Ok(Some(core::mem::take(&mut self.body).freeze()))
    }
}

/// A program's frames, on their way out.
#[derive(Debug)]
pub struct RequestFrames {
    waiting: VecDeque<RequestFrame>,
    // Bytes of the first frame that the stream has taken.
    written: usize,
    bytes: usize,
}

#[derive(Debug)]
struct RequestFrame {
    head: Vec<u8>,
    tail: Bytes,
}

impl RequestFrame {
    fn new(content: impl FnOnce(&mut Vec<u8>) -> Bytes) -> RequestFrame {
        let mut head = vec![0; PREFIX];
        let tail = content(&mut head);
        let length = (head.len() - PREFIX + tail.len()) as u32;
        head[..PREFIX].copy_from_slice(&length.to_be_bytes());
        RequestFrame { head, tail }
    }

    fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }
}

impl Default for RequestFrames {
    /// Returns the frames of a new connection: its first one is the greeting.
    fn default() -> RequestFrames {
        let mut frames = RequestFrames {
            waiting: VecDeque::new(),
            written: 0,
            bytes: 0,
        };
        frames.push_frame(RequestFrame::new(|head| {
            head.extend_from_slice(&greeting());
            Bytes::new()
        }));
        frames
    }
}

impl RequestFrames {
    /// Adds a request. A chunk's bytes are not copied.
    pub fn push(&mut self, request: &LocalRequest) {
        self.push_frame(RequestFrame::new(|head| request.encode_head(head)));
    }

    fn push_frame(&mut self, frame: RequestFrame) {
        self.bytes += frame.len();
        self.waiting.push_back(frame);
    }

    /// Returns the next bytes for the stream, in two parts; `None` if all are written.
    pub fn next_bytes(&self) -> Option<[&[u8]; 2]> {
        let frame = self.waiting.front()?;
        let of_head = self.written.min(frame.head.len());
        let of_tail = self.written - of_head;
        Some([&frame.head[of_head..], &frame.tail[of_tail..]])
    }

    /// Notes that the stream has taken `count` of those bytes.
    pub fn note_written(&mut self, count: usize) {
        self.written += count;
        if let Some(frame) = self.waiting.front()
            && self.written >= frame.len()
        {
            self.bytes -= frame.len();
            self.written = 0;
            self.waiting.pop_front();
        }
    }

    /// Returns the bytes of all frames that are not written yet.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes
    }
}
