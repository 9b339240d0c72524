//! The window of end-to-end flow control [MFTP §3.4.2].

use super::{Reader, WireError};

/// What a receiver advises: "to maintain, increase, or reduce the sending window to certain value".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowVerdict {
    /// As before, or the first one.
    Maintain,
    /// The receiver's program keeps up with what comes.
    Increase,
    /// The receiver's program does not keep up.
    Reduce,
}

codes!(WindowVerdict, "verdict about a window", {
    Maintain = 1,
    Increase = 2,
    Reduce = 3,
});

/// The window that a receiver advises in a request or NACK: from then on, until the next advice, the source may
/// send that number of chunks of the request's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowAdvice {
    /// Why it is what it is.
    pub verdict: WindowVerdict,
    /// The window in chunks.
    pub chunks: u16,
}

impl WindowAdvice {
    /// Returns the same bytes in chunks of a smaller size, by the difference of their logarithms.
    pub(crate) fn divided(self, log2: u8) -> WindowAdvice {
        let chunks = u32::from(self.chunks).checked_shl(log2.into());
        let chunks = chunks.unwrap_or(u32::MAX).min(u16::MAX.into()) as u16;
        WindowAdvice { chunks, ..self }
    }

    /// Appends three octets: the verdict, 0 without an advice, and the chunks.
    pub(super) fn encode(advice: Option<WindowAdvice>, out: &mut Vec<u8>) {
        let (verdict, chunks) = advice.map_or((0, 0), |it| (it.verdict.code(), it.chunks));
        out.push(verdict);
        out.extend_from_slice(&chunks.to_be_bytes());
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<WindowAdvice>, WireError> {
        let (verdict, chunks) = (reader.u8()?, reader.u16()?);
        if verdict == 0 {
            return Ok(None);
        }
        let verdict = WindowVerdict::from_code(verdict)?;
        Ok(Some(WindowAdvice { verdict, chunks }))
    }
}
