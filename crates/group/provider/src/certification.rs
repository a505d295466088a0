//! Certification: which write sets conflict. Verdicts depend only on the order, so they are the same at every member.
//!
//! The module owns an array of the keys of earlier write sets, whose size never changes, and the rules by which a write
//! set is compared with it.
//!
//! # Rules
//!
//! A write set was made while everything up to its `last_seen` was committed at its server. It was made without the
//! write sets between `last_seen` and its own position in the order. It conflicts with a passed one of these if that
//! one is of another origin or ran in isolation, and both have a key whose kinds exclude each other:
//!
//! | earlier \ later | shared | reference | update | exclusive |
//! |---|---|---|---|---|
//! | **shared** | | | depends | depends |
//! | **reference** | | | depends | conflict |
//! | **update** | depends | depends | conflict | conflict |
//! | **exclusive** | conflict | conflict | conflict | conflict |
//!
//! A write set that passes depends on the newest write set that it meets in a non-empty cell, of any origin and on
//! either side of `last_seen`. Members must not apply it earlier.
//!
//! * An isolated write set always passes. It depends on everything before it, and everything later depends on it.
//! * Everything later also depends on a write set that is flagged as unsafe for parallel applying.
//! * A part of a transaction after its first one depends on everything up to its `last_seen`, where the previous part
//!   is: parts are applied one after the other. So does a flagged write set ([`WriteSet::depends_on_all_seen`]).
//! * A rollback of the previous parts always passes, and depends on everything before it.
//! * A conflicting write set leaves no trace.
//!
//! Passed parts hold their rows at every member until the transaction ends, so they need not be remembered for longer
//! than a whole transaction: a write set that has seen such a part cannot have written its rows.
//!
//! # The array
//!
//! Each key may lie in one of two sets, chosen by different bits of its hash, of four entries each. If none of those
//! eight is free, the least recently touched entry is evicted, and the *floor* rises to the write set that touched it.
//! Everything up to the floor is forgotten: a write set with `last_seen` below the floor is refused, and every write
//! set depends on the floor at least. So a small array costs needless conflicts and dependencies, but never lets a
//! conflict pass. Entries up to the floor count as free, so purging is unnecessary.
//!
//! Measured distance from the floor to the newest key, with 2^16 sets and 4 million different keys: 57,000 keys on
//! average, 24,000 at the worst. (With one set for each key instead of two: 18,000 and 2,400.) A write set with more
//! keys than that evicts entries that others need, and its own. All transactions under way are then refused.
//!
//! A set has 256 bytes, four lines of the cache, 64 bytes for each entry. The array has 16 MiB by default.
//!
//! | line | content, for each of the four entries |
//! |---|---|
//! | 0 | hash (8); newest write set with the key (4), newest of those with kind update or exclusive (4) |
//! | 1 | *rivals* of shared and reference: those of kind exclusive |
//! | 2 | rivals of update: those of kind update, exclusive |
//! | 3 | rivals of exclusive: those of kind reference, update, exclusive |
//!
//! Rivals are three fields: an origin (8), its newest write set (4), and the newest write set of any *other* origin
//! (4). The last field is needed. If the newest reference to a row is my own, an older one of another origin still
//! forbids that I delete the row, and two references do not exclude each other. An isolated write set is a rival of its
//! own origin, too, and fills both fields. This is exact for any order of write sets and any number of origins.
//!
//! Checking a key reads the first line of its two sets, and one line more if the key was touched after `last_seen`.
//! Remembering a key of kind exclusive writes four lines, update three, reference two, shared one.
//!
//! Sequence numbers in entries are distances from a *base* that is not above the floor, so that four bytes are enough.
//! When the distance does not fit any more, the base moves up by at least 2^31, and with it the floor.
//!
//! Invariants:
//! * `base <= floor <= last certified`.
//! * Verdicts and evictions depend only on entries above the floor. So an array that was encoded and decoded, which
//!   loses the other entries, continues exactly like its original.
//! * No key has two entries above the floor.
//!
//! # As bytes
//!
//! All numbers are little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version of the layout, 1 |
//! | 1 | logarithm (base 2) of the number of sets |
//! | 8 | base |
//! | 8 | floor |
//! | 8 | last certified |
//! | 8 | last one that everything later depends on; 0: none |
//! | 8 | evictions |
//! | 4 | number of entries above the floor |
//!
//! Each entry, in array order:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | place: number of the set × 4 + number in the set |
//! | 8 | hash |
//! | 4 | distance of the newest write set with the key |
//! | 1 | shapes of the rivals in lines 1, 2, 3: two bits each, from the lowest |
//! | 4, 8 | for each line with shape 2 or 3: distance of the newest rival, its origin |
//! | 4 | with shape 3: distance of the newest one of another origin |
//!
//! Shape 0: no rivals. 1: the same rivals as the previous line. 2: none of another origin. 3: with one of another
//! origin. The smallest shape that fits is the only valid one. An entry for a row that was touched once has 29 bytes.

