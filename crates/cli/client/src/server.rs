//! The server to start: its binary, its effective settings, and the reasons to refuse it.
//!
//! The settings are the server's own output (`--verbose --help` with the user's own options), so option files count
//! too.

pub mod series;
pub mod settings;

use crate::error::{ClientError, Result};
use crate::import::parse_data_file_path;
use crate::places::{self, Moved};
use redoubt_wire::ServerVersion;
use series::Use;
use settings::{ForcedRecovery, Settings, check_complete, check_settings, is_on, parse_settings, set_for};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of server programs.
pub const SERVER_NAMES: [&str; 2] = ["mariadbd", "mysqld"];
/// Scripts that start the server themselves and hand the library on to it.
const SCRIPT_NAMES: [&str; 4] = ["mariadb-install-db", "mysql_install_db", "mariadbd-safe", "mysqld_safe"];
/// Directory at the root of each ext4 file system.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";
const ENCRYPTION_PLUGINS: [&str; 4] =
    ["file_key_management", "aws_key_management", "hashicorp_key_management", "example_key_management"];

/// A server that can run on a volume.
pub struct Server {
    /// Program to execute.
    pub program: PathBuf,
    /// The server itself: the program, or what that starts if it is a script.
    pub binary: PathBuf,
    /// Version of the binary.
    pub version: ServerVersion,
    /// The user it changes to. (It is not among the settings that the server prints.)
    pub user: Option<String>,
    user_arguments: Vec<String>,
    datadir: PathBuf,
    settings: Settings,
    /// Files of the system tablespace.
    pub system_files: Vec<(String, u64)>,
    /// innodb_page_size.
    pub page_size: u32,
    /// Names that stay local, relative to the data directory.
    pub local_files: Vec<String>,
    doublewrite_given: bool,
}

impl Server {
    /// Finds the server and checks its settings. With `clear_pages` tables may be encrypted.
    ///
    /// # Errors
    /// [`ClientError::Usage`] naming what must change.
    pub fn examine(command: &[String], datadir: &Path, clear_pages: bool) -> Result<Self> {
        let Some((name, user_arguments)) = command.split_first() else {
            return Err(ClientError::Usage("no server command after `--`".to_owned()));
        };
        let program = find_program(name)?;
        check_program(&program)?;
        let binary = server_of(&program)?;
        let Answers { version, settings } = effective_settings(&binary, user_arguments, Some(datadir))?;
        check_settings(version.family, &settings, clear_pages)?;
        let in_files = option_file_arguments(&binary, user_arguments)?;
        if !clear_pages {
            check_plugins(&in_files)?;
            check_plugins(user_arguments)?;
        }
        let get = |name: &str| settings.get(name).cloned().unwrap_or_default();
        let system_files = parse_data_file_path(&get("innodb-data-file-path"))?;
        let page_size = get("innodb-page-size").parse().map_err(|_| {
            ClientError::Usage(format!("innodb_page_size {:?} is not a number", get("innodb-page-size")))
        })?;
        let local_files = local_files(&settings, datadir);
        let doublewrite_given = user_arguments.iter().any(|argument| argument.contains("doublewrite"));
        Ok(Self {
            program,
            binary,
            version,
            user: user_in(&in_files).or_else(|| user_in(user_arguments)),
            user_arguments: user_arguments.to_vec(),
            datadir: datadir.to_owned(),
            settings,
            system_files,
            page_size,
            local_files,
            doublewrite_given,
        })
    }

    /// Directories for temporary files in the data directory, relative to it.
    pub fn temporary_directories(&self) -> Vec<String> {
        temporary_directories(&self.settings, &self.datadir)
    }

    /// Arguments of the server: the user's, and the additions of Redoubt.
    ///
    /// The contents of the data directory count: they are the volume's by now.
    pub fn arguments(&self) -> Vec<String> {
        // Options that choose option files must come first.
        let leading = self.user_arguments.iter().take_while(|argument| is_leading(argument)).count();
        let (first, rest) = self.user_arguments.split_at(leading);
        let mut arguments = first.to_vec();
        if !self.doublewrite_given {
            arguments.push("--innodb-doublewrite=0".to_owned());
        }
        arguments.extend_from_slice(rest);
        arguments.push(format!("--datadir={}", self.datadir.display()));
        arguments.extend(self.moved().iter().map(Moved::argument));
        arguments.extend(set_for(self.version.family, &self.settings));
        arguments
    }

