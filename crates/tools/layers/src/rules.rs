//! The rules: the parts, their allowed dependencies, exceptions, the packages that a library loaded into a server may
//! link, the experimental packages that default builds link nowhere, and the libraries that never link a command line.

/// A folder below `crates/`.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// The parts that its crates may depend on, dev-dependencies and build dependencies included.
    pub may_use: &'static [&'static str],
    /// The rule in one sentence, for the message of a violation.
    pub rule: &'static str,
}

/// All parts, from below: base <- {volume, group, net, devices} <- cli <- tools.
pub const PARTS: [Part; 7] = [
    Part { name: "base", may_use: &["base"], rule: "base depends on nothing but base" },
    Part { name: "devices", may_use: &["base", "devices"], rule: "devices depends on base only" },
    Part {
        name: "volume",
        may_use: &["base", "devices", "volume"],
        rule: "volume depends on base and devices only, and never on group, net, cli or tools",
    },
    Part {
        name: "group",
        may_use: &["base", "group"],
        rule: "group depends on base only, and never on volume, net, cli or tools",
    },
    Part {
        name: "net",
        may_use: &["base", "net"],
        rule: "net depends on base only, and never on volume, group, cli or tools",
    },
    Part {
        name: "cli",
        may_use: &["base", "devices", "volume", "group", "net", "cli"],
        rule: "cli depends on all parts of the product, and never on tools",
    },
    Part {
        name: "tools",
        may_use: &["base", "devices", "volume", "group", "net", "cli", "tools"],
        rule: "tools depends on anything, and nothing depends on tools",
    },
];

/// Folders with a manifest that are not in the workspace, and the part that each belongs to.
pub const OUTSIDE: [(&str, &str); 2] = [("fuzz", "tools"), ("crates/group/model", "group")];

/// An edge that breaks a rule and is allowed for now.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The package that depends.
    pub from: &'static str,
    /// The package that it depends on.
    pub to: &'static str,
    /// Why it is allowed, and when it goes.
    pub reason: &'static str,
}

/// All exceptions. The check fails for an exception that is no longer needed.
pub const EXCEPTIONS: &[Exception] = &[Exception {
    from: "redoubt-logdev",
    to: "redoubt-persistent-memory",
    reason: "the log device on persistent memory is still in logdev; goes when it moves to devices",
}];

/// Packages that only tools and tests use: outside of tools they may be named in `[dev-dependencies]` only.
pub const FOR_TESTS: [&str; 2] = ["redoubt-test-support", "redoubt-flash"];

/// A package that only tests on real servers use.
#[derive(Clone, Copy, Debug)]
pub struct ServerTests {
    /// The package.
    pub package: &'static str,
    /// The packages that may depend on it, dev-dependencies included.
    pub users: &'static [&'static str],
}

/// The library of all tests on real servers and what is built on it, from below. Nothing else may use them: what a
/// shipped program needs belongs in `redoubt-workload`.
pub const SERVER_TESTS: &[ServerTests] = &[
    ServerTests {
        package: "redoubt-harness",
        users: &["redoubt-redo-oracle", "redoubt-chaos", "redoubt-measurements", "redoubt-testkit"],
    },
    ServerTests { package: "redoubt-redo-oracle", users: &["redoubt-measurements", "redoubt-testkit"] },
    ServerTests { package: "redoubt-chaos", users: &["redoubt-testkit"] },
    ServerTests { package: "redoubt-suites", users: &["redoubt-testkit"] },
    ServerTests { package: "redoubt-measurements", users: &["redoubt-testkit"] },
    ServerTests { package: "redoubt-testkit", users: &[] },
];

/// A package whose library is loaded into a server.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// The package.
    pub package: &'static str,
    /// The packages that depend on it. A program that links a preloaded library would call its hooks.
    pub users: &'static [&'static str],
    /// The packages that it may link, all the way down, without macros that run at build time.
    pub may_link: &'static [&'static str],
}

