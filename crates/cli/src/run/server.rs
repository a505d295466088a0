//! The server to start: which binary, its effective settings, and what of them is refused.
//!
//! The settings are asked from the server itself (`--verbose --help` with the user's own options), so option files
//! count too. A setting that would take data past the library, or that a node cannot follow, is refused by name.

use crate::error::{CliError, Result};
use crate::import::parse_data_file_path;
use crate::places::{self, Moved};
use crate::run::series::{self, Use};
use redoubt_wire::ServerVersion;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const SERVER_NAMES: [&str; 2] = ["mariadbd", "mysqld"];
/// Scripts that start the server themselves and hand the library on to it.
const SCRIPT_NAMES: [&str; 4] = ["mariadb-install-db", "mysql_install_db", "mariadbd-safe", "mysqld_safe"];
const ENCRYPTION_PLUGINS: [&str; 4] =
    ["file_key_management", "aws_key_management", "hashicorp_key_management", "example_key_management"];

/// What is judged below. A server that does not say them all cannot be judged.
const JUDGED: [&str; 12] = [
    "innodb-page-size",
    "innodb-data-file-path",
    "innodb-encrypt-log",
    "innodb-encrypt-tables",
    "innodb-log-group-home-dir",
    "innodb-data-home-dir",
    "innodb-undo-directory",
    "aria-log-dir-path",
    "innodb-read-only",
    "innodb-force-recovery",
    "log-bin",
    "log-bin-index",
];

/// See the module.
pub struct Server {
    /// Program to execute.
    pub program: PathBuf,
    /// The server itself: the program, or what that starts if it is a script.
    pub binary: PathBuf,
    /// Of the binary.
    pub version: ServerVersion,
    user_arguments: Vec<String>,
    datadir: PathBuf,
    settings: HashMap<String, String>,
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
    /// [`CliError::Usage`] naming what must change.
    pub fn examine(command: &[String], datadir: &Path, clear_pages: bool) -> Result<Self> {
        let Some((name, user_arguments)) = command.split_first() else {
            return Err(CliError::Usage("no server command after `--`".to_owned()));
        };
        let program = find_program(name)?;
        check_program(&program)?;
        let binary = server_of(&program)?;
        let Answers { version, settings } = effective_settings(&binary, user_arguments, Some(datadir))?;
        check_settings(&settings, clear_pages)?;
        if !clear_pages {
            check_plugins(&option_file_arguments(&binary, user_arguments)?)?;
            check_plugins(user_arguments)?;
        }
        let get = |name: &str| settings.get(name).cloned().unwrap_or_default();
        let system_files = parse_data_file_path(&get("innodb-data-file-path"))?;
        let page_size = get("innodb-page-size").parse().map_err(|_| {
            CliError::Usage(format!("innodb_page_size {:?} is not a number", get("innodb-page-size")))
        })?;
        let local_files = local_files(&settings, datadir);
        let doublewrite_given = user_arguments.iter().any(|argument| argument.contains("doublewrite"));
        Ok(Self {
            program,
            binary,
            version,
            user_arguments: user_arguments.to_vec(),
            datadir: datadir.to_owned(),
            settings,
            system_files,
            page_size,
            local_files,
            doublewrite_given,
        })
    }

    /// The user the server changes to.
    pub fn user(&self) -> Option<&str> {
        self.settings
            .get("user")
            .map(String::as_str)
            .filter(|user| !user.is_empty() && *user != "(No default value)")
    }

    /// Arguments of the server: the user's, and what Redoubt needs.
    ///
    /// What the data directory holds counts: it is the volume's by now.
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
        arguments.push("--innodb-use-native-aio=0".to_owned());
        // Otherwise DATA DIRECTORY would put a tablespace where the node cannot follow: the server logs the path before
        // it makes the file, so the library would refuse too late. Now it is ignored, with a warning.
        arguments.push("--skip-symbolic-links".to_owned());
        // The library follows the log in blocks of this size (see `log_memory` there).
        arguments.push("--innodb-log-write-ahead-size=4096".to_owned());
        if self.settings.contains_key("innodb-log-file-mmap") {
            arguments.push("--innodb-log-file-mmap=0".to_owned());
        }
        arguments
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

pub(super) fn is_leading(argument: &str) -> bool {
    ["--defaults-", "--no-defaults", "--print-defaults"].iter().any(|start| argument.starts_with(start))
}

pub(crate) fn is_server_name(program: &Path) -> bool {
    program.file_name().and_then(|name| name.to_str()).is_some_and(|name| SERVER_NAMES.contains(&name))
}

/// The library works in a process whose program is called `mariadbd` or `mysqld`. Under any other name a server
/// would run without it, on files without content.
pub(crate) fn check_program(program: &Path) -> Result<()> {
    let known = |path: &Path, names: &[&str]| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| names.contains(&name))
    };
    let resolved = program.canonicalize().map_err(|error| CliError::io("open", program, error))?;
    let is_script = known(program, &SCRIPT_NAMES) || known(&resolved, &SCRIPT_NAMES);
    if is_script || (is_server_name(program) && is_server_name(&resolved)) {
        return Ok(());
    }
    let shown = if resolved == program {
        program.display().to_string()
    } else {
        format!("{} ({})", program.display(), resolved.display())
    };
    Err(CliError::Usage(format!(
        "{shown} is not a server command; give mariadbd or mysqld under that name, or mariadb-install-db for a new volume"
    )))
}

