//! The format of the file `volume`: the oldest one whose nodes can open the volume.

use super::*;
use crate::checkpoint::write_checked;

fn folder(directory: &tempfile::TempDir) -> Folder {
    Folder::open(directory.path()).unwrap()
}

fn server(text: &str) -> Option<ServerVersion> {
    Some(text.parse().unwrap())
}

fn format_of(identity: &Identity) -> u32 {
    let directory = tempfile::tempdir().unwrap();
    identity.write(&folder(&directory)).unwrap();
    Identity::read(&folder(&directory)).unwrap().format
}

#[test]
fn volume_of_mariadb_10_11_has_the_format_of_0_1_0() {
    let new = Identity::new();
    let attached = Identity { attached_server: server("MariaDB 10.11.19"), ..new.clone() };
    let written = attached.with_server_run(attached.server_of_generation()).unwrap();
    assert_eq!([&new, &attached, &written].map(format_of), [1, 1, 1]);
}

#[test]
fn volume_of_a_later_server_has_format_2() {
    for later in ["MariaDB 11.4.7", "MariaDB 11.8.9", "MySQL 9.7.4"] {
        let attached = Identity { attached_server: server(later), ..Identity::new() };
        let written = attached.with_server_run(attached.server_of_generation()).unwrap();
        let only_written = Identity { attached_server: None, ..written.clone() };
        assert_eq!([&attached, &written, &only_written].map(format_of), [2, 2, 2], "{later}");
    }
    let imported = Identity { is_imported_from_mysql: true, ..Identity::new() };
    assert_eq!(format_of(&imported), 2);
}

#[test]
fn later_server_without_changes_leaves_format_1_to_the_next() {
    let failed = Identity { attached_server: server("MariaDB 11.8.9"), ..Identity::new() };
    let next = Identity { attached_server: server("MariaDB 10.11.19"), ..failed };
    assert_eq!(format_of(&next), 1);
}

#[test]
fn raise_format_rewrites_only_a_file_of_an_earlier_build() {
    let directory = tempfile::tempdir().unwrap();
    let own = folder(&directory);
    let path = directory.path().join(FILE_NAME);
    for (newest, expected) in [("MariaDB 10.11.19", 1), ("MariaDB 11.8.9", 2)] {
        let earlier = Identity { newest_server: server(newest), generation: 7, ..Identity::new() };
        write_checked(&own, FILE_NAME, &serde_json::to_vec(&earlier).unwrap()).unwrap();
        let before = std::fs::read(&path).unwrap();
        Identity::read(&own).unwrap().raise_format(&own).unwrap();
        let after = Identity::read(&own).unwrap();
        assert_eq!((after.format, after.generation, after.newest_server), (expected, 7, server(newest)));
        assert_eq!(std::fs::read(&path).unwrap() == before, expected == 1, "{newest}");
    }
}

#[test]
fn lost_identity_is_read_from_its_copy_and_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let own = folder(&directory);
    let identity = Identity { generation: 7, ..Identity::new() };
    identity.write(&own).unwrap();
    let paths = [FILE_NAME.to_owned(), crate::checkpoint::twice::copy_of(FILE_NAME)]
        .map(|name| directory.path().join(name));
    let good = std::fs::read(&paths[0]).unwrap();
    for path in &paths {
        for damaged in [None, Some(&b"damaged"[..]), Some(&b""[..])] {
            match damaged {
                Some(bytes) => std::fs::write(path, bytes).unwrap(),
                None => std::fs::remove_file(path).unwrap(),
            }
            let read = Identity::read(&own).unwrap();
            assert_eq!(read.volume_id, identity.volume_id);
            read.raise_format(&own).unwrap();
            assert_eq!(paths.each_ref().map(|path| std::fs::read(path).unwrap()), [&good[..], &good[..]]);
        }
    }
    // A later one than its copy counts.
    let later = Identity { generation: 8, ..identity };
    later.write(&own).unwrap();
    std::fs::write(&paths[1], &good).unwrap();
    assert_eq!(Identity::read(&own).unwrap().generation, 8);
    paths.iter().for_each(|path| std::fs::write(path, b"damaged").unwrap());
    Identity::read(&own).unwrap_err();
}

#[test]
fn volume_with_quarantine_has_format_3_until_it_ends() {
    let mut identity = Identity { has_quarantine: true, ..Identity::new() };
    assert_eq!(format_of(&identity), 3);
    identity.has_quarantine = false;
    assert_eq!(format_of(&identity), 1);
}

#[test]
fn frozen_volume_has_format_3_until_it_is_not() {
    let mut identity = Identity { frozen_changes_end: Some(0), ..Identity::new() };
    assert_eq!(format_of(&identity), 3);
    identity.frozen_changes_end = None;
    assert_eq!(format_of(&identity), 1);
}

#[test]
fn family_is_stored_with_the_first_change_and_by_an_import() {
    let new = Identity::new();
    assert_eq!(new.family(), None);
    let attached = Identity { attached_server: server("MySQL 9.7.4"), ..new.clone() };
    assert_eq!(attached.family(), None, "it has changed nothing");
    for (text, family) in [("MySQL 9.7.4", Family::MySql), ("MariaDB 11.8.9", Family::MariaDb)] {
        let directory = tempfile::tempdir().unwrap();
        let own = folder(&directory);
        let changed = new.with_server_run(text.parse().unwrap()).unwrap();
        changed.write(&own).unwrap();
        let read = Identity::read(&own).unwrap();
        assert_eq!((read.family.as_deref(), read.family()), (Some(family.name()), Some(family)));
        assert!(read.with_server_run(text.parse().unwrap()).is_none());
        // Of an earlier build.
        let earlier = Identity { family: None, ..read };
        assert_eq!(earlier.family(), Some(family));
        assert_eq!(earlier.with_server_run(text.parse().unwrap()).unwrap().family, changed.family);
    }
    let imported = Identity { is_imported_from_mysql: true, ..Identity::new() };
    assert_eq!(imported.family(), Some(Family::MySql));
}

#[test]
fn unknown_or_contradictory_family_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let own = folder(&directory);
    let identity = Identity { family: Some("MySQL".to_owned()), ..Identity::new() };
    let with_log = |of_log| identity.family_with_log(&own, of_log);
    assert_eq!(with_log(None).unwrap(), Some(Family::MySql));
    assert_eq!(with_log(Some(Family::MySql)).unwrap(), Some(Family::MySql));
    let error = with_log(Some(Family::MariaDb)).unwrap_err().to_string();
    assert!(error.contains("names MySQL") && error.contains("is of MariaDB"), "{error}");
    // 0.1.0 noted no server.
    assert_eq!(Identity::new().family_with_log(&own, Some(Family::MariaDb)).unwrap(), Some(Family::MariaDb));
    Identity { family: Some("Other".to_owned()), ..Identity::new() }.write(&own).unwrap();
    let error = Identity::read(&own).unwrap_err().to_string();
    assert!(error.contains("unknown family of servers Other"), "{error}");
}
