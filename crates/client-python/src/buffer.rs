//! Bytes of Python, without a copy where they cannot change.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

/// Buffers that are no longer needed. Giving one back needs the interpreter's lock, for which a driver must not wait.
static RELEASED: Mutex<Vec<PyBuffer<u8>>> = Mutex::new(Vec::new());

/// A buffer that nothing writes to.
struct HeldBuffer(Option<PyBuffer<u8>>);

impl AsRef<[u8]> for HeldBuffer {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: the buffer is read-only and contiguous, and its exporter keeps the memory until it is released.
            Some(buffer) if buffer.item_count() > 0 => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.item_count())
            },
            _ => &[],
        }
    }
}

impl Drop for HeldBuffer {
    fn drop(&mut self) {
        let mut released = RELEASED.lock().unwrap_or_else(PoisonError::into_inner);
        released.extend(self.0.take());
    }
}

/// Returns the bytes of an object with the buffer protocol. What can change is copied.
pub(crate) fn bytes_of(data: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    give_back();
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(Bytes::from_owner(PyBackedBytes::from(bytes.clone())));
    }
    let buffer = PyBuffer::<u8>::get(data)?;
    match buffer.readonly() && buffer.is_c_contiguous() {
        true => Ok(Bytes::from_owner(HeldBuffer(Some(buffer)))),
        false => buffer.to_vec(data.py()).map(Bytes::from),
    }
}

/// Gives back the buffers that are no longer needed.
fn give_back() {
    let released = core::mem::take(&mut *RELEASED.lock().unwrap_or_else(PoisonError::into_inner));
    drop(released);
}
