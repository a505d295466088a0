//! The servers that `scripts/fetch-server` has fetched.

use std::path::{Path, PathBuf};

use redoubt_test_support::setting_os;
use redoubt_workload::error::Result;
use redoubt_workload::product::{FetchedServer, Product};

/// Variable that names a folder with the server, and the one that tells why there is none, as `./test` found out.
const fn variables(server: FetchedServer) -> (&'static str, &'static str) {
    match server {
        FetchedServer::MySql97 => ("REDOUBT_MYSQL_9_7", "REDOUBT_MYSQL_9_7_MISSING"),
        FetchedServer::MariaDb114 => ("REDOUBT_MARIADB_11_4", "REDOUBT_MARIADB_11_4_MISSING"),
        FetchedServer::MariaDb118 => ("REDOUBT_MARIADB_11_8", "REDOUBT_MARIADB_11_8_MISSING"),
    }
}

/// The server in the folder that its variable names, or in the one of its name below `target`.
///
/// # Errors
/// [`redoubt_workload::error::Error::ProgramMissing`].
pub fn find(server: FetchedServer) -> Result<Product> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target");
    let folder = setting_os(variables(server).0).map_or_else(|| target.join(server.name()), PathBuf::from);
    server.find_in(&folder)
}

/// The one of this name, as an option has it.
///
/// # Errors
/// The reason why the name is invalid.
pub fn named(name: &str) -> std::result::Result<FetchedServer, String> {
    FetchedServer::named(name).ok_or_else(|| {
        let names: Vec<_> = FetchedServer::ALL.iter().map(|server| server.name()).collect();
        format!("no server {name} can be fetched, but {}", names.join(" and "))
    })
}

/// [`find`]; where there is none, says on standard error that `test` is skipped, and why.
///
/// # Panics
/// If a directory is named, and there is no such server in it.
pub fn find_or_skip(server: FetchedServer, test: &str) -> Option<Product> {
    match find(server) {
        Ok(product) => Some(product),
        Err(error) => {
            let (directory, _) = variables(server);
            assert!(std::env::var_os(directory).is_none(), "{directory} is set: {error}");
            let reason = std::env::var(variables(server).1).unwrap_or_else(|_| error.to_string());
            redoubt_test_support::skip(test, reason);
            None
        }
    }
}