use super::write_set::{KeyHash, KeyKind, Seqno, WriteSet};
use redoubt_codec::{Reader, Truncated};

/// The member and incarnation of a write set. Write sets of one origin do not conflict: their server serialised them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Origin(pub u64);

/// Outcome of certification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is applied at every member.
    Passed {
        /// Everything up to here must be applied first. Always before the write set itself.
        depends_on: Seqno,
    },
    /// It is rolled back at its origin, and ignored everywhere else.
    Conflict,
}

/// Default number of sets, as its logarithm: 2^18 entries, 16 MiB.
pub const DEFAULT_SETS_LOG2: u32 = 16;
/// The largest array: 256 MiB.
pub const MAX_SETS_LOG2: u32 = 20;

const VERSION: u8 = 1;
const WAYS: usize = 4;
const LINES_OF_RIVALS: usize = 3;
/// Distance that is kept when the base moves.
const KEPT_DISTANCE: i64 = 1 << 31;

/// Write sets with which one line of the table conflicts, as distances; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Rivals {
    origin: u64,
    newest: u32,
    other: u32,
}

impl Rivals {
    fn record(&mut self, seqno: u32, origin: Origin, is_isolated: bool) {
        if is_isolated {
            self.other = seqno;
        } else if self.origin != origin.0 {
            self.other = self.newest;
        }
        self.origin = origin.0;
        self.newest = seqno;
    }

    fn newest_against(&self, origin: Origin) -> u32 {
        if self.origin == origin.0 { self.other } else { self.newest }
    }
}

/// Four entries. All zero: four free entries.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Set {
    hash: [u64; WAYS],
    /// Newest write set of any kind. 0: the entry is free.
    newest: [u32; WAYS],
    /// Newest write set of kind update or exclusive.
    newest_change: [u32; WAYS],
    rivals: [[Rivals; WAYS]; LINES_OF_RIVALS],
}

const _: () = assert!(size_of::<Set>() == 256);

/// The line of rivals with which a key of this kind is compared.
const fn line_against(kind: KeyKind) -> usize {
    match kind {
        KeyKind::Shared | KeyKind::Reference => 0,
        KeyKind::Update => 1,
        KeyKind::Exclusive => 2,
    }
}

/// The first line in which a key of this kind is a rival. It is a rival in all following lines, too.
const fn first_line_of(kind: KeyKind) -> usize {
    match kind {
        KeyKind::Exclusive => 0,
        KeyKind::Update => 1,
        KeyKind::Reference => 2,
        KeyKind::Shared => LINES_OF_RIVALS,
    }
}

impl Set {
    /// The newest write set that a key of this kind depends on.
    fn newest_for(&self, way: usize, kind: KeyKind) -> u32 {
        match kind {
            KeyKind::Shared | KeyKind::Reference => self.newest_change[way],
            KeyKind::Update | KeyKind::Exclusive => self.newest[way],
        }
    }

