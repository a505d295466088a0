//! Options as users write them.

use super::parameters::{Parameter, Value};
use super::*;

#[test]
fn a_configuration_of_galera_is_taken() {
    let mut options = Options::default();
    options
        .set("base_port=15001; gcache.size = 256M ;evs.suspect_timeout=PT5S;pc.ignore_sb=no; repl.max_ws_size=1M;")
        .unwrap();
    assert_eq!(options.base_port, 15001);
    assert_eq!(options.max_write_set_len_bytes, 1 << 20);
    assert_eq!(options.kept_log_len_bytes, 256 << 20);
    assert!(options.text().contains("gcache.size = 256M; "), "{}", options.text());
}

#[test]
fn what_is_kept_has_sizes_as_galera_writes_them() {
    let mut options = Options::default();
    let sizes =
        |options: &Options| (options.kept_log_len_bytes, options.catch_up_len_bytes, options.apply_len_bytes);
    assert_eq!(sizes(&options), (128 << 20, 32 << 20, 64 << 20));
    for default in ["gcache.size = 128M; ", "redoubt.catch_up_memory = 32M; ", "redoubt.apply_memory = 64M; "]
    {
        assert!(options.text().contains(default), "{}", options.text());
    }
    options.set("gcache.size=2G;redoubt.catch_up_memory=512K;redoubt.apply_memory=0").unwrap();
    assert_eq!(sizes(&options), (2 << 30, 512 << 10, 0));
    assert!(options.set("gcache.size=much").unwrap_err().to_string().contains("a number of bytes"));
}

#[test]
fn what_is_wrong_is_said_and_changes_nothing() {
    let mut options = Options::default();
    let before = options.clone();
    for (text, wanted) in [
        ("base_port=15001;no.such=1", "Unknown parameter 'no.such' among the provider options"),
        ("base_port=99999", "invalid provider option base_port=\"99999\": a port, 1 to 65535"),
        ("base_port", "provider option \"base_port\" is not of the form name=value"),
        (
            "repl.max_ws_size=2X",
            "invalid provider option repl.max_ws_size=\"2X\": a number of bytes; K, M and G \
          may follow it",
        ),
        (
            "gmcast.listen_addr=tcp://",
            "invalid provider option gmcast.listen_addr=\"tcp://\": host:port, or host",
        ),
    ] {
        assert_eq!(options.set(text).unwrap_err().to_string(), wanted, "{text}");
        assert_eq!(options, before);
    }
}

#[test]
fn encryption_needs_all_of_its_files_or_a_bundle() {
    let files = |text: &str| {
        let mut options = Options::default();
        options.set(text).unwrap();
        options.tls.files()
    };
    assert_eq!(files("evs.keepalive_period=PT1S"), Ok(None));
    let bundle = CredentialFiles::in_directory(std::path::Path::new("/b"));
    assert_eq!(files("redoubt.tls=/b"), Ok(Some(bundle)));
    let named = files("socket.ssl_ca=/a; socket.ssl_cert=/d/c; socket.ssl_key=/k").unwrap().unwrap();
    assert_eq!(named.removed, Some("/d/removed".into()));
    for incomplete in ["socket.ssl=yes", "socket.ssl_cert=/c", "redoubt.tls=/b;socket.ssl_key=/k"] {
        assert_eq!(files(incomplete), Err(OptionError::Tls), "{incomplete}");
    }
    assert_eq!(files("socket.ssl=no;redoubt.tls=/b"), Ok(None));
    assert!(Options::default().set("socket.ssl=perhaps").is_err());
    assert!(Options::default().set("redoubt.members=,").is_err());
}

#[test]
fn periods_are_those_of_galera() {
    for (text, time_ms) in
        [("PT30S", 30_000), ("PT0.5S", 500), ("PT1M", 60_000), ("PT1H2M3.25S", 3_723_250), ("PT1S", 1000)]
    {
        let mut options = Options::default();
        options.set(&format!("repl.causal_read_timeout = {text}")).unwrap();
        assert_eq!(options.causal_read_timeout_ms, time_ms, "{text}");
    }
    for text in ["", "PT", "30", "PT-1S", "PT1", "PTS", "PT1S1M", "PTinfS", "PT0S", "P1D", "PT1e99S"] {
        let error = Options::default().set(&format!("repl.causal_read_timeout = {text}")).unwrap_err();
        assert!(error.to_string().contains("PT30S"), "{text}: {error}");
    }
}

#[test]
fn parameters_are_what_can_be_set_and_what_holds() {
    let mut options = Options::default();
    options.set("base_port=15001;gcache.size=1G;pc.ignore_sb=yes;redoubt.members=a,b").unwrap();
    let mut again = Options::default();
    for Parameter { name, value, is_live } in options.parameters() {
        let name = name.to_str().unwrap();
        let text = match value {
            Value::Text(text) => text,
            Value::Switch(is_on) => is_on.to_string(),
            Value::Number(number) => number.to_string(),
        };
        if name.as_bytes() == REMOVE.to_bytes() {
            assert!(is_live && text.is_empty());
        } else if !text.is_empty() {
            again.set(&format!("{name}={text};")).unwrap();
        }
    }
    let plain = |options: &Options| Options { given: BTreeMap::new(), ..options.clone() };
    assert_eq!(plain(&again), plain(&options));
    let names: BTreeSet<_> = options.parameters().iter().map(|parameter| parameter.name).collect();
    assert_eq!(names.len(), options.parameters().len(), "a name twice is an error of the server");
}

#[test]
fn reference_page_lists_every_option() {
    let page = include_str!("../../../../../docs/group/reference.md");
    let all = Options::default().parameters();
    let known: std::collections::BTreeSet<_> =
        all.iter().map(|parameter| parameter.name.to_str().unwrap().to_owned()).collect();
    assert_eq!(redoubt_test_support::listed::names(page, "Options"), known);
}

#[test]
fn reference_page_lists_every_own_status_variable() {
    let page = include_str!("../../../../../docs/group/reference.md");
    let source = include_str!("../entry/statistics.rs");
    let names = source.split("(c\"").skip(1).filter_map(|rest| rest.split('"').next());
    let own = names.filter(|name| name.starts_with("group_") || name.starts_with("cert_"));
    let known: std::collections::BTreeSet<_> =
        own.chain(["group_member_1"]).map(|name| format!("wsrep_{name}")).collect();
    assert!(known.len() > 8, "{known:?}");
    assert_eq!(redoubt_test_support::listed::names(page, "Status variables"), known);
}
