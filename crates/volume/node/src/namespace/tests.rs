use super::*;

mod naive;
mod random;

const LSN: Lsn = Lsn(1);

fn create_record(names: &mut Namespace, space: u32, path: &str) -> Vec<Effect> {
    names.file_record(SpaceId(space), &FileRecord::Create { path: path.as_bytes() }, LSN).unwrap()
}

#[test]
fn a_new_table_is_linked_whichever_of_redo_and_system_call_comes_first() {
    let mut names = Namespace::default();
    create_record(&mut names, 5, "./test/t1.ibd");
    names.create("test/t1.ibd", FileKind::Tablespace, 0o660);
    let object = names.known_object_of_space(SpaceId(5)).unwrap();
    assert_eq!(names.file_at("test/t1.ibd").unwrap().1.object, Some(object.0));

    names.create("test/t2.ibd", FileKind::Tablespace, 0o660);
    create_record(&mut names, 6, "./test/t2.ibd");
    let object = names.known_object_of_space(SpaceId(6)).unwrap();
    assert_eq!(names.file_at("test/t2.ibd").unwrap().1.object, Some(object.0));
}

#[test]
fn a_rename_keeps_the_file_and_a_drop_ends_the_object() {
    let mut names = Namespace::default();
    create_record(&mut names, 5, "./test/a.ibd");
    let (file, _) = names.create("test/a.ibd", FileKind::Tablespace, 0o660);
    names
        .file_record(
            SpaceId(5),
            &FileRecord::Rename { old_path: b"./test/a.ibd", new_path: b"./test/b.ibd" },
            LSN,
        )
        .unwrap();
    names.rename("test/a.ibd", "test/b.ibd");
    assert_eq!(names.file_at("test/b.ibd").unwrap().0, file);
    let object = names.known_object_of_space(SpaceId(5)).unwrap();
    let effects = names.file_record(SpaceId(5), &FileRecord::Delete { path: b"./test/b.ibd" }, LSN).unwrap();
    assert!(matches!(effects[..], [Effect::ObjectDead(dead, _)] if dead == object));
    assert_eq!(names.unlink("test/b.ibd"), []);
    assert!(names.file_at("test/b.ibd").is_none());
}

/// The server logs a rename before it is done; a name may turn out to be too long for a file.
#[test]
fn a_rename_to_a_name_that_no_file_can_have_is_followed() {
    let mut names = Namespace::default();
    create_record(&mut names, 5, "./test/a.ibd");
    let (file, _) = names.create("test/a.ibd", FileKind::Tablespace, 0o660);
    let too_long = format!("./test/{}.ibd", "@0023".repeat(60));
    let mut rename = |old: &str, new: &str| {
        let (old_path, new_path) = (old.as_bytes(), new.as_bytes());
        names.file_record(SpaceId(5), &FileRecord::Rename { old_path, new_path }, LSN).map(drop)
    };
    rename("./test/a.ibd", &too_long).unwrap();
    rename(&too_long, "./test/a.ibd").unwrap();
    assert!(rename("./test/a.ibd", "../a.ibd").is_err());
    assert_eq!(names.file_at("test/a.ibd").unwrap().0, file);
}

#[test]
fn tables_that_swap_names_keep_their_pages() {
    let mut names = Namespace::default();
    for (space, path) in [(5, "test/t.ibd"), (6, "test/new.ibd")] {
        create_record(&mut names, space, &format!("./{path}"));
        names.create(path, FileKind::Tablespace, 0o660);
    }
    let (old, new) =
        (names.known_object_of_space(SpaceId(5)).unwrap(), names.known_object_of_space(SpaceId(6)).unwrap());
    names.rename("test/t.ibd", "test/backup.ibd");
    names.rename("test/new.ibd", "test/t.ibd");
    assert_eq!(names.file_at("test/t.ibd").unwrap().1.object, Some(new.0));
    assert_eq!(names.file_at("test/backup.ibd").unwrap().1.object, Some(old.0));
}

