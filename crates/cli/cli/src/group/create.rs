//! `redoubt group create | join`: the files of a group.
//!
//! | in the directory | |
//! |---|---|
//! | `group.json` | the group as requested; written last |
//! | `member-GROUP-NAME/` | the files of a server: `group.cnf`, and its certificate |
//! | `authority/` | the key that makes certificates |

use super::args::{GroupCreateArguments, GroupJoinArguments};
use super::plan::{Plan, PlannedMember};
use crate::error::{CliError, Result};
use redoubt_certificates::{Wanted, WantedMember};
use std::path::Path;

const PLAN: &str = "group.json";
const CONFIGURATION: &str = "group.cnf";
const AUTHORITY_DAYS: u32 = 3650;

/// Writes the files of a new group.
///
/// # Errors
/// [`CliError::Usage`] for names that do not fit or a directory that is not empty, errors of the system.
pub fn create(arguments: &GroupCreateArguments) -> Result<()> {
    let directory = &arguments.directory;
    let mut plan = Plan {
        group: arguments.group.clone(),
        members: Vec::new(),
        server_directory: arguments.server_directory.clone(),
        provider: arguments.provider.clone(),
        has_certificates: !arguments.no_certificates,
    };
    plan.add(&arguments.member)?;
    if std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CliError::Usage(format!("{} is not empty; choose a new directory", directory.display())));
    }
    if plan.has_certificates {
        let made = redoubt_certificates::create(
            directory,
            &wanted(&plan, &plan.members),
            arguments.days,
            AUTHORITY_DAYS,
        );
        made.map_err(|error| CliError::Usage(error.to_string()))?;
    }
    write(directory, &plan)?;
    say!("Written to {}:", directory.display());
    for member in &plan.members {
        say!("  {}  for {}", plan.part_of(member), member.host);
    }
    say!("\nNext steps:");
    say!("1. Copy to each server its part, and let the server's user read it:");
    plan.members.iter().for_each(|member| say_copy(directory, &plan, member));
    say!("2. On each server, have the server read it:");
    let configuration = plan.server_directory.join(CONFIGURATION);
    say!("     ln -s {} /etc/mysql/mariadb.conf.d/90-redoubt-group.cnf", configuration.display());
    if let Some(first) = plan.members.first() {
        say!(
            "3. The data of one server is the group's. Stop that one, say {}, and start it once with \
             --wsrep-new-cluster (on Debian: galera_new_cluster).",
            first.name
        );
    }
    say!("4. Restart the others. THEIR DATA IS REPLACED by that of the group.");
    say_look(&plan);
    advise(&plan);
    Ok(())
}

/// Adds servers to the files of a group.
///
/// # Errors
/// As for [`create`].
pub fn join(arguments: &GroupJoinArguments) -> Result<()> {
    let directory = &arguments.directory;
    let mut plan = read(directory)?;
    plan.add(&arguments.member)?;
    if plan.has_certificates {
        // Certificates of an earlier call that was interrupted are made again.
        let made =
            redoubt_certificates::add(directory, &wanted(&plan, &arguments.member), arguments.days, true);
        made.map_err(|error| CliError::Usage(error.to_string()))?;
    }
    write(directory, &plan)?;
    say!("Next steps:");
    say!("1. Copy to each new server its part, and let the server's user read it:");
    arguments.member.iter().for_each(|member| say_copy(directory, &plan, member));
    let configuration = plan.server_directory.join(CONFIGURATION);
    say!("2. On each new server:");
    say!("     ln -s {} /etc/mysql/mariadb.conf.d/90-redoubt-group.cnf", configuration.display());
    say!("3. Restart it. ITS DATA IS REPLACED by that of the group.");
    say_look(&plan);
    say!(
        "The existing members admit it without a restart. Their {CONFIGURATION} files name it now, too: copy them at any \
         time."
    );
    advise(&plan);
    Ok(())
}

fn wanted(plan: &Plan, members: &[PlannedMember]) -> Wanted {
    let member = |member: &PlannedMember| WantedMember {
        group: plan.group.clone(),
        name: member.name.clone(),
        hosts: vec![member.host.clone()],
    };
    Wanted { members: members.iter().map(member).collect(), ..Wanted::default() }
}

fn read(directory: &Path) -> Result<Plan> {
    let path = directory.join(PLAN);
    let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CliError::Usage(format!(
            "{} has no {PLAN}: name the directory that `redoubt group create` has written",
            directory.display()
        )),
        _ => CliError::io("read", &path, error),
    })?;
    serde_json::from_str(&text)
        .map_err(|error| CliError::Usage(format!("{} is not understood: {error}", path.display())))
}

/// The configuration of all, then the group itself.
fn write(directory: &Path, plan: &Plan) -> Result<()> {
    for member in &plan.members {
        let part = directory.join(plan.part_of(member));
        std::fs::create_dir_all(&part).map_err(|error| CliError::io("create", &part, error))?;
        replace(&part.join(CONFIGURATION), &plan.configuration(member))?;
    }
    let text =
        serde_json::to_string_pretty(plan).map_err(|error| CliError::io("write", PLAN, error.into()))?;
    replace(&directory.join(PLAN), &(text + "\n"))
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, text).map_err(|error| CliError::io("write", &new, error))?;
    std::fs::rename(&new, path).map_err(|error| CliError::io("replace", path, error))
}

fn say_copy(directory: &Path, plan: &Plan, member: &PlannedMember) {
    let (from, to) = (directory.join(plan.part_of(member)), plan.server_directory.display());
    let host = &member.host;
    say!("     scp -rp {} root@{host}:{to} && ssh root@{host} chown -R mysql: {to}", from.display());
}

fn say_look(plan: &Plan) {
    let servers: Vec<String> =
        plan.members.iter().map(|member| format!("--server {}", member.host)).collect();
    say!("Then look: redoubt group status {} --user NAME --wait 60", servers.join(" "));
}

fn advise(plan: &Plan) {
    if let Some(advice) = plan.advice() {
        say!("Note: {advice}.");
    }
}
