//! The router.
pub mod store;
