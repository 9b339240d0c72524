//! The rules that hold for this workspace as a whole. They are tests: see `tests/`.
#![forbid(unsafe_code)]
