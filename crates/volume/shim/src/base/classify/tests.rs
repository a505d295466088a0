use super::*;

fn rules() -> Rules {
    Rules {
        family: Family::MariaDb,
        system_files: vec![b"ibdata1".to_vec(), b"sys/ibdata2".to_vec()],
        local_files: vec![b"host.log".to_vec(), b"slow*".to_vec(), b"*.trace".to_vec(), b"tmp/*".to_vec()],
    }
}

#[test]
fn names_have_their_class() {
    let cases: &[(&str, Class)] = &[
        ("ib_logfile0", Class::RedoLog),
        ("ib_logfile101", Class::RedoLogResize),
        ("ib_logfile1", Class::Local),
        ("db/ib_logfile0", Class::Plain),
        ("ibdata1", Class::Tablespace),
        ("ibdata2", Class::Plain),
        ("sys/ibdata2", Class::Tablespace),
        ("undo001", Class::Tablespace),
        ("undo01", Class::Plain),
        ("undo001x", Class::Plain),
        ("db/undo001", Class::Plain),
        ("db/t.ibd", Class::Tablespace),
        ("db/#sql-alter-1-2.ibd", Class::Tablespace),
        ("db/#sql-temptable-1-2-3.MAI", Class::Local),
        ("ibtmp1", Class::Local),
        ("ib_buffer_pool", Class::Local),
        ("redoubt_group.log-00000000000000000000.seg.log", Class::Local),
        ("grastate.dat", Class::Local),
        ("ib_buffer_pool.incomplete", Class::Local),
        (".redoubt-volume", Class::Local),
        ("host.pid", Class::Local),
        ("mysql.sock", Class::Local),
        ("host.err", Class::Local),
        ("host.log", Class::Local),
        ("slow-1.log", Class::Local),
        ("a/b.trace", Class::Local),
        ("tmp/ML123", Class::Local),
        ("core.77", Class::Local),
        ("aria_log_control", Class::Plain),
        ("mysql/user.frm", Class::Plain),
        ("mysql-bin.000001", Class::Plain),
        ("db", Class::Plain),
    ];
    for (path, class) in cases {
        assert_eq!(classify(&rules(), path.as_bytes()), *class, "{path}");
    }
}

#[test]
fn names_of_mysql_have_their_class() {
    let rules = Rules { family: Family::MySql, ..rules() };
    let cases: &[(&str, Class)] = &[
        ("#innodb_redo/#ib_redo0", Class::RedoFile),
        ("#innodb_redo/#ib_redo123_tmp", Class::RedoFile),
        ("#innodb_redo/#ib_redo", Class::Plain),
        ("#innodb_redo/#ib_redo_tmp", Class::Plain),
        ("db/#innodb_redo/#ib_redo7", Class::Plain),
        ("#innodb_redo/x/#ib_redo7", Class::Plain),
        ("#ib_redo7", Class::Plain),
        ("#innodb_redo", Class::Plain),
        ("#innodb_temp/temp_1.ibt", Class::Local),
        ("#ib_16384_0.dblwr", Class::Local),
        ("#ib_16384_0.bdblwr", Class::Local),
        ("ib_logfile0", Class::Plain),
        ("ibdata1", Class::Tablespace),
        ("mysql.ibd", Class::Tablespace),
        ("undo_001", Class::Tablespace),
        ("undo001", Class::Plain),
        ("db/undo_001", Class::Plain),
        ("more.ibu", Class::Tablespace),
        ("undo_1_trunc.log", Class::Plain),
        ("ibtmp1", Class::Local),
        ("ib_buffer_pool", Class::Local),
        ("auto.cnf", Class::Plain),
        ("binlog.000001", Class::Plain),
        ("mysqlx.sock.lock", Class::Local),
    ];
    for (path, class) in cases {
        assert_eq!(classify(&rules, path.as_bytes()), *class, "{path}");
    }
    assert!(is_local_directory(&rules, b"#innodb_temp") && !is_local_directory(&rules, b"#innodb_redo"));
}

#[test]
fn paths_are_normalised() {
    for (base, path, expected) in [
        ("/data", "./ibdata1", "/data/ibdata1"),
        ("/data", "ibdata1", "/data/ibdata1"),
        ("/data", "./db//t.ibd", "/data/db/t.ibd"),
        ("/data", "../data/./x", "/data/x"),
        ("/data", "/etc/my.cnf", "/etc/my.cnf"),
        ("/data", "../../..", "/"),
    ] {
        assert_eq!(normalise(base.as_bytes(), path.as_bytes()), expected.as_bytes());
    }
    assert_eq!(relative(b"/data", b"/data/x"), Some(&b"x"[..]));
    assert_eq!(relative(b"/data", b"/data"), Some(&b""[..]));
    assert_eq!(relative(b"/data", b"/database/x"), None);
    assert_eq!(parent(b"/x"), b"/");
    assert_eq!(parent(b"/x/y"), b"/x");
}

#[test]
fn innodb_files_outside_are_refused_with_the_option() {
    for (path, word) in [
        ("/other/db/t.ibd", "DATA DIRECTORY"),
        ("/other/undo002", "innodb_undo_directory"),
        ("/other/ib_logfile0", "innodb_log_group_home_dir"),
        ("/other/ibdata1", "innodb_data_home_dir"),
    ] {
        assert!(refusal_outside(&rules(), path.as_bytes(), || true).unwrap().contains(word));
    }
    assert_eq!(refusal_outside(&rules(), b"/etc/mysql/my.cnf", || true), None);
    let of_mysql = Rules { family: Family::MySql, ..rules() };
    for (path, has_begun, word) in [
        ("/other/ibdata1", false, "innodb_data_home_dir"),
        ("/other/ibdata1", true, "a clone"),
        ("/other/db/t.ibd", true, "DATA DIRECTORY"),
        ("/other/undo_001", true, "innodb_undo_directory"),
    ] {
        assert!(refusal_outside(&of_mysql, path.as_bytes(), || has_begun).unwrap().contains(word), "{path}");
    }
}
