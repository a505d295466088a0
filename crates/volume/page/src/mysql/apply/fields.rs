//! Where the fields of a record are, and how long a record is.
//!
//! A record is named by its origin: extra bytes (header) lie below it, data from it on. The meaning of the extra bytes
//! depends on the row format and on the instant column changes of the table:
//!
//! | record | from the origin downwards |
//! |---|---|
//! | compact | 5 bytes of header, NULL bitmap, lengths of the fields that vary |
//! | compact, info bit 0x40 | 5 bytes of header, row version (1), NULL bitmap, lengths |
//! | compact, info bit 0x80 | 5 bytes of header, number of fields (1 or 2), NULL bitmap, lengths |
//! | REDUNDANT | 6 bytes of header, ends of the fields (1 or 2 bytes each) |
//! | REDUNDANT, info bit 0x40 | 6 bytes of header, row version (1), ends of the fields |
//!
//! A record has the fields of its row version: those added later and those dropped before or with it take no space.
//! Records from before the first such change carry no version, and count as version 0. Bit 0x80 is what servers 8.0.12
//! to 8.0.28 wrote into tables with added columns, and these records have the first so many fields. Node pointers have
//! the unique fields and a page number; infimum and supremum have one field.
//!
//! Sources: `rem/rec.h` (`get_rec_insert_state`, `rec_init_offsets_comp_ordinary`), `rem/rec.cc`,
//! `include/dict0mem.h` (nullable fields of a version), `include/rem0lrec.h`.
//!
//! Invariant: nothing is read outside the bytes given, and a walk takes no more steps than the index has fields.

use redoubt_redo::mysql::{Column, Field, IndexInfo};

use crate::apply::frame::{Fault, Frame, ensure};

/// Header bytes of a compact record.
pub(super) const COMPACT_HEADER_BYTES: usize = 5;
/// Header bytes of a REDUNDANT record.
pub(super) const REDUNDANT_HEADER_BYTES: usize = 6;
/// Status bits of compact records.
const STATUS_MASK: u8 = 7;
const STATUS_ORDINARY: u8 = 0;
const STATUS_NODE_POINTER: u8 = 1;
const STATUS_INFIMUM: u8 = 2;
const STATUS_SUPREMUM: u8 = 3;
/// Info bit: a row version is in the header.
pub(super) const INFO_VERSION: u8 = 0x40;
/// Info bit: the number of fields is in the header.
pub(super) const INFO_OLD_INSTANT: u8 = 0x80;
/// The last field of a node pointer.
const CHILD_PAGE_NO: Field = Field { fixed_len_bytes: Some(4), is_nullable: false, is_big: false };
/// Data of infimum and supremum of a compact page.
const BOUND_DATA_BYTES: usize = 8;
/// Row versions fit into a byte.
const ROW_VERSIONS: usize = 256;
const OUTSIDE: &str = "the header of the record is not what its index says";

/// How long a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordSize {
    /// Before the origin.
    pub extra_bytes: usize,
    /// From the origin on.
    pub data_bytes: usize,
}

impl RecordSize {
    pub(super) const fn total_bytes(self) -> usize {
        self.extra_bytes + self.data_bytes
    }
}

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldPlace {
    /// Where its bytes are.
    pub offset: usize,
    /// How many. A NULL of a REDUNDANT record can have some.
    pub len_bytes: usize,
    /// It is NULL.
    pub is_null: bool,
    /// Where the end of the field is stored; REDUNDANT only.
    pub end_info: Option<EndInfo>,
}

/// Where a REDUNDANT record says where a field ends, and in how many bytes. The highest bit is set for NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndInfo {
    pub offset: usize,
    pub is_short: bool,
}

/// A field in the order of the record.
#[derive(Clone, Copy, Debug)]
struct PhysicalField {
    field: Field,
    version_added: Option<u8>,
    version_dropped: Option<u8>,
}

impl PhysicalField {
    fn is_in(&self, version: u8) -> bool {
        self.version_added.is_none_or(|added| added <= version)
            && self.version_dropped.is_none_or(|dropped| dropped > version)
    }
}

