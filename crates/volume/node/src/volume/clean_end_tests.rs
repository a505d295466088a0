use super::*;
use crate::namespace::LogFileEntry;
use redoubt_redo::{FileRecord, SpaceId};
use redoubt_wire::stream::FileKind;

const FIRST: Lsn = Lsn(12_288);
/// An operation that is settled.
const BEFORE: Lsn = Lsn(12_289);
const OLDER: Lsn = Lsn(15_000);
const CHECKPOINT: Lsn = Lsn(20_000);
const END: Lsn = Lsn(30_000);

fn block(checkpoint_lsn: Lsn, end_lsn: Lsn) -> Vec<u8> {
    CheckpointBlock { checkpoint_lsn, end_lsn }.build().to_vec()
}

/// A server with one table that was killed.
fn killed(checkpoints: [Vec<u8>; 2]) -> Namespace {
    let mut names = Namespace::default();
    let header = LogHeader { first_lsn: FIRST, creator: b"MariaDB 10.11.19".to_vec() }.build().to_vec();
    let last_file_operation_lsn = 0;
    names.set_log_file(LogFileEntry {
        file_size_bytes: 1 << 20,
        header,
        checkpoints,
        last_file_operation_lsn,
    });
    names.create("d/t.ibd", FileKind::Tablespace, 0o660);
    record(&mut names, &FileRecord::Create { path: b"./d/t.ibd" }, BEFORE);
    names
}

fn record(names: &mut Namespace, record: &FileRecord<'_>, lsn: Lsn) {
    names.file_record(SpaceId(5), record, lsn).unwrap();
}

#[test]
fn the_block_goes_where_the_older_one_is() {
    for (checkpoints, slot) in [
        ([block(CHECKPOINT, CHECKPOINT), vec![0; 64]], 1),
        ([vec![0; 64], block(CHECKPOINT, CHECKPOINT)], 0),
        ([block(CHECKPOINT, CHECKPOINT), block(OLDER, OLDER)], 1),
        ([block(OLDER, OLDER), block(CHECKPOINT, CHECKPOINT)], 0),
    ] {
        let (CleanEnd { redo, checkpoint: block }, found) =
            frames(&killed(checkpoints), END, Lsn(0)).unwrap();
        assert_eq!(found, slot);
        assert_eq!(
            CheckpointBlock::parse(&block),
            Some(CheckpointBlock { checkpoint_lsn: END, end_lsn: END })
        );
        assert_eq!(redo[3..11], END.0.to_be_bytes());
    }
}

#[test]
fn a_server_that_was_shut_down_is_left_alone() {
    let last = Lsn(END.0 - CleanEnd::LEN_BYTES);
    let names = killed([block(last, last), vec![0; 64]]);
    assert_eq!(frames(&names, END, Lsn(0)), Err(LeftAsIs::IsClean));
    assert_eq!(frames(&names, last, Lsn(0)), Err(LeftAsIs::IsClean));
    assert_eq!(frames(&Namespace::default(), END, Lsn(0)), Err(LeftAsIs::NoLog));
}

#[test]
fn the_redo_of_an_import_is_recovered_by_the_server() {
    let names = killed([block(CHECKPOINT, CHECKPOINT), vec![0; 64]]);
    assert_eq!(frames(&names, END, CHECKPOINT.advance(1)), Err(LeftAsIs::Import));
    assert!(frames(&names, END, CHECKPOINT).is_ok());
}

#[test]
fn a_file_operation_that_was_not_done_is_left_to_the_servers_recovery() {
    let checkpoints = || [block(CHECKPOINT, CHECKPOINT), vec![0; 64]];
    let unfinished = Err(LeftAsIs::FileOperation("d/t.ibd".to_owned()));

    let mut names = killed(checkpoints());
    record(&mut names, &FileRecord::Rename { old_path: b"./d/t.ibd", new_path: b"./d/u.ibd" }, BEFORE);
    assert_eq!(frames(&names, END, Lsn(0)), unfinished);
    names.rename("d/t.ibd", "d/u.ibd");
    assert!(frames(&names, END, Lsn(0)).is_ok());

    let mut names = killed(checkpoints());
    record(&mut names, &FileRecord::Delete { path: b"./d/t.ibd" }, BEFORE);
    assert_eq!(frames(&names, END, Lsn(0)), unfinished);
    names.unlink("d/t.ibd");
    assert!(frames(&names, END, Lsn(0)).is_ok());
}

#[test]
fn a_system_tablespace_that_may_not_be_cut_yet_is_left_to_the_servers_recovery() {
    let mut names = killed([block(CHECKPOINT, CHECKPOINT), block(OLDER, OLDER)]);
    names.note_cut(END);
    assert_eq!(frames(&names, END, Lsn(0)), Err(LeftAsIs::RecentFileOperation(END)));
}

#[test]
fn a_file_operation_that_may_be_rolled_back_is_left_to_the_servers_recovery() {
    let checkpoints = || [block(CHECKPOINT, CHECKPOINT), block(OLDER, OLDER)];
    for (lsn, is_settled) in
        [(OLDER.0 - 1, true), (OLDER.0, false), (CHECKPOINT.0 - 1, false), (END.0, false)]
    {
        let mut names = killed(checkpoints());
        record(&mut names, &FileRecord::Rename { old_path: b"./d/t.ibd", new_path: b"./d/u.ibd" }, Lsn(lsn));
        names.rename("d/t.ibd", "d/u.ibd");
        // A changed file is named as well.
        record(&mut names, &FileRecord::Modify { path: b"./d/u.ibd" }, END);
        let found = frames(&names, END, Lsn(0));
        let expected = if is_settled { Ok(()) } else { Err(LeftAsIs::RecentFileOperation(Lsn(lsn))) };
        assert_eq!(found.map(drop), expected, "at {lsn}");
        // It survives another length of the log, and the storing of the names.
        let log_file = names.log_file().unwrap().clone();
        names.set_log_file(LogFileEntry { file_size_bytes: 2 << 20, last_file_operation_lsn: 0, ..log_file });
        let mut stored = Namespace::default();
        stored.apply(&names.all().collect::<Vec<_>>());
        assert_eq!(frames(&stored, END, Lsn(0)).map(drop), expected, "at {lsn}, stored");
    }
}

#[test]
fn export_without_redo_names_what_only_redo_has() {
    let (mariadb, mysql) = (missing_without_redo(Family::MariaDb), missing_without_redo(Family::MySql));
    assert!(mariadb.contains("The pages have it") && !mysql.contains("The pages have it"));
    for part in ["AUTO_INCREMENT", "ROW_FORMAT=COMPRESSED", "last export"] {
        assert!(mysql.contains(part) && !mariadb.contains(part), "{part}");
    }
}
