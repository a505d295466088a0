//! Options of `redoubt volume import`.

use crate::args::{EncryptionArguments, VolumeName};
use clap::Args;
use redoubt_client::import::Places;
use std::path::PathBuf;

#[derive(Args)]
pub struct ImportArguments {
    #[command(flatten)]
    pub volume: VolumeName,
    /// Data directory of a server that is not running. It is only read.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    #[command(flatten)]
    pub encryption: EncryptionArguments,
    #[command(flatten)]
    pub layout: LayoutArguments,
}

/// Where a server has its files, as its settings say.
#[derive(Args)]
#[command(next_help_heading = "Where that server has its files, if not all in its data directory")]
pub struct LayoutArguments {
    /// Option file of that server, such as /etc/mysql/my.cnf: the mariadbd of this host reads the settings below from it.
    /// Options given here override them.
    #[arg(long, value_name = "FILE")]
    pub defaults_file: Option<PathBuf>,
    /// innodb_data_file_path, if it is not one growing ibdata1.
    #[arg(long, value_name = "SPEC")]
    pub innodb_data_file_path: Option<String>,
    /// innodb_data_home_dir: its ibdata files.
    #[arg(long, value_name = "DIR")]
    pub innodb_data_home_dir: Option<String>,
    /// innodb_log_group_home_dir: its ib_logfile0.
    #[arg(long, value_name = "DIR")]
    pub innodb_log_group_home_dir: Option<String>,
    /// innodb_undo_directory: undo001 and so on.
    #[arg(long, value_name = "DIR")]
    pub innodb_undo_directory: Option<String>,
    /// aria_log_dir_path: aria_log_control and aria_log.00000001 and so on.
    #[arg(long, value_name = "DIR")]
    pub aria_log_dir_path: Option<String>,
    /// log_bin: path and base name of its binary log.
    #[arg(long, value_name = "PATH")]
    pub log_bin: Option<String>,
    /// log_bin_index: the index of its binary log, if that is elsewhere or has another name.
    #[arg(long, value_name = "PATH")]
    pub log_bin_index: Option<String>,
}

impl LayoutArguments {
    /// For the client.
    pub fn places(&self) -> Places {
        Places {
            defaults_file: self.defaults_file.clone(),
            innodb_data_file_path: self.innodb_data_file_path.clone(),
            innodb_data_home_dir: self.innodb_data_home_dir.clone(),
            innodb_log_group_home_dir: self.innodb_log_group_home_dir.clone(),
            innodb_undo_directory: self.innodb_undo_directory.clone(),
            aria_log_dir_path: self.aria_log_dir_path.clone(),
            log_bin: self.log_bin.clone(),
            log_bin_index: self.log_bin_index.clone(),
        }
    }
}
