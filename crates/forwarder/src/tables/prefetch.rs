//! Prefetching of cache lines.

use prefetch_index::prefetch_index;

/// Size of a cache line in octets.
const CACHE_LINE: usize = 64;

/// Prefetches an element's first cache line; no effect beyond the end.
#[inline]
pub(crate) fn element<T>(elements: &[T], index: usize) {
    prefetch_index(elements, index);
}

/// Prefetches the first cache line of a value.
#[inline]
pub(crate) fn value<T>(value: &T) {
    prefetch_index(core::slice::from_ref(value), 0);
}

/// Prefetches all cache lines of a value.
#[inline]
pub(crate) fn octets(octets: &[u8]) {
    for at in (0..octets.len()).step_by(CACHE_LINE) {
        prefetch_index(octets, at);
    }
}
