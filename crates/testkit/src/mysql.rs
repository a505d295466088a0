//! The MySQL that `scripts/fetch-mysql.sh` has fetched.

use std::path::{Path, PathBuf};

use redoubt_workload::error::{Error, Result};
use redoubt_workload::product::Product;

/// Folder with a fetched MySQL.
const FOLDER_VARIABLE: &str = "REDOUBT_MYSQL";
/// Why there is none, as `./test` found out.
const REASON_VARIABLE: &str = "REDOUBT_MYSQL_MISSING";

/// A MySQL in the folder that `REDOUBT_MYSQL` names, or in `target/mysql`.
///
/// # Errors
/// [`Error::ProgramMissing`].
pub fn find_mysql() -> Result<Product> {
    let folder = std::env::var_os(FOLDER_VARIABLE)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mysql"), PathBuf::from);
    let program = folder.join("bin/mysqld");
    if !program.is_file() {
        return Err(Error::missing(program.display().to_string(), "fetch it: scripts/fetch-mysql.sh"));
    }
    let folder = folder.canonicalize().map_err(Error::io_at("open", &folder))?;
    Ok(Product::MySql { folder, loader: Vec::new() })
}

/// [`find_mysql`]; where there is none, says on standard error that `test` is skipped, and why.
pub fn mysql_or_skip(test: &str) -> Option<Product> {
    match find_mysql() {
        Ok(product) => Some(product),
        Err(error) => {
            let reason = std::env::var(REASON_VARIABLE).unwrap_or_else(|_| error.to_string());
            redoubt_test_support::skip(test, reason);
            None
        }
    }
}
