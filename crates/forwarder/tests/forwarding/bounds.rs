//! (bounds)
