//! Pages of MySQL 8.0.30 and later: tablespace flags, page frame, page compression, and applying redo records.
//!
//! The counterpart of the MariaDB modules in the crate's root. From the outside inwards:
//! - [`flags`]: the size of pages
//! - [`checksum`]: makes and checks the frame of pages
//! - [`compressed`]: reads page-compressed images
//! - [`chain`]: brings an image up to date with the changes of its page
//! - [`mod@apply`]: applies one record
//! - [`compare`]: whether two images are of the same state
//!
//! Content that no record describes, so that only an image of the page can:
//! - pages of ROW_FORMAT=COMPRESSED tablespaces, as far as this crate goes ([`Applied::NeedsImage`]);
//! - pages of an index that is built in place or by the rebuild of a table (`btr/btr0load.cc`): neither what is in them
//!   is logged, nor that they are initialised (INIT_FILE_PAGE2 comes with the unlogged mini-transaction). Redo has their
//!   allocation, the creation of the root, and INDEX_LOAD when all of them are in the file; after that, changes of them
//!   like of any page. A page that had another life before so has records in redo that lead to nothing;
//! - pages of an imported tablespace;
//! - that the LSN of a page was raised without a change ([`compare`]).
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
pub use compare::{Difference, content_hash, differing_ranges, digest, first_difference};
pub use compressed::{PageCompressionError, decompress, is_page_compressed_image};
pub use flags::{Flags, FlagsError, flags_of_page0};
