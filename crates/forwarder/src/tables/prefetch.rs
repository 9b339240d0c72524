//! Loads that nobody waits for.

use prefetch_index::prefetch_index;

/// What processors load at once, octets.
const CACHE_LINE: usize = 64;

/// Begins to load an element's first cache line; of no effect beyond the end.
#[inline]
pub(crate) fn element<T>(elements: &[T], index: usize) {
    prefetch_index(elements, index);
}

/// Begins to load the first cache line of a value. Where it lies must be at hand.
#[inline]
pub(crate) fn value<T>(value: &T) {
    prefetch_index(core::slice::from_ref(value), 0);
}

/// Begins to load all of them.
#[inline]
pub(crate) fn octets(octets: &[u8]) {
    for at in (0..octets.len()).step_by(CACHE_LINE) {
        prefetch_index(octets, at);
    }
}
