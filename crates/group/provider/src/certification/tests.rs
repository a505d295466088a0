use super::super::write_set::Keys;
use super::*;

/// The table of the module, with earlier kinds from top to bottom.
const TABLE: [&str; 4] = ["..DD", "..DC", "DDCC", "CCCC"];

fn cell(earlier: KeyKind, later: KeyKind) -> u8 {
    TABLE[earlier as usize].as_bytes()[later as usize]
}

const WHOLE: u32 = WriteSet::START | WriteSet::END;

fn write_set(last_seen: i64, keys: &[(&str, KeyKind)]) -> WriteSet {
    let mut found = Keys::default();
    keys.iter().for_each(|(name, kind)| found.add(&[name.as_bytes()], *kind));
    WriteSet { flags: WHOLE, last_seen: Seqno(last_seen), keys: found, ..WriteSet::default() }
}

fn flagged(flags: u32, write_set: WriteSet) -> WriteSet {
    WriteSet { flags: WHOLE | flags, ..write_set }
}

fn passed(depends_on: i64) -> Verdict {
    Verdict::Passed { depends_on: Seqno(depends_on) }
}

/// Model without an array: it stores everything, and compares with all of it.
#[derive(Default)]
struct Model {
    history: Vec<(Seqno, Origin, WriteSet)>,
}

impl Model {
    /// Verdict on a write set that is not isolated.
    fn meets(&self, origin: Origin, write_set: &WriteSet) -> Verdict {
        let mut depends_on = Seqno(0);
        for (seqno, earlier_origin, earlier) in &self.history {
            let excludes = earlier.is_isolated() || *earlier_origin != origin;
            for (hash, kind) in write_set.keys.iter() {
                let Some((_, earlier_kind)) = earlier.keys.iter().find(|key| key.0 == hash) else { continue };
                match cell(earlier_kind, kind) {
                    b'C' if excludes && *seqno > write_set.last_seen => return Verdict::Conflict,
                    b'C' | b'D' => depends_on = depends_on.max(*seqno),
                    _ => {}
                }
            }
            if earlier.is_parallel_unsafe() {
                depends_on = depends_on.max(*seqno);
            }
        }
        if write_set.depends_on_all_seen() {
            depends_on = depends_on.max(write_set.last_seen);
        }
        Verdict::Passed { depends_on }
    }

    /// Expected verdict of an array with this floor.
    fn certify(&mut self, seqno: Seqno, origin: Origin, write_set: &WriteSet, floor: Seqno) -> Verdict {
        let verdict = if write_set.is_isolated() || write_set.rolls_back() {
            passed(seqno.0 - 1)
        } else if write_set.last_seen < floor {
            Verdict::Conflict
        } else {
            match self.meets(origin, write_set) {
                Verdict::Passed { depends_on } => Verdict::Passed { depends_on: depends_on.max(floor) },
                Verdict::Conflict => Verdict::Conflict,
            }
        };
        if verdict != Verdict::Conflict {
            self.history.push((seqno, origin, write_set.clone()));
        }
        verdict
    }
}

/// Write sets over few keys, in an order with gaps. Their `last_seen` is close behind them, in no particular order.
struct Order {
    rng: fastrand::Rng,
    seqno: Seqno,
    keys: u32,
    origins: u64,
}

impl Order {
    fn new(seed: u64, keys: u32, origins: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), seqno: Seqno(0), keys, origins }
    }

    fn next(&mut self) -> (Seqno, Origin, WriteSet) {
        let rng = &mut self.rng;
        self.seqno.0 += if rng.u8(..10) == 0 { rng.i64(2..5) } else { 1 };
        let mut keys = Keys::default();
        for _ in 0..rng.usize(..4) {
            let kind = KeyKind::ALL[rng.usize(..4)];
            keys.add(&[&rng.u32(..self.keys).to_le_bytes()], kind);
        }
        let flags = match rng.u8(..40) {
            0 => WriteSet::ISOLATION,
            1 => WHOLE | WriteSet::PARALLEL_UNSAFE,
            2 => WriteSet::START,
            3 => 0,
            4 => WriteSet::END | WriteSet::PARALLEL_UNSAFE,
            5 => WriteSet::ROLLBACK | WriteSet::PARALLEL_UNSAFE,
            6 => WHOLE | WriteSet::IMPLICIT_DEPENDENCIES,
            _ => WHOLE,
        };
        let behind = rng.i64(1..20).min(rng.i64(1..20));
        let last_seen = Seqno((self.seqno.0 - behind).max(0));
        let write_set = WriteSet { flags, last_seen, keys, ..WriteSet::default() };
        (self.seqno, Origin(rng.u64(..self.origins)), write_set)
    }
}

