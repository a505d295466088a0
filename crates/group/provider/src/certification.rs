//! Which write sets conflict: the same verdict at every member, as it depends on nothing but the order.
//!
//! Owns what is remembered of the keys of earlier write sets, in an array that is as large after a year as at the
//! beginning, and the rules by which a write set is held against it.
//!
//! # Rules
//!
//! A write set was made while everything up to its `last_seen` was committed at its server. What came between that and
//! its own place in the order it does not know. It conflicts if a write set from there, that passed, is of another
//! origin or ran in isolation, and both have a key whose kinds exclude each other:
//!
//! | earlier \ later | shared | reference | update | exclusive |
//! |---|---|---|---|---|
//! | **shared** | | | depends | depends |
//! | **reference** | | | depends | conflict |
//! | **update** | depends | depends | conflict | conflict |
//! | **exclusive** | conflict | conflict | conflict | conflict |
//!
//! If it passes, it depends on the newest write set that it meets in a cell that is not empty, whoever that is from
//! and whether or not it is before `last_seen`: members must not apply it earlier.
//!
//! * One that runs in isolation always passes. It depends on everything before it, and everything later depends on it.
//! * Everything later also depends on one that is flagged as unsafe for parallel applying.
//! * A part of a transaction after its first one depends on everything up to its `last_seen`, where the part before it
//!   is: parts are applied one after the other. So does one that is flagged so ([`WriteSet::depends_on_all_seen`]).
//! * The word that the parts before it are given up always passes, and depends on everything before it.
//! * One that conflicts leaves nothing behind.
//!
//! Parts that have passed hold their rows at every member until the transaction ends, so that nobody has to remember
//! them for longer than a whole transaction: who has seen such a part cannot have written its rows.
//!
//! # The array
//!
//! Each key may lie in one of two sets, chosen by different bits of its hash, of four entries each. If none of those
//! eight is free, the one that was touched longest ago goes, and the *floor* rises to the write set that touched it.
//! What is not above the floor is forgotten: a write set with `last_seen` below the floor is refused, and each depends
//! on the floor at least. So a small array costs needless conflicts and dependencies, and can never let a conflict
//! pass. Entries that are not above the floor are as good as free, so nothing is ever purged.
//!
//! How far the floor stays behind, with 2^16 sets, in a run of 4 million keys that are all different: 57,000 keys on
//! average, 24,000 at the worst. (With one set for each key instead of two: 18,000 and 2,400.) A write set with more
//! keys than that pushes out what others need, and its own: whatever is under way then is refused.
//!
//! A set has 256 bytes, four lines of the cache, 64 bytes for each entry. The array has 16 MiB by default.
//!
//! | line | content, for each of the four entries |
//! |---|---|
//! | 0 | hash (8); newest write set with the key (4), newest of those with kind update or exclusive (4) |
//! | 1 | what shared and reference conflict with: *rivals* of kind exclusive |
//! | 2 | what update conflicts with: rivals of kind update, exclusive |
//! | 3 | what exclusive conflicts with: rivals of kind reference, update, exclusive |
//!
//! Rivals are an origin (8), the newest write set (4), which is from this origin, and the newest one of any *other*
//! origin (4). The last one is needed: if the newest reference to a row is my own, an older one of somebody else still
//! forbids that I delete the row, and two references do not exclude each other. One that ran in isolation is a rival
//! of its own origin, too, and is both. That is exact for any order of write sets, however many origins there are.
//!
//! Checking a key reads the first line of its two sets, and one line more if the key was touched after `last_seen`.
//! Remembering a key of kind exclusive writes four lines, update three, reference two, shared one.
//!
//! Sequence numbers in entries are distances from a *base* that is not above the floor, so that four bytes are enough.
//! When the distance does not fit any more, the base moves up by at least 2^31, and with it the floor.
//!
//! Invariants:
//! * `base <= floor <= last certified`.
//! * Verdicts depend on entries above the floor only, and which entry is replaced next does, too. So an array that
//!   was encoded and decoded, which loses the others, goes on exactly as the one that it comes from.
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
//! Each entry, in order of their places:
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
//! Shape 0: there are no rivals. 1: they are those of the line before. 2: there is none of another origin. 3: there is.
//! The smallest shape that fits is the right one. An entry for a row that was touched once has 29 bytes.

use super::write_set::{KeyHash, KeyKind, Seqno, WriteSet};
use redoubt_codec::{Reader, Truncated};

/// Which member, in which of its lives, a write set is from. Write sets of one origin do not conflict: its server has
/// seen to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Origin(pub u64);

/// What becomes of a write set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is to be applied, at every member.
    Passed {
        /// But not before everything up to here was. Always before the write set itself.
        depends_on: Seqno,
    },
    /// It is to be rolled back where it came from, and nowhere else does anything happen.
    Conflict,
}

/// Number of sets, as its logarithm, if nobody says otherwise: 2^18 entries, 16 MiB.
pub const DEFAULT_SETS_LOG2: u32 = 16;
/// The largest array: 256 MiB.
pub const MAX_SETS_LOG2: u32 = 20;

const VERSION: u8 = 1;
const WAYS: usize = 4;
const LINES_OF_RIVALS: usize = 3;
/// How much is kept when the base moves.
const KEPT_DISTANCE: i64 = 1 << 31;

