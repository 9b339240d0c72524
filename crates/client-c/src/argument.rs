//! Pointers of C as references and texts.

use std::ffi::{CStr, c_char};
use std::path::PathBuf;

use whimbrel_client::Guid;

use crate::code::Fault;
use crate::code::whimbrel_code::*;

/// The name of a host, a router, a group or a content.
#[repr(C)]
#[allow(non_camel_case_types, reason = "a name of the C interface")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct whimbrel_name {
    /// Its bytes.
    pub bytes: [u8; 32],
}

impl From<Guid> for whimbrel_name {
    fn from(name: Guid) -> whimbrel_name {
        whimbrel_name { bytes: name.0 }
    }
}

impl whimbrel_name {
    pub(crate) fn guid(self) -> Guid {
        Guid(self.bytes)
    }
}

/// Returns a text; `None` for NULL.
///
/// # Safety
/// `text` is NULL or ends with a zero, and does not change before the result is dropped.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, Fault> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not NULL, and ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text
        .to_str()
        .map_err(|_| Fault::argument("a text is not UTF-8"))?;
    Ok(Some(text))
}

/// Returns a path; `None` for NULL. It need not be UTF-8.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn path(path: *const c_char) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    if path.is_null() {
        return None;
    }
    // SAFETY: it is not NULL, and ends with a zero.
    let path = unsafe { CStr::from_ptr(path) };
    Some(std::ffi::OsStr::from_bytes(path.to_bytes()).into())
}

/// Returns `length` values; NULL is valid for none.
///
/// # Safety
/// `data` is NULL or points at `length` values, which do not change before the result is dropped.
pub(crate) unsafe fn values<'a, T>(data: *const T, length: usize) -> Result<&'a [T], Fault> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Fault::argument("the data is NULL, and its length is not 0"));
    }
    if length > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Fault::argument(
            "the length is not that of anything in memory",
        ));
    }
    // SAFETY: it is not NULL, and points at as many values.
    Ok(unsafe { std::slice::from_raw_parts(data, length) })
}

/// Returns the value at a pointer.
///
/// # Safety
/// `value` is NULL or points at a value.
pub(crate) unsafe fn value<T: Copy>(value: *const T, what: &str) -> Result<T, Fault> {
    if value.is_null() {
        return Err(Fault::argument(&format!("{what} is NULL")));
    }
    // SAFETY: it is not NULL, and points at a value.
    Ok(unsafe { value.read() })
}

/// A place for a result.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Checks the pointer.
    pub(crate) fn new(place: *mut T, what: &str) -> Result<Out<T>, Fault> {
        match place.is_null() {
            true => Err(Fault::argument(&format!("{what} is NULL"))),
            false => Ok(Out(place)),
        }
    }

    /// Writes the result.
    ///
    /// # Safety
    /// The place has room for it.
    pub(crate) unsafe fn set(&self, value: T) {
        // SAFETY: it is not NULL, and has room.
        unsafe { self.0.write(value) }
    }
}

/// A buffer of the program.
pub(crate) struct OutBuffer {
    place: *mut u8,
    size: usize,
}

impl OutBuffer {
    /// Checks the pointer.
    pub(crate) fn new(place: *mut u8, size: usize) -> Result<OutBuffer, Fault> {
        match place.is_null() && size > 0 {
            true => Err(Fault::argument("the buffer is NULL, and its size is not 0")),
            false => Ok(OutBuffer { place, size }),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Copies as many bytes as there is room for. Returns their number.
    ///
    /// # Safety
    /// The buffer has its size.
    pub(crate) unsafe fn fill(&self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.size);
        if count > 0 {
            // SAFETY: the place is not NULL and has room; memory of a program and of this library do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.place, count) };
        }
        count
    }

    /// Copies all bytes, or fails if there is no room for them.
    ///
    /// # Safety
    /// The buffer has its size.
    pub(crate) unsafe fn fill_whole(&self, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.len() > self.size {
            let text = format!(
                "the buffer has {} bytes, and {} are needed",
                self.size,
                bytes.len()
            );
            return Err(Fault::new(WHIMBREL_SMALL, text));
        }
        // SAFETY: the buffer has its size.
        unsafe { self.fill(bytes) };
        Ok(())
    }
}