    /// True if the server is to be a member of a group, and its options give no position of its data.
    pub fn is_in_group(&self) -> bool {
        let says = |name: &str| {
            let is_it = |argument: &String| argument.replace('_', "-").starts_with(name);
            self.user_arguments.iter().any(is_it)
        };
        let is_on = self.settings.get("wsrep-on").is_some_and(|value| is_on(value));
        is_on
            && self.program == self.binary
            && !says("--wsrep-recover")
            && !says("--wsrep-start-position")
            && !says("--bootstrap")
    }

    /// Whether the server is to start on damaged data.
    pub fn forced_recovery(&self) -> ForcedRecovery {
        ForcedRecovery::of(&self.settings)
    }

    /// Settings that put files elsewhere, which do not count on a volume.
    pub fn moved(&self) -> Vec<Moved> {
        places::moved(&self.settings, &self.datadir)
    }

    /// System tablespace files for the library.
    pub fn system_files_text(&self) -> String {
        let files: Vec<_> = self.system_files.iter().map(|(path, len)| format!("{path}:{len}")).collect();
        files.join(";")
    }
}

/// Whether an option chooses option files: such options must come first.
pub fn is_leading(argument: &str) -> bool {
    ["--defaults-", "--no-defaults", "--print-defaults"].iter().any(|start| argument.starts_with(start))
}

/// Whether a program has the name of a server.
pub fn is_server_name(program: &Path) -> bool {
    program.file_name().and_then(|name| name.to_str()).is_some_and(|name| SERVER_NAMES.contains(&name))
}

/// The library works in a process whose program is called `mariadbd` or `mysqld`. Under any other name a server
/// would run without it, on files without content.
pub fn check_program(program: &Path) -> Result<()> {
    let known = |path: &Path, names: &[&str]| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| names.contains(&name))
    };
    let resolved = program.canonicalize().map_err(|error| ClientError::io("open", program, error))?;
    let is_script = known(program, &SCRIPT_NAMES) || known(&resolved, &SCRIPT_NAMES);
    if is_script || (is_server_name(program) && is_server_name(&resolved)) {
        return Ok(());
    }
    let shown = if resolved == program {
        program.display().to_string()
    } else {
        format!("{} ({})", program.display(), resolved.display())
    };
    Err(ClientError::Usage(format!(
        "{shown} is not a server command; give mariadbd or mysqld under that name, or mariadb-install-db for a new volume"
    )))
}

/// The server that a program is or starts: of a script that of the same installation, or else the one in PATH.
pub fn server_of(program: &Path) -> Result<PathBuf> {
    if is_server_name(program) {
        return Ok(program.to_owned());
    }
    let resolved = program.canonicalize().map_err(|error| ClientError::io("open", program, error))?;
    let beside = resolved.parent().into_iter().flat_map(|folder| {
        ["mariadbd", "../bin/mariadbd", "../sbin/mariadbd", "../libexec/mariadbd"]
            .map(|name| folder.join(name))
    });
    beside.into_iter().find(|server| server.is_file()).map_or_else(|| find_program("mariadbd"), Ok)
}

