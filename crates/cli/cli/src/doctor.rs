//! `redoubt doctor`: prints the report of crate `doctor`.

pub mod args;

use crate::args::OptionalNode;
use crate::error::{CliError, Result};
use crate::run::preload;
use args::DoctorArguments;
use redoubt_doctor::{DoctorError, NodeAddress, NodeSide, Report, ServerSide, VolumeSide};

/// Checks and prints.
///
/// # Errors
/// [`CliError::Usage`] if there is a problem, for the exit status.
pub fn run(arguments: &DoctorArguments) -> Result<()> {
    let report = match &arguments.data {
        Some(data) => redoubt_doctor::check_node(&NodeSide {
            data,
            places: &arguments.place,
            ring: arguments.ring,
            address: address(&arguments.address),
        }),
        None => server_side(arguments)?,
    };
    print(&report, arguments.json)
}

fn server_side(arguments: &DoctorArguments) -> Result<Report> {
    let library = preload::find_library(arguments.library.as_deref());
    let side = ServerSide {
        command: &arguments.command,
        library: library.map_err(|error| error.to_string()),
        datadir: arguments.datadir.as_deref(),
    };
    if arguments.local_log {
        return Ok(redoubt_doctor::check_local_log(&side, arguments.pretend_pmem)?);
    }
    let on = VolumeSide {
        volume: arguments.volume.as_deref(),
        address: address(&arguments.address),
        page_cache: arguments.page_cache,
        page_cache_directory: arguments.page_cache_directory.as_deref(),
    };
    Ok(redoubt_doctor::check_server(&side, &on))
}

fn address(node: &OptionalNode) -> NodeAddress {
    // By a person or by the environment.
    let is_given =
        node.node.is_some() || std::env::var_os("REDOUBT_NODE").is_some_and(|value| !value.is_empty());
    NodeAddress { is_given, files: node.tls.files(), connector: node.connector() }
}

fn print(report: &Report, json: bool) -> Result<()> {
    if json {
        crate::show::print_json(report)?;
    } else {
        crate::output::show(format_args!("{}", report.text()));
    }
    match report.problems() {
        0 => Ok(()),
        1 => Err(CliError::Usage("1 problem was found; see the suggested change above".to_owned())),
        count => {
            Err(CliError::Usage(format!("{count} problems were found; see the suggested changes above")))
        }
    }
}

impl From<DoctorError> for CliError {
    fn from(error: DoctorError) -> Self {
        let DoctorError::NotBuiltIn(error) = error;
        Self::Client(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_doctor::Check;

    #[test]
    fn checks_that_this_build_lacks_are_wrong_use() {
        let refused = redoubt_client::experimental::refused("--local-log");
        assert_eq!(CliError::from(DoctorError::NotBuiltIn(refused)).exit_status(), 2);
    }

    #[test]
    fn report_fails_with_the_number_of_problems() {
        let failed = |checks| print(&Report::new("server", checks), true).map_err(|error| error.to_string());
        let problem = || Check::problem("tls", "expired", "renew");
        assert!(failed(vec![problem()]).unwrap_err().contains("1 problem"));
        assert!(failed(vec![problem(), problem()]).unwrap_err().contains("2 problems"));
        failed(vec![Check::ok("kernel", "")]).unwrap();
    }
}
