//! `redoubt run --reader`: a program that reads a volume as a plain data directory.
//!
//! **Why a file system, not the preloaded library.** The library sees what a program asks the C library for. That is all
//! of what `mariadbd` does, and it is tested with that; of other tools it is only a part: static programs and those in
//! Go make system calls themselves, stdio and `opendir` call inside the C library, `cp` asks the file system where the
//! holes are, and each new tool or version may find another way. Whatever is missed reads a stub, without an error: a
//! backup of nothing. A file system in user space is beneath all tools and sees every call of each; it cannot be
//! missed. It needs `/dev/fuse`; the library would need nothing.
//!
//! **Where.** The view is mounted in a namespace of the program's own ([`namespace`]), so it may lie over the directory of
//! a running server: `mariadb-backup` insists on reading where the server says its data is. Sockets of that directory
//! are shown as links to themselves.
//!
//! Two processes. This one becomes the program, so that signals, exit status and process id are the program's own. The
//! other one ([`serve_view`]) mounts the view, answers the kernel and unmounts when the program has ended; it is the
//! same command, told by [`SERVES`] what it is to do.
//!
//! * [`source`]: questions to the node
//! * [`tree`]: what a file system shows; [`live`] and [`log`] the volume as it is now, [`fixed`] a moment of it
//! * [`files`], [`protocol`]: the kernel's requests
//! * [`mount`], [`namespace`]: mounting, and the threads that answer

mod files;
mod fixed;
mod live;
mod log;
mod mount;
mod namespace;
mod protocol;
mod source;
mod tree;

use crate::args::RunArguments;
use crate::error::{CliError, Result};
use crate::run::server;
use fixed::Fixed;
use live::Live;
use mount::Mount;
use redoubt_wire::view::Moment;
use source::Source;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Set for the process that serves a view: the process id of the program.
const SERVES: &str = "REDOUBT_READER_SERVES";
/// Set for it as well: the view is mounted in a namespace.
const IN_NAMESPACE: &str = "REDOUBT_READER_IN_NAMESPACE";
/// What that process says when the view can be used.
const READY: &[u8] = b"ready\n";

/// What is to be read, and by what.
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

    /// Of a server.
    fn settings(&self) -> Result<HashMap<String, String>> {
        server::effective_settings(&server::find_program(self.program)?, self.arguments, None)
    }

    /// A server sees one moment; anything else what is there now, unless asked for otherwise.
    fn moment(&self, at_once: bool) -> Result<Option<Moment>> {
        if self.is(&server::SERVER_NAMES) {
            let settings = self.settings()?;
            let is_read_only = settings.get("innodb-read-only").is_some_and(|value| server::is_on(value));
            return Ok(Some(if is_read_only { Moment::NothingToRecover } else { Moment::AsKilled }));
        }
        Ok(at_once.then_some(Moment::AsKilled))
    }

    /// The program's own arguments, and which data directory is meant where it would take another one.
    fn program_arguments(&self) -> Vec<String> {
        let mut arguments = self.arguments.to_vec();
        let says = |option: &str| self.arguments.iter().any(|argument| argument.starts_with(option));
        let takes = self.is(&server::SERVER_NAMES)
            || self.is(&["mariadb-backup", "mariabackup"]) && says("--backup");
        if takes && !says("--datadir") {
            arguments.push(format!("--datadir={}", self.directory.display()));
        }
        arguments
    }
}

/// Runs the program; returns only on failure.
///
/// # Errors
/// Whatever keeps the view from being mounted or the program from being started.
pub fn run(arguments: &RunArguments) -> Result<()> {
    let mut wanted = Wanted::of(arguments)?;
    if let Some(program) = std::env::var_os(SERVES) {
        let program = program.to_str().and_then(|text| text.parse().ok());
        let program = program.ok_or_else(|| CliError::Usage(format!("{SERVES} is not a process id")))?;
        return serve_view(arguments, &wanted, program);
    }
    let in_namespace = namespace::enter();
    let directory = prepare(wanted.directory, in_namespace)?;
    wanted.directory = &directory;
    let program = match wanted.is(&server::SERVER_NAMES) {
        true => server::find_program(wanted.program)?,
        false => PathBuf::from(wanted.program),
    };
    let mut command = Command::new(program);
    command.args(wanted.program_arguments());
    let own = std::env::current_exe().map_err(|error| CliError::io("find", "this command", error))?;
    let mut server = Command::new(&own)
        .args(std::env::args_os().skip(1))
        .env(SERVES, std::process::id().to_string())
        .envs(in_namespace.then_some((IN_NAMESPACE, "1")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| CliError::io("start", &own, error))?;
    let mut said = Vec::new();
    if let Some(output) = &mut server.stdout {
        output
            .read_to_end(&mut said)
            .map_err(|error| CliError::io("hear from", "the process that serves the view", error))?;
    }
    if said != READY {
        let status = server.wait().map_err(|error| CliError::io("wait for", &own, error))?;
        // It has said why.
        std::process::exit(status.code().unwrap_or(1).max(1));
    }
    let error = command.exec();
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
    let is_servers = crate::run::datadir::volume_id_of(&path).is_some();
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
        format!("{shown} is not empty; a view of a volume needs an empty directory, or that of the volume's server")
    }))
}