fn bytes_of(certification: &Certification) -> Vec<u8> {
    let mut bytes = Vec::new();
    certification.encode(&mut bytes);
    bytes
}

fn again(certification: &Certification) -> Certification {
    Certification::decode(&bytes_of(certification)).unwrap()
}

#[test]
fn all_pairs_of_kinds_do_what_the_table_says() {
    for earlier in KeyKind::ALL {
        for later in KeyKind::ALL {
            let run = |flags, origin, last_seen| {
                let mut certification = Certification::new(2);
                let first = flagged(flags, write_set(0, &[("k", earlier)]));
                assert_eq!(certification.certify(Seqno(1), Origin(1), &first), passed(0));
                certification.certify(Seqno(2), Origin(origin), &write_set(last_seen, &[("k", later)]))
            };
            let cell = cell(earlier, later);
            let dependency = passed(i64::from(cell != b'.'));
            let conflict = if cell == b'C' { Verdict::Conflict } else { dependency };
            assert_eq!(run(0, 2, 0), conflict, "{earlier:?} then {later:?}");
            assert_eq!(run(0, 2, 1), dependency, "{later:?} has seen {earlier:?}");
            assert_eq!(run(0, 1, 0), dependency, "{earlier:?} then {later:?} of the same origin");
            // Everything depends on an isolated write set.
            let conflict = if cell == b'C' { Verdict::Conflict } else { passed(1) };
            assert_eq!(run(WriteSet::ISOLATION, 1, 0), conflict, "{earlier:?} in isolation, then {later:?}");
            assert_eq!(run(WriteSet::ISOLATION, 2, 0), conflict, "{earlier:?} in isolation, then {later:?}");
            assert_eq!(run(WriteSet::ISOLATION, 1, 1), passed(1));
        }
    }
}

/// If each kind had only the origin of its newest write set, the last one here would pass: both 2 and 3 are from origin
/// 2. The row to which origin 1 refers would be gone.
#[test]
fn an_older_reference_of_another_origin_is_not_hidden_by_my_own() {
    let mut certification = Certification::new(2);
    let reference = write_set(0, &[("parent", KeyKind::Reference)]);
    let delete = write_set(0, &[("parent", KeyKind::Exclusive)]);
    assert_eq!(certification.certify(Seqno(1), Origin(1), &reference), passed(0));
    assert_eq!(certification.certify(Seqno(2), Origin(2), &reference), passed(0));
    assert_eq!(certification.certify(Seqno(3), Origin(2), &delete), Verdict::Conflict);
    // Origin 2 has seen the reference of origin 1, so only its own reference remains, which does not conflict.
    let delete = write_set(1, &[("parent", KeyKind::Exclusive)]);
    assert_eq!(certification.certify(Seqno(4), Origin(2), &delete), passed(2));
}

/// The same for an isolated write set, followed by a later one of its origin that had seen it.
#[test]
fn what_ran_in_isolation_is_not_hidden_by_a_later_one_of_its_origin() {
    let mut certification = Certification::new(2);
    let key = [("table", KeyKind::Exclusive)];
    let isolated = flagged(WriteSet::ISOLATION, write_set(0, &key));
    assert_eq!(certification.certify(Seqno(1), Origin(1), &isolated), passed(0));
    assert_eq!(certification.certify(Seqno(2), Origin(1), &write_set(1, &key)), passed(1));
    assert_eq!(certification.certify(Seqno(3), Origin(1), &write_set(0, &key)), Verdict::Conflict);
    assert_eq!(certification.certify(Seqno(4), Origin(1), &write_set(1, &key)), passed(2));
}

#[test]
fn the_same_verdicts_as_with_the_whole_history_if_nothing_is_forgotten() {
    let (mut conflicts, mut passes) = (0, 0);
    for seed in 0..150 {
        let mut order = Order::new(seed, 2 + seed as u32 % 8, 1 + seed % 4);
        let (mut certification, mut model) = (Certification::new(6), Model::default());
        for _ in 0..200 {
            let (seqno, origin, write_set) = order.next();
            let expected = model.certify(seqno, origin, &write_set, Seqno(0));
            let verdict = certification.certify(seqno, origin, &write_set);
            assert_eq!(verdict, expected, "seed {seed}, {seqno}");
            *(if verdict == Verdict::Conflict { &mut conflicts } else { &mut passes }) += 1;
        }
        assert_eq!((certification.evictions(), certification.floor()), (0, Seqno(0)));
    }
    println!("{passes} passed, {conflicts} conflicts");
    assert!(passes > 10_000 && conflicts > 3000);
}