/// A program by its path, in PATH, or where servers are installed.
///
/// # Errors
/// [`ClientError::Usage`] saying what to install.
pub fn find_program(name: &str) -> Result<PathBuf> {
    let direct = PathBuf::from(name);
    if name.contains('/') {
        return match direct.is_file() {
            true => Ok(direct),
            false => Err(ClientError::Usage(format!(
                "there is no server program {name}; check the path after `--`"
            ))),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")]);
    folders.map(|folder| folder.join(name)).find(|candidate| candidate.is_file()).ok_or_else(|| {
        ClientError::Usage(format!(
            "there is no {name} in PATH; install the server (Debian: apt install mariadb-server-core) or give its path"
        ))
    })
}

/// Command for a query of a server: without library and input, and without the service manager's socket, which a
/// server notifies even when it only prints its settings.
pub fn asking(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD").env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

/// A server's answers about itself.
pub struct Answers {
    /// Its version, which is supported on a volume.
    pub version: ServerVersion,
    /// All its settings, by name.
    pub settings: Settings,
}

/// Asks the server for its settings.
pub fn effective_settings(binary: &Path, arguments: &[String], datadir: Option<&Path>) -> Result<Answers> {
    let relevant =
        |argument: &&String| argument.starts_with("--") && !argument.starts_with("--print-defaults");
    // Only the server itself has all of its options; a script's own options are left out by --help's leniency.
    let own: Vec<_> =
        if is_server_name(binary) { arguments.iter().filter(relevant).collect() } else { Vec::new() };
    let leading = own.iter().take_while(|argument| is_leading(argument)).count();
    let mut command = asking(binary);
    command.args(&own[..leading]);
    command.args(own[leading..].iter().filter(|argument| is_server_option(argument)));
    command.args(datadir.map(|datadir| format!("--datadir={}", datadir.display())));
    command.args(["--verbose", "--help"]);
    let output = command.output().map_err(|error| ClientError::io("run", binary, error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().next().unwrap_or_else(|| errors.trim());
    let version = series::version_of(line, binary, Use::Volume)?;
    let settings = parse_settings(&text);
    if !settings.contains_key("innodb-page-size") {
        return Err(ClientError::Usage(format!(
            "{} does not accept its options: {}",
            binary.display(),
            errors.lines().filter(|line| line.contains("ERROR")).collect::<Vec<_>>().join("; ")
        )));
    }
    check_complete(version.family, &settings, binary)?;
    Ok(Answers { version, settings })
}

/// Options of mariadb-install-db that the server does not know.
fn is_server_option(argument: &str) -> bool {
    const OF_SCRIPTS: [&str; 12] = [
        "--auth-root",
        "--basedir",
        "--builddir",
        "--cross-bootstrap",
        "--force",
        "--help",
        "--rpm",
        "--skip-name-resolve",
        "--skip-test-db",
        "--srcdir",
        "--verbose",
        "--bootstrap",
    ];
    !OF_SCRIPTS.iter().any(|start| argument.starts_with(start))
}

/// The server does not list the plugins it loads among its settings, so the options themselves are checked.
pub fn check_plugins(arguments: &[String]) -> Result<()> {
    for argument in arguments {
        let argument = argument.replace('-', "_");
        let option = argument.trim_start_matches("__");
        let loads = option.trim_start_matches("loose_").starts_with("plugin_load");
        if let Some(plugin) = ENCRYPTION_PLUGINS.iter().find(|plugin| loads && argument.contains(**plugin)) {
            return Err(ClientError::Usage(format!(
                "encryption plugin {plugin}: the node would hold the pages of encrypted tables in clear. Remove it from \
                 plugin_load_add, or allow that with --clear-pages"
            )));
        }
    }
    Ok(())
}

/// The first `--user=NAME`, `--user NAME`, `-u NAME` or `-uNAME`: the servers warn of others ("Ignoring user change").
/// Options from option files come before all of the command line.
fn user_in(arguments: &[String]) -> Option<String> {
    let after = |index: usize| arguments.get(index + 1).cloned();
    let user = |(index, argument): (usize, &String)| match argument.as_str() {
        "--user" | "-u" => after(index),
        other => {
            let short = other.strip_prefix("-u").filter(|_| !other.starts_with("--"));
            other.strip_prefix("--user=").or(short).map(str::to_owned)
        }
    };
    arguments.iter().enumerate().find_map(user)
}

/// Options the server takes from its option files.
pub fn option_file_arguments(binary: &Path, user_arguments: &[String]) -> Result<Vec<String>> {
    let mut command = asking(binary);
    command.args(user_arguments.iter().take_while(|argument| is_leading(argument)));
    let output = command.arg("--print-defaults").output();
    let output = output.map_err(|error| ClientError::io("run", binary, error))?;
    // All options on one line; a value with a space is cut, which does not affect the options that matter here.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().filter(|word| word.starts_with("--")).map(str::to_owned).collect())
}

fn value<'s>(settings: &'s Settings, option: &str) -> Option<&'s str> {
    settings.get(option).map(String::as_str).filter(|value| !value.is_empty() && !value.starts_with('('))
}

/// The name of a path within the data directory, which is given without links.
fn within(path: &str, datadir: &Path) -> Option<String> {
    let path = Path::new(path);
    let path =
        if path.is_absolute() { path.canonicalize().unwrap_or(path.to_owned()) } else { path.to_owned() };
    let relative = path.strip_prefix(datadir).unwrap_or(&path);
    let plain = |part: std::path::Component<'_>| match part {
        std::path::Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    };
    let parts = relative.components().filter(|part| *part != std::path::Component::CurDir);
    // A path out of the data directory, and the data directory itself, are no names in it.
    let name = parts.map(plain).collect::<Option<Vec<_>>>()?.join("/");
    // The library gets the list with colons between the names.
    (!name.is_empty() && !name.contains([':', '*'])).then_some(name)
}

/// Directories for temporary files, in the data directory.
fn temporary_directories(settings: &Settings, datadir: &Path) -> Vec<String> {
    let options = ["tmpdir", "slave-load-tmpdir", "replica-load-tmpdir", "innodb-tmpdir"];
    let lists = options.iter().filter_map(|option| value(settings, option));
    lists.flat_map(|list| list.split(':')).filter_map(|path| within(path, datadir)).collect()
}

/// Names in the data directory that are this host's own business; those of directories also with `/*`.
fn local_files(settings: &Settings, datadir: &Path) -> Vec<String> {
    let value = |option: &str| value(settings, option);
    let within = |path: &str| within(path, datadir);
    let mut names = Vec::new();
    for option in ["pid-file", "log-error", "general-log-file", "slow-query-log-file", "socket"] {
        names.extend(value(option).and_then(within));
    }
    // Temporary tablespaces are new at each start.
    let temporary = value("innodb-temp-data-file-path").unwrap_or_default().split(';');
    names.extend(temporary.filter_map(|file| within(file.split(':').next().unwrap_or_default())));
    // Directories that the server makes no databases of.
    let mut directories = vec![LOST_AND_FOUND.to_owned()];
    directories.extend(value("ignore-db-dirs").unwrap_or_default().split(',').filter_map(within));
    directories.extend(temporary_directories(settings, datadir));
    names.extend(directories.into_iter().flat_map(|name| [format!("{name}/*"), name]));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_user_counts() {
        let user = |line: &str| user_in(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(user("--user=mysql --datadir=x").as_deref(), Some("mysql"));
        assert_eq!(user("-ud -u c --user b --user=a").as_deref(), Some("d"));
        assert_eq!(user("--user b --user=a").as_deref(), Some("b"));
        assert_eq!(user("--users=a --userstat=1 --unknown --skip-user"), None);
        assert_eq!(user("--port=1 --user"), None);
    }

    #[test]
    fn names_of_the_host_are_those_within_the_data_directory() {
        for (option, value, expected) in [
            ("pid-file", "/data/host.pid", &["host.pid"][..]),
            ("log-error", "./a.err", &["a.err"]),
            ("innodb-temp-data-file-path", "ibtmp1:12M;my/t2:12M:autoextend:max:20M", &["ibtmp1", "my/t2"]),
            ("innodb-temp-data-file-path", "../ibtmp1:12M:autoextend", &[]),
            ("tmpdir", "/data/tmp:/elsewhere:/data/b/", &["tmp", "tmp/*", "b", "b/*"]),
            ("innodb-tmpdir", "(No default value)", &[]),
            // The data directory itself: all of it would be of this host.
            ("tmpdir", "/data", &[]),
            ("slave-load-tmpdir", "/data/", &[]),
            ("replica-load-tmpdir", ".", &[]),
            ("tmpdir", "/data/..", &[]),
            ("tmpdir", "/data/*", &[]),
            ("ignore-db-dirs", "dumps,backup", &["dumps", "dumps/*", "backup", "backup/*"]),
        ] {
            let settings = [(option.to_owned(), value.to_owned())].into();
            let sorted = |mut names: Vec<String>| {
                names.sort();
                names
            };
            let all = expected.iter().chain(&["lost+found", "lost+found/*"]).map(|name| (*name).to_owned());
            assert_eq!(
                sorted(local_files(&settings, Path::new("/data"))),
                sorted(all.collect()),
                "{option}={value}"
            );
        }
    }

    #[test]
    fn plugins_that_encrypt_are_refused() {
        for option in ["--plugin-load-add=file_key_management", "--loose-plugin_load=x;aws-key-management.so"]
        {
            let error = check_plugins(&[option.to_owned()]).unwrap_err().to_string();
            assert!(error.contains("plugin_load_add"), "{error}");
        }
        check_plugins(&["--plugin-load-add=auth_socket".to_owned(), "--file-key=x".to_owned()]).unwrap();
    }
}
