//! Index description in a record of a B-tree page: the part of the table's definition that is needed to find the fields
//! of a record.
//!
//! Layout (`mtr/mtr0log.cc`), integers big-endian:
//!
//! | bytes | content | when |
//! |---|---|---|
//! | 1 | version of this layout: 1 | |
//! | 1 | flags: 1 compact, 2 row versions, 4 instant columns of MySQL 8.0.12 to 8.0.28 | |
//! | 2 | fields, dropped ones included | compact or row versions |
//! | 2 | fields before the first instant column | compact and flag 4 |
//! | 2 | fields that make a record unique in this level of the tree | compact |
//! | 2 each | a field: bit 15 NOT NULL; 0 variable, 0x7fff variable and longer than 255, else its fixed length | compact |
//! | 2 | entries of the version list | row versions |
//! | 4 to 6 each | position in the index; position in the record with bit 15 "added" and bit 14 "dropped"; the row version of each that is set, 1 byte | row versions |
//!
//! A plain ROW_FORMAT=REDUNDANT index is only the first two bytes: its records describe themselves.
//!
//! The version list has the fields that were added, dropped or moved by an instant change. All other fields take the
//! remaining positions of the record in order ([`IndexInfo::columns`]).
//!
//! Invariant: a decoded description is consistent as far as that costs the same for every index. The lists of positions
//! are checked when there are any; that the remaining fields fit between them, by [`IndexInfo::columns`].

use super::cursor::{Cursor, bad_number};
use crate::error::RedoError;

/// Most fields an index can have, dropped ones included (`include/rem0types.h`, REC_MAX_N_FIELDS).
pub const FIELDS_MAX: usize = 1023;

/// The only layout that servers since 8.0.30 write.
const LAYOUT_VERSION: u8 = 1;
const FLAG_COMPACT: u8 = 1;
const FLAG_ROW_VERSIONS: u8 = 2;
const FLAG_OLD_INSTANT: u8 = 4;

const NOT_NULL: u16 = 0x8000;
const LENGTH_MASK: u16 = 0x7fff;
const VARIABLE_BIG: u16 = 0x7fff;
const VERSION_ADDED_FOLLOWS: u16 = 0x8000;
const VERSION_DROPPED_FOLLOWS: u16 = 0x4000;
const POSITION_MASK: u16 = 0x3fff;

/// DB_TRX_ID: 6 bytes, NOT NULL.
const TRX_ID_FIELD: u16 = NOT_NULL | 6;
/// DB_ROLL_PTR: 7 bytes, NOT NULL.
const ROLL_POINTER_FIELD: u16 = NOT_NULL | 7;

/// An index, as the record describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexInfo<'a> {
    bytes: &'a [u8],
    n_fields: u16,
    n_unique: u16,
    n_before_instant: u16,
    flags: u8,
}

/// A field of a compact index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its length in every record; `None` when each record says how long it is.
    pub fixed_len_bytes: Option<u16>,
    /// It can be NULL: it has a bit in the record's NULL bitmap.
    pub is_nullable: bool,
    /// Of variable length and possibly longer than 255: its length can take two bytes in the record's header.
    pub is_big: bool,
}

impl Field {
    const fn decode(code: u16) -> Self {
        let len_bytes = code & LENGTH_MASK;
        Self {
            fixed_len_bytes: if len_bytes == 0 || len_bytes == VARIABLE_BIG { None } else { Some(len_bytes) },
            is_nullable: code & NOT_NULL == 0,
            is_big: len_bytes == VARIABLE_BIG,
        }
    }

    /// Class of the fields of a ROW_FORMAT=REDUNDANT index: the record has lengths and NULLs.
    const SELF_DESCRIBING: Self = Self { fixed_len_bytes: None, is_nullable: false, is_big: false };
}

/// An entry of the version list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionedField {
    /// Where the field is in the index.
    pub logical_position: u16,
    /// Where the field is in a record.
    pub physical_position: u16,
    /// The row version with which it was added instantly, if it was.
    pub version_added: Option<u8>,
    /// The row version with which it was dropped instantly, if it was.
    pub version_dropped: Option<u8>,
}