/// Write sets that one line of the table conflicts with. Distances; 0: none.
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

/// Four entries. Zero is four free entries.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Set {
    hash: [u64; WAYS],
    /// Of any kind. 0: the entry is free.
    newest: [u32; WAYS],
    /// Of kind update or exclusive.
    newest_change: [u32; WAYS],
    rivals: [[Rivals; WAYS]; LINES_OF_RIVALS],
}

const _: () = assert!(size_of::<Set>() == 256);

/// Which line of rivals a key of this kind is held against.
const fn line_against(kind: KeyKind) -> usize {
    match kind {
        KeyKind::Shared | KeyKind::Reference => 0,
        KeyKind::Update => 1,
        KeyKind::Exclusive => 2,
    }
}

/// The first line in which a key of this kind is a rival; it is one in all that follow, too.
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

    /// Distances become smaller by so much; what is not above the new base is forgotten.
    fn move_base(&mut self, by: u32) {
        let numbers = self.newest.iter_mut().chain(&mut self.newest_change);
        let rivals = self.rivals.iter_mut().flatten();
        for number in numbers.chain(rivals.flat_map(|rivals| [&mut rivals.newest, &mut rivals.other])) {
            *number = number.saturating_sub(by);
        }
    }
}

/// A write set that is being remembered.
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

/// What is remembered of earlier write sets.
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
    /// At the beginning of everything, with 2^`sets_log2` sets, at most 2^[`MAX_SETS_LOG2`]. All members of a group
    /// must have the same number.
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

    /// Forgets everything. What comes next is after `seqno`, and of what was up to there nothing is known.
    pub fn starting_at(&mut self, seqno: Seqno) {
        self.sets.fill(Set::default());
        self.floor = seqno.max(Seqno(0));
        self.base = self.floor.0;
        self.last = self.floor;
        self.last_unsafe = Seqno(0);
        self.evictions = 0;
    }

    /// Says what becomes of the write set at this place in the order, and remembers it if it passes.
    ///
    /// One that claims to have seen itself, or what is later, is refused.
    ///
    /// # Panics
    /// If `seqno` is not above that of the call before, or above where it started: the members would no longer agree.
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

    /// Refuses what is at this place in the order.
    ///
    /// # Panics
    /// As [`Certification::certify`].
    pub fn refuse(&mut self, seqno: Seqno) -> Verdict {
        assert!(seqno > self.last, "{seqno} is refused after {}", self.last);
        self.make_distance_fit(seqno);
        self.last = seqno;
        Verdict::Conflict
    }

    /// What is up to here is forgotten.
    pub fn floor(&self) -> Seqno {
        self.floor
    }

    /// The last write set that was certified, or where it started.
    pub fn last(&self) -> Seqno {
        self.last
    }

    /// How often the floor had to rise because there was no room for a key. Starts again with
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
                // It has pushed out one of its own keys: nothing of it counts any more.
                return;
            }
        }
    }

    /// From the base, which is not above `seqno`; the last one that was certified has a distance that fits.
    fn distance(&self, seqno: Seqno) -> u32 {
        (seqno.0 - self.base) as u32
    }

    /// The two sets in which a key may lie; they may be the same one.
    fn sets_of(&self, hash: KeyHash) -> [usize; 2] {
        let mask = self.sets.len() as u64 - 1;
        [hash.0 & mask, hash.0.rotate_right(32) & mask].map(|set| set as usize)
    }

    /// Where the key is, unless it was never there or is forgotten.
    fn find(&self, hash: KeyHash) -> Option<Place> {
        let floor = self.distance(self.floor);
        self.sets_of(hash).into_iter().find_map(|at| {
            let set = &self.sets[at];
            let is_it = |way: &usize| set.hash[*way] == hash.0 && set.newest[*way] > floor;
            (0..WAYS).find(is_it).map(|way| Place { set: at, way })
        })
    }

    /// A cleared entry for a key that is not there: the first of those that are as good as free, or the oldest.
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

/// Layout of what is kept in checkpoints and given to those who join.
impl Certification {
    /// Appends everything that matters; [`Certification::decode`] makes an array of it that goes on in the same way.
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

    /// What [`Certification::encode`] has made. Only the layout is checked: whether these are the bytes that were
    /// encoded is for a checksum to say.
    ///
    /// # Errors
    /// [`CertificationError`]: these bytes are nothing that it makes.
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

    /// One entry, whose place is not before `from`. Returns its place.
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

    /// Everything but the hash. Whether the newest write set is above the floor is not known here.
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

/// Why bytes are no [`Certification`]. Places are counted in bytes from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CertificationError {
    /// They end too early.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// A layout that came later, or none.
    #[error("unknown layout version {version} at byte 0; this library reads version {VERSION}")]
    UnknownVersion {
        /// The version that they say.
        version: u8,
    },
    /// A field that contradicts others, or the place where the bytes should have ended.
    #[error("invalid {what} at byte {at_byte}")]
    Invalid {
        /// Which field.
        what: &'static str,
        /// Where it is, or where its entry begins.
        at_byte: usize,
    },
}

#[cfg(test)]
#[path = "certification/tests.rs"]
mod tests;