/// All packages that are loaded into a server.
pub const LOADED: &[Loaded] = &[
    Loaded {
        package: "redoubt-shim",
        users: &[],
        #[rustfmt::skip]
        may_link: &[
            "adler2", "asn1-rs", "bitflags", "cfg-if", "crc32c", "crc32fast", "data-encoding",
            "der-parser", "deranged", "fastrand", "flate2", "getrandom", "graviola", "itoa",
            "lazy_static", "libc", "linux-raw-sys", "lock_api", "lz4_flex", "memchr",
            "minimal-lexical", "miniz_oxide", "nom", "num-bigint", "num-conv", "num-integer",
            "num-traits", "oid-registry", "once_cell", "parking_lot", "parking_lot_core",
            "powerfmt", "redoubt-codec", "redoubt-commit-waiters", "redoubt-interpose",
            "redoubt-locks", "redoubt-negotiation", "redoubt-page", "redoubt-peer-credentials",
            "redoubt-redo", "redoubt-resend-queue", "redoubt-shm-control", "redoubt-sync",
            "redoubt-transport", "redoubt-types", "redoubt-wire", "rustc-hash", "rusticata-macros",
            "rustix", "rustls", "rustls-graviola", "rustls-pki-types", "rustls-webpki",
            "scopeguard", "serde", "serde_core", "serde_json", "simd-adler32", "smallvec",
            "subtle", "thiserror", "time", "time-core", "twox-hash", "untrusted", "x509-parser",
            "zeroize", "zmij", "zstd", "zstd-safe", "zstd-sys",
        ],
    },
    Loaded {
        package: "redoubt-net",
        users: &[],
        #[rustfmt::skip]
        may_link: &[
            "adler2", "bitflags", "cfg-if", "crc32fast", "flate2", "libc", "linux-raw-sys",
            "miniz_oxide", "redoubt-interpose", "redoubt-locks", "redoubt-peer-credentials",
            "redoubt-shm-control", "redoubt-tcp", "redoubt-user-tcp", "rustix", "simd-adler32",
            "thiserror", "zstd", "zstd-safe", "zstd-sys",
        ],
    },
    Loaded {
        // A part of the library `net`. Dependencies run one way: net, user-tcp, tcp.
        package: "redoubt-user-tcp",
        users: &["redoubt-net"],
        #[rustfmt::skip]
        may_link: &[
            "bitflags", "libc", "linux-raw-sys", "redoubt-interpose", "redoubt-locks",
            "redoubt-shm-control", "redoubt-tcp", "rustix", "thiserror",
        ],
    },
    Loaded {
        package: "redoubt-group",
        users: &["redoubt-cli", "redoubt-client", "redoubt-fuzz"],
        #[rustfmt::skip]
        may_link: &[
            "asn1-rs", "bitflags", "cfg-if", "crc32c", "data-encoding", "der-parser", "deranged",
            "fastrand", "getrandom", "graviola", "io-uring", "itoa", "lazy_static", "libc",
            "linux-raw-sys", "lock_api", "memchr", "minimal-lexical", "nom", "num-bigint",
            "num-conv", "num-integer", "num-traits", "oid-registry", "once_cell", "parking_lot",
            "parking_lot_core", "powerfmt", "redoubt-codec", "redoubt-commit-waiters",
            "redoubt-consensus", "redoubt-locks", "redoubt-logdev", "redoubt-negotiation",
            "redoubt-peer-credentials", "redoubt-storage", "redoubt-sync", "redoubt-transport",
            "redoubt-types", "rusticata-macros", "rustix", "rustls", "rustls-graviola",
            "rustls-pki-types", "rustls-webpki", "scopeguard", "serde", "serde_core", "serde_json",
            "smallvec", "subtle", "thiserror", "time", "time-core", "twox-hash", "untrusted",
            "x509-parser", "zeroize", "zmij",
        ],
    },
    Loaded {
        package: "redoubt-faults",
        users: &[],
        #[rustfmt::skip]
        may_link: &[
            "libc", "redoubt-interpose",
        ],
    },
];

/// Packages with experimental device code. Only builds with the feature [`EXPERIMENTAL_FEATURE`] link them.
pub const EXPERIMENTAL: [&str; 1] = ["redoubt-persistent-memory"];

/// The feature that makes the command, the node and the library link [`EXPERIMENTAL`].
pub const EXPERIMENTAL_FEATURE: &str = "experimental-devices";

/// Options of cargo for [`EXPERIMENTAL_FEATURE`].
pub const WITH_EXPERIMENTAL: [&str; 2] = ["--features", EXPERIMENTAL_FEATURE];

/// Packages that the command links for features that are on by default, and that `./demo` does not compile.
pub const OPTIONAL: [&str; 9] = [
    "clap_complete",
    "clap_mangen",
    "fuser",
    "hyper",
    "rcgen",
    "redoubt-certificates",
    "redoubt-doctor",
    "redoubt-group",
    "redoubt-statuspage",
];

/// Packages that must not link [`EXPERIMENTAL`] in their default build: the node, and everything else that the default
/// Debian packages contain. For each: whether it has the feature.
pub const DEFAULT_BUILDS: [(&str, bool); 9] = [
    ("redoubt-node", true),
    ("redoubt-client", true),
    ("redoubt-doctor", true),
    ("redoubt-cli", true),
    ("redoubt-shim", true),
    ("redoubt-group", false),
    ("redoubt-net", false),
    ("redoubt-bench", false),
    ("redoubt-drill", false),
];

/// Libraries that programs other than the command can use, in place of it: they return reports, and show nothing. They
/// never link [`COMMAND_LINE`].
pub const WITHOUT_COMMAND_LINE: [&str; 2] = ["redoubt-client", "redoubt-doctor"];

/// Packages for options and output, which the command links.
pub const COMMAND_LINE: [&str; 3] = ["clap", "indicatif", "redoubt-console"];
