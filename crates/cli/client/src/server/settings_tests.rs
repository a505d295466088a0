use super::*;

fn settings(pairs: &[(&str, &str)]) -> Settings {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn what_a_node_can_not_follow_is_refused_by_name() {
    use Family::{MariaDb, MySql};
    for (family, name, value) in [
        (MariaDb, "innodb-encrypt-log", "TRUE"),
        (MariaDb, "innodb-encrypt-tables", "FORCE"),
        (MariaDb, "log-bin", "/elsewhere/"),
        (MariaDb, "innodb-force-recovery", "7"),
        (MariaDb, "innodb-read-only", "TRUE"),
        (MariaDb, "binlog-storage-engine", "InnoDB"),
        (MariaDb, "innodb-log-archive", "TRUE"),
        (MariaDb, "innodb-log-recovery-target", "12345"),
        (MySql, "innodb-redo-log-encrypt", "TRUE"),
        (MySql, "innodb-undo-log-encrypt", "ON"),
        (MySql, "default-table-encryption", "TRUE"),
        (MySql, "innodb-directories", "/elsewhere"),
        (MySql, "innodb-force-recovery", "7"),
        (MySql, "innodb-read-only", "TRUE"),
        (MySql, "daemonize", "TRUE"),
    ] {
        let set = settings(&[(name, value)]);
        let error = check_settings(family, &set, false).unwrap_err().to_string();
        let named = name.replace('-', "_");
        assert!(error.contains(&named) || error.contains(value), "{error}");
        assert_eq!(check_settings(family, &set, true).is_ok(), name == "innodb-encrypt-tables", "{name}");
    }
    let fine = [
        ("innodb-encrypt-log", "FALSE"),
        ("innodb-redo-log-encrypt", "FALSE"),
        ("innodb-directories", "(No default value)"),
        ("innodb-undo-directory", "/elsewhere"),
        ("innodb-data-home-dir", ""),
        ("log-bin", "/elsewhere/bin"),
        ("log-bin-index", "bin.index"),
        ("innodb-force-recovery", "0"),
        ("innodb-read-only", "FALSE"),
    ];
    for family in [MariaDb, MySql] {
        check_settings(family, &settings(&fine), false).unwrap();
    }
}

#[test]
fn levels_that_may_do_harm_get_no_volume() {
    let of = |level: &str| {
        let set = settings(&[("log-bin", "(No default value)"), ("innodb-force-recovery", level)]);
        check_settings(Family::MariaDb, &set, false).unwrap();
        ForcedRecovery::of(&set)
    };
    assert_eq!(of("0"), ForcedRecovery::None);
    assert_eq!(["1", "2", "3"].map(of), [ForcedRecovery::OnVolume; 3]);
    assert_eq!(["4", "5", "6"].map(of), [4, 5, 6].map(ForcedRecovery::OnView));
}

#[test]
fn a_setting_that_the_server_does_not_say_is_not_taken_for_fine() {
    for (family, name) in
        [(Family::MariaDb, "innodb-encrypt-log"), (Family::MySql, "innodb-redo-log-encrypt")]
    {
        let mut said: Settings = judged(family).map(|name| (name.to_owned(), "0".to_owned())).collect();
        check_complete(family, &said, Path::new("mariadbd")).unwrap();
        said.remove(name);
        let error = check_complete(family, &said, Path::new("mariadbd")).unwrap_err().to_string();
        assert!(error.contains(&name.replace('-', "_")), "{error}");
    }
}

#[test]
fn the_servers_table_of_settings_is_read() {
    let text = "mariadbd  Ver 10.11.19\n\nVariables (--variable-name=value)\nand boolean options {FALSE|TRUE}  Value (after reading options)\n--------- ----\ninnodb-page-size    16384\nsocket   /run/x.sock\n\nTo see";
    let settings = parse_settings(text);
    assert_eq!(settings["innodb-page-size"], "16384");
    assert_eq!(settings["socket"], "/run/x.sock");
    assert_eq!(settings.len(), 2);
}
