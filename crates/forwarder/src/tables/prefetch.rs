//! Prefetching of cache lines.

use prefetch_index::prefetch_index;

/// Size of a cache line in octets.
const CACHE_LINE: usize = 64;

/// Prefetches an element's first cache line; no effect beyond the end.
#[inline]
pub(crate) fn element<T>(elements: &[T], index: usize) {
    prefetch_index(elements, index);
}

/// Prefetches all cache lines of `len` octets, the first of which is `first`.
#[inline]
pub(crate) fn from(first: &bool, len: usize) {
    for at in (0..len).step_by(CACHE_LINE) {
        // The address beyond the slice is only computed.
        prefetch_index(core::slice::from_ref(first), at);
    }
}

/// Prefetches all cache lines of a value.
#[inline]
pub(crate) fn octets(octets: &[u8]) {
    for at in (0..octets.len()).step_by(CACHE_LINE) {
        prefetch_index(octets, at);
    }
}
