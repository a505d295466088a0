use super::*;

fn settings(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn arguments(pairs: &[(&str, &str)], datadir: &Path) -> Vec<String> {
    moved(&settings(pairs), datadir).iter().map(Moved::argument).collect()
}

#[test]
fn directories_of_innodb_are_the_data_directory_itself() {
    let datadir = Path::new("/no/such/data");
    for option in [DATA_HOME, LOG_HOME, UNDO] {
        for elsewhere in ["/fast/log", "../log", "log", "./log", "/no/such/data/log", "a/../../b"] {
            let expected = format!("--{option}=./");
            assert_eq!(arguments(&[(option, elsewhere)], datadir), [expected], "{elsewhere}");
        }
        for itself in
            ["", ".", "./", "/no/such/data", "/no/such/data/", "x/..", "../data", "(No default value)"]
        {
            assert!(arguments(&[(option, itself)], datadir).is_empty(), "{option}={itself}");
        }
    }
}

#[test]
fn logs_outside_come_in_under_their_own_names() {
    let datadir = Path::new("/no/such/data");
    for (option, value, argument) in [
        (ARIA, "/srv/aria", "--aria-log-dir-path=./"),
        (ARIA, "../aria", "--aria-log-dir-path=./"),
        (BINARY_LOG, "/srv/binlog/mysql-bin", "--log-bin=./mysql-bin"),
        (BINARY_LOG, "../mysql-bin.log", "--log-bin=./mysql-bin.log"),
        (BINARY_LOG, "logs/mysql-bin", "--log-bin=./mysql-bin"),
        (BINARY_LOG_INDEX, "/srv/binlog/all.index", "--log-bin-index=./all.index"),
    ] {
        assert_eq!(arguments(&[(option, value)], datadir), [argument.to_owned()], "{option}={value}");
    }
    for (option, value) in [
        (ARIA, "/no/such/data/"),
        (BINARY_LOG, "mysql-bin"),
        (BINARY_LOG, "./mysql-bin"),
        (BINARY_LOG, "/no/such/data/mysql-bin"),
        (BINARY_LOG, "OFF"),
        (BINARY_LOG, "/srv/binlog/"),
        (BINARY_LOG_INDEX, "(No default value)"),
    ] {
        assert!(arguments(&[(option, value)], datadir).is_empty(), "{option}={value}");
    }
}

#[test]
fn logs_inside_stay_where_the_volume_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = directory.path();
    let pairs =
        [(ARIA, "aria"), (BINARY_LOG, "./logs/mysql-bin"), (BINARY_LOG_INDEX, "logs/mysql-bin.index")];
    // A directory alone may be a database of that name.
    std::fs::create_dir_all(datadir.join("aria")).unwrap();
    std::fs::create_dir_all(datadir.join("logs")).unwrap();
    assert_eq!(arguments(&pairs, datadir).len(), 3);
    std::fs::write(datadir.join("aria/aria_log_control"), "").unwrap();
    std::fs::write(datadir.join("logs/mysql-bin.index"), "").unwrap();
    assert!(arguments(&pairs, datadir).is_empty());
}

#[test]
fn a_link_leads_where_it_leads() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = directory.path().join("data");
    std::fs::create_dir(&datadir).unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&datadir, &link).unwrap();
    let set = |value: String| arguments(&[(UNDO, value.as_str())], &datadir);
    assert!(set(link.display().to_string()).is_empty());
    assert_eq!(set(link.join("undo").display().to_string()), ["--innodb-undo-directory=./"]);
    // The data directory may itself be named by a link.
    assert!(arguments(&[(UNDO, datadir.to_str().unwrap())], &link).is_empty());
}