    fn clear(&mut self, way: usize, hash: KeyHash) {
        self.hash[way] = hash.0;
        self.newest[way] = 0;
        self.newest_change[way] = 0;
        for line in &mut self.rivals {
            line[way] = Rivals::default();
        }
    }

    fn record(&mut self, way: usize, kind: KeyKind, touch: Touch) {
        self.newest[way] = touch.seqno;
        if kind >= KeyKind::Update {
            self.newest_change[way] = touch.seqno;
        }
        for line in &mut self.rivals[first_line_of(kind)..] {
            line[way].record(touch.seqno, touch.origin, touch.is_isolated);
        }
    }

    /// Reduces all distances. Write sets up to the new base are forgotten.
    fn move_base(&mut self, by: u32) {
        let numbers = self.newest.iter_mut().chain(&mut self.newest_change);
        let rivals = self.rivals.iter_mut().flatten();
        for number in numbers.chain(rivals.flat_map(|rivals| [&mut rivals.newest, &mut rivals.other])) {
            *number = number.saturating_sub(by);
        }
    }
}

/// A write set that is being recorded.
#[derive(Clone, Copy)]
struct Touch {
    seqno: u32,
    origin: Origin,
    is_isolated: bool,
}

/// An entry of the array.
#[derive(Clone, Copy)]
struct Place {
    set: usize,
    way: usize,
}

/// The keys of earlier write sets.
#[derive(Clone)]
pub struct Certification {
    sets: Box<[Set]>,
    base: i64,
    floor: Seqno,
    last: Seqno,
    last_unsafe: Seqno,
    evictions: u64,
}

impl Default for Certification {
    fn default() -> Self {
        Self::new(DEFAULT_SETS_LOG2)
    }
}

impl Certification {
    /// An empty array with 2^`sets_log2` sets, at most 2^[`MAX_SETS_LOG2`]. All members of a group must have the same
    /// number.
    pub fn new(sets_log2: u32) -> Self {
        Self {
            sets: vec![Set::default(); 1 << sets_log2.min(MAX_SETS_LOG2)].into_boxed_slice(),
            base: 0,
            floor: Seqno(0),
            last: Seqno(0),
            last_unsafe: Seqno(0),
            evictions: 0,
        }
    }

    /// Forgets everything. The next write set comes after `seqno`, and all earlier ones are forgotten.
    pub fn starting_at(&mut self, seqno: Seqno) {
        self.sets.fill(Set::default());
        self.floor = seqno.max(Seqno(0));
        self.base = self.floor.0;
        self.last = self.floor;
        self.last_unsafe = Seqno(0);
        self.evictions = 0;
    }

    /// Certifies the write set at this position in the order, and records its keys if it passes.
    ///
    /// A write set whose `last_seen` is not before its own position is refused.
    ///
    /// # Panics
    /// If `seqno` is not above that of the previous call, or above the start: the members would no longer agree.
    pub fn certify(&mut self, seqno: Seqno, origin: Origin, write_set: &WriteSet) -> Verdict {
        assert!(seqno > self.last, "{seqno} is certified after {}", self.last);
        self.make_distance_fit(seqno);
        self.last = seqno;
        let verdict = self.verdict(seqno, origin, write_set);
        if matches!(verdict, Verdict::Passed { .. }) {
            self.remember(seqno, origin, write_set);
        }
        verdict
    }

    /// Refuses the write set at this position in the order.
    ///
    /// # Panics
    /// As [`Certification::certify`].
    pub fn refuse(&mut self, seqno: Seqno) -> Verdict {
        assert!(seqno > self.last, "{seqno} is refused after {}", self.last);
        self.make_distance_fit(seqno);
        self.last = seqno;
        Verdict::Conflict
    }

