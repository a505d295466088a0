//! `redoubt run --reader`: a program that reads a volume as a plain data directory.
//!
//! **Why a file system, not the preloaded library.** The library intercepts a program's calls of the C library. That
//! is all of what `mariadbd` does, and it is tested with that. Of other tools it is only a part: static programs and
//! those in Go make system calls themselves, stdio and `opendir` call inside the C library, and `cp` asks the file
//! system where the holes are. Each new tool or version may find another way. A missed call reads a stub, without an
//! error: a backup of nothing. A file system in user space is beneath all tools and sees every call of each. It needs
//! `/dev/fuse`; the library would need nothing.
//!
//! **Where.** The view is mounted in a namespace of the program's own ([`namespace`]), so it may lie over the
//! directory of a running server: `mariadb-backup` insists on reading the data directory that the server reports.
//! Sockets of that directory are shown as links to themselves.
//!
//! Two processes. This one becomes the program, so that signals, exit status and process id are the program's own. The
//! other one ([`process`], [`serve_view`]) mounts the view, answers the kernel, and ends when the program has ended.
//!
//! Crate `readers` has the content of the file system, mounts it and answers the kernel. [`source`] queries the node.

mod process;
mod source;

use crate::error::{CliError, Result};
use crate::run::args::RunArguments;
use process::Side;
use redoubt_client::attach::{datadir, marker};
use redoubt_client::places::{self, Moved};
use redoubt_client::server::settings::is_on;
use redoubt_client::server::{self, Answers};
use redoubt_readers::fuse::{Files, Mount, MountError, mount, namespace};
use redoubt_readers::{Complaints, Fixed, Live, Removed, Tree};
use redoubt_redo::Family;
use source::Source;
use std::collections::HashMap;
use std::fs::File;
use std::io::{PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

impl From<MountError> for CliError {
    fn from(error: MountError) -> Self {
        match error {
            MountError::Refused { directory, source } => Self::io("mount a view on", directory, source),
            other => Self::Usage(other.to_string()),
        }
    }
}

/// Message of the process that serves the view when the view can be used.
const READY: &[u8] = b"ready\n";

/// The volume to read, and the program that reads it.
struct Wanted<'a> {
    volume: &'a str,
    directory: &'a Path,
    program: &'a str,
    arguments: &'a [String],
}

impl<'a> Wanted<'a> {
    fn of(arguments: &'a RunArguments) -> Result<Self> {
        match (&arguments.volume, &arguments.datadir, arguments.command.split_first()) {
            (Some(volume), Some(directory), Some((program, arguments))) => {
                Ok(Self { volume, directory, program, arguments })
            }
            _ => Err(CliError::Usage("--reader needs --volume, --datadir and a program".to_owned())),
        }
    }

    fn is(&self, names: &[&str]) -> bool {
        Path::new(self.program).file_name().is_some_and(|found| names.iter().any(|name| found == *name))
    }

    /// Version and settings of the server.
    fn answers(&self) -> Result<Answers> {
        let program = server::find_program(self.program)?;
        Ok(server::effective_settings(&program, self.arguments, Some(self.directory))?)
    }

    /// As for [`Wanted::answers`].
    fn settings(&self) -> Result<HashMap<String, String>> {
        Ok(self.answers()?.settings)
    }

    /// A server sees one moment; anything else what is there now, unless asked for otherwise.
    fn is_moment(&self, at_once: bool) -> bool {
        at_once || self.is(&server::SERVER_NAMES)
    }

