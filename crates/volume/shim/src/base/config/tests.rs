use super::*;
use redoubt_wire::greeting::{MYSQL, SERVER_VERSION};
use std::collections::HashMap;

fn base() -> HashMap<String, Vec<u8>> {
    [
        ("REDOUBT_NODE", "127.0.0.1:4000"),
        ("REDOUBT_SERVER_VERSION", "MySQL 9.7.4"),
        ("REDOUBT_VOLUME", "v"),
        ("REDOUBT_GENERATION", "7"),
        ("REDOUBT_DATADIR", "/data/d/"),
        ("REDOUBT_SYSTEM_FILES", "ibdata1:10485760;ibdata2:0"),
        ("REDOUBT_LOCAL_FILES", "host.pid:error.log:slow*"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
    .collect()
}

fn parse(variables: &HashMap<String, Vec<u8>>) -> Result<Config, ConfigError> {
    Config::from_variables(&|name| variables.get(name).cloned())
}

#[test]
fn complete_environment_is_read() {
    let config = parse(&base()).unwrap();
    assert_eq!(config.datadir, b"/data/d");
    assert_eq!(config.generation, 7);
    assert_eq!(config.family, Family::MySql);
    assert_eq!(config.required_features, SERVER_VERSION.with(MYSQL));
    assert_eq!(config.system_files.len(), 2);
    assert_eq!(config.system_files[0].len_bytes, 10_485_760);
    assert_eq!(config.local_files.len(), 3);
    assert_eq!(config.verify, Verify::OneOf(1));
    assert_eq!(config.page_size_bytes, 16384);
    assert_eq!(config.timeout, Duration::from_secs(600));
}

#[test]
fn compression_is_off_on_or_decided_from_moment_to_moment() {
    assert_eq!(parse(&base()).unwrap().compress, Compression::Off);
    for (value, expected) in [("0", Compression::Off), ("1", Compression::On), ("auto", Compression::Auto)] {
        let mut variables = base();
        variables.insert("REDOUBT_COMPRESS".to_owned(), value.as_bytes().to_vec());
        assert_eq!(parse(&variables).unwrap().compress, expected);
    }
}

#[test]
fn difference_stops_the_volume_unless_healing_is_chosen() {
    assert_eq!(parse(&base()).unwrap().on_difference, OnDifference::Stop);
    for (value, expected) in [("heal", OnDifference::Heal), ("stop", OnDifference::Stop)] {
        let mut variables = base();
        variables.insert("REDOUBT_ON_DIFFERENCE".to_owned(), value.as_bytes().to_vec());
        assert_eq!(parse(&variables).unwrap().on_difference, expected);
    }
}

#[test]
fn each_wrong_variable_is_named() {
    for (name, value) in [
        ("REDOUBT_NODE", "nowhere"),
        ("REDOUBT_SERVER_VERSION", "MySQL"),
        ("REDOUBT_SERVER_VERSION", "Oracle 1.2.3"),
        ("REDOUBT_SERVER_VERSION", "MariaDB 12.3.1"),
        ("REDOUBT_GENERATION", "x"),
        ("REDOUBT_DATADIR", "relative"),
        ("REDOUBT_SYSTEM_FILES", "ibdata1"),
        ("REDOUBT_SYSTEM_FILES", "ibdata1:0;ibdata2:0"),
        ("REDOUBT_VERIFY", "1/0"),
        ("REDOUBT_ON_DIFFERENCE", "mend"),
        ("REDOUBT_COMPRESS", "2"),
        ("REDOUBT_CLEAR_PAGES", "yes"),
        ("REDOUBT_LOCAL_SOCKET", "on"),
        ("REDOUBT_PAGE_SIZE", "12345"),
    ] {
        let mut variables = base();
        variables.insert(name.to_owned(), value.as_bytes().to_vec());
        let error = parse(&variables).unwrap_err();
        assert_eq!(error.name, name, "{value}");
        assert!(error.to_string().contains("redoubt run"));
    }
    for name in ["REDOUBT_VOLUME", "REDOUBT_GENERATION", "REDOUBT_DATADIR", "REDOUBT_SYSTEM_FILES"] {
        let mut variables = base();
        variables.remove(name);
        assert_eq!(parse(&variables).unwrap_err().name, name);
    }
}

#[test]
fn environment_of_0_1_0_is_of_mariadb_10_11() {
    let mut variables = base();
    variables.remove("REDOUBT_SERVER_VERSION");
    let config = parse(&variables).unwrap();
    assert_eq!((config.family, config.required_features), (Family::MariaDb, Features::NONE));
    // A build after 0.1.0 may have started another server.
    for family in ["mariadb", "mysql", ""] {
        variables.insert("REDOUBT_FAMILY".to_owned(), family.as_bytes().to_vec());
        assert_eq!(parse(&variables).unwrap_err().name, "REDOUBT_SERVER_VERSION");
    }
}

#[test]
fn credentials_are_all_named_or_none() {
    assert_eq!(parse(&base()).unwrap().tls, None);
    let mut variables = base();
    variables.insert("REDOUBT_TLS_CERTIFICATE".to_owned(), b"/c.pem".to_vec());
    assert_eq!(parse(&variables).unwrap_err().name, "REDOUBT_TLS_AUTHORITY");
    variables.insert("REDOUBT_TLS_AUTHORITY".to_owned(), b"/a.pem".to_vec());
    assert_eq!(parse(&variables).unwrap_err().name, "REDOUBT_TLS_KEY");
    variables.insert("REDOUBT_TLS_KEY".to_owned(), b"/k.pem".to_vec());
    let files = parse(&variables).unwrap().tls.unwrap();
    assert_eq!(files.key, PathBuf::from("/k.pem"));
}