/// Values derived from the description of an index with instantly added or dropped columns. Kept from one record to
/// the next, since most are of the same index.
#[derive(Debug, Default)]
pub(super) struct InstantIndex {
    /// The description that it was made of.
    bytes: Vec<u8>,
    columns: Vec<Column>,
    physical: Vec<PhysicalField>,
    /// Nullable fields that records of each version have.
    nullable: Vec<u16>,
    /// Fields before the first that an old server added, and how many of them are nullable.
    before_instant: Option<(usize, usize)>,
}

impl InstantIndex {
    /// Become that of `index`.
    fn prepare(&mut self, index: &IndexInfo<'_>) -> Result<(), Fault> {
        if self.bytes == index.bytes() {
            return Ok(());
        }
        self.bytes.clear();
        index
            .columns(&mut self.columns)
            .map_err(|_| Fault::new(0, "the fields of its index are at impossible positions"))?;
        let blank = PhysicalField {
            field: Field { fixed_len_bytes: None, is_nullable: false, is_big: false },
            version_added: None,
            version_dropped: None,
        };
        self.physical.clear();
        self.physical.resize(self.columns.len(), blank);
        self.nullable.clear();
        self.nullable.resize(ROW_VERSIONS, 0);
        for column in &self.columns {
            let physical = PhysicalField {
                field: column.field,
                version_added: column.version_added,
                version_dropped: column.version_dropped,
            };
            if column.field.is_nullable {
                let present = usize::from(column.version_added.unwrap_or(0))
                    ..column.version_dropped.map_or(ROW_VERSIONS, usize::from);
                for count in self.nullable.get_mut(present).unwrap_or_default() {
                    *count += 1;
                }
            }
            if let Some(place) = self.physical.get_mut(usize::from(column.physical_position)) {
                *place = physical;
            }
        }
        self.before_instant = None;
        if let Some(n_fields) = index.n_before_instant() {
            let n_fields = usize::from(n_fields);
            self.before_instant = Some((n_fields, self.nullable_of_first(n_fields)));
        }
        self.bytes.extend_from_slice(index.bytes());
        Ok(())
    }

    /// Nullable ones among the first `n_fields` fields of a record that an old server wrote.
    fn nullable_of_first(&self, n_fields: usize) -> usize {
        let first = self.physical.get(..n_fields).unwrap_or(&self.physical);
        first.iter().filter(|field| field.field.is_nullable && field.version_added.is_none()).count()
    }
}