    /// Prepares the view for a server. For a read-only one, recovery is done first, by the same server with its own
    /// options. Read-only, the server itself would skip recovery, and show changes of open transactions. MySQL has no
    /// mode for recovery alone.
    fn make_ready(&self, program: &Path) -> Result<()> {
        if !self.is(&server::SERVER_NAMES) {
            return Ok(());
        }
        let answers = self.answers()?;
        let is_read_only = answers.settings.get("innodb-read-only").is_some_and(|value| is_on(value));
        match (answers.version.family, is_read_only) {
            (Family::MariaDb, true) => {}
            (Family::MariaDb, false) => return Ok(()),
            (Family::MySql, false) => return Ok(datadir::make_buffer_pool_list(self.directory, None)?),
            (Family::MySql, true) => {
                return Err(CliError::Usage(
                    "innodb_read_only=ON is not supported on a view of a MySQL volume: a server that may not write \
                     does not recover, and MySQL has no way to do only that before. Use super_read_only=ON; the \
                     volume is not written to in any case"
                        .to_owned(),
                ));
            }
        }
        // It ends when there are no more statements, after everything was rolled back.
        let status = Command::new(program)
            .args(self.program_arguments()?)
            .args(["--innodb-read-only=0", "--innodb-fast-shutdown=0", "--skip-log-bin", "--bootstrap"])
            .stdin(Stdio::null())
            .status()
            .map_err(|error| CliError::io("start", program, error))?;
        if status.success() {
            return Ok(());
        }
        Err(CliError::Usage(format!(
            "the server that is to recover the view before it is read-only failed ({status}); see its messages \
             above"
        )))
    }

    /// The program's own arguments, which data directory is meant where it would take another one, and that all files
    /// are in it.
    fn program_arguments(&self) -> Result<Vec<String>> {
        let mut arguments = self.arguments.to_vec();
        let says = |option: &str| self.arguments.iter().any(|argument| argument.starts_with(option));
        let is_server = self.is(&server::SERVER_NAMES);
        let makes_backup = self.is(&["mariadb-backup", "mariabackup"]) && says("--backup");
        if !is_server && !makes_backup {
            return Ok(arguments);
        }
        if !says("--datadir") {
            arguments.push(format!("--datadir={}", self.directory.display()));
        }
        let settings = if is_server { self.settings()? } else { self.said_to_backup()? };
        arguments.extend(places::moved(&settings, self.directory).iter().map(Moved::argument));
        Ok(arguments)
    }

    /// Directories that the options of `mariadb-backup` name. For the others it asks the server, which reports those
    /// of the volume.
    fn said_to_backup(&self) -> Result<HashMap<String, String>> {
        let words = server::option_file_arguments(Path::new(self.program), self.arguments)?;
        let words =
            words.iter().chain(self.arguments).filter_map(|word| word.strip_prefix("--")?.split_once('='));
        let known = words.map(|(name, value)| (name.replace('_', "-"), value.to_owned()));
        let of_backup = [places::DATA_HOME, places::LOG_HOME, places::UNDO, places::ARIA];
        Ok(known.filter(|(name, _)| of_backup.contains(&name.as_str())).collect())
    }
}

/// Runs the program; returns only on failure.
///
/// # Errors
/// An error that prevents mounting the view or starting the program.
pub fn run(arguments: &RunArguments) -> Result<()> {
    let mut wanted = Wanted::of(arguments)?;
    let in_namespace = namespace::enter();
    let directory = prepare(wanted.directory, in_namespace)?;
    wanted.directory = &directory;
    let program = process::watch_self()?;
    let (mut said, say) =
        std::io::pipe().map_err(|error| CliError::io("make", "a pipe between two processes", error))?;
    if let Side::View = process::split()? {
        drop(said);
        let served =
            process::step_back().and_then(|()| serve_view(arguments, &wanted, in_namespace, say, &program));
        if let Err(error) = served {
            complain!("redoubt: {error}");
        }
        std::process::exit(0);
    }
    drop((say, program));
    let mut heard = Vec::new();
    said.read_to_end(&mut heard)
        .map_err(|error| CliError::io("hear from", "the process that serves the view", error))?;
    if heard != READY {
        // The other process has reported the error.
        std::process::exit(1);
    }
    let path = match wanted.is(&server::SERVER_NAMES) {
        true => server::find_program(wanted.program)?,
        false => PathBuf::from(wanted.program),
    };
    wanted.make_ready(&path)?;
    let error = Command::new(path).args(wanted.program_arguments()?).exec();
    Err(CliError::io("start", wanted.program, error))
}

