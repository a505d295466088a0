//! InnoDB on a volume, with real servers: all of its features, kills, restarts from an empty directory, encryption,
//! caches.

mod at_rest;
mod battery;
mod check;
mod crash;
mod directories;
mod encrypted;
mod fidelity;
mod forced_recovery;
mod hung_disk;
mod local_socket;
mod messages;
mod older_copy;
mod page_cache;
mod page_compression;
mod quarantine;
mod read_ahead;
mod removed_by_hand;
mod resend_queue;
mod scrubbing;
mod secure;
mod stock;
