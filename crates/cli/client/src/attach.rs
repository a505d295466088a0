//! From a data directory to a server that runs on a volume: sends what the last server left, fills the directory,
//! attaches the volume, and makes the command that becomes the server.
//!
//! Order matters. Everything that can be refused is refused before the volume is attached, because attaching ends the
//! server that has it. Everything that takes long is done before it, because from then on no client is served.

pub mod checksums;
pub mod datadir;
pub mod fill;
#[cfg_attr(not(feature = "group"), path = "attach/no_group.rs")]
pub mod group;
pub mod marker;
pub mod older_copy;
pub mod purged;
pub mod unsent;

use crate::control::Client;
use crate::credentials::{DIRECTORY_VARIABLE, FILE_VARIABLES};
use crate::error::{ClientError, Result};
use crate::events::Events;
use crate::local_log;
use crate::preload;
use crate::server::Server;
use crate::volumes;
use datadir::DataDirectory;
use redoubt_transport::Connector;
use redoubt_transport::socket::LOST_PEER_AFTER;
use redoubt_wire::ServerVersion;
use redoubt_wire::control::{Reply, Request, VolumeStatus};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use unsent::Unsent;

/// Time in which a node finds out that a server's host is gone, and some more.
const LOST_SERVER_TIMEOUT: Duration = LOST_PEER_AFTER.saturating_add(Duration::from_secs(15));
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Options of a server on a volume besides its own command.
pub struct AttachOptions<'a> {
    /// Name of the volume.
    pub volume: &'a str,
    /// Data directory, absolute.
    pub datadir: &'a Path,
    /// The library to preload.
    pub library: &'a Path,
    /// Refuse a volume that was attached elsewhere since this data directory had it.
    pub no_takeover: bool,
    /// Accept a node that has an older copy of the volume.
    pub accept_older: bool,
    /// Plain files that are missing in the data directory were removed on purpose: remove them from the volume, too.
    pub accept_removed: bool,
    /// Tables may be encrypted: the node gets their pages in clear.
    pub clear_pages: bool,
    /// Compression on the wire: `0`, `1` or `auto`.
    pub compress: &'a str,
    /// Reach a node on this host over its unix socket.
    pub local_socket: bool,
    /// Seconds that the server waits for a lost node.
    pub timeout_s: u64,
    /// Page writes to compare with the node's pages: `all`, `1/N` or `off`.
    pub verify: &'a str,
    /// Action on a page that differs: `heal` or `stop`.
    pub on_difference: &'a str,
    /// Length of the page cache.
    pub page_cache: Option<u64>,
    /// Its directory; without one it is in memory.
    pub page_cache_directory: Option<&'a Path>,
    /// Bytes that are read ahead of scans at most.
    pub read_ahead: u64,
}

/// A volume that is attached, and the command that becomes its server. The data directory is locked as long as this
/// lives, and afterwards as long as the server does.
pub struct Attached<'a> {
    command: Command,
    _directory: DataDirectory<'a>,
}

impl Attached<'_> {
    /// Replaces this process by the server; returns only on failure.
    pub fn exec(mut self) -> ClientError {
        let error = self.command.exec();
        ClientError::io("start", self.command.get_program(), error)
    }
}

/// Attaches a volume for `server`, whose data directory is brought to the state of the volume.
///
/// # Errors
/// Anything that keeps the server from starting.
pub fn attach<'a>(
    options: &AttachOptions<'_>,
    server: &Server,
    connector: &Connector,
    events: &'a dyn Events,
) -> Result<Attached<'a>> {
    let path = options.datadir;
    preload::check(&server.binary, options.library)?;
    group::check(server)?;
    let page_cache_directory = match options.page_cache_directory {
        Some(given) => Some(given.canonicalize().map_err(|error| ClientError::io("open", given, error))?),
        None => None,
    };
    let (directory, generation) = attach_volume(options, server, connector, events)?;

    let mut command = Command::new(&server.program);
    command.args(server.arguments()).env("REDOUBT_GENERATION", generation.to_string());
    pass_server(&mut command, options, server);
    pass_reaching(&mut command, options, connector);
    pass_page_reading(&mut command, options, page_cache_directory);
    pass_credentials(&mut command, connector);
    group::pass_position(&mut command, server, path)?;
    directory.keep_locked()?;
    Ok(Attached { command, _directory: directory })
}

