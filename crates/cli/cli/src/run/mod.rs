//! `redoubt run`: attach the volume, prepare the data directory, become the server.
//!
//! With `--local-log` none of that: see [`local_log`], which builds without the feature `experimental-devices` refuse.
//!
//! Order matters. Everything that can be refused is refused before the volume is attached, because attaching ends the
//! server that has it. Everything that takes long is done before it, because from then on no client is served.

pub mod args;
pub mod checksums;
pub mod datadir;
pub mod fill;
pub mod group;
#[cfg_attr(not(feature = "experimental-devices"), path = "no_local_log.rs")]
pub mod local_log;
pub mod marker;
pub mod older_copy;
pub mod preload;
pub mod series;
pub mod server;
pub mod settings;
pub mod unsent;

use crate::client::Client;
use crate::error::{CliError, Result};
use args::RunArguments;
use datadir::DataDirectory;
use redoubt_redo::Family;
use redoubt_transport::Connector;
use redoubt_wire::ServerVersion;
use redoubt_wire::control::{Reply, Request, VolumeStatus};
use server::Server;
use settings::ForcedRecovery;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use unsent::Unsent;

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
        crate::export::write(&connector, volume_name, to)?;
    }
    if let ForcedRecovery::OnView(level) = server.forced_recovery() {
        return run_on_view(arguments, &server, level);
    }
    preload::check(&server.binary, &library)?;
    let page_cache_directory = match &arguments.page_cache_directory {
        Some(given) => Some(given.canonicalize().map_err(|error| CliError::io("open", given, error))?),
        None => None,
    };
    let (directory, generation) = attach(arguments, &connector, volume_name, &path, &server)?;

    let mut command = Command::new(&server.program);
    command
        .args(server.arguments())
        .env("LD_PRELOAD", preload::value(&library))
        .env("REDOUBT_NODE", &connector.address)
        .env("REDOUBT_VOLUME", volume_name)
        .env_remove(local_log::VARIABLE)
        .env("REDOUBT_GENERATION", generation.to_string())
        .env("REDOUBT_DATADIR", &path)
        .env("REDOUBT_CLEAR_PAGES", if arguments.clear_pages { "1" } else { "0" });
    pass_server(&mut command, &server);
    pass_reaching(&mut command, arguments);
    pass_page_reading(&mut command, arguments, page_cache_directory.as_deref());
    pass_credentials(&mut command, &connector);
    group::pass_position(&mut command, &server, &path)?;
    directory.keep_locked()?;
    say_what_differs(arguments, &server, &path);
    let error = command.exec();
    Err(CliError::io("start", &server.program, error))
}

/// Sends what an earlier server left, attaches the volume, and fills the data directory. Returns the directory, which is
/// locked, and the generation.
fn attach(
    arguments: &RunArguments,
    connector: &Connector,
    volume_name: &str,
    path: &Path,
    server: &Server,
) -> Result<(DataDirectory, u64)> {
    let mut directory = DataDirectory::open(path, volume_name)?;
    let mut unsent = Unsent::open(path)?;
    let mut client = Client::connect(connector)?;
    let named = client.server_to_attach(server.version)?;
    let look = Look { connector, server: server.version, arguments };
    let first = look.at_volume(volume_name, &mut directory, &unsent)?;
    if let Some(older) = &first.accepted {
        complain!("redoubt: warning: --accept-older: {older}");
    } else {
        // In the generation of the server that wrote it, which attaching ends.
        unsent.send(connector, &first.volume, server.version)?;
    }
    let owner = datadir::owner_for(server)?;
    unsent.prepare(&first.volume.volume_id, owner)?;
    let filled = directory.prepare(&mut client, server)?;
    // Again: the node closes a connection that has been idle for long, and the volume may be another server's by now.
    let mut client = Client::connect(connector)?;
    let now = look.at_volume(volume_name, &mut directory, &unsent)?;
    // An attach elsewhere since the first look is refused; one from here, whose answer was lost, is not.
    let seen = if directory.made_last_attach(&now.volume) { &now } else { &first };
    let seen_generation = client.seen_generation(seen.volume.generation);
    // The first look decided that nothing was sent, so it counts even if the second one finds nothing to accept.
    let is_older = first.accepted.is_some() || now.accepted.is_some();
    if is_older {
        // The marker falls with the volume, so that this is asked for once only.
        directory.note_attached(now.volume.generation)?;
    }
    let who = directory.note_attaching(&attaching_process(path))?;
    let attach = Request::Attach { volume: volume_name.to_owned(), who, server: named, seen_generation };
    let attachment = match client.call(&attach)? {
        Reply::Attached(attachment) => attachment,
        other => return Err(client.unexpected(&other)),
    };
    directory.note_attached(attachment.generation)?;
    if is_older {
        unsent.start_anew()?;
        unsent.prepare(&now.volume.volume_id, owner)?;
    }
    directory.finish(&mut client, server, filled)?;
    Ok((directory, attachment.generation))
}