/// How the records of an index are laid out.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordLayout<'s, 'a> {
    /// REDUNDANT; the index matters only where fields were added or dropped.
    Redundant(Option<&'s InstantIndex>),
    /// Compact, without instant changes; and how many fields are nullable.
    Compact { index: IndexInfo<'a>, n_nullable: usize },
    /// Compact, with instant changes.
    Instant { index: IndexInfo<'a>, instant: &'s InstantIndex },
}

impl<'s, 'a> RecordLayout<'s, 'a> {
    /// That of `index`; `instant` is where what is derived from it is kept.
    #[inline]
    pub(super) fn new(index: IndexInfo<'a>, instant: &'s mut InstantIndex) -> Result<Self, Fault> {
        // REDUNDANT records say themselves how many fields they have: old instant columns are only missing at their end.
        let is_instant = index.has_row_versions() || (index.is_compact() && index.has_old_instant());
        if !is_instant {
            if !index.is_compact() {
                return Ok(Self::Redundant(None));
            }
            let n_nullable = index.fields().filter(|field| field.is_nullable).count();
            return Ok(Self::Compact { index, n_nullable });
        }
        instant.prepare(&index)?;
        let instant = &*instant;
        Ok(if index.is_compact() { Self::Instant { index, instant } } else { Self::Redundant(Some(instant)) })
    }

    /// How long the record at `origin` is.
    #[inline]
    pub(super) fn size(&self, bytes: &[u8], origin: usize) -> Result<RecordSize, Fault> {
        match self {
            Self::Redundant(_) => Redundant::read(bytes, origin)?.size(bytes),
            _ => Ok(self.walk_compact(bytes, origin, usize::MAX)?.size),
        }
    }

    /// The field at position `logical` of the index.
    pub(super) fn field(&self, bytes: &[u8], origin: usize, logical: u16) -> Result<FieldPlace, Fault> {
        let instant = match self {
            Self::Redundant(instant) => *instant,
            Self::Compact { .. } => None,
            Self::Instant { instant, .. } => Some(*instant),
        };
        let physical = match instant {
            None => logical,
            Some(instant) => {
                instant
                    .columns
                    .get(usize::from(logical))
                    .ok_or(Fault::new(origin, "the index has no such field"))?
                    .physical_position
            }
        };
        self.field_at(bytes, origin, usize::from(physical))
    }

    /// The field at position `physical` of a record that has all fields.
    pub(super) fn field_at(&self, bytes: &[u8], origin: usize, physical: usize) -> Result<FieldPlace, Fault> {
        match self {
            Self::Redundant(instant) => Redundant::read(bytes, origin)?.field(bytes, *instant, physical),
            _ => self
                .walk_compact(bytes, origin, physical)?
                .field
                .ok_or(Fault::new(origin, "the record does not have the field")),
        }
    }

    #[inline]
    fn walk_compact(&self, bytes: &[u8], origin: usize, wanted: usize) -> Result<Walked, Fault> {
        let [info, _, status] = header_bytes(bytes, origin)?;
        let header = origin.wrapping_sub(COMPACT_HEADER_BYTES);
        match status & STATUS_MASK {
            STATUS_ORDINARY => {}
            STATUS_NODE_POINTER => return self.walk_node_pointer(bytes, origin, wanted),
            STATUS_INFIMUM | STATUS_SUPREMUM => {
                let size = RecordSize { extra_bytes: COMPACT_HEADER_BYTES, data_bytes: BOUND_DATA_BYTES };
                return Ok(Walked { size, field: None });
            }
            _ => return Err(Fault::new(origin, "a record has impossible status bits")),
        }
        match self {
            Self::Compact { index, n_nullable } => {
                walk(bytes, origin, header, *n_nullable, index.fields().map(Some), wanted)
            }
            Self::Instant { instant, .. } => walk_instant(bytes, origin, instant, info, wanted),
            Self::Redundant(_) => Err(Fault::new(origin, "the record is not compact")),
        }
    }

    fn walk_node_pointer(&self, bytes: &[u8], origin: usize, wanted: usize) -> Result<Walked, Fault> {
        let header = origin.wrapping_sub(COMPACT_HEADER_BYTES);
        let (index, n_nullable) = match self {
            Self::Compact { index, n_nullable } => (index, *n_nullable),
            Self::Instant { index, instant } => {
                let (_, n_nullable) = instant
                    .before_instant
                    .unwrap_or((0, usize::from(instant.nullable.first().copied().unwrap_or_default())));
                (index, n_nullable)
            }
            Self::Redundant(_) => return Err(Fault::new(origin, "the record is not compact")),
        };
        let unique = index.fields().take(usize::from(index.n_unique()));
        walk(bytes, origin, header, n_nullable, unique.chain([CHILD_PAGE_NO]).map(Some), wanted)
    }
}

/// Info bits with n_owned, and the two bytes of heap number and status, of a compact record.
#[inline]
fn header_bytes(bytes: &[u8], origin: usize) -> Result<[u8; 3], Fault> {
    let start = origin.wrapping_sub(COMPACT_HEADER_BYTES);
    let header = bytes.get(start..).and_then(|tail| tail.first_chunk());
    header.copied().ok_or(Fault::new(origin, OUTSIDE))
}

/// A record with instant changes behind it that is no node pointer.
fn walk_instant(
    bytes: &[u8],
    origin: usize,
    instant: &InstantIndex,
    info: u8,
    wanted: usize,
) -> Result<Walked, Fault> {
    let mut below = origin.wrapping_sub(COMPACT_HEADER_BYTES);
    let mut take = || {
        below = below.wrapping_sub(1);
        bytes.get(below).copied().ok_or(Fault::new(origin, OUTSIDE))
    };
    let of_version =
        |version: u8| usize::from(instant.nullable.get(usize::from(version)).copied().unwrap_or_default());
    ensure(
        info & (INFO_VERSION | INFO_OLD_INSTANT) != INFO_VERSION | INFO_OLD_INSTANT,
        origin,
        "a record has both a row version and a number of fields",
    )?;
    let fields = instant.physical.iter();
    let first_fields = if info & INFO_OLD_INSTANT != 0 {
        let first = take()?;
        let n_fields = match first & 0x80 {
            0 => usize::from(first),
            _ => usize::from(first & 0x7f) << 8 | usize::from(take()?),
        };
        Some((n_fields, instant.nullable_of_first(n_fields)))
    } else if info & INFO_VERSION == 0 {
        instant.before_instant
    } else {
        None
    };
    if let Some((n_fields, n_nullable)) = first_fields {
        let fields = fields.enumerate().map(|(number, field)| (number < n_fields).then_some(field.field));
        return walk(bytes, origin, below, n_nullable, fields, wanted);
    }
    let version = if info & INFO_VERSION != 0 { take()? } else { 0 };
    let fields = fields.map(|field| field.is_in(version).then_some(field.field));
    walk(bytes, origin, below, of_version(version), fields, wanted)
}

/// Result of a walk over the fields of a compact record.
struct Walked {
    /// The record's size, if the walk went to its end.
    size: RecordSize,
    /// The field that was wanted.
    field: Option<FieldPlace>,
}

/// Walks the fields of a compact record; the byte of the NULL bitmap with the first fields is right below `below`.
/// `None` among the fields is one that the record does not have. Ends at field number `wanted`.
#[inline(always)]
fn walk(
    bytes: &[u8],
    origin: usize,
    below: usize,
    n_nullable: usize,
    fields: impl Iterator<Item = Option<Field>>,
    wanted: usize,
) -> Result<Walked, Fault> {
    let outside = Fault::new(origin, OUTSIDE);
    let mut nulls = below.wrapping_sub(1);
    let mut lens = nulls.wrapping_sub(n_nullable.div_ceil(8));
    let (mut mask, mut end) = (1u8, origin);
    for (number, field) in fields.enumerate() {
        let (mut len_bytes, mut is_null) = (0, false);
        if let Some(field) = field {
            if field.is_nullable {
                if mask == 0 {
                    nulls = nulls.wrapping_sub(1);
                    mask = 1;
                }
                is_null = *bytes.get(nulls).ok_or(outside)? & mask != 0;
                mask <<= 1;
            }
            if !is_null {
                len_bytes = match field.fixed_len_bytes {
                    Some(len_bytes) => usize::from(len_bytes),
                    None => {
                        let mut len_bytes = usize::from(*bytes.get(lens).ok_or(outside)?);
                        lens = lens.wrapping_sub(1);
                        if field.is_big && len_bytes & 0x80 != 0 {
                            let low = usize::from(*bytes.get(lens).ok_or(outside)?);
                            lens = lens.wrapping_sub(1);
                            len_bytes = (len_bytes & 0x3f) << 8 | low;
                        }
                        len_bytes
                    }
                };
            }
        }
        if number == wanted {
            ensure(field.is_some(), origin, "the record does not have the field")?;
            let field = FieldPlace { offset: end, len_bytes, is_null, end_info: None };
            let size = RecordSize { extra_bytes: 0, data_bytes: end + len_bytes - origin };
            return Ok(Walked { size, field: Some(field) });
        }
        end += len_bytes;
    }
    let extra_bytes = origin.wrapping_sub(lens.wrapping_add(1));
    ensure(extra_bytes <= origin && end <= bytes.len(), origin, OUTSIDE)?;
    Ok(Walked { size: RecordSize { extra_bytes, data_bytes: end - origin }, field: None })
}

/// Header of a REDUNDANT record.
struct Redundant {
    origin: usize,
    n_fields: usize,
    is_short: bool,
    version: Option<u8>,
}

impl Redundant {
    #[inline]
    fn read(bytes: &[u8], origin: usize) -> Result<Self, Fault> {
        let start = origin.wrapping_sub(REDUNDANT_HEADER_BYTES);
        let header: Option<&[u8; REDUNDANT_HEADER_BYTES]> =
            bytes.get(start..).and_then(|tail| tail.first_chunk());
        let Some(&[info, _, high, low, ..]) = header else { return Err(Fault::new(origin, OUTSIDE)) };
        let n_fields = usize::from(u16::from_be_bytes([high, low]) >> 1 & 0x3ff);
        ensure(n_fields > 0, origin, "a record has no fields")?;
        let version = match info & INFO_VERSION {
            0 => None,
            _ => Some(*bytes.get(start.wrapping_sub(1)).ok_or(Fault::new(origin, OUTSIDE))?),
        };
        Ok(Self { origin, n_fields, is_short: low & 1 != 0, version })
    }

    fn extra_bytes(&self) -> usize {
        let width = if self.is_short { 1 } else { 2 };
        REDUNDANT_HEADER_BYTES + usize::from(self.version.is_some()) + self.n_fields * width
    }

    /// Where the end of the stored field `number` is stored.
    fn end_info(&self, number: usize) -> EndInfo {
        let below = REDUNDANT_HEADER_BYTES + usize::from(self.version.is_some());
        let width = if self.is_short { 1 } else { 2 };
        EndInfo { offset: self.origin.wrapping_sub(below + (number + 1) * width), is_short: self.is_short }
    }

    /// End of the stored field `number` relative to the origin, and whether it is NULL.
    fn end(&self, bytes: &[u8], number: usize) -> Result<(usize, bool), Fault> {
        let at = self.end_info(number).offset;
        let outside = Fault::new(self.origin, OUTSIDE);
        if self.is_short {
            let end = *bytes.get(at).ok_or(outside)?;
            Ok((usize::from(end & 0x7f), end & 0x80 != 0))
        } else {
            let end = crate::layout::get_u16(bytes, at).ok_or(outside)?;
            Ok((usize::from(end & 0x3fff), end & 0x8000 != 0))
        }
    }

    fn size(&self, bytes: &[u8]) -> Result<RecordSize, Fault> {
        let (data_bytes, _) = self.end(bytes, self.n_fields - 1)?;
        let extra_bytes = self.extra_bytes();
        let is_inside = extra_bytes <= self.origin && self.origin + data_bytes <= bytes.len();
        ensure(is_inside, self.origin, OUTSIDE)?;
        Ok(RecordSize { extra_bytes, data_bytes })
    }

    fn field(
        &self,
        bytes: &[u8],
        instant: Option<&InstantIndex>,
        physical: usize,
    ) -> Result<FieldPlace, Fault> {
        let missing = Fault::new(self.origin, "the record does not have the field");
        let mut number = physical;
        if let (Some(instant), Some(version)) = (instant, self.version) {
            let before = instant.physical.get(..physical).ok_or(missing)?;
            let is_there = instant.physical.get(physical).is_some_and(|field| field.is_in(version));
            ensure(is_there, self.origin, missing.what)?;
            let dropped = |field: &&PhysicalField| field.version_dropped.is_some_and(|at| at <= version);
            number -= before.iter().filter(dropped).count();
        }
        ensure(number < self.n_fields, self.origin, missing.what)?;
        let start = match number.checked_sub(1) {
            None => 0,
            Some(previous) => self.end(bytes, previous)?.0,
        };
        let (end, is_null) = self.end(bytes, number)?;
        let len_bytes = end.checked_sub(start).ok_or(Fault::new(self.origin, OUTSIDE))?;
        let end_info = Some(self.end_info(number));
        Ok(FieldPlace { offset: self.origin + start, len_bytes, is_null, end_info })
    }
}

/// Set or clear the NULL bit of a field of a REDUNDANT record.
pub(super) fn set_null(frame: &mut Frame<'_>, info: EndInfo, is_null: bool) -> Result<(), Fault> {
    let byte = frame.u8(info.offset)?;
    frame.set_u8(info.offset, if is_null { byte | 0x80 } else { byte & 0x7f })
}

#[cfg(test)]
mod tests;