/// A field with all that there is about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its length, and whether it can be NULL.
    pub field: Field,
    /// Where the field is in a record.
    pub physical_position: u16,
    /// The row version with which it was added instantly, if it was: records of an earlier version do not have it.
    pub version_added: Option<u8>,
    /// The row version with which it was dropped instantly, if it was: records of this version and later do not have
    /// it.
    pub version_dropped: Option<u8>,
}

impl<'a> IndexInfo<'a> {
    /// Decode the description that `cursor` is at.
    #[inline(always)]
    pub(super) fn decode(cursor: &mut Cursor<'a>) -> Result<Self, RedoError> {
        let start = cursor.at;
        let [version, flags] = *cursor.array("version and flags of an index")?;
        if version != LAYOUT_VERSION {
            let expected = "index description version 1 (0 was written by MySQL 8.0.29 alone)";
            return Err(RedoError::BadByte { offset: start, byte: version, expected });
        }
        if flags & !(FLAG_COMPACT | FLAG_ROW_VERSIONS | FLAG_OLD_INSTANT) != 0 {
            let expected = "index flags 1, 2 and 4 alone";
            return Err(RedoError::BadByte { offset: start + 1, byte: flags, expected });
        }
        let mut index = Self { bytes: &[], n_fields: 1, n_unique: 1, n_before_instant: 0, flags };
        if flags & FLAG_COMPACT != 0 {
            index.decode_compact(cursor)?;
        } else if flags & FLAG_ROW_VERSIONS != 0 {
            index.n_fields = field_count(cursor)?;
            index.n_unique = 0;
        }
        if flags & FLAG_ROW_VERSIONS != 0 {
            index.check_versions(cursor)?;
        }
        index.bytes = cursor.since(start);
        Ok(index)
    }

    #[inline(always)]
    fn decode_compact(&mut self, cursor: &mut Cursor<'a>) -> Result<(), RedoError> {
        self.n_fields = field_count(cursor)?;
        if self.has_old_instant() {
            let at = cursor.at;
            self.n_before_instant = cursor.u16("the fields before the first instant column")?;
            if self.n_before_instant > self.n_fields {
                let expected = "at most as many fields before the first instant column as there are";
                return Err(bad_number(at, u64::from(self.n_before_instant), expected));
            }
        }
        let at = cursor.at;
        self.n_unique = cursor.u16("the unique fields of an index")?;
        let fields_at = cursor.at;
        let fields = cursor.take(usize::from(self.n_fields) * 2, "the fields of an index")?;
        if self.n_unique == self.n_fields && self.flags & FLAG_ROW_VERSIONS == 0 {
            return Ok(());
        }
        // A clustered index: DB_TRX_ID and DB_ROLL_PTR come after the unique fields.
        let system = fields.get(usize::from(self.n_unique) * 2..).and_then(|rest| rest.first_chunk());
        let Some(&[a, b, c, d]) = system else {
            let expected = "unique fields of an index: all, or at least two fewer than all";
            return Err(bad_number(at, u64::from(self.n_unique), expected));
        };
        let system = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
        if system != [TRX_ID_FIELD, ROLL_POINTER_FIELD] {
            let value = u64::from(system[0]) << 16 | u64::from(system[1]);
            let expected = "DB_TRX_ID (0x8006) and DB_ROLL_PTR (0x8007) after the unique fields";
            return Err(bad_number(fields_at + usize::from(self.n_unique) * 2, value, expected));
        }
        Ok(())
    }

    /// Read over the version list. Rare, so out of line.
    #[inline(never)]
    fn check_versions(&self, cursor: &mut Cursor<'a>) -> Result<(), RedoError> {
        let at = cursor.at;
        let count = cursor.u16("the length of a version list")?;
        if count == 0 || count > self.n_fields {
            let expected = "at least one entry in a version list, and no more than fields";
            return Err(bad_number(at, u64::from(count), expected));
        }
        let mut logical = PositionSet::new();
        let mut physical = PositionSet::new();
        for _ in 0..count {
            let at = cursor.at;
            let entry = read_versioned(cursor)?;
            for (position, seen) in
                [(entry.logical_position, &mut logical), (entry.physical_position, &mut physical)]
            {
                if position >= self.n_fields || !seen.insert(position) {
                    let expected = "positions of a version list below the number of fields, each once";
                    return Err(bad_number(at, u64::from(position), expected));
                }
            }
        }
        Ok(())
    }