#[test]
fn a_tiny_array_lets_no_conflict_pass_and_refuses_only_what_is_below_its_floor() {
    let (mut conflicts, mut refused, mut passes, mut evictions) = (0, 0, 0, 0);
    for seed in 0..150 {
        let mut order = Order::new(seed, 20 + seed as u32 % 20, 1 + seed % 4);
        let (mut certification, mut model) = (Certification::new(2), Model::default());
        for _ in 0..300 {
            let (seqno, origin, write_set) = order.next();
            let floor = certification.floor();
            let without_floor = model.meets(origin, &write_set);
            let expected = model.certify(seqno, origin, &write_set, floor);
            let verdict = certification.certify(seqno, origin, &write_set);
            assert_eq!(verdict, expected, "seed {seed}, {seqno}, floor {floor}");
            // Compares the verdict with the model without a floor.
            let always_passes = write_set.is_isolated() || write_set.rolls_back();
            if let (Verdict::Passed { depends_on }, false) = (verdict, always_passes) {
                let Verdict::Passed { depends_on: least } = without_floor else { panic!("a false pass") };
                assert!(depends_on >= least && depends_on < seqno);
            }
            match verdict {
                Verdict::Passed { .. } => passes += 1,
                Verdict::Conflict if without_floor == Verdict::Conflict => conflicts += 1,
                Verdict::Conflict => refused += 1,
            }
        }
        evictions += certification.evictions();
    }
    println!("{passes} passed, {conflicts} conflicts, {refused} more refused, {evictions} evictions");
    assert!(passes > 10_000 && conflicts > 1000 && refused > 1000 && evictions > 10_000);
}

#[test]
fn one_that_was_encoded_and_decoded_goes_on_in_the_same_way() {
    for seed in 0..100 {
        let sets_log2 = [0, 1, 2, 4][seed as usize % 4];
        let mut order = Order::new(seed, 50, 3);
        let mut first = Certification::new(sets_log2);
        let mut each_time = Certification::new(sets_log2);
        let mut once = None;
        let when = order.rng.usize(..200);
        for step in 0..300 {
            if step == when {
                once = Some(again(&first));
            }
            each_time = again(&each_time);
            let (seqno, origin, write_set) = order.next();
            let verdict = first.certify(seqno, origin, &write_set);
            for other in [Some(&mut each_time), once.as_mut()].into_iter().flatten() {
                assert_eq!(other.certify(seqno, origin, &write_set), verdict, "seed {seed}, step {step}");
                assert_eq!((other.floor(), other.evictions()), (first.floor(), first.evictions()));
            }
        }
        assert_eq!(bytes_of(&each_time), bytes_of(&first));
        assert_eq!(bytes_of(&once.unwrap()), bytes_of(&first));
    }
}

#[test]
fn distances_that_no_longer_fit_move_the_floor_and_change_nothing_else() {
    for seed in 0..40 {
        let mut order = Order::new(seed, 8, 3);
        let (mut certification, mut model) = (Certification::new(6), Model::default());
        for step in 1..=400 {
            // Occasionally the order jumps far ahead, with earlier write sets in reach or not.
            if step % 50 == 0 {
                order.seqno.0 += [1 << 30, 1 << 31, (1 << 32) - 60, 1 << 33, 1 << 40][order.rng.usize(..5)];
            }
            let (seqno, origin, mut write_set) = order.next();
            if order.rng.u8(..4) == 0 {
                let older = model.history.iter().rev().nth(order.rng.usize(..40));
                write_set.last_seen = older.map_or(Seqno(0), |(older, ..)| *older);
            }
            let verdict = certification.certify(seqno, origin, &write_set);
            // The floor may have risen before the verdict, but not after it: there are no evictions.
            let expected = model.certify(seqno, origin, &write_set, certification.floor());
            assert_eq!(verdict, expected, "seed {seed}, {seqno}");
            assert_eq!(bytes_of(&again(&certification)), bytes_of(&certification));
        }
        assert_eq!(certification.evictions(), 0);
        assert!(certification.floor() > Seqno(0));
    }
}

