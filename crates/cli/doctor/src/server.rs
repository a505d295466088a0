//! The server: program, version, options that do not fit, requirements on the host.

use super::report::Check;
use redoubt_client::ClientError;
use redoubt_client::places;
use redoubt_client::server::series::{self, Use};
use redoubt_client::server::settings::{Settings, is_on, refused_settings};
use redoubt_client::server::{
    Answers, check_plugins, check_program, effective_settings, find_program, option_file_arguments, server_of,
};
use redoubt_redo::Family;
use redoubt_wire::ServerVersion;
use std::path::{Path, PathBuf};

const NAME: &str = "server";

/// Advice for a host without a server.
fn install() -> String {
    let names = Use::Volume.names();
    format!("install {names} (Debian: apt install mariadb-server-core), or give its path after `--`")
}

/// A server that can be asked, and its answers.
pub struct Server {
    /// The program.
    pub binary: PathBuf,
    /// Its version.
    pub version: ServerVersion,
    settings: Settings,
}

impl Server {
    /// A number among the settings.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.settings.get(name)?.parse().ok()
    }

    /// The user it changes to.
    pub fn user(&self) -> Option<&str> {
        self.text("user")
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.settings
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty() && !value.starts_with('('))
    }
}

/// Finds and asks the server of a command, without starting it.
pub fn check(command: &[String], datadir: Option<&Path>) -> (Vec<Check>, Option<Server>) {
    let (name, options) =
        command.split_first().map_or(("mariadbd", &[][..]), |(name, rest)| (name.as_str(), rest));
    let found = find_program(name).and_then(|program| {
        check_program(&program)?;
        server_of(&program)
    });
    let binary = match found {
        Ok(binary) => binary,
        Err(error) => return (vec![Check::refused(NAME, &error, &install())], None),
    };
    let Answers { version, settings } = match effective_settings(&binary, options, datadir) {
        Ok(answers) => answers,
        Err(error) => return (vec![Check::refused(NAME, &error, &install())], None),
    };
    let found = format!("{} {version}", binary.display());
    let mut checks = vec![match series::untested(version) {
        None => Check::ok(NAME, found),
        Some(untested) => {
            Check::warning(NAME, format!("{found}: {untested}"), "none, or a newer Redoubt if there is one")
        }
    }];
    let place = datadir.map(Path::to_owned).or_else(|| settings.get("datadir").map(PathBuf::from));
    let place = place.unwrap_or_default();
    checks.extend(refusals(version.family, &settings));
    let plugins = option_file_arguments(&binary, options).and_then(|words| check_plugins(&words));
    if let Err(error) = plugins.and_then(|()| check_plugins(options)) {
        checks.push(settings_problem(&error));
    }
    if checks.len() == 1 {
        checks.push(Check::ok(SETTINGS, aio(&settings)));
    }
    checks.extend(elsewhere(&settings, &place));
    checks.extend(durability(&settings));
    (checks, Some(Server { binary, version, settings }))
}

const SETTINGS: &str = "settings";

fn settings_problem(error: &ClientError) -> Check {
    let message = error.to_string();
    let (found, change) =
        message.rsplit_once(". ").unwrap_or((&message, "remove it from options and option files"));
    Check::problem(SETTINGS, found, change)
}

fn refusals(family: Family, settings: &Settings) -> Vec<Check> {
    let refused = refused_settings(family, settings, false);
    refused.into_iter().map(|refused| settings_problem(&ClientError::Usage(refused))).collect()
}

/// Settings that put files outside the data directory.
fn elsewhere(settings: &Settings, datadir: &Path) -> Vec<Check> {
    let moved = places::moved(settings, datadir).into_iter();
    let checks = moved.map(|moved| {
        Check::note(
            SETTINGS,
            format!("{}={} is ignored on a volume: these files are in it", moved.setting(), moved.value),
            "none; for an import give `redoubt volume import --defaults-file`",
        )
    });
    checks.collect()
}

/// Describes the setting; it is no fault, because `redoubt run` overrides it.
fn aio(settings: &Settings) -> String {
    let on = settings.get("innodb-use-native-aio").is_some_and(|value| is_on(value));
    let aio = if on {
        "innodb_use_native_aio is on, and `redoubt run` turns it off"
    } else {
        "innodb_use_native_aio is off"
    };
    format!("none that a node cannot follow; {aio}")
}

fn durability(settings: &Settings) -> Vec<Check> {
    const NAME: &str = "durability";
    let mut checks = Vec::new();
    let flush = settings.get("innodb-flush-log-at-trx-commit").map_or("1", String::as_str);
    if flush == "1" || flush == "3" {
        checks.push(Check::ok(
            NAME,
            format!("innodb_flush_log_at_trx_commit={flush}: a commit waits for the node"),
        ));
    } else {
        checks.push(Check::warning(
            NAME,
            format!("innodb_flush_log_at_trx_commit={flush}: commits are answered before they are durable"),
            "set it to 1, unless the last second of commits may be lost",
        ));
    }
    if is_binary_log_on(settings) && settings.get("sync-binlog").is_some_and(|value| value == "0") {
        checks.push(Check::note(
            "binary_log",
            "on, with sync_binlog=0",
            "set sync_binlog=1: if this host and the node are lost at the same time, answered transactions may be rolled back",
        ));
    }
    checks
}

fn is_binary_log_on(settings: &Settings) -> bool {
    settings.get("log-bin").is_some_and(|value| !value.is_empty() && !value.starts_with('('))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_refused_setting_is_a_problem_with_its_remedy() {
        let found = refusals(
            Family::MariaDb,
            &settings(&[("innodb-encrypt-log", "ON"), ("log-bin", "/elsewhere/"), ("socket", "x")]),
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|check| check.level == Level::Problem));
        assert!(found[0].change.as_deref().is_some_and(|change| change.contains("innodb_encrypt_log=OFF")));
        assert!(found[1].found.contains("/elsewhere/"));
        assert!(refusals(Family::MariaDb, &settings(&[])).is_empty());
    }

    #[test]
    fn files_elsewhere_are_no_problem_but_said() {
        let set = settings(&[("innodb-undo-directory", "/elsewhere"), ("log-bin", "/elsewhere/bin")]);
        let found = elsewhere(&set, Path::new("/data"));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|check| check.level == Level::Note));
        assert!(found[0].found.contains("innodb_undo_directory=/elsewhere"), "{found:?}");
    }

    #[test]
    fn weak_durability_is_pointed_out() {
        let checks = |pairs: &[(&str, &str)]| {
            let checks = durability(&settings(pairs));
            checks.iter().map(|check| check.level).collect::<Vec<_>>()
        };
        assert_eq!(checks(&[]), [Level::Ok]);
        assert_eq!(checks(&[("innodb-flush-log-at-trx-commit", "2")]), [Level::Warning]);
        assert_eq!(checks(&[("log-bin", "bin"), ("sync-binlog", "0")]), [Level::Ok, Level::Note]);
        assert_eq!(checks(&[("log-bin", "(No default value)"), ("sync-binlog", "0")]), [Level::Ok]);
    }

    #[test]
    fn native_aio_is_turned_off_by_run() {
        assert!(aio(&settings(&[("innodb-use-native-aio", "TRUE")])).contains("turns it off"));
        assert!(aio(&settings(&[("innodb-use-native-aio", "FALSE")])).ends_with("is off"));
    }
}
