//! Pages of MySQL 8.0.30 and later: tablespace flags, page frame, page compression, and applying redo records.
//!
//! The counterpart of what the crate's root has for MariaDB. From the outside inwards: [`flags`] says how big pages
//! are, [`checksum`] makes and checks their frame, [`compressed`] reads page-compressed images, [`chain`] brings an
//! image up to date with the changes of its page, [`mod@apply`] applies one record, and [`compare`] says whether two
//! images are of the same state.
//!
//! Where the layout of a page is the same as MariaDB's, the code is shared: [`crate::layout`], the page directory and
//! the record list, CRC-32C.

pub mod apply;
pub mod chain;
pub mod checksum;
pub mod compare;
pub mod compressed;
pub mod flags;

pub use apply::{ApplyError, RecordKind, RunOutcome, Scratch, apply_run};
pub use chain::{Applied, apply_changes, apply_known_changes, page_lsn, set_page_lsn};
pub use checksum::{ChecksumError, finalize, is_encrypted_image, verify};
pub use compare::{Difference, differing_ranges, digest, first_difference};
pub use compressed::{PageCompressionError, decompress, is_page_compressed_image};
pub use flags::{Flags, FlagsError, flags_of_page0};
