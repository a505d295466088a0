use super::*;
use redoubt_storage::sim::{Fault, OpKind, SimDisk};
use redoubt_wire::stream::FileKind;
use std::path::Path;

const FIRST_NAMES_FILE: &str = "names-00000001";

fn state(seq: u64, names: &Namespace) -> NodeCheckpoint {
    let applied = point(seq, seq + 100);
    let cover = (!seq.is_multiple_of(3)).then_some(point(seq / 4, seq / 4 + 100));
    let (log_start, names) = (point(seq / 2, seq / 2 + 100), Arc::new(names.clone()));
    NodeCheckpoint { applied, log_start, cover, names }
}

fn same(one: &NodeCheckpoint, other: &NodeCheckpoint) -> bool {
    let positions = |of: &NodeCheckpoint| (of.applied, of.log_start, of.cover);
    positions(one) == positions(other) && one.names == other.names
}

fn write(
    files: &mut CheckpointFiles,
    state: &NodeCheckpoint,
    changes: &[NameChange],
) -> Result<(), NodeError> {
    let NodeCheckpoint { applied, log_start, cover, .. } = *state;
    files.write(Positions { applied, log_start, cover }, changes, 0, || Arc::clone(&state.names))
}

#[test]
fn a_checkpoint_survives_the_round_trip_and_any_damage_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let mut names = Namespace::default();
    names.create("test/t.ibd", FileKind::Tablespace, 0o660);
    let folder = Folder::open(directory.path()).unwrap();
    CheckpointFiles::create(&folder, &names).unwrap();
    let (mut files, first) = CheckpointFiles::open(&folder).unwrap();
    let at_the_start = (first.applied, first.log_start) == (Point::default(), Point::default());
    assert!(at_the_start && *first.names == names);
    names.track();
    names.create("test/u.ibd", FileKind::Tablespace, 0o660);
    let next = state(10, &names);
    write(&mut files, &next, &names.take_changes()).unwrap();
    assert!(same(&CheckpointFiles::open(&folder).unwrap().1, &next));

    let [path, copy] =
        [FILE_NAME.to_owned(), twice::copy_of(FILE_NAME)].map(|name| directory.path().join(name));
    let good = std::fs::read(&path).unwrap();
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        for bad in [&bad, &good[..at]] {
            std::fs::write(&path, bad).unwrap();
            std::fs::write(&copy, &good).unwrap();
            assert!(same(&CheckpointFiles::open(&folder).unwrap().1, &next), "byte {at}");
            std::fs::write(&copy, bad).unwrap();
            assert!(CheckpointFiles::open(&folder).is_err() || at == 8, "byte {at}");
        }
    }
    std::fs::write(&path, &good).unwrap();
    assert!(same(&CheckpointFiles::open(&folder).unwrap().1, &next), "the first one counts");
    CheckpointFiles::open(&folder).unwrap().0.renew().unwrap();
    assert_eq!(std::fs::read(&copy).unwrap(), good);
    for name in [FIRST_NAMES_FILE.to_owned(), twice::copy_of(FIRST_NAMES_FILE)] {
        std::fs::remove_file(directory.path().join(name)).unwrap();
    }
    let error = CheckpointFiles::open(&folder).err().unwrap();
    assert!(error.to_string().contains("restore the volume from an export"), "{error}");
}

#[test]
fn names_without_a_copy_go_on_without_room_for_new_ones() {
    let disk = SimDisk::new(1);
    let folder = Folder::new(Arc::new(disk.clone()), Path::new("simulated"));
    CheckpointFiles::create(&folder, &Namespace::default()).unwrap();
    folder.remove(&twice::copy_of(FIRST_NAMES_FILE)).unwrap();
    let (mut files, mut last) = open_sim(&disk);
    let mut random = fastrand::Rng::with_seed(1);
    for name in ["names-00000002", "names-00000003.copy"] {
        let (name, error) = (name.to_owned(), std::io::ErrorKind::StorageFull);
        disk.inject(Fault { kind: OpKind::Write, name, skip: 0, error });
        assert!(write_some(&mut files, &mut last, 1, &mut random).is_none());
        assert_eq!(disk.clear_faults(), 0);
        let names = redoubt_storage::StorageDir::list(&disk).unwrap();
        let names = names.iter().filter(|name| name.starts_with("names-"));
        assert_eq!(names.collect::<Vec<_>>(), [FIRST_NAMES_FILE]);
        assert!(same(&open_sim(&disk).1, &last));
    }
    check_after(&disk, &last, None, &mut random);
}

#[test]
fn a_later_format_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let folder = Folder::open(directory.path()).unwrap();
    write_checked(&folder, FILE_NAME, br#"{"format":3,"something":"else"}"#).unwrap();
    let error = CheckpointFiles::open(&folder).err().unwrap().to_string();
    assert!(error.contains("its format has version 3") && error.contains("versions up to 2"), "{error}");
}

#[test]
fn format_before_0_1_0_is_refused_with_the_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let folder = Folder::open(directory.path()).unwrap();
    let old = br#"{"format":1,"applied_seq":1197,"applied_lsn":43027875,"log_start_seq":664,
        "log_start_lsn":43027859,"names":{"next_file":9,"next_object":4}}"#;
    write_checked(&folder, FILE_NAME, old).unwrap();
    let before = std::fs::read(directory.path().join(FILE_NAME)).unwrap();
    let error = CheckpointFiles::open(&folder).err().unwrap().to_string();
    for part in [FILE_NAME, "version 1", "before Redoubt 0.1.0", "export the volume", "import the export"] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
    assert_eq!(std::fs::read(directory.path().join(FILE_NAME)).unwrap(), before, "the file was changed");
}

