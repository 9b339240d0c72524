//! The NDN forwarding plane: tables, pipelines, strategies and NFD management.
#![forbid(unsafe_code)]