#[test]
fn a_table_that_changes_excludes_its_rows_and_no_others() {
    let mut certification = Certification::new(4);
    let mut ddl = flagged(WriteSet::ISOLATION, write_set(0, &[]));
    ddl.keys.add(&[b"shop", b"orders"], KeyKind::Exclusive);
    let row = |table: &str, last_seen| {
        let mut row = write_set(last_seen, &[]);
        row.keys.add(&[b"shop", table.as_bytes(), b"1"], KeyKind::Exclusive);
        row
    };
    assert_eq!(certification.certify(Seqno(1), Origin(1), &row("orders", 0)), passed(0));
    assert_eq!(certification.certify(Seqno(2), Origin(2), &ddl), passed(1));
    assert_eq!(certification.certify(Seqno(3), Origin(2), &row("orders", 1)), Verdict::Conflict);
    assert_eq!(certification.certify(Seqno(4), Origin(1), &row("orders", 1)), Verdict::Conflict);
    assert_eq!(certification.certify(Seqno(5), Origin(1), &row("customers", 1)), passed(2));
    assert_eq!(certification.certify(Seqno(6), Origin(1), &row("orders", 2)), passed(2));
    assert_eq!(certification.certify(Seqno(7), Origin(2), &ddl), passed(6));
}

#[test]
fn later_ones_depend_on_what_is_unsafe_but_not_if_it_conflicts() {
    let mut certification = Certification::new(2);
    let unsafe_one =
        |last_seen| flagged(WriteSet::PARALLEL_UNSAFE, write_set(last_seen, &[("a", KeyKind::Update)]));
    let other = write_set(0, &[("b", KeyKind::Shared)]);
    assert_eq!(certification.certify(Seqno(1), Origin(1), &unsafe_one(0)), passed(0));
    assert_eq!(certification.certify(Seqno(2), Origin(1), &other), passed(1));
    assert_eq!(certification.certify(Seqno(3), Origin(2), &unsafe_one(0)), Verdict::Conflict);
    assert_eq!(certification.certify(Seqno(4), Origin(1), &other), passed(1));
}

#[test]
fn what_conflicts_leaves_nothing_behind() {
    let mut certification = Certification::new(2);
    let with =
        |name, last_seen| write_set(last_seen, &[("a", KeyKind::Exclusive), (name, KeyKind::Exclusive)]);
    assert_eq!(certification.certify(Seqno(1), Origin(1), &with("b", 0)), passed(0));
    let before = bytes_of(&certification);
    assert_eq!(certification.certify(Seqno(2), Origin(2), &with("c", 0)), Verdict::Conflict);
    let after = bytes_of(&certification);
    let last = 18..26;
    assert_eq!(before[..last.start], after[..last.start]);
    assert_eq!(before[last.end..], after[last.end..]);
    assert_eq!(
        certification.certify(Seqno(3), Origin(3), &write_set(0, &[("c", KeyKind::Exclusive)])),
        passed(0)
    );
    assert_eq!(certification.last(), Seqno(3));
}

#[test]
fn nothing_is_known_of_what_was_before_the_start() {
    let mut certification = Certification::new(2);
    let key = [("a", KeyKind::Exclusive)];
    assert_eq!(certification.certify(Seqno(150), Origin(1), &write_set(0, &key)), passed(0));
    certification.starting_at(Seqno(100));
    assert_eq!(
        (certification.floor(), certification.last(), certification.evictions()),
        (Seqno(100), Seqno(100), 0)
    );
    assert_eq!(certification.certify(Seqno(101), Origin(2), &write_set(99, &key)), Verdict::Conflict);
    assert_eq!(certification.certify(Seqno(102), Origin(2), &write_set(100, &key)), passed(100));
    let isolated = flagged(WriteSet::ISOLATION, write_set(0, &[]));
    assert_eq!(certification.certify(Seqno(104), Origin(2), &isolated), passed(103));
    certification.starting_at(Seqno(-1));
    assert_eq!(certification.floor(), Seqno(0));
    assert_eq!(certification.certify(Seqno(1), Origin(2), &write_set(0, &key)), passed(0));
}

#[test]
fn one_with_more_keys_than_the_array_passes_and_leaves_only_a_floor() {
    let mut certification = Certification::new(1);
    let mut large = write_set(0, &[]);
    (0..100u8).for_each(|number| large.keys.add(&[&[number]], KeyKind::Exclusive));
    assert_eq!(certification.certify(Seqno(1), Origin(1), &large), passed(0));
    assert_eq!(certification.floor(), Seqno(1));
    assert_eq!(certification.certify(Seqno(2), Origin(1), &write_set(0, &[])), Verdict::Conflict);
    assert_eq!(certification.certify(Seqno(3), Origin(2), &write_set(1, &[])), passed(1));
}