    /// The description as it is in the record. Two are of the same index layout if and only if these bytes are equal,
    /// so that what is derived from them can be kept.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// ROW_FORMAT=COMPACT, DYNAMIC or COMPRESSED; else REDUNDANT.
    pub const fn is_compact(&self) -> bool {
        self.flags & FLAG_COMPACT != 0
    }

    /// Columns were added or dropped instantly since MySQL 8.0.29: records carry a row version.
    pub const fn has_row_versions(&self) -> bool {
        self.flags & FLAG_ROW_VERSIONS != 0
    }

    /// Columns were added instantly by MySQL 8.0.12 to 8.0.28: records may carry the number of their fields.
    pub const fn has_old_instant(&self) -> bool {
        self.flags & FLAG_OLD_INSTANT != 0
    }

    /// Fields of the index, dropped ones included. 1 for a plain REDUNDANT index, whose records know.
    pub const fn n_fields(&self) -> u16 {
        self.n_fields
    }

    /// Fields that make a record unique in this level of the tree. Not known (0 or 1) for a REDUNDANT index.
    pub const fn n_unique(&self) -> u16 {
        self.n_unique
    }

    /// The index is clustered: its records have DB_TRX_ID and DB_ROLL_PTR. A plain REDUNDANT index does not show this
    /// and counts as secondary here, as it does in the server's recovery.
    pub const fn is_clustered(&self) -> bool {
        self.n_unique != self.n_fields || self.flags & (FLAG_ROW_VERSIONS | FLAG_OLD_INSTANT) != 0
    }

    /// Where DB_TRX_ID is in the index, if it has it and that is known. DB_ROLL_PTR comes next.
    pub const fn trx_id_position(&self) -> Option<u16> {
        if self.is_compact() && self.n_unique != self.n_fields { Some(self.n_unique) } else { None }
    }

    /// Where DB_ROLL_PTR is in the index, if it has it and that is known.
    pub const fn roll_pointer_position(&self) -> Option<u16> {
        match self.trx_id_position() {
            Some(position) => Some(position + 1),
            None => None,
        }
    }

    /// Fields before the first one that MySQL 8.0.12 to 8.0.28 added instantly.
    pub const fn n_before_instant(&self) -> Option<u16> {
        if self.n_before_instant == 0 { None } else { Some(self.n_before_instant) }
    }

