//! Counters of a volume since the node started. `redoubt status` shows the names in [`Counters::snapshot`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// See the module. All fields only grow.
        #[derive(Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }

        impl Counters {
            /// All counters by name.
            pub fn snapshot(&self) -> BTreeMap<String, u64> {
                let mut all = BTreeMap::new();
                $(all.insert(stringify!($name).to_owned(), self.$name.load(Ordering::Relaxed));)*
                all
            }
        }
    };
}

counters! {
    /// Bytes of frames received on log connections, headers included, not compressed.
    received_bytes,
    /// Redo bytes received (uncompressed).
    redo_bytes,
    /// Frames received.
    frames,
    /// Mini-transactions parsed.
    mtrs,
    /// Record runs indexed.
    runs,
    /// Calls that made log bytes durable.
    log_syncs,
    /// Page requests answered.
    page_reads,
    /// Page bytes sent.
    page_bytes_sent,
    /// Replies on page connections that were sent compressed.
    page_replies_compressed,
    /// Bytes that were not sent for that.
    page_bytes_saved,
    /// Pages built for reads.
    pages_constructed,
    /// Microseconds reads waited for the parser.
    read_wait_micros,
    /// Pages applied to the page store.
    pages_applied,
    /// Tables applied.
    tables_applied,
    /// Chains built early because they had become long.
    chains_built_early,
    /// Page images received (page writes that redo does not explain).
    images,
    /// Bytes of redo that were applied.
    redo_bytes_applied,
    /// Bytes of pages built by applying.
    page_applied_bytes,
    /// Pages whose stored image was damaged, rebuilt from older images or redo.
    pages_rebuilt,
    /// Pages of which the drive had an older version, rebuilt.
    outdated_pages_rebuilt,
    /// Bytes of pages, plain files and log that the scrub has read.
    scrubbed_bytes,
    /// Dropped page writes compared with our page and found equal.
    pages_verified,
    /// Dropped page writes whose page differed.
    page_mismatches,
    /// Pages that differed from the server's, were set aside, and are whole again.
    pages_healed,
    /// Dropped page writes that could not be compared (the page was already newer).
    pages_not_comparable,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