/// Serves the view until the program has ended.
fn serve_view(arguments: &RunArguments, wanted: &Wanted<'_>, program: libc::pid_t) -> Result<()> {
    let ended = watch(program)?;
    ignore_signals();
    let connector = arguments.address.connector()?;
    crate::tls::check_volume(&connector, wanted.volume)?;
    let name = format!("redoubt:{}/{}", connector.address, wanted.volume);
    let moment = wanted.moment(arguments.at_once)?;
    let source = Source::begin(connector, wanted.volume, moment)?;
    let tree: Box<dyn tree::Tree> = match moment {
        None => Box::new(Live::new(Arc::clone(&source))),
        Some(_) => Box::new(Fixed::new(Arc::clone(&source))?),
    };
    let directory =
        wanted.directory.canonicalize().map_err(|error| CliError::io("open", wanted.directory, error))?;
    if let Some(volume_id) = crate::run::datadir::volume_id_of(&directory)
        && volume_id != source.volume_id
    {
        return Err(CliError::Usage(format!(
            "{} is the directory of another volume's server; give an empty one, or that of volume {}",
            directory.display(),
            wanted.volume
        )));
    }
    let covered = File::open(&directory).map_err(|error| CliError::io("open", &directory, error))?;
    let links = sockets(&directory, &covered)?;
    let files = Arc::new(files::Files::new(tree, links, owner(wanted)?));
    let mount = Mount::new(&directory, &name, std::env::var_os(IN_NAMESPACE).is_some())?;
    mount.serve(&files)?;
    say_ready()?;
    wait_for_end(&ended);
    drop(mount);
    Ok(())
}

/// Links to the sockets of a directory, which lead there also when something is mounted on it.
fn sockets(directory: &Path, opened: &File) -> Result<HashMap<String, String>> {
    let failed = |error| CliError::io("list", directory, error);
    let mut links = HashMap::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let (Ok(name), true) = (entry.file_name().into_string(), entry.file_type().is_ok_and(|kind| kind.is_socket())) {
            let target = format!("/proc/{}/fd/{}/{name}", std::process::id(), opened.as_raw_fd());
            links.insert(name, target);
        }
    }
    Ok(links)
}

/// Who owns the files: the user that a server is told to change to, otherwise the user of this process.
fn owner(wanted: &Wanted<'_>) -> Result<(u32, u32)> {
    let own = mount::own_ids();
    if !wanted.is(&server::SERVER_NAMES) {
        return Ok(own);
    }
    let settings = wanted.settings()?;
    let user = settings.get("user").map(String::as_str);
    Ok(crate::run::datadir::ids_of(user)?.unwrap_or(own))
}

/// A descriptor that can be read once the process has ended.
fn watch(process: libc::pid_t) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let failed = || CliError::io("watch", "the program", std::io::Error::last_os_error());
    let number = i32::try_from(number).ok().filter(|number| *number >= 0).ok_or_else(failed)?;
    // SAFETY: just opened, and nobody else's.
    let watched = unsafe { OwnedFd::from_raw_fd(number) };
    // Its number may have been another's if the program had ended before.
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::getppid() } == process {
        return Ok(watched);
    }
    Err(CliError::Usage("the program has ended already".to_owned()))
}

/// What ends the program must not take its files away before it has ended.
fn ignore_signals() {
    // SAFETY: the process ignores these signals from now on; no handler is involved.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

fn wait_for_end(program: &OwnedFd) {
    let mut wanted = libc::pollfd { fd: program.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives until it returns.
    while unsafe { libc::poll(&raw mut wanted, 1, -1) } < 0 {}
}

/// Says that the view can be used, and closes standard output, for whose end the other process waits.
fn say_ready() -> Result<()> {
    let failed = |error| CliError::io("write", "standard output", error);
    std::io::stdout().write_all(READY).and_then(|()| std::io::stdout().flush()).map_err(failed)?;
    let nothing = File::options().write(true).open("/dev/null").map_err(failed)?;
    // SAFETY: two descriptors that are open; no pointers.
    if unsafe { libc::dup2(nothing.as_raw_fd(), libc::STDOUT_FILENO) } < 0 {
        return Err(failed(std::io::Error::last_os_error()));
    }
    Ok(())
}

/// A file without a name, for as long as it is open.
fn scratch_file() -> Result<File> {
    let directory = std::env::temp_dir();
    File::options()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE)
        .open(&directory)
        .map_err(|error| CliError::io("make a file in", directory, error))
}