    /// The codes of the fields, 2 bytes each; none of a REDUNDANT index.
    #[inline]
    fn field_codes(&self) -> &'a [u8] {
        if !self.is_compact() {
            return &[];
        }
        let start = if self.has_old_instant() { 8 } else { 6 };
        self.bytes.get(start..start + usize::from(self.n_fields) * 2).unwrap_or_default()
    }

    /// The field at this position of the index. `None`: there is none, or the index is REDUNDANT.
    #[inline]
    pub fn field(&self, logical_position: u16) -> Option<Field> {
        let at = usize::from(logical_position) * 2;
        let code = self.field_codes().get(at..)?.first_chunk()?;
        Some(Field::decode(u16::from_be_bytes(*code)))
    }

    /// The fields in the order of the index; none of a REDUNDANT index.
    #[inline]
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field> + use<'a> {
        self.field_codes().as_chunks().0.iter().map(|code| Field::decode(u16::from_be_bytes(*code)))
    }

    /// The version list.
    pub fn versioned_fields(&self) -> impl Iterator<Item = VersionedField> + use<'a> {
        let start = match (self.has_row_versions(), self.is_compact()) {
            (false, _) => self.bytes.len(),
            (true, false) => 4,
            (true, true) => 6 + usize::from(self.has_old_instant()) * 2 + usize::from(self.n_fields) * 2,
        };
        let mut cursor = Cursor::new(self.bytes, start + 2);
        std::iter::from_fn(move || read_versioned(&mut cursor).ok())
    }

    /// The newest row version that the version list mentions: that of records written with this index.
    pub fn current_row_version(&self) -> u8 {
        self.versioned_fields()
            .flat_map(|field| [field.version_added, field.version_dropped])
            .flatten()
            .max()
            .unwrap_or(0)
    }

    /// Puts all fields into `columns`, in the order of the index; its previous content is removed. Fields that are not in the
    /// version list take the free positions of the record in order, each starting where it would be without those
    /// before it that were added and not dropped. (`mtr/mtr0log.cc` has this in its parser.)
    ///
    /// For a plain REDUNDANT index that is one field, which stands for all.
    ///
    /// # Errors
    /// When the positions of the version list leave no place for another field.
    pub fn columns(&self, columns: &mut Vec<Column>) -> Result<(), RedoError> {
        columns.clear();
        columns.extend((0..self.n_fields).map(|position| Column {
            field: self.field(position).unwrap_or(Field::SELF_DESCRIBING),
            physical_position: position,
            version_added: None,
            version_dropped: None,
        }));
        if !self.has_row_versions() {
            return Ok(());
        }
        let mut is_listed = PositionSet::new();
        let mut is_taken = PositionSet::new();
        for entry in self.versioned_fields() {
            is_listed.insert(entry.logical_position);
            is_taken.insert(entry.physical_position);
            let Some(column) = columns.get_mut(usize::from(entry.logical_position)) else { continue };
            column.physical_position = entry.physical_position;
            column.version_added = entry.version_added;
            column.version_dropped = entry.version_dropped;
        }
        let mut added = 0u16;
        for (position, column) in (0..).zip(columns.iter_mut()) {
            if is_listed.contains(position) {
                added += u16::from(column.version_added.is_some() && column.version_dropped.is_none());
                continue;
            }
            // Never below 0: `added` counts fields before this one.
            let free = (position.saturating_sub(added)..self.n_fields).find(|&free| is_taken.insert(free));
            let Some(free) = free else {
                let expected = "a version list that leaves each other field a position from its own on";
                return Err(bad_number(0, u64::from(position), expected));
            };
            column.physical_position = free;
        }
        Ok(())
    }
}

#[inline(always)]
fn field_count(cursor: &mut Cursor<'_>) -> Result<u16, RedoError> {
    let at = cursor.at;
    let count = cursor.u16("the fields of an index")?;
    if count == 0 || usize::from(count) > FIELDS_MAX {
        return Err(bad_number(at, u64::from(count), "1 to 1023 fields of an index"));
    }
    Ok(count)
}

fn read_versioned(cursor: &mut Cursor<'_>) -> Result<VersionedField, RedoError> {
    let logical_position = cursor.u16("an entry of a version list")?;
    let physical = cursor.u16("an entry of a version list")?;
    let mut version = |follows: u16| -> Result<Option<u8>, RedoError> {
        if physical & follows == 0 {
            return Ok(None);
        }
        Ok(Some(cursor.byte("a row version of a version list")?))
    };
    Ok(VersionedField {
        logical_position,
        physical_position: physical & POSITION_MASK,
        version_added: version(VERSION_ADDED_FOLLOWS)?,
        version_dropped: version(VERSION_DROPPED_FOLLOWS)?,
    })
}

/// Positions of fields.
struct PositionSet([u64; FIELDS_MAX.div_ceil(64)]);

impl PositionSet {
    const fn new() -> Self {
        Self([0; FIELDS_MAX.div_ceil(64)])
    }

    fn contains(&self, position: u16) -> bool {
        self.0.get(usize::from(position / 64)).is_some_and(|word| word >> (position % 64) & 1 != 0)
    }

    /// False: it was there, or is none.
    fn insert(&mut self, position: u16) -> bool {
        let Some(word) = self.0.get_mut(usize::from(position / 64)) else { return false };
        let bit = 1 << (position % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests;
