use super::*;
use crate::checkpoint::write_checked;
use crate::options::NodeOptions;
use redoubt_storage::sim::SimDisk;
use redoubt_test_support::{NoDescriptors, child};
use std::path::{Path, PathBuf};

redoubt_test_support::children!(scrub_opened_without_descriptors);

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
    assert_eq!(Scrub::open(&context(&disk)).unwrap().state.lock().record, Record::default());
    store(&disk, &record());
    assert_eq!(Scrub::open(&context(&disk)).unwrap().state.lock().record, record());
    store(&disk, &Record { place: Some(ResumeAt::File(8)), ..record() });
    assert_eq!(Scrub::open(&context(&disk)).unwrap().state.lock().record.place, Some(ResumeAt::File(8)));
}

#[test]
fn unusable_state_of_the_scrub_begins_it_again() {
    for is_of_later_format in [false, true] {
        let disk = SimDisk::new(1);
        store(&disk, &Record { format: FORMAT + u32::from(is_of_later_format), ..record() });
        if !is_of_later_format {
            disk.damage(FILE_NAME, 12, |bytes| bytes[0] ^= 1);
        }
        assert_eq!(Scrub::open(&context(&disk)).unwrap().state.lock().record, Record::default());
    }
}

#[test]
fn log_damage_ends_when_that_part_is_whole() {
    let scrub = Scrub::open(&context(&SimDisk::new(1))).unwrap();
    let is_noted = || scrub.state.lock().record.log_damage.is_some();
    scrub.note_log_damage(100, "rotten");
    scrub.note_whole_log(0, 100);
    assert!(is_noted());
    scrub.note_whole_log(100, 200);
    assert!(!is_noted());
}

#[test]
fn closed_scrub_waits_no_longer() {
    let scrub = Scrub::open(&context(&SimDisk::new(1))).unwrap();
    assert!(scrub.wait(Duration::ZERO));
    scrub.close();
    assert!(!scrub.wait(Duration::from_secs(3600)));
}

#[test]
fn time_of_a_parked_volume_is_added_to_its_state() {
    let disk = SimDisk::new(1);
    let stored = || Scrub::open(&context(&disk)).unwrap().state.lock().record.clone();
    add_closed_time(&context(&disk).own, Duration::from_millis(3999)).unwrap();
    assert_eq!(stored(), Record { format: FORMAT, age_s: 3, ..Record::default() });
    store(&disk, &record());
    add_closed_time(&context(&disk).own, Duration::from_secs(100)).unwrap();
    assert_eq!(stored(), Record { age_s: 177, begun_s: Some(105), ..record() });
    // The next start begins again, and logs that.
    disk.damage(FILE_NAME, 12, |bytes| bytes[0] ^= 1);
    add_closed_time(&context(&disk).own, Duration::from_secs(100)).unwrap_err();
}

#[test]
fn turn_of_a_scrub_ends_its_wait() {
    let scrub = Scrub::open(&context(&SimDisk::new(1))).unwrap();
    assert!(scrub.wait_for_turn(Duration::ZERO));
    scrub.signal.lock().is_urgent = true;
    assert!(scrub.wait_for_turn(Duration::from_secs(3600)));
    scrub.close();
    assert!(!scrub.wait_for_turn(Duration::from_secs(3600)));
}

/// A child process in which the state cannot be read for a while.
fn scrub_opened_without_descriptors() {
    let place = tempfile::tempdir().unwrap();
    let own = Folder::open(place.path()).unwrap();
    write(&own, &record()).unwrap();
    let options = NodeOptions::new(place.path().to_owned(), String::new());
    let context = Arc::new(Context::new("v", own, &options));
    let lack = NoDescriptors::begin();
    assert!(Scrub::open(&context).is_err_and(|error| error.is_out_of_descriptors()));
    drop(lack);
    assert_eq!(Scrub::open(&context).unwrap().state.lock().record, record());
}

#[test]
fn lack_of_descriptors_does_not_forget_what_the_scrub_found() {
    let status = child::command("scrub_opened_without_descriptors").status().unwrap();
    assert!(status.success(), "{status}");
}
