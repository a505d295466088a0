//! Bodies of the fuzz targets: each takes any bytes, feeds them to decoders of the product, and panics on a finding.
//!
//! A body is called by a libFuzzer program of the same name (`fuzz/`, `make fuzz`), and by an ordinary test over the
//! corpus in `fuzz/corpus/NAME.corpus` and over seeded mutations of it. A finding is a panic, an assertion that fails,
//! memory that grows without bound, or a run that does not end. `docs/dev/fuzzing.md` lists the coverage of each
//! target.
//!
//! Invariant: a body depends on its input only. It keeps nothing from one call to the next but what it made once, in
//! the same way for all.

// A body that fails is a finding; it has no caller to return an error to.
#![allow(clippy::unwrap_used)]

pub mod canary;
pub mod certificate;
pub mod consensus_codec;
pub mod corpus;
pub mod flash_trace;
pub mod frame_decoder;
pub mod group_actions;
pub mod group_log;
pub mod group_replica;
pub mod log_segments;
pub mod mutate;
pub mod mysql_applier;
pub mod mysql_redo_parser;
pub mod mysql_redo_views;
pub mod net_admission;
pub mod nfs_calls;
pub mod node_files;
pub mod node_frames;
pub mod page_bytes;
pub mod page_files;
pub mod page_journal;
pub mod raw_device;
pub mod record_applier;
pub mod redo_parser;
pub mod redo_views;
pub mod server_text;
pub mod tcp_engine;
pub mod tcp_segment;
pub mod unsent_file;

/// A target: its name and its body.
pub struct Target {
    /// Name of the program, of the file of its corpus, and of its line in the documentation.
    pub name: &'static str,
    /// Panics on a finding.
    pub body: fn(&[u8]),
}

/// All targets but [`canary`], which must fail.
pub const TARGETS: &[Target] = &[
    Target { name: "certificate", body: certificate::run },
    Target { name: "consensus_codec", body: consensus_codec::run },
    Target { name: "flash_trace", body: flash_trace::run },
    Target { name: "frame_decoder", body: frame_decoder::run },
    Target { name: "group_actions", body: group_actions::run },
    Target { name: "group_log", body: group_log::run },
    Target { name: "group_replica", body: group_replica::run },
    Target { name: "log_segments", body: log_segments::run },
    Target { name: "mysql_applier", body: mysql_applier::run },
    Target { name: "mysql_redo_parser", body: mysql_redo_parser::run },
    Target { name: "mysql_redo_views", body: mysql_redo_views::run },
    Target { name: "net_admission", body: net_admission::run },
    Target { name: "nfs_calls", body: nfs_calls::run },
    Target { name: "node_files", body: node_files::run },
    Target { name: "node_frames", body: node_frames::run },
    Target { name: "page_bytes", body: page_bytes::run },
    Target { name: "page_files", body: page_files::run },
    Target { name: "page_journal", body: page_journal::run },
    Target { name: "raw_device", body: raw_device::run },
    Target { name: "record_applier", body: record_applier::run },
    Target { name: "redo_parser", body: redo_parser::run },
    Target { name: "redo_views", body: redo_views::run },
    Target { name: "server_text", body: server_text::run },
    Target { name: "tcp_engine", body: tcp_engine::run },
    Target { name: "tcp_segment", body: tcp_segment::run },
    Target { name: "unsent_file", body: unsent_file::run },
];