#[test]
fn one_that_claims_to_have_seen_itself_is_refused() {
    let mut certification = Certification::new(2);
    for last_seen in [1, 2, i64::MAX, -1, i64::MIN] {
        let seqno = Seqno(certification.last().0 + 1);
        let last_seen = if last_seen == 1 { seqno.0 } else { last_seen };
        let claims = write_set(last_seen.max(if last_seen > 0 { seqno.0 } else { i64::MIN }), &[]);
        assert_eq!(certification.certify(seqno, Origin(1), &claims), Verdict::Conflict, "{last_seen}");
    }
}

#[test]
#[should_panic(expected = "5 is certified after 5")]
fn a_place_in_the_order_is_certified_once() {
    let mut certification = Certification::new(2);
    certification.starting_at(Seqno(4));
    certification.certify(Seqno(5), Origin(1), &write_set(4, &[]));
    certification.certify(Seqno(5), Origin(1), &write_set(4, &[]));
}

/// The figures in the module documentation: how many keys an array of the default size remembers.
#[test]
fn the_floor_stays_behind_by_tens_of_thousands_of_keys() {
    const KEYS: i64 = 10;
    let mut certification = Certification::default();
    let (mut rng, mut least) = (fastrand::Rng::with_seed(3), i64::MAX);
    for seqno in 1..100_000 {
        let mut keys = Keys::default();
        (0..KEYS).for_each(|_| keys.add(&[&rng.u64(..).to_le_bytes()], KeyKind::Exclusive));
        let write_set = WriteSet { keys, last_seen: Seqno(seqno - 1), ..WriteSet::default() };
        assert!(certification.certify(Seqno(seqno), Origin(1), &write_set) != Verdict::Conflict);
        if certification.floor() > Seqno(0) {
            least = least.min((seqno - certification.floor().0) * KEYS);
        }
    }
    println!("at least {least} keys, {} evictions", certification.evictions());
    assert!(least > 20_000, "{least}");
}

fn some() -> Certification {
    let mut order = Order::new(7, 30, 3);
    let mut certification = Certification::new(2);
    for _ in 0..60 {
        let (seqno, origin, write_set) = order.next();
        certification.certify(seqno, origin, &write_set);
    }
    certification
}

#[test]
fn an_entry_that_was_touched_once_has_29_bytes_and_an_empty_array_a_head() {
    let mut certification = Certification::new(2);
    assert_eq!(bytes_of(&certification).len(), 46);
    certification.certify(Seqno(1), Origin(1), &write_set(0, &[("a", KeyKind::Exclusive)]));
    assert_eq!(bytes_of(&certification).len(), 46 + 29);
}

#[test]
fn bytes_cut_short_or_too_long_are_refused() {
    let bytes = bytes_of(&some());
    assert!(bytes.len() > 46 + 5 * 29);
    for len in 0..bytes.len() {
        assert!(
            matches!(Certification::decode(&bytes[..len]), Err(CertificationError::Truncated(_))),
            "{len}"
        );
    }
    let longer = [&bytes[..], &[0]].concat();
    let error = CertificationError::Invalid { what: "end", at_byte: bytes.len() };
    assert_eq!(Certification::decode(&longer).err(), Some(error));
}

