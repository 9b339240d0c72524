//! The rules for this workspace as a whole. They are tests: see `tests/`. Lists that several tests
//! use are here.
#![forbid(unsafe_code)]

pub mod source;

/// One crate of the workspace and its permitted dependencies.
pub struct Layer {
    /// The crate, without `whimbrel-`.
    pub name: &'static str,
    /// Crates of the workspace that its code may use.
    pub may_use: &'static [&'static str],
    /// Additional crates that its tests and benches may use. Protocols are tested in the simulator.
    pub tests_may_use: &'static [&'static str],
}

const fn layer(
    name: &'static str,
    may_use: &'static [&'static str],
    tests_may_use: &'static [&'static str],
) -> Layer {
    Layer {
        name,
        may_use,
        tests_may_use,
    }
}

const EVERYTHING: &[&str] = &[
    "core",
    "content",
    "ndn-packet",
    "ndn-mgmt",
    "link",
    "forwarder",
    "ndn-router",
    "transport",
    "tcp-proxy",
    "keychain",
    "gnrs",
    "gnrs-cluster",
    "chunk-store",
    "routing",
    "spoken",
    "stream",
    "http-proxy",
    "sim",
    "io",
    "mobilityfirst",
    "client",
    "client-c",
    "client-python",
    "node",
    "lab",
    "bench",
];

/// The table of ARCHITECTURE.md. A row uses only rows above it.
pub const LAYERS: &[Layer] = &[
    layer("core", &[], &[]),
    layer("content", &["core"], &[]),
    layer("ndn-packet", &["core"], &[]),
    layer("ndn-mgmt", &["core", "ndn-packet"], &[]),
    layer("sim", &["core"], &[]),
    layer("io", &["core"], &[]),
    layer("link", &["core", "ndn-packet"], &["sim"]),
    layer("forwarder", &["core", "ndn-packet", "ndn-mgmt"], &["sim"]),
    layer(
        "ndn-router",
        &["core", "ndn-packet", "ndn-mgmt", "link", "forwarder"],
        &["sim"],
    ),
    layer(
        "transport",
        &["core", "ndn-packet", "ndn-mgmt"],
        &["sim", "link", "forwarder", "ndn-router"],
    ),
    layer(
        "tcp-proxy",
        &["core", "ndn-packet", "transport"],
        &["sim", "link", "forwarder", "ndn-router"],
    ),
    layer("keychain", &["core", "ndn-packet"], &[]),
    layer("gnrs", &["core"], &["sim"]),
    layer("gnrs-cluster", &["core", "gnrs"], &[]),
    layer("chunk-store", &["core"], &[]),
    layer("routing", &["core"], &[]),
    layer("spoken", &["core"], &[]),
    layer("stream", &["core"], &[]),
    layer(
        "mobilityfirst",
        &["core", "link", "gnrs", "content", "routing"],
        &["sim"],
    ),
    layer(
        "client",
        &["core", "content", "keychain", "gnrs", "mobilityfirst"],
        &[],
    ),
    layer("client-c", &["client"], &[]),
    layer("client-python", &["client"], &[]),
    layer(
        "http-proxy",
        &["core", "content", "client", "stream", "mobilityfirst"],
        &[],
    ),
    layer(
        "node",
        &[
            "core",
            "ndn-packet",
            "ndn-mgmt",
            "link",
            "forwarder",
            "ndn-router",
            "transport",
            "tcp-proxy",
            "keychain",
            "gnrs",
            "gnrs-cluster",
            "chunk-store",
            "content",
            "mobilityfirst",
            "client",
            "io",
        ],
        &["sim"],
    ),
    layer(
        "lab",
        &[
            "core",
            "ndn-packet",
            "ndn-mgmt",
            "content",
            "link",
            "forwarder",
            "ndn-router",
            "transport",
            "tcp-proxy",
            "keychain",
            "gnrs",
            "routing",
            "mobilityfirst",
            "client",
            "node",
            "sim",
            "io",
        ],
        &[],
    ),
    layer(
        "bench",
        &[
            "core",
            "ndn-packet",
            "ndn-mgmt",
            "content",
            "link",
            "forwarder",
            "ndn-router",
            "transport",
            "tcp-proxy",
            "keychain",
            "gnrs",
            "chunk-store",
            "mobilityfirst",
            "client",
            "node",
            "sim",
            "io",
            "lab",
        ],
        &[],
    ),
    // The command line: package `whimbrel`, folder `crates/cli`.
    layer("cli", EVERYTHING, &[]),
    // This crate only inspects the others.
    layer("laws", &[], &[]),
];

/// State machines without socket, thread, clock or runtime: law 1 of ARCHITECTURE.md.
pub const PROTOCOLS: &[&str] = &[
    "core",
    "content",
    "ndn-packet",
    "ndn-mgmt",
    "link",
    "forwarder",
    "ndn-router",
    "transport",
    "tcp-proxy",
    "gnrs",
    "routing",
    "spoken",
    "stream",
    "mobilityfirst",
    "sim",
];