/// Sends what an earlier server left, attaches the volume, and fills the data directory. Returns the directory, which is
/// locked, and the generation.
fn attach_volume<'a>(
    options: &AttachOptions<'_>,
    server: &Server,
    connector: &Connector,
    events: &'a dyn Events,
) -> Result<(DataDirectory<'a>, u64)> {
    let mut directory = DataDirectory::open(options.datadir, options.volume, events)?;
    let mut unsent = Unsent::open(options.datadir, events)?;
    let mut client = Client::connect(connector)?;
    let named = client.server_to_attach(server.version)?;
    let look = Look { connector, server: server.version, options, events };
    let first = look.at_volume(&mut directory, &unsent)?;
    if let Some(older) = &first.accepted {
        events.note(&format!("warning: --accept-older: {older}"));
    } else {
        // In the generation of the server that wrote it, which attaching ends.
        unsent.send(connector, &first.volume, server.version, events)?;
    }
    let owner = datadir::owner_for(server)?;
    unsent.prepare(&first.volume.volume_id, owner)?;
    let missing = directory.missing(&first.volume, options.accept_removed)?;
    let mut filled = directory.prepare(&mut client, server, missing)?;
    // Again: the node closes a connection that has been idle for long, and the volume may be another server's by now.
    let mut client = Client::connect(connector)?;
    let now = look.at_volume(&mut directory, &unsent)?;
    // An attach elsewhere since the first look is refused; one from here, whose answer was lost, is not.
    let seen = if directory.made_last_attach(&now.volume) { &now } else { &first };
    if now.volume.generation != first.volume.generation {
        // Another server may have made files of these names.
        filled.removed.clear();
    }
    let seen_generation = client.seen_generation(seen.volume.generation);
    // The first look decided that nothing was sent, so it counts even if the second one finds nothing to accept.
    let is_older = first.accepted.is_some() || now.accepted.is_some();
    if is_older {
        // The marker falls with the volume, so that this is asked for once only.
        directory.note_attached(now.volume.generation, &now.volume.attached_by)?;
    }
    let who = directory.note_attaching(&attaching_process(options.datadir))?;
    let volume = options.volume.to_owned();
    let attach = Request::Attach { volume, who: who.clone(), server: named, seen_generation };
    let attachment = match client.call(&attach)? {
        Reply::Attached(attachment) => attachment,
        other => return Err(client.unexpected(&other)),
    };
    directory.note_attached(attachment.generation, &who)?;
    if is_older {
        unsent.start_anew(events)?;
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
    options: &'l AttachOptions<'l>,
    events: &'l dyn Events,
}

struct Looked {
    volume: VolumeStatus,
    /// Why the node's copy is an older one, if that is accepted.
    accepted: Option<ClientError>,
}

impl Look<'_> {
    /// Checks that the data directory is of this volume, that the node has all that it confirmed, and that no other server
    /// has taken the volume over where that matters.
    fn at_volume(&self, directory: &mut DataDirectory<'_>, unsent: &Unsent) -> Result<Looked> {
        let look = || volumes::usable(self.connector, self.options.volume, self.server);
        let mut volume = volumes::opened(look, || std::thread::sleep(LOOK_INTERVAL), self.events)?;
        // Before its end is compared: a part of its log is not read.
        if volume.state == "frozen" {
            let (name, reason) = (self.options.volume, &volume.reason);
            return Err(ClientError::Usage(format!("volume {name} cannot be written: {reason}")));
        }
        directory.check_volume(&volume.volume_id)?;
        let known = older_copy::Known {
            generation: directory.generation(),
            is_of_other_history: directory.is_of_other_history(&volume),
            confirmed: unsent.confirmed(&volume.volume_id),
        };
        let accepted = match older_copy::check(&volume, known, &self.connector.address) {
            Err(older @ ClientError::OlderCopy(_)) if self.options.accept_older => Some(older),
            checked => checked.map(|()| None)?,
        };
        if accepted.is_none() {
            directory.note_own_attach(&volume)?;
            if self.options.no_takeover {
                volume = self.wait_for_lost_server(directory, volume)?;
                directory.check_not_taken(&volume)?;
            }
        }
        Ok(Looked { volume, accepted })
    }

    /// A directory that was moved, to another host for example, has a volume whose server may have been lost with its
    /// host. Then the node ends that server's connections soon.
    fn wait_for_lost_server(
        &self,
        directory: &DataDirectory<'_>,
        mut volume: VolumeStatus,
    ) -> Result<VolumeStatus> {
        let start = Instant::now();
        let mut has_said = false;
        while directory.is_copy_beside_server(&volume) && start.elapsed() < LOST_SERVER_TIMEOUT {
            if !std::mem::replace(&mut has_said, true) {
                self.events.note(&format!(
                    "the data directory was moved or copied, and the node still has connections of the server {}; waiting up to \
                     {} s for their end (--no-takeover)",
                    volume.attached_by,
                    LOST_SERVER_TIMEOUT.as_secs()
                ));
            }
            std::thread::sleep(LOOK_INTERVAL);
            volume = volumes::usable(self.connector, self.options.volume, self.server)?;
        }
        Ok(volume)
    }
}