#[test]
fn any_bytes_are_refused_or_are_the_only_form_of_something() {
    let bytes = bytes_of(&some());
    let mut rng = fastrand::Rng::with_seed(4);
    let (mut refused, mut sound) = (0, 0);
    for step in 0..20_000 {
        let mut bytes = bytes.clone();
        for _ in 0..1 + step % 3 {
            // A small number of sets, so that arrays are small.
            let at = rng.usize(2..bytes.len());
            bytes[at] = if rng.bool() { bytes[at] ^ 1 << rng.u8(..8) } else { rng.u8(..) };
        }
        match Certification::decode(&bytes) {
            Ok(mut certification) => {
                assert_eq!(bytes_of(&certification), bytes);
                let next = Seqno(certification.last().0.saturating_add(1));
                if next > certification.last() {
                    certification.certify(
                        next,
                        Origin(1),
                        &write_set(next.0 - 1, &[("a", KeyKind::Exclusive)]),
                    );
                }
                sound += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(sound > 1000 && refused > 1000, "{sound} {refused}");
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    let mut certification = Certification::new(2);
    certification.certify(Seqno(1), Origin(1), &write_set(0, &[("a", KeyKind::Exclusive)]));
    certification.certify(Seqno(2), Origin(1), &write_set(0, &[("b", KeyKind::Reference)]));
    let bytes = bytes_of(&certification);
    let refused = |at: usize, with: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        Certification::decode(&bytes).err().map(|error| match error {
            CertificationError::Invalid { what, .. } => what,
            CertificationError::UnknownVersion { .. } => "version",
            CertificationError::Truncated(_) => "truncated",
        })
    };
    assert_eq!(refused(0, &[1]), None);
    assert_eq!(refused(0, &[2]), Some("version"));
    assert_eq!(refused(1, &[21]), Some("number of sets"));
    // Base above the floor; floor above the last; unsafe above the last; negative; too far apart.
    assert_eq!(refused(2, &[1]), Some("sequence numbers"));
    assert_eq!(refused(10, &[3]), Some("sequence numbers"));
    assert_eq!(refused(26, &[3]), Some("sequence numbers"));
    assert_eq!(refused(9, &[0x80]), Some("sequence numbers"));
    assert_eq!(refused(22, &[1]), Some("sequence numbers"));
    assert_eq!(refused(42, &[17]), Some("number of entries"));
    assert_eq!(refused(42, &[1]), Some("end"));
    // The first entry: a place that does not match its hash; a newest write set that is forgotten, in the future, or
    // older than its rivals.
    let (place, newest, shapes, rival) = (46, 58, 62, 63);
    assert_eq!(refused(place, &[255]), Some("place"));
    assert_eq!(refused(newest, &[0]), Some("rivals"));
    assert_eq!(refused(newest, &[3]), Some("newest"));
    assert_eq!(refused(10, &[2]), Some("newest"));
    assert_eq!(refused(rival, &[3]), Some("rivals"));
    assert_eq!(refused(shapes, &[0b100_0000 | bytes[shapes]]), Some("shapes"));
}

#[test]
fn a_key_has_one_entry_in_what_is_decoded() {
    let mut certification = Certification::new(0);
    certification.certify(
        Seqno(1),
        Origin(1),
        &write_set(0, &[("a", KeyKind::Shared), ("b", KeyKind::Shared)]),
    );
    let mut bytes = bytes_of(&certification);
    assert_eq!(bytes.len(), 46 + 2 * 17);
    bytes.copy_within(50..58, 67);
    let error = CertificationError::Invalid { what: "place", at_byte: 63 };
    assert_eq!(Certification::decode(&bytes).err(), Some(error));
    let mut exchanged = bytes_of(&certification);
    exchanged[46] = 1;
    exchanged[63] = 0;
    assert_eq!(Certification::decode(&exchanged).err(), Some(error));
}

#[test]
fn parts_come_after_what_their_server_had_seen_and_giving_up_always_passes() {
    let mut certification = Certification::new(2);
    let key = [("k", KeyKind::Exclusive)];
    let of = |flags, last_seen, keys: &[(&str, KeyKind)]| WriteSet { flags, ..write_set(last_seen, keys) };
    assert_eq!(certification.certify(Seqno(1), Origin(1), &of(WriteSet::START, 0, &key)), passed(0));
    for other in 2..5 {
        let other_key = [("other", KeyKind::Update)];
        certification.certify(Seqno(other), Origin(2), &of(WHOLE, other - 1, &other_key));
    }
    assert_eq!(
        certification.certify(Seqno(5), Origin(1), &of(0, 3, &[])),
        passed(3),
        "the part before it is there"
    );
    let blind = of(WHOLE, 0, &key);
    assert_eq!(
        certification.certify(Seqno(6), Origin(2), &blind),
        Verdict::Conflict,
        "has not seen the first part"
    );
    let conflict = of(WriteSet::END, 3, &[("other", KeyKind::Update)]);
    assert_eq!(certification.certify(Seqno(7), Origin(1), &conflict), Verdict::Conflict);
    let given_up = of(WriteSet::ROLLBACK | WriteSet::PARALLEL_UNSAFE, 0, &[]);
    assert_eq!(certification.certify(Seqno(8), Origin(1), &given_up), passed(7));
    let later = of(WHOLE, 7, &[("later", KeyKind::Update)]);
    assert_eq!(certification.certify(Seqno(9), Origin(2), &later), passed(8));
    assert_eq!(certification.refuse(Seqno(11)), Verdict::Conflict);
    assert_eq!(certification.last(), Seqno(11));
}
