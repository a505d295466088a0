//! A storage node over real TCP: the stream with a real server's redo and kills, fencing, hostile input, full disk.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod client;
mod coalescing;
mod compressed;
mod cut_files;
mod damaged_log;
mod descriptors;
mod differences;
mod disk_full;
#[path = "../../../redo/tests/support/encoder.rs"]
mod encoder;
mod export;
mod figures;
mod frozen;
mod hostile;
mod import;
mod killed_files;
mod log_place;
mod lost_files;
mod lost_journal;
mod many;
mod memory;
mod opening;
mod parking;
mod protocol;
mod quarantine;
mod reference;
mod replay;
mod rescue;
mod running;
mod scrub;
mod servers;
mod source;
mod stored_files;
mod unauthenticated;
mod unknown_files;
mod view;