/// A look at the volume before it is attached. There are two: what comes between them may take long, and a node that has
/// just been started does not know the end of its log before.
struct Look<'l> {
    connector: &'l Connector,
    server: ServerVersion,
    arguments: &'l RunArguments,
}

struct Looked {
    volume: VolumeStatus,
    /// Why the node's copy is an older one, if that is accepted.
    accepted: Option<CliError>,
}

impl Look<'_> {
    /// Checks that the data directory is of this volume, that the node has all that it confirmed, and that no other server
    /// has taken the volume over where that matters.
    fn at_volume(&self, name: &str, directory: &mut DataDirectory, unsent: &Unsent) -> Result<Looked> {
        let volume = usable_volume(self.connector, name, self.server)?;
        directory.check_volume(&volume.volume_id)?;
        let known = older_copy::Known {
            generation: directory.generation(),
            is_of_other_history: directory.is_of_other_history(&volume),
            confirmed: unsent.confirmed(&volume.volume_id),
        };
        let accepted = match older_copy::check(&volume, known, &self.connector.address) {
            Err(older @ CliError::OlderCopy(_)) if self.arguments.accept_older => Some(older),
            checked => checked.map(|()| None)?,
        };
        if accepted.is_none() {
            directory.note_own_attach(&volume)?;
            if self.arguments.no_takeover {
                directory.check_not_taken(&volume)?;
            }
        }
        Ok(Looked { volume, accepted })
    }
}

/// The volume, if this server can start on it.
///
/// # Errors
/// The reason why it is not usable.
pub(crate) fn usable_volume(
    connector: &Connector,
    name: &str,
    server: ServerVersion,
) -> Result<VolumeStatus> {
    let volume = crate::status::fetch_volume(connector, name)?;
    if volume.state == "unusable" {
        let what = format!("volume {} could not be opened: {}", volume.name, volume.reason);
        return Err(CliError::Usage(what));
    }
    if volume.volume_id.is_empty() {
        let what = format!("the storage node is still opening volume {name}; try again");
        return Err(CliError::Usage(what));
    }
    if let Some(why) = volume.newest_server.and_then(|newest| server.refused_after(newest)) {
        return Err(CliError::Usage(format!("volume {name}: {why}")));
    }
    Ok(volume)
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

/// Tells the library where its certificate and key are: paths only, because environments are easily seen.
fn pass_credentials(command: &mut Command, connector: &Connector) {
    command.env_remove(crate::tls::DIRECTORY_VARIABLE);
    let files = connector.tls.as_ref().map(|tls| tls.files());
    let paths = files.map(|files| [&files.authority, &files.certificate, &files.key]);
    for (at, name) in crate::tls::FILE_VARIABLES.iter().enumerate() {
        match paths.and_then(|paths| paths.get(at).copied()) {
            Some(path) => command.env(name, path),
            None => command.env_remove(name),
        };
    }
}

/// Passes to the library which server it is in, and which files that has.
fn pass_server(command: &mut Command, server: &Server) {
    command
        .env("REDOUBT_SERVER_VERSION", server.version.to_string())
        .env("REDOUBT_SYSTEM_FILES", server.system_files_text())
        .env("REDOUBT_LOCAL_FILES", server.local_files.join(":"))
        .env("REDOUBT_PAGE_SIZE", server.page_size.to_string());
}

/// Tells the library how the node is spoken to, and how long it is waited for.
fn pass_reaching(command: &mut Command, arguments: &RunArguments) {
    command
        .env("REDOUBT_COMPRESS", arguments.compress.variable())
        .env("REDOUBT_LOCAL_SOCKET", if arguments.local_socket { "1" } else { "0" })
        .env("REDOUBT_TIMEOUT_S", arguments.timeout.to_string());
}

/// Passes to the library how pages are read, and which written pages are compared.
fn pass_page_reading(command: &mut Command, arguments: &RunArguments, cache_directory: Option<&Path>) {
    command
        .env("REDOUBT_VERIFY", &arguments.verify)
        .env("REDOUBT_PAGE_CACHE_BYTES", arguments.page_cache.unwrap_or(0).to_string())
        .env("REDOUBT_READ_AHEAD_BYTES", arguments.read_ahead.to_string());
    match cache_directory {
        Some(directory) => command.env("REDOUBT_PAGE_CACHE_DIRECTORY", directory),
        None => command.env_remove("REDOUBT_PAGE_CACHE_DIRECTORY"),
    };
}

/// This process, for people.
fn attaching_process(datadir: &Path) -> String {
    format!("{} process {} on {}", host_name(), std::process::id(), datadir.display())
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}