/// The server that a program is or starts: of a script that of the same installation, or else the one in PATH.
pub(crate) fn server_of(program: &Path) -> Result<PathBuf> {
    if is_server_name(program) {
        return Ok(program.to_owned());
    }
    let resolved = program.canonicalize().map_err(|error| CliError::io("open", program, error))?;
    let beside = resolved.parent().into_iter().flat_map(|folder| {
        ["mariadbd", "../bin/mariadbd", "../sbin/mariadbd", "../libexec/mariadbd"]
            .map(|name| folder.join(name))
    });
    beside.into_iter().find(|server| server.is_file()).map_or_else(|| find_program("mariadbd"), Ok)
}

pub(crate) fn find_program(name: &str) -> Result<PathBuf> {
    let direct = PathBuf::from(name);
    if name.contains('/') {
        return match direct.is_file() {
            true => Ok(direct),
            false => {
                Err(CliError::Usage(format!("there is no server program {name}; check the path after `--`")))
            }
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")]);
    folders.map(|folder| folder.join(name)).find(|candidate| candidate.is_file()).ok_or_else(|| {
        CliError::Usage(format!(
            "there is no {name} in PATH; install the server (Debian: apt install mariadb-server-core) or give its path"
        ))
    })
}

/// A program that is to answer something: without library and input, and without a way to tell the service manager
/// about itself, which a server does even when it is only asked.
pub(super) fn asking(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD").env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

/// What a server says of itself.
pub(crate) struct Answers {
    /// Its version, which is one that is supported on a volume.
    pub(crate) version: ServerVersion,
    /// All its settings, by name.
    pub(crate) settings: HashMap<String, String>,
}

/// Asks the server for its settings.
pub(crate) fn effective_settings(
    binary: &Path,
    arguments: &[String],
    datadir: Option<&Path>,
) -> Result<Answers> {
    let relevant =
        |argument: &&String| argument.starts_with("--") && !argument.starts_with("--print-defaults");
    // Only the server knows all of its options; a script's own options are left out by --help's leniency.
    let own: Vec<_> =
        if is_server_name(binary) { arguments.iter().filter(relevant).collect() } else { Vec::new() };
    let leading = own.iter().take_while(|argument| is_leading(argument)).count();
    let mut command = asking(binary);
    command.args(&own[..leading]);
    command.args(own[leading..].iter().filter(|argument| is_server_option(argument)));
    command.args(datadir.map(|datadir| format!("--datadir={}", datadir.display())));
    command.args(["--verbose", "--help"]);
    let output = command.output().map_err(|error| CliError::io("run", binary, error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().next().unwrap_or_else(|| errors.trim());
    let version = series::version_of(line, binary, Use::Volume)?;
    let settings = parse_settings(&text);
    if !settings.contains_key("innodb-page-size") {
        return Err(CliError::Usage(format!(
            "{} does not accept its options: {}",
            binary.display(),
            errors.lines().filter(|line| line.contains("ERROR")).collect::<Vec<_>>().join("; ")
        )));
    }
    check_complete(&settings, binary)?;
    Ok(Answers { version, settings })
}

/// A setting that is not said is not taken for one that is fine.
fn check_complete(settings: &HashMap<String, String>, binary: &Path) -> Result<()> {
    match JUDGED.iter().find(|name| !settings.contains_key(**name)) {
        None => Ok(()),
        Some(name) => Err(CliError::Usage(format!(
            "{} does not say its setting {}, on which it depends whether a node can follow it; give {}",
            binary.display(),
            name.replace('-', "_"),
            Use::Volume.names()
        ))),
    }
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

pub(super) fn parse_settings(text: &str) -> HashMap<String, String> {
    let table = text.lines().skip_while(|line| !line.starts_with("-----")).skip(1);
    table
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().to_owned()))
        })
        .collect()
}

fn check_settings(settings: &HashMap<String, String>, clear_pages: bool) -> Result<()> {
    if let Some(refused) = refused_settings(settings, clear_pages).into_iter().next() {
        return Err(CliError::Usage(refused));
    }
    Ok(())
}

/// Settings that a node cannot follow, each with what to do.
pub(crate) fn refused_settings(settings: &HashMap<String, String>, clear_pages: bool) -> Vec<String> {
    let get = |name: &str| settings.get(name).map_or("", String::as_str);
    let mut refused = Vec::new();
    if is_on(get("innodb-encrypt-log")) {
        refused.push("innodb_encrypt_log=ON is not supported: a node cannot replay encrypted redo. Set innodb_encrypt_log=OFF".to_owned());
    }
    let tables = get("innodb-encrypt-tables");
    if (is_on(tables) || tables == "FORCE") && !clear_pages {
        refused.push(format!(
            "innodb_encrypt_tables={tables}: the node would hold the pages in clear. Set innodb_encrypt_tables=OFF, or allow \
             that with --clear-pages"
        ));
    }
    if get("log-bin").ends_with('/') {
        refused.push(format!("log_bin={} is a directory. Give the name of a file", get("log-bin")));
    }
    if is_on(get("innodb-read-only")) {
        refused.push(
            "innodb_read_only=ON is not supported: the server would not write redo. Remove the option"
                .to_owned(),
        );
    }
    if get("binlog-storage-engine").eq_ignore_ascii_case("innodb") {
        refused.push("binlog_storage_engine=innodb is not supported: a node does not know its files. Remove the option".to_owned());
    }
    if is_on(get("innodb-log-archive")) {
        refused.push(
            "innodb_log_archive=ON is not supported: a node follows ib_logfile0 only. Set innodb_log_archive=OFF".to_owned(),
        );
    }
    if !matches!(get("innodb-log-recovery-target"), "" | "0") {
        refused.push(
            "innodb_log_recovery_target is not supported: the node has applied later redo. Remove the option"
                .to_owned(),
        );
    }
    refused.extend(refused_recovery(get("innodb-force-recovery")));
    refused
}

/// Levels of forced recovery that are not known are refused; what the others need is [`ForcedRecovery`]'s.
fn refused_recovery(level: &str) -> Option<String> {
    match level {
        "" | "0" | "1" | "2" | "3" | "4" | "5" | "6" => None,
        _ => Some(format!("innodb_force_recovery={level} is not a level. Use 0 to 6")),
    }
}

/// What a level of innodb_force_recovery means for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForcedRecovery {
    /// 0.
    None,
    /// 1 (go on after a damaged page), 2 (no background threads), 3 (no rollback at the start): the server reads and
    /// writes redo and pages as ever.
    OnVolume,
    /// 4 can leave secondary indexes wrong for good. 5 takes transactions that were not committed for committed. 6
    /// leaves out redo, which the node has in its pages already. None of that may get into the volume.
    OnView(u8),
}

impl ForcedRecovery {
    fn of(settings: &HashMap<String, String>) -> Self {
        match settings.get("innodb-force-recovery").and_then(|level| level.parse().ok()) {
            Some(1..=3) => Self::OnVolume,
            Some(level @ 4..) => Self::OnView(level),
            _ => Self::None,
        }
    }
}

/// The server does not show which plugins it loads among its settings, so the options themselves are looked at.
pub(crate) fn check_plugins(arguments: &[String]) -> Result<()> {
    for argument in arguments {
        let argument = argument.replace('-', "_");
        let option = argument.trim_start_matches("__");
        let loads = option.trim_start_matches("loose_").starts_with("plugin_load");
        if let Some(plugin) = ENCRYPTION_PLUGINS.iter().find(|plugin| loads && argument.contains(**plugin)) {
            return Err(CliError::Usage(format!(
                "encryption plugin {plugin}: the node would hold the pages of encrypted tables in clear. Remove it from \
                 plugin_load_add, or allow that with --clear-pages"
            )));
        }
    }
    Ok(())
}

/// Options the server takes from its option files.
pub(crate) fn option_file_arguments(binary: &Path, user_arguments: &[String]) -> Result<Vec<String>> {
    let mut command = asking(binary);
    command.args(user_arguments.iter().take_while(|argument| is_leading(argument)));
    let output = command.arg("--print-defaults").output();
    let output = output.map_err(|error| CliError::io("run", binary, error))?;
    // All options on one line; a value with a space is cut, which does not matter for what is looked for.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().filter(|word| word.starts_with("--")).map(str::to_owned).collect())
}

pub(crate) fn is_on(value: &str) -> bool {
    matches!(value, "TRUE" | "ON" | "1")
}

/// Names in the data directory that are this host's own business.
fn local_files(settings: &HashMap<String, String>, datadir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for option in ["pid-file", "log-error", "general-log-file", "slow-query-log-file", "socket"] {
        let Some(value) = settings.get(option).filter(|value| !value.is_empty() && !value.starts_with('('))
        else {
            continue;
        };
        let path = Path::new(value);
        let relative = path.strip_prefix(datadir).unwrap_or(path);
        if relative.is_relative() {
            names.push(relative.to_string_lossy().trim_start_matches("./").to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_a_node_can_not_follow_is_refused_by_name() {
        for (name, value) in [
            ("innodb-encrypt-log", "TRUE"),
            ("innodb-encrypt-tables", "FORCE"),
            ("log-bin", "/elsewhere/"),
            ("innodb-force-recovery", "7"),
            ("innodb-read-only", "TRUE"),
            ("binlog-storage-engine", "InnoDB"),
            ("innodb-log-archive", "TRUE"),
            ("innodb-log-recovery-target", "12345"),
        ] {
            let set = settings(&[(name, value)]);
            let error = check_settings(&set, false).unwrap_err().to_string();
            let named = name.replace('-', "_");
            assert!(error.contains(&named) || error.contains(value), "{error}");
            assert_eq!(check_settings(&set, true).is_ok(), name == "innodb-encrypt-tables", "{name}");
        }
        for option in ["--plugin-load-add=file_key_management", "--loose-plugin_load=x;aws-key-management.so"]
        {
            let error = check_plugins(&[option.to_owned()]).unwrap_err().to_string();
            assert!(error.contains("plugin_load_add"), "{error}");
        }
        check_plugins(&["--plugin-load-add=auth_socket".to_owned(), "--file-key=x".to_owned()]).unwrap();
        let fine = [
            ("innodb-encrypt-log", "FALSE"),
            ("innodb-undo-directory", "/elsewhere"),
            ("innodb-data-home-dir", ""),
            ("log-bin", "/elsewhere/bin"),
            ("log-bin-index", "bin.index"),
            ("innodb-force-recovery", "0"),
            ("innodb-read-only", "FALSE"),
        ];
        check_settings(&settings(&fine), false).unwrap();
    }

    #[test]
    fn levels_that_may_do_harm_get_no_volume() {
        let of = |level: &str| {
            let set = settings(&[("log-bin", "(No default value)"), ("innodb-force-recovery", level)]);
            check_settings(&set, false).unwrap();
            ForcedRecovery::of(&set)
        };
        assert_eq!(of("0"), ForcedRecovery::None);
        assert_eq!(["1", "2", "3"].map(of), [ForcedRecovery::OnVolume; 3]);
        assert_eq!(["4", "5", "6"].map(of), [4, 5, 6].map(ForcedRecovery::OnView));
    }

    #[test]
    fn a_setting_that_the_server_does_not_say_is_not_taken_for_fine() {
        let mut said = settings(&JUDGED.map(|name| (name, "0")));
        check_complete(&said, Path::new("mariadbd")).unwrap();
        said.remove("innodb-encrypt-log");
        let error = check_complete(&said, Path::new("mariadbd")).unwrap_err().to_string();
        assert!(error.contains("innodb_encrypt_log"), "{error}");
    }

    #[test]
    fn the_servers_table_of_settings_is_read() {
        let text = "mariadbd  Ver 10.11.19\n\nVariables (--variable-name=value)\nand boolean options {FALSE|TRUE}  Value (after reading options)\n--------- ----\ninnodb-page-size    16384\nsocket   /run/x.sock\n\nTo see";
        let settings = parse_settings(text);
        assert_eq!(settings["innodb-page-size"], "16384");
        assert_eq!(settings["socket"], "/run/x.sock");
        assert_eq!(settings.len(), 2);
    }
}