fn random_change(names: &mut Namespace, random: &mut fastrand::Rng) {
    let path = format!("d/t{}.ibd", random.u32(..40));
    match random.u8(..5) {
        0 => drop(names.create(&path, FileKind::Tablespace, 0o660)),
        1 => drop(names.unlink(&path)),
        2 => drop(names.rename(&path, &format!("d/t{}.ibd", random.u32(..40)))),
        _ => drop(names.set_len(&path, random.u64(..1 << 20))),
    }
}

/// Writes checkpoints until one fails, or there are enough. `last` is the newest that was written. Returns the failed
/// one, which may or may not be on disk.
fn write_some(
    files: &mut CheckpointFiles,
    last: &mut NodeCheckpoint,
    count: usize,
    random: &mut fastrand::Rng,
) -> Option<(NodeCheckpoint, NodeError)> {
    let mut names = (*last.names).clone();
    names.track();
    for _ in 0..count {
        for _ in 0..random.usize(..20) {
            random_change(&mut names, random);
        }
        let next = state(last.applied.seq.0 + 2, &names);
        if let Err(error) = write(files, &next, &names.take_changes()) {
            return Some((next, error));
        }
        *last = next;
    }
    None
}

fn open_sim(disk: &SimDisk) -> (CheckpointFiles, NodeCheckpoint) {
    let folder = Folder::new(Arc::new(disk.clone()), Path::new("simulated"));
    CheckpointFiles::open(&folder).unwrap()
}

/// Opens the files that a crash left, which must hold `last` or `failed`, and continues from there for a while.
fn check_after(
    disk: &SimDisk,
    last: &NodeCheckpoint,
    failed: Option<&NodeCheckpoint>,
    random: &mut fastrand::Rng,
) {
    let (mut files, mut read) = open_sim(disk);
    let is_failed = failed.is_some_and(|failed| same(failed, &read));
    assert!(
        is_failed || same(last, &read),
        "{:?} is neither {:?} nor what failed",
        read.applied,
        last.applied
    );
    files.remove_leftovers();
    assert!(write_some(&mut files, &mut read, 12, random).is_none());
    let (_, again) = open_sim(&disk.after_power_cut());
    assert!(same(&again, &read), "what was written after the crash");
    let names = redoubt_storage::StorageDir::list(disk).unwrap();
    assert_eq!(names.iter().filter(|name| name.starts_with("names-")).count(), 2, "{names:?}");
}

#[test]
fn a_power_cut_or_a_kill_at_any_step_leaves_the_last_checkpoint_or_the_next() {
    let mut rewritten = 0;
    for seed in 0..6 {
        let make = || {
            let disk = SimDisk::new(seed);
            let folder = Folder::new(Arc::new(disk.clone()), Path::new("simulated"));
            CheckpointFiles::create(&folder, &Namespace::default()).unwrap();
            disk
        };
        let mut op = make().ops_done();
        loop {
            let mut random = fastrand::Rng::with_seed(seed);
            let disk = make();
            disk.cut_power_at(op);
            let (mut files, mut last) = open_sim(&disk);
            let failed = write_some(&mut files, &mut last, 12, &mut random);
            rewritten += u64::from(files.next_number > 2);
            check_after(
                &disk.after_power_cut(),
                &last,
                failed.as_ref().map(|(failed, _)| failed),
                &mut random,
            );
            if failed.is_none() {
                break;
            }
            op += 1;
        }
    }
    assert!(rewritten > 10, "{rewritten}: no names file was made anew");
}

#[test]
fn after_a_failed_operation_the_same_checkpoint_can_be_written_again() {
    let kinds =
        [OpKind::Write, OpKind::SetLen, OpKind::Sync, OpKind::Create, OpKind::Rename, OpKind::SyncNames];
    for (seed, kind) in (0..).zip(kinds.repeat(12)) {
        let disk = SimDisk::new(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        let folder = Folder::new(Arc::new(disk.clone()), Path::new("simulated"));
        CheckpointFiles::create(&folder, &Namespace::default()).unwrap();
        let (mut files, mut last) = open_sim(&disk);
        let skip = random.u64(..20);
        disk.inject(Fault { kind, name: String::new(), skip, error: std::io::ErrorKind::StorageFull });
        if let Some((failed, error)) = write_some(&mut files, &mut last, 20, &mut random) {
            assert_eq!(error.kind(), crate::Kind::Retry, "{error}");
            // A power cut before the retry, and one after it.
            check_after(&disk.after_power_cut(), &last, Some(&failed), &mut random.clone());
            let mut changed = (*last.names).clone();
            changed.track();
            changed.apply(&failed.names.all().collect::<Vec<_>>());
            for (id, _) in last.names.files().filter(|(id, _)| failed.names.file(*id).is_none()) {
                changed.apply(&[NameChange::FileGone(id.0)]);
            }
            assert!(changed == *failed.names);
            write(&mut files, &failed, &changed.take_changes()).unwrap();
            last = failed;
        }
        check_after(&disk.after_power_cut(), &last, None, &mut random);
    }
}
