//! Keys, certificates and safe bags of an NDN user, on disk.
#![forbid(unsafe_code)]