#[test]
fn imported_pages_become_the_spaces_pages_at_the_first_redo() {
    let mut names = Namespace::default();
    create_record(&mut names, 5, "./test/t.ibd");
    names.create("test/t.ibd", FileKind::Tablespace, 0o660);
    names.file_record(SpaceId(5), &FileRecord::Delete { path: b"./test/t.ibd" }, LSN).unwrap();
    names.unlink("test/t.ibd");
    let (file, _) = names.create("test/t.ibd", FileKind::Tablespace, 0o660);
    let imported = names.object_of_file(file).unwrap();
    let effects = names.file_record(SpaceId(5), &FileRecord::Modify { path: b"./test/t.ibd" }, LSN).unwrap();
    assert_eq!(effects, []);
    assert_eq!(names.known_object_of_space(SpaceId(5)), Some(imported));
}

#[test]
fn undo_files_are_bound_by_observed_writes_and_trim_starts_a_new_object() {
    let mut names = Namespace::default();
    names.create("undo001", FileKind::Tablespace, 0o660);
    let object = names.object_of_space(SpaceId(1));
    assert_eq!(names.bind_space("undo001", SpaceId(1)), []);
    assert_eq!(names.file_at("undo001").unwrap().1.object, Some(object.0));
    let (new, effects) = names.trim(SpaceId(1));
    assert!(matches!(effects[..], [Effect::ObjectDead(dead, _)] if dead == object));
    assert_eq!(names.file_at("undo001").unwrap().1.object, Some(new.0));
    assert_eq!(names.known_object_of_space(SpaceId(1)), Some(new));
}

#[test]
fn the_system_tablespace_spans_its_files() {
    let mut names = Namespace::default();
    let files = [("ibdata1", 1 << 20), ("ibdata2", 0)]
        .map(|(path, len_bytes)| SystemFile { path: path.as_bytes().to_vec(), len_bytes });
    names.set_system_files(&files).unwrap();
    names.create("ibdata1", FileKind::Tablespace, 0o660);
    names.create("ibdata2", FileKind::Tablespace, 0o660);
    let object = names.object_of_space(SpaceId(0));
    for (path, first_byte) in [("ibdata1", 0), ("ibdata2", 1 << 20)] {
        let entry = names.file_at(path).unwrap().1;
        assert_eq!((entry.object, entry.first_byte), (Some(object.0), first_byte));
    }
    for (at, expected) in [
        (0, ("ibdata1", 0)),
        ((1 << 20) - 1, ("ibdata1", (1 << 20) - 1)),
        (1 << 20, ("ibdata2", 0)),
        ((1 << 20) + 5, ("ibdata2", 5)),
    ] {
        let (file, offset) = names.file_of_byte(object, at).unwrap();
        assert_eq!((file.path.as_str(), offset), expected);
    }
}

#[test]
fn replacing_a_plain_file_by_rename_drops_the_old_one() {
    let mut names = Namespace::default();
    let (old, _) = names.create("a.frm", FileKind::Plain, 0o660);
    names.create("b.frm", FileKind::Plain, 0o660);
    assert_eq!(names.rename("b.frm", "a.frm"), [Effect::PlainGone(old)]);
    names.mkdir("db", 0o700);
    names.create("db/x.frm", FileKind::Plain, 0o660);
    names.rename("db", "db2");
    assert!(names.file_at("db2/x.frm").is_some());
    assert_eq!(names.directories().collect::<Vec<_>>(), [("db2", 0o700)]);
}

#[test]
fn files_removed_by_hand_go_with_their_directory() {
    let mut names = Namespace::default();
    names.mkdir("d", 0o700);
    names.mkdir("d/below", 0o700);
    names.mkdir("d2", 0o700);
    let (stray, _) = names.create("d/out.csv", FileKind::Plain, 0o660);
    let (below, _) = names.create("d/below/x", FileKind::Plain, 0o660);
    names.create("d2/t.frm", FileKind::Plain, 0o660);
    names.create("d/t.ibd", FileKind::Tablespace, 0o660);
    assert_eq!(names.rmdir("d"), [Effect::PlainGone(below), Effect::PlainGone(stray)]);
    assert_eq!(names.directories().collect::<Vec<_>>(), [("d2", 0o700)]);
    assert!(
        names.file_at("d/out.csv").is_none()
            && names.file_at("d/t.ibd").is_some()
            && names.file_at("d2/t.frm").is_some()
    );
}

#[test]
fn paths_out_of_the_volume_stop_the_parser() {
    let mut names = Namespace::default();
    let result = names.file_record(SpaceId(5), &FileRecord::Create { path: b"/elsewhere/t.ibd" }, LSN);
    assert!(result.unwrap_err().to_string().contains("DATA DIRECTORY"));
}
