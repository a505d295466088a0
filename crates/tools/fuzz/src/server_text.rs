//! Text that a server and its environment pass to the library: variables, paths, and the counter file of a server
//! without a node. Read or refused, never a panic.
//!
//! Checked besides: a normalised path has no part that leads elsewhere, and normalising it again does not change it. No
//! path inside the data directory is classified by its parts outside of it. A path that the node accepts is one that
//! the library sends.
//!
//! Input: the kind, then the variables, each ended by a zero byte; or a base and a path; or a counter file.

use redoubt_redo::Family;
use redoubt_shm_control::local_log::{MAGIC, Snapshot};
use redoubt_wire::control::check_path;

#[allow(dead_code, missing_docs, reason = "the target uses a part of it")]
#[path = "../../../volume/shim/src/base/classify.rs"]
mod classify;
#[allow(dead_code, missing_docs, reason = "the target uses a part of it")]
#[path = "../../../volume/shim/src/base/config.rs"]
mod config;

use classify::{Rules, classify as class_of, is_local_directory, normalise, refusal_outside, relative};
use config::Config;

const VARIABLES: [&str; 14] = [
    "REDOUBT_SERVER_VERSION",
    "REDOUBT_NODE",
    "REDOUBT_DATADIR",
    "REDOUBT_VOLUME",
    "REDOUBT_GENERATION",
    "REDOUBT_SYSTEM_FILES",
    "REDOUBT_LOCAL_FILES",
    "REDOUBT_VERIFY",
    "REDOUBT_ON_DIFFERENCE",
    "REDOUBT_COMPRESS",
    "REDOUBT_TIMEOUT_S",
    "REDOUBT_PAGE_SIZE",
    "REDOUBT_PAGE_CACHE_BYTES",
    "REDOUBT_PAGE_CACHE_DIRECTORY",
];

fn variables(bytes: &[u8]) {
    let values: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
    let lookup = |name: &str| {
        let at = VARIABLES.iter().position(|variable| *variable == name)?;
        values.get(at).filter(|value| **value != b"-").map(|value| value.to_vec())
    };
    match Config::from_variables(&lookup) {
        Ok(config) => {
            assert!(config.datadir.starts_with(b"/") && !config.system_files.is_empty());
            assert!(config.page_size_bytes.is_power_of_two());
        }
        Err(error) => assert!(error.to_string().contains(error.name)),
    }
}

fn paths(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let [base, path, pattern] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let absolute = normalise(base, path);
    assert!(absolute.starts_with(b"/"));
    assert_eq!(normalise(b"/elsewhere", &absolute), absolute);
    assert!(!absolute.split(|byte| *byte == b'/').any(|part| part == b".." || part == b"."));
    let rules = Rules {
        family: if bytes.len().is_multiple_of(2) { Family::MariaDb } else { Family::MySql },
        system_files: vec![b"ibdata1".to_vec(), pattern.to_vec()],
        local_files: vec![pattern.to_vec()],
    };
    let datadir = normalise(b"/", base);
    if let Some(inside) = relative(&datadir, &absolute) {
        let _ = class_of(&rules, inside);
        let _ = is_local_directory(&rules, inside);
        // The node takes what the library sends. It sends nothing about names that no file system takes: the call on
        // the local file has failed before.
        let no_file = inside.is_empty()
            || inside.contains(&0)
            || inside.len() > 4095
            || inside.split(|byte| *byte == b'/').any(|name| name.len() > 255);
        assert!(no_file || check_path(inside).is_ok());
    } else {
        for has_begun in [false, true] {
            let _ = refusal_outside(&rules, &absolute, || has_begun);
        }
    }
}

fn counters(bytes: &[u8]) {
    let mut file = MAGIC.to_le_bytes().to_vec();
    file.extend_from_slice(bytes);
    let _ = Snapshot::parse(bytes);
    if let Ok(snapshot) = Snapshot::parse(&file) {
        let _ = snapshot.get(redoubt_shm_control::local_log::Counter::Failures);
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    match kind % 3 {
        0 => variables(bytes),
        1 => paths(bytes),
        _ => counters(bytes),
    }
}
