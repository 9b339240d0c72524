//! The source's side of the end-to-end window [MFTP §3.4.2].

use crate::wire::WindowAdvice;

/// What a source may send until its receiver's next advice.
///
/// An advice sets it, whatever was left: one that is lost is made up for by the next one, and one that comes
/// twice lets no more pass than a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendWindow {
    // In bytes; none for a receiver that has no window.
    left: Option<u64>,
}

impl SendWindow {
    /// Follows an advice about chunks of this size.
    pub(super) fn advise(&mut self, advice: Option<WindowAdvice>, chunk_log2: u8) {
        self.left = advice.map(|advice| u64::from(advice.chunks) << chunk_log2);
    }

    pub(super) fn is_open(&self) -> bool {
        self.left != Some(0)
    }

    /// Takes a chunk's bytes; the last one may exceed the window.
    pub(super) fn take(&mut self, bytes: u64) {
        self.left = self.left.map(|left| left.saturating_sub(bytes));
    }

    /// Gives bytes back that did not go to the receiver: they come back, or a proxy stores them, within a limit
    /// of its own.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.left = self.left.map(|left| left.saturating_add(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::WindowVerdict;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is advised, lost or repeated, no more passes after an advice than a window and the chunk
        /// that uses it up.
        #[test]
        fn no_more_passes_than_a_window(
            advices in prop::collection::vec((0u16..40, any::<bool>()), 1..40), log2 in 14u8..17,
        ) {
            let mut window = SendWindow::default();
            prop_assert!(window.is_open(), "a receiver without windows");
            for (chunks, is_lost) in advices {
                if is_lost {
                    continue;
                }
                window.advise(Some(WindowAdvice { verdict: WindowVerdict::Maintain, chunks }), log2);
                let mut sent = 0;
                while window.is_open() && sent < 1_000 {
                    window.take(1 << log2);
                    sent += 1;
                }
                prop_assert_eq!(sent, u64::from(chunks));
                window.give_back(1 << log2);
                prop_assert!(window.is_open());
                window.take(1 << log2);
            }
        }
    }
}