    /// Everything up to here is forgotten.
    pub fn floor(&self) -> Seqno {
        self.floor
    }

    /// The last certified write set, or the start.
    pub fn last(&self) -> Seqno {
        self.last
    }

    /// Number of evictions: how often the floor rose because there was no room for a key. Reset by
    /// [`Certification::starting_at`].
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    fn verdict(&self, seqno: Seqno, origin: Origin, write_set: &WriteSet) -> Verdict {
        if write_set.is_isolated() || write_set.rolls_back() {
            return Verdict::Passed { depends_on: Seqno(seqno.0 - 1) };
        }
        if write_set.last_seen < self.floor || write_set.last_seen >= seqno {
            return Verdict::Conflict;
        }
        let last_seen = self.distance(write_set.last_seen);
        let mut newest_met = 0;
        for (hash, kind) in write_set.keys.iter() {
            let Some(Place { set, way }) = self.find(hash) else { continue };
            let set = &self.sets[set];
            let newest = set.newest_for(way, kind);
            if newest > last_seen && set.rivals[line_against(kind)][way].newest_against(origin) > last_seen {
                return Verdict::Conflict;
            }
            newest_met = newest_met.max(newest);
        }
        let newest_met = Seqno(self.base + i64::from(newest_met));
        let before = if write_set.depends_on_all_seen() { write_set.last_seen } else { Seqno(0) };
        Verdict::Passed { depends_on: newest_met.max(self.last_unsafe).max(self.floor).max(before) }
    }

    fn remember(&mut self, seqno: Seqno, origin: Origin, write_set: &WriteSet) {
        if write_set.is_parallel_unsafe() {
            self.last_unsafe = seqno;
        }
        let touch = Touch { seqno: self.distance(seqno), origin, is_isolated: write_set.is_isolated() };
        for (hash, kind) in write_set.keys.iter() {
            let Place { set, way } = self.find(hash).unwrap_or_else(|| self.make_room(hash));
            self.sets[set].record(way, kind, touch);
            if self.floor == seqno {
                // It has evicted one of its own keys, so all of its keys are forgotten.
                return;
            }
        }
    }

    /// Distance from the base, which is not above `seqno`. That of the last certified write set fits.
    fn distance(&self, seqno: Seqno) -> u32 {
        (seqno.0 - self.base) as u32
    }

    /// The two sets in which a key may lie, possibly the same.
    fn sets_of(&self, hash: KeyHash) -> [usize; 2] {
        let mask = self.sets.len() as u64 - 1;
        [hash.0 & mask, hash.0.rotate_right(32) & mask].map(|set| set as usize)
    }

    /// The entry of a key, unless it has none or is forgotten.
    fn find(&self, hash: KeyHash) -> Option<Place> {
        let floor = self.distance(self.floor);
        self.sets_of(hash).into_iter().find_map(|at| {
            let set = &self.sets[at];
            let is_it = |way: &usize| set.hash[*way] == hash.0 && set.newest[*way] > floor;
            (0..WAYS).find(is_it).map(|way| Place { set: at, way })
        })
    }

    /// A cleared entry for a key that has none: the first that counts as free, or the oldest.
    fn make_room(&mut self, hash: KeyHash) -> Place {
        let floor = self.distance(self.floor);
        let [first, second] = self.sets_of(hash);
        let (mut place, mut oldest) = (Place { set: first, way: 0 }, u32::MAX);
        for set in [first, second] {
            for way in 0..WAYS {
                let newest = self.sets[set].newest[way];
                let newest = if newest > floor { newest } else { 0 };
                if newest < oldest {
                    (place, oldest) = (Place { set, way }, newest);
                }
            }
        }
        if oldest > 0 {
            self.evictions = self.evictions.saturating_add(1);
            self.floor = Seqno(self.base + i64::from(oldest));
        }
        self.sets[place.set].clear(place.way, hash);
        place
    }

