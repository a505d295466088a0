//! Sub-commands that are programs of their own, as those of git are: `redoubt bench` starts `redoubt-bench`, and
//! `redoubt group drill` starts `redoubt-drill`.
//!
//! They need an SQL client, load generators and plots, which a node and a server's host do not need. This process
//! becomes the program, so signals and exit status are the program's. It gets all arguments after the words of the
//! sub-command unchanged, and the path of this command in the environment.

use crate::error::{CliError, Result};
use redoubt_console::installed::{COMMAND_VARIABLE, find_tool};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The Debian package that contains the programs.
const PACKAGE: &str = "redoubt-tools";

pub const BENCH: Tool = Tool { program: "redoubt-bench", words: 1 };

/// A program that is started in place of this one.
pub struct Tool {
    /// Its name.
    pub program: &'static str,
    /// Number of words after the name of the command that select the sub-command. No option may precede or separate
    /// them.
    pub words: usize,
}

/// Arguments that only the program understands. They are read from the process's own, which still have a leading `--`.
/// Also those of a command that this build lacks.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct ToolArguments {
    /// Options of the program.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    _arguments: Vec<OsString>,
}

impl Tool {
    /// Starts it; returns only if that fails.
    ///
    /// # Errors
    /// [`CliError::Usage`] with the package if the program is not installed; errors of the system.
    pub fn start(&self) -> Result<()> {
        let command = std::env::current_exe().ok();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = find_tool(self.program, PACKAGE, command.as_deref(), &path)
            .map_err(|error| CliError::Usage(error.to_string()))?;
        let mut started = Command::new(&program);
        started.args(std::env::args_os().skip(1 + self.words));
        if let Some(command) = command {
            started.env(COMMAND_VARIABLE, command);
        }
        Err(CliError::io("run", program, started.exec()))
    }
}
