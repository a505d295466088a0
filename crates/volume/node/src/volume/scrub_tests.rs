use super::*;
use crate::home::Folder;
use crate::options::NodeOptions;
use redoubt_storage::sim::SimDisk;
use std::path::{Path, PathBuf};

fn context(disk: &SimDisk) -> Arc<Context> {
    let own = Folder::new(Arc::new(disk.clone()), Path::new("v"));
    Arc::new(Context::new("v", own, &NodeOptions::new(PathBuf::from("v"), String::new())))
}

fn store(disk: &SimDisk, record: &Record) {
    let body = serde_json::to_vec(record).unwrap();
    write_checked(&context(disk).own, FILE_NAME, &body).unwrap();
}

fn record() -> Record {
    Record {
        format: FORMAT,
        age_s: 77,
        has_completed: true,
        begun_s: Some(5),
        place: Some(ResumeAt::Page { object: 3, page_no: 4 }),
        checked_bytes: 9,
        unchecked: 1,
        first_unchecked: "a file".to_owned(),
        log_damage: Some(LogDamage { seq: 7, reason: "rotten".to_owned() }),
        found: vec![SetAside {
            object: 3,
            page_no: Some(4),
            space: 5,
            file: "d/t.ibd".to_owned(),
            lsn: 6,
            reason: "damaged".to_owned(),
            found_at: None,
            differs: None,
        }],
    }
}

#[test]
fn state_of_the_scrub_survives_a_restart() {
    let disk = SimDisk::new(1);
    assert_eq!(Scrub::open(&context(&disk)).state.lock().record, Record::default());
    store(&disk, &record());
    assert_eq!(Scrub::open(&context(&disk)).state.lock().record, record());
    store(&disk, &Record { place: Some(ResumeAt::File(8)), ..record() });
    assert_eq!(Scrub::open(&context(&disk)).state.lock().record.place, Some(ResumeAt::File(8)));
}

#[test]
fn unusable_state_of_the_scrub_begins_it_again() {
    for is_of_later_format in [false, true] {
        let disk = SimDisk::new(1);
        store(&disk, &Record { format: FORMAT + u32::from(is_of_later_format), ..record() });
        if !is_of_later_format {
            disk.damage(FILE_NAME, 12, |bytes| bytes[0] ^= 1);
        }
        assert_eq!(Scrub::open(&context(&disk)).state.lock().record, Record::default());
    }
}

#[test]
fn log_damage_ends_when_that_part_is_whole() {
    let scrub = Scrub::open(&context(&SimDisk::new(1)));
    let is_noted = || scrub.state.lock().record.log_damage.is_some();
    scrub.note_log_damage(100, "rotten");
    scrub.note_whole_log(0, 100);
    assert!(is_noted());
    scrub.note_whole_log(100, 200);
    assert!(!is_noted());
}

#[test]
fn closed_scrub_waits_no_longer() {
    let scrub = Scrub::open(&context(&SimDisk::new(1)));
    assert!(scrub.wait(Duration::ZERO));
    scrub.close();
    assert!(!scrub.wait(Duration::from_secs(3600)));
}