    fn make_distance_fit(&mut self, seqno: Seqno) {
        if u32::try_from(seqno.0 - self.base).is_ok() {
            return;
        }
        let base = seqno.0 - KEPT_DISTANCE;
        let by = u32::try_from(base - self.base).unwrap_or(u32::MAX);
        self.sets.iter_mut().for_each(|set| set.move_base(by));
        self.base = base;
        self.floor = self.floor.max(Seqno(base));
    }
}

/// Format in checkpoints and in snapshots for newcomers.
impl Certification {
    /// Appends everything above the floor. [`Certification::decode`] builds an array from it that behaves the same.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let floor = self.distance(self.floor);
        let places = self.sets.iter().flat_map(|set| (0..WAYS).map(move |way| (set, way)));
        let used = places.zip(0u32..).filter(|((set, way), _)| set.newest[*way] > floor);
        out.extend_from_slice(&[VERSION, self.sets.len().ilog2() as u8]);
        for seqno in [self.base, self.floor.0, self.last.0, self.last_unsafe.0] {
            out.extend_from_slice(&seqno.to_le_bytes());
        }
        out.extend_from_slice(&self.evictions.to_le_bytes());
        out.extend_from_slice(&(used.clone().count() as u32).to_le_bytes());
        for ((set, way), place) in used {
            out.extend_from_slice(&place.to_le_bytes());
            set.encode(way, out);
        }
    }

    /// Decodes the output of [`Certification::encode`]. Only the format is checked: a checksum has to detect changed
    /// bytes.
    ///
    /// # Errors
    /// [`CertificationError`]: these bytes are not in the format.
    pub fn decode(bytes: &[u8]) -> Result<Self, CertificationError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8("version")?;
        if version != VERSION {
            return Err(CertificationError::UnknownVersion { version });
        }
        let mut this = Self::decode_head(&mut reader)?;
        let at_byte = reader.at_byte();
        let (count, mut next) = (reader.u32("number of entries")?, 0);
        if count as usize > this.sets.len() * WAYS {
            return Err(CertificationError::Invalid { what: "number of entries", at_byte });
        }
        for _ in 0..count {
            next = this.decode_entry(&mut reader, next)? + 1;
        }
        match reader.rest() {
            [] => Ok(this),
            _ => Err(CertificationError::Invalid { what: "end", at_byte: reader.at_byte() }),
        }
    }

    fn decode_head(reader: &mut Reader<'_>) -> Result<Self, CertificationError> {
        let at_byte = reader.at_byte();
        let sets_log2 = u32::from(reader.u8("number of sets")?);
        if sets_log2 > MAX_SETS_LOG2 {
            return Err(CertificationError::Invalid { what: "number of sets", at_byte });
        }
        let at_byte = reader.at_byte();
        let mut seqno = || reader.i64("sequence numbers");
        let [base, floor, last, last_unsafe] = [seqno()?, seqno()?, seqno()?, seqno()?];
        let is_ordered = 0 <= base && base <= floor && floor <= last && (0..=last).contains(&last_unsafe);
        if !is_ordered || u32::try_from(last - base).is_err() {
            return Err(CertificationError::Invalid { what: "sequence numbers", at_byte });
        }
        Ok(Self {
            base,
            floor: Seqno(floor),
            last: Seqno(last),
            last_unsafe: Seqno(last_unsafe),
            evictions: reader.u64("evictions")?,
            ..Self::new(sets_log2)
        })
    }

    /// Decodes one entry, whose place is not before `from`. Returns its place.
    fn decode_entry(&mut self, reader: &mut Reader<'_>, from: u32) -> Result<u32, CertificationError> {
        let at_byte = reader.at_byte();
        let number = reader.u32("place")?;
        let hash = KeyHash(reader.u64("hash")?);
        let place = Place { set: number as usize / WAYS, way: number as usize % WAYS };
        if number < from || !self.sets_of(hash).contains(&place.set) || self.find(hash).is_some() {
            return Err(CertificationError::Invalid { what: "place", at_byte });
        }
        let (above, up_to) = (self.distance(self.floor), self.distance(self.last));
        let set = &mut self.sets[place.set];
        set.hash[place.way] = hash.0;
        set.decode(place.way, reader)?;
        if !(above + 1..=up_to).contains(&set.newest[place.way]) {
            return Err(CertificationError::Invalid { what: "newest", at_byte });
        }
        Ok(number)
    }
}

