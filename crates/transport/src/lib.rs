//! NDN consumers and producers: segment fetching, congestion windows, serving, and the tools' protocols.
#![forbid(unsafe_code)]
