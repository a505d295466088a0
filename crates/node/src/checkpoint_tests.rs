use super::*;
use redoubt_wire::stream::FileKind;

#[test]
fn a_checkpoint_survives_the_round_trip_and_any_damage_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let mut names = Namespace::default();
    names.create("test/t.ibd", FileKind::Tablespace, 0o660);
    let checkpoint = Checkpoint {
        applied: Point { seq: Seq(10), lsn: Lsn(20) },
        log_start: Point { seq: Seq(5), lsn: Lsn(15) },
        names: Arc::new(names),
    };
    let folder = Folder::open(directory.path()).unwrap();
    checkpoint.write(&folder).unwrap();
    let read = Checkpoint::read(&folder).unwrap();
    assert_eq!(
        (read.applied, read.log_start, &read.names),
        (checkpoint.applied, checkpoint.log_start, &checkpoint.names)
    );

    let path = directory.path().join(FILE_NAME);
    let good = std::fs::read(&path).unwrap();
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        assert!(Checkpoint::read(&folder).is_err() || at == 8, "byte {at}");
        std::fs::write(&path, &good[..at]).unwrap();
        assert!(Checkpoint::read(&folder).is_err(), "cut at {at}");
    }
}