impl Set {
    fn encode(&self, way: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash[way].to_le_bytes());
        out.extend_from_slice(&self.newest[way].to_le_bytes());
        let shapes_at = out.len();
        out.push(0);
        let (mut before, mut shapes) = (Rivals::default(), 0);
        for (line, shift) in self.rivals.iter().zip([0, 2, 4]) {
            let rivals = line[way];
            let shape = rivals.shape(before);
            shapes |= shape << shift;
            if shape >= Rivals::ALONE {
                out.extend_from_slice(&rivals.newest.to_le_bytes());
                out.extend_from_slice(&rivals.origin.to_le_bytes());
            }
            if shape == Rivals::WHOLE {
                out.extend_from_slice(&rivals.other.to_le_bytes());
            }
            before = rivals;
        }
        out[shapes_at] = shapes;
    }

    /// Decodes everything but the hash. The caller checks that the newest write set is above the floor.
    fn decode(&mut self, way: usize, reader: &mut Reader<'_>) -> Result<(), CertificationError> {
        self.newest[way] = reader.u32("newest")?;
        let at_byte = reader.at_byte();
        let shapes = reader.u8("shapes")?;
        let mut before = Rivals::default();
        for (line, shift) in self.rivals.iter_mut().zip([0, 2, 4]) {
            let shape = shapes >> shift & 3;
            let rivals = Rivals::decode(shape, before, reader)?;
            let is_sound = rivals.shape(before) == shape
                && rivals.other <= rivals.newest
                && (before.newest..=self.newest[way]).contains(&rivals.newest);
            if !is_sound {
                return Err(CertificationError::Invalid { what: "rivals", at_byte });
            }
            (line[way], before) = (rivals, rivals);
        }
        if shapes >> 6 != 0 {
            return Err(CertificationError::Invalid { what: "shapes", at_byte });
        }
        self.newest_change[way] = self.rivals[line_against(KeyKind::Update)][way].newest;
        Ok(())
    }
}

impl Rivals {
    const NONE: u8 = 0;
    const AS_BEFORE: u8 = 1;
    const ALONE: u8 = 2;
    const WHOLE: u8 = 3;

    fn shape(self, before: Self) -> u8 {
        match self {
            Self { newest: 0, .. } => Self::NONE,
            _ if self == before => Self::AS_BEFORE,
            Self { other: 0, .. } => Self::ALONE,
            _ => Self::WHOLE,
        }
    }

    fn decode(shape: u8, before: Self, reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(match shape {
            Self::NONE => Self::default(),
            Self::AS_BEFORE => before,
            _ => Self {
                newest: reader.u32("rival")?,
                origin: reader.u64("origin")?,
                other: if shape == Self::WHOLE { reader.u32("other rival")? } else { 0 },
            },
        })
    }
}

/// Reason why bytes are not a valid [`Certification`]. Positions are counted in bytes from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CertificationError {
    /// Too few bytes.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// A later format, or none.
    #[error("unknown layout version {version} at byte 0; this library reads version {VERSION}")]
    UnknownVersion {
        /// The version in the bytes.
        version: u8,
    },
    /// A field that contradicts others, or extra bytes.
    #[error("invalid {what} at byte {at_byte}")]
    Invalid {
        /// Name of the field.
        what: &'static str,
        /// Position of the field, or of its entry.
        at_byte: usize,
    },
}

#[cfg(test)]
#[path = "certification/tests.rs"]
mod tests;