/// An empty directory, made if it is missing, or that of a server, by its full path.
fn prepare(directory: &Path, in_namespace: bool) -> Result<PathBuf> {
    if mount::is_dead_mount(directory) {
        mount::unmount(directory);
    }
    crate::show::make_directory(directory)?;
    let path = directory.canonicalize().map_err(|error| CliError::io("open", directory, error))?;
    let mut entries = std::fs::read_dir(&path).map_err(|error| CliError::io("list", &path, error))?;
    let is_servers = marker::volume_id_of(&path).is_some();
    if entries.next().is_none() || (is_servers && in_namespace) {
        return Ok(path);
    }
    let shown = path.display();
    Err(CliError::Usage(if is_servers {
        format!(
            "{shown} is a server's, and a view can lie over it only in a mount namespace, which is not allowed here: \
             run this as the super-user, or give an empty directory"
        )
    } else {
        format!(
            "{shown} is not empty; a view of a volume needs an empty directory, or that of the volume's server"
        )
    }))
}

/// Serves the view until the program has ended.
fn serve_view(
    arguments: &RunArguments,
    wanted: &Wanted<'_>,
    in_namespace: bool,
    mut say: PipeWriter,
    program: &OwnedFd,
) -> Result<()> {
    let connector = arguments.address.connector()?;
    crate::tls::check_volume(&connector, wanted.volume)?;
    if wanted.is(&server::SERVER_NAMES) {
        redoubt_client::volumes::usable(&connector, wanted.volume, wanted.answers()?.version)?;
    }
    let name = format!("redoubt:{}/{}", connector.address, wanted.volume);
    let is_moment = wanted.is_moment(arguments.at_once);
    let source = Source::begin(connector, wanted.volume, is_moment)?;
    let tree: Box<dyn Tree> = if is_moment { Box::new(fixed(&source)?) } else { Box::new(live(&source)) };
    let directory = wanted.directory;
    if let Some(volume_id) = marker::volume_id_of(directory)
        && volume_id != source.volume_id
    {
        return Err(CliError::Usage(format!(
            "{} is the directory of another volume's server; give an empty one, or that of volume {}",
            directory.display(),
            wanted.volume
        )));
    }
    let covered = File::open(directory).map_err(|error| CliError::io("open", directory, error))?;
    let links = sockets(directory, &covered)?;
    let files = Files::new(tree, links, owner(wanted)?);
    let mut mounted = Mount::new(directory, &name, in_namespace)?;
    if in_namespace && mount::own_ids().0 != 0 {
        process::drop_capabilities();
    }
    mounted.serve(files)?;
    say.write_all(READY).map_err(|error| CliError::io("write to", "the program's process", error))?;
    drop(say);
    process::wait_for_end(program);
    drop(mounted);
    Ok(())
}

/// Links to the sockets of a directory, which lead there also when something is mounted on it.
fn sockets(directory: &Path, opened: &File) -> Result<HashMap<String, String>> {
    let failed = |error| CliError::io("list", directory, error);
    let mut links = HashMap::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let (Ok(name), true) =
            (entry.file_name().into_string(), entry.file_type().is_ok_and(|kind| kind.is_socket()))
        {
            let target = format!("/proc/{}/fd/{}/{name}", std::process::id(), opened.as_raw_fd());
            links.insert(name, target);
        }
    }
    Ok(links)
}

/// Owner of the files: the user that a server is configured to change to, otherwise the user of this process.
fn owner(wanted: &Wanted<'_>) -> Result<(u32, u32)> {
    let own = mount::own_ids();
    if !wanted.is(&server::SERVER_NAMES) {
        return Ok(own);
    }
    let settings = wanted.settings()?;
    let user = settings.get("user").map(String::as_str);
    Ok(datadir::ids_of(user)?.unwrap_or(own))
}

/// A snapshot of the volume.
fn fixed(source: &Arc<Source>) -> Result<Fixed> {
    let source = Arc::<Source>::clone(source);
    Fixed::new(source, Arc::new(Complaints::new(complain)))
        .map_err(|error| CliError::Usage(error.to_string()))
}

/// The volume as it is now.
fn live(source: &Arc<Source>) -> Live {
    let source = Arc::<Source>::clone(source);
    Live::new(source, Arc::new(Complaints::new(complain)), Removed::Zeros)
}

fn complain(text: &str) {
    complain!("redoubt: {text}");
}
