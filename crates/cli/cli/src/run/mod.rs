//! `redoubt run`: attach the volume, prepare the data directory, become the server.
//!
//! With `--local-log` none of that: see [`local_log`], which builds without the feature `experimental-devices` refuse.
//! [`redoubt_client::attach`] has the order of the steps.

pub mod args;
#[cfg_attr(not(feature = "experimental-devices"), path = "no_local_log.rs")]
pub mod local_log;
pub mod preload;

use crate::error::{CliError, Result};
use crate::show::Terminal;
use args::RunArguments;
use redoubt_client::attach::{AttachOptions, attach};
use redoubt_client::server::settings::ForcedRecovery;
use redoubt_client::server::{Server, series};
use redoubt_redo::Family;
use std::path::Path;

/// Starts a server; returns only on failure.
///
/// # Errors
/// Anything that keeps the server from starting.
pub fn run(arguments: &RunArguments) -> Result<()> {
    if arguments.reader {
        return crate::reader::run(arguments);
    }
    if arguments.local_log {
        return local_log::run(arguments);
    }
    let library = preload::find_library(arguments.library.as_deref())?;
    // The command line requires both without --local-log.
    let (Some(volume_name), Some(datadir)) = (&arguments.volume, &arguments.datadir) else {
        return Err(CliError::Usage("--volume and --datadir are missing".to_owned()));
    };
    let connector = arguments.address.connector()?;
    crate::tls::check_volume(&connector, volume_name)?;
    crate::show::make_directory(datadir)?;
    let path = datadir.canonicalize().map_err(|error| CliError::io("open", datadir, error))?;
    let server = Server::examine(&arguments.command, &path, arguments.clear_pages)?;
    if let Some(to) = &arguments.export_first {
        // A copy of the volume as it is, for who wants to repair it.
        let damaged = crate::export::write(&connector, volume_name, to, true)?;
        if let Some(summary) = damaged.summary() {
            complain!(
                "redoubt: {summary}. `redoubt volume import` does not take a damaged copy; to return to it, run a stock \
                 server on it and dump its tables"
            );
        }
    }
    if let ForcedRecovery::OnView(level) = server.forced_recovery() {
        return run_on_view(arguments, &server, level);
    }
    let options = AttachOptions {
        volume: volume_name,
        datadir: &path,
        library: &library,
        no_takeover: arguments.no_takeover,
        accept_older: arguments.accept_older,
        accept_removed: arguments.accept_removed,
        clear_pages: arguments.clear_pages,
        compress: arguments.compress.variable(),
        local_socket: arguments.local_socket,
        timeout_s: arguments.timeout,
        verify: arguments.verify(server.version.family),
        on_difference: arguments.on_difference(server.version.family).variable(),
        page_cache: arguments.page_cache,
        page_cache_directory: arguments.page_cache_directory.as_deref(),
        read_ahead: arguments.read_ahead,
    };
    let attached = attach(&options, &server, &connector, &Terminal)?;
    say_what_differs(arguments, &server, &path);
    Err(attached.exec().into())
}

/// Warnings for the operator before the server's own messages.
fn say_what_differs(arguments: &RunArguments, server: &Server, datadir: &Path) {
    if let Some(untested) = series::untested(server.version) {
        complain!("redoubt: {untested}");
    }
    if server.version.family == Family::MySql {
        complain!(
            "redoubt: MySQL on a volume is experimental; see docs/volume/mysql.md for what is tested and what is missing"
        );
    }
    if arguments.clear_pages {
        complain!(
            "redoubt: --clear-pages: the node holds the pages of encrypted tables in clear; only the \
             protection of its disks protects them there"
        );
    }
    if server.forced_recovery() == ForcedRecovery::OnVolume && arguments.export_first.is_none() {
        complain!(
            "redoubt: with innodb_force_recovery the server's changes go to the volume; --export-first DIR \
             keeps a copy of its current state"
        );
    }
    for moved in server.moved() {
        complain!(
            "redoubt: {}={} is ignored: these files are in the volume, and on this host in {}",
            moved.setting(),
            moved.value,
            datadir.display()
        );
    }
}

/// Starts a server with a harmful level of forced recovery on a snapshot of the volume. None of its writes get into
/// the volume, and nothing is taken over.
fn run_on_view(arguments: &RunArguments, server: &Server, level: u8) -> Result<()> {
    if server.program != server.binary {
        return Err(CliError::Usage(format!(
            "with innodb_force_recovery={level} give the server itself after `--` (mariadbd), not {}",
            server.program.display()
        )));
    }
    complain!(
        "redoubt: with innodb_force_recovery={level} the server runs on a view of the volume as it is now. The \
         volume does not change: writes of the server go to {} and are discarded when it ends. Dump the \
         tables from it (mariadb-dump)",
        std::env::temp_dir().display()
    );
    crate::reader::run(arguments).map_err(|error| {
        CliError::Usage(format!(
            "{error}; the other way is `redoubt volume export` and a stock server with innodb_force_recovery={level} on that \
             copy"
        ))
    })
}
