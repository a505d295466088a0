//! Command line of `redoubt completions` and `redoubt manual`.

use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub struct CompletionsArguments {
    /// The shell.
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct ManualArguments {
    /// Made if it is missing.
    pub directory: PathBuf,
}
