//! Mini-transactions of a stream, whatever family it is of.

use crate::error::StreamError;
use crate::mariadb::SequenceRule;
use crate::mtr::{MtrVisitor, Walked};
use crate::types::{Family, Lsn};
use crate::{mariadb, mysql};

/// Reports every whole mini-transaction of `bytes`, redo of a stream, to `visitor`. `bytes[0]` must be the first byte
/// of one; `start_lsn` is its LSN.
///
/// # Errors
/// When a mini-transaction is invalid. Those before it have been reported.
pub fn walk_mtrs(
    family: Family,
    bytes: &[u8],
    start_lsn: Lsn,
    visitor: &mut impl MtrVisitor,
) -> Result<Walked, StreamError> {
    match family {
        // The sequence bits are those of the file that the server had, which may have had other sizes since.
        Family::MariaDb => mariadb::walk_mtrs(bytes, start_lsn, SequenceRule::Any, visitor),
        Family::MySql => mysql::walk_mtrs(bytes, start_lsn, visitor),
    }
}
