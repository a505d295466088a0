//! A server without a node: its redo log in persistent memory.

use super::report::Check;
use super::{DoctorError, ServerSide, host, library};
use redoubt_client::local_log::command::ServerCommand;
use redoubt_client::local_log::directory::{self, Durability};
use redoubt_client::server::find_program;
use redoubt_client::server::series::Use;
use std::path::Path;

const NAME: &str = "log_directory";

/// All checks of such a server.
///
/// # Errors
/// None.
#[expect(clippy::unnecessary_wraps, reason = "builds without this mode refuse here")]
pub fn checks(side: &ServerSide<'_>, pretend_pmem: bool) -> Result<Vec<Check>, DoctorError> {
    let mut checks = vec![host::kernel()];
    let (found, library) = library::find(&side.library);
    checks.push(found);
    checks.extend(check(side.command, side.datadir, pretend_pmem, library));
    Ok(checks)
}

/// Server, library and log directory.
fn check(command: &[String], datadir: Option<&Path>, pretend: bool, library: Option<&Path>) -> Vec<Check> {
    const SERVER: &str = "server";
    let default = ["mariadbd".to_owned()];
    let command = if command.is_empty() { &default[..] } else { command };
    let server = match ServerCommand::examine(command, datadir) {
        Ok(server) => server,
        Err(error) => {
            let what = format!("give the command that starts {} after `--`", Use::LocalLog.names());
            return vec![Check::refused(SERVER, &error, &what)];
        }
    };
    let mut checks = vec![Check::ok(
        SERVER,
        format!("{}, data in {}", server.program.display(), server.datadir.display()),
    )];
    let name = command.first().map_or("mariadbd", String::as_str);
    if let (Some(library), Ok(binary)) = (library, find_program(name)) {
        checks.push(library::preloads(&binary, library));
        checks.extend(library::confinement(&binary, library, Some(&server.datadir)));
    }
    for path in server.log_directories() {
        let shown = path.display();
        checks.push(match directory::check(&path, pretend) {
            Ok(Durability::MapSync) => Check::ok(NAME, format!("{shown}: persistent memory, MAP_SYNC works")),
            Ok(Durability::Pretended) => Check::warning(
                NAME,
                format!("{shown}: ordinary memory"),
                "use persistent memory: a power cut loses commits, and the whole log",
            ),
            Err(error) => {
                let message = error.to_string();
                let (found, change) =
                    message.split_once(". ").unwrap_or((&message, "see docs/devices/nvdimm.md"));
                Check::problem(NAME, found, change)
            }
        });
    }
    checks
}
