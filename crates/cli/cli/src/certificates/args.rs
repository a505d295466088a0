//! Command line of `redoubt certificates`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub struct CertificatesArguments {
    #[command(subcommand)]
    pub command: CertificatesCommand,
}

#[derive(Subcommand)]
pub enum CertificatesCommand {
    /// Make an authority in a new directory, and certificates for nodes, volumes, members and the administrator.
    Create(CertificatesCreateArguments),
    /// Make further certificates with the authority in a directory, or renew existing ones.
    Add(CertificatesAddArguments),
    /// Show certificates, their purpose and their date of expiry.
    Show(CertificatesShowArguments),
    /// Revoke certificates, for example of a compromised host: nodes reject them.
    Remove(CertificatesRemoveArguments),
}

/// Whom certificates are for.
#[derive(Args)]
pub struct CertificatesNames {
    /// A node: all names and addresses by which its clients reach it, without port. May be repeated.
    #[arg(long, value_name = "HOST[,HOST...]")]
    pub node: Vec<String>,
    /// A volume. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub volume: Vec<String>,
    /// A member of a group of servers (experimental): the group's name (wsrep_cluster_name), its own
    /// (wsrep_node_name), and all names and addresses by which the others reach it. May be repeated.
    #[arg(long, value_name = "GROUP/NAME=HOST[,HOST...]", value_parser = wanted_member)]
    pub member: Vec<redoubt_certificates::WantedMember>,
}

fn wanted_member(text: &str) -> std::result::Result<redoubt_certificates::WantedMember, String> {
    let parts = text.split_once('=').and_then(|(names, hosts)| Some((names.split_once('/')?, hosts)));
    let ((group, name), hosts) = parts.ok_or("expected GROUP/NAME=HOST, such as shop/db1=10.0.0.1")?;
    Ok(redoubt_certificates::WantedMember {
        group: group.to_owned(),
        name: name.to_owned(),
        hosts: hosts.split(',').map(|host| host.trim().to_owned()).collect(),
    })
}

#[derive(Args)]
pub struct CertificatesCreateArguments {
    /// New directory for the authority and its certificates.
    pub directory: PathBuf,
    #[command(flatten)]
    pub names: CertificatesNames,
    /// Days for which the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = redoubt_certificates::DEFAULT_DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
    /// Days for which the authority is valid. No certificate of it is valid longer.
    #[arg(long, value_name = "DAYS", default_value_t = redoubt_certificates::DEFAULT_AUTHORITY_DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub authority_days: u32,
}

#[derive(Args)]
pub struct CertificatesAddArguments {
    /// Directory of the authority.
    pub directory: PathBuf,
    #[command(flatten)]
    pub names: CertificatesNames,
    /// The administrator.
    #[arg(long)]
    pub administrator: bool,
    /// Replace existing keys and certificates; all of them if none is named.
    #[arg(long)]
    pub renew: bool,
    /// Days for which the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = redoubt_certificates::DEFAULT_DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
}

#[derive(Args)]
pub struct CertificatesShowArguments {
    /// Directory of an authority, or one bundle.
    pub directory: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct CertificatesRemoveArguments {
    /// Directory of the authority.
    pub directory: PathBuf,
    /// Names of bundles, as `redoubt certificates show` has them.
    #[arg(required = true, value_name = "BUNDLE")]
    pub bundles: Vec<String>,
}
