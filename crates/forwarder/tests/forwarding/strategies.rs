//! (strategies)