/// Tells the library which server and which volume it is in.
fn pass_server(command: &mut Command, options: &AttachOptions<'_>, server: &Server) {
    command
        .env("LD_PRELOAD", preload::value(options.library))
        .env("REDOUBT_SERVER_VERSION", server.version.to_string())
        .env("REDOUBT_VOLUME", options.volume)
        .env_remove(local_log::VARIABLE)
        .env("REDOUBT_DATADIR", options.datadir)
        .env("REDOUBT_SYSTEM_FILES", server.system_files_text())
        .env("REDOUBT_LOCAL_FILES", server.local_files.join(":"))
        .env("REDOUBT_PAGE_SIZE", server.page_size.to_string())
        .env("REDOUBT_CLEAR_PAGES", if options.clear_pages { "1" } else { "0" });
}

/// Tells the library where the node is, how it is spoken to, and how long it is waited for.
fn pass_reaching(command: &mut Command, options: &AttachOptions<'_>, connector: &Connector) {
    command
        .env("REDOUBT_NODE", &connector.address)
        .env("REDOUBT_COMPRESS", options.compress)
        .env("REDOUBT_LOCAL_SOCKET", if options.local_socket { "1" } else { "0" })
        .env("REDOUBT_TIMEOUT_S", options.timeout_s.to_string());
}

/// Passes to the library how pages are read, and which written pages are compared.
fn pass_page_reading(command: &mut Command, options: &AttachOptions<'_>, cache_directory: Option<PathBuf>) {
    command
        .env("REDOUBT_VERIFY", options.verify)
        .env("REDOUBT_ON_DIFFERENCE", options.on_difference)
        .env("REDOUBT_PAGE_CACHE_BYTES", options.page_cache.unwrap_or(0).to_string())
        .env("REDOUBT_READ_AHEAD_BYTES", options.read_ahead.to_string());
    match cache_directory {
        Some(directory) => command.env("REDOUBT_PAGE_CACHE_DIRECTORY", directory),
        None => command.env_remove("REDOUBT_PAGE_CACHE_DIRECTORY"),
    };
}

/// Tells the library where its certificate and key are: paths only, because environments are easily seen.
fn pass_credentials(command: &mut Command, connector: &Connector) {
    command.env_remove(DIRECTORY_VARIABLE);
    let files = connector.tls.as_ref().map(|tls| tls.files());
    let paths = files.map(|files| [&files.authority, &files.certificate, &files.key]);
    for (at, name) in FILE_VARIABLES.iter().enumerate() {
        match paths.and_then(|paths| paths.get(at).copied()) {
            Some(path) => command.env(name, path),
            None => command.env_remove(name),
        };
    }
}

/// This process, for people.
fn attaching_process(datadir: &Path) -> String {
    format!("{} process {} on {}", host_name(), std::process::id(), datadir.display())
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}
