//! A wsrep provider, its options for the members of a group, and their certificates.

use std::path::{Path, PathBuf};

use redoubt_certificates::{Wanted, WantedMember};
use redoubt_workload::error::{Error, Result};

use super::HOST;
use super::ports::Port;

/// A wsrep provider.
#[derive(Debug, Clone, Default)]
pub struct Provider {
    /// The library.
    pub library: PathBuf,
    /// `wsrep_provider_options` of every member, after `base_port`. `{port}` is replaced by the member's port in the
    /// group, `{ist_port}` by another port of the member.
    pub options: String,
    /// Whether every member gets a certificate, with its location in `redoubt.tls`.
    pub is_encrypted: bool,
    /// Location of the server's scripts for state transfers (`wsrep_sst_rsync`), if they are not installed.
    pub scripts: Option<PathBuf>,
}

impl Provider {
    /// Galera with its defaults, except for its addresses.
    pub fn galera(library: impl Into<PathBuf>) -> Self {
        let options = format!("gmcast.listen_addr=tcp://{HOST}:{{port}};ist.recv_addr={HOST}:{{ist_port}}");
        Self { library: library.into(), options, ..Self::default() }
    }

    pub(super) fn options_of(&self, cluster: &Cluster, index: usize, addresses: &Addresses) -> String {
        let options = self.options.replace("{port}", &addresses.group.to_string());
        let options = options.replace("{ist_port}", &addresses.ist.to_string());
        let tls = cluster.authority.as_ref().map(|authority| {
            let bundle = authority.join(format!("member-{}-{}", cluster.name, member_name(index)));
            format!("redoubt.tls={};", bundle.display())
        });
        format!("base_port={};{}{options}", addresses.group, tls.unwrap_or_default())
    }
}

/// The ports of a member.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) group: Port,
    pub(super) ist: Port,
    pub(super) sst: Port,
}

impl Addresses {
    pub(super) fn reserve() -> Result<Self> {
        Ok(Self { group: Port::reserve()?, ist: Port::reserve()?, sst: Port::reserve()? })
    }
}

/// Settings that all members share.
pub(super) struct Cluster {
    pub(super) name: String,
    /// Addresses of all members.
    pub(super) everybody: String,
    /// Directory of all certificates.
    pub(super) authority: Option<PathBuf>,
}

pub(super) fn member_name(index: usize) -> String {
    format!("m{index}")
}

/// Makes certificates for all members.
pub(super) fn certify(directory: &Path, cluster: &str, hosts: &[String]) -> Result<PathBuf> {
    let authority = directory.join("certificates");
    let member = |(index, host): (usize, &String)| WantedMember {
        group: cluster.to_owned(),
        name: member_name(index),
        hosts: vec![host.clone()],
    };
    let wanted = Wanted { members: hosts.iter().enumerate().map(member).collect(), ..Wanted::default() };
    let made = redoubt_certificates::create(&authority, &wanted, 10, 20);
    made.map_err(|error| Error::State(error.to_string()))?;
    Ok(authority)
}

/// A name that no other group of this host has.
pub(super) fn cluster_name(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

pub(super) fn member_args(
    provider: &Provider,
    cluster: &Cluster,
    index: usize,
    host: &str,
    addresses: &Addresses,
) -> Vec<String> {
    vec![
        "--binlog-format=ROW".to_owned(),
        "--innodb-autoinc-lock-mode=2".to_owned(),
        "--innodb-flush-log-at-trx-commit=1".to_owned(),
        "--wsrep-on=ON".to_owned(),
        format!("--wsrep-provider={}", provider.library.display()),
        format!("--wsrep-provider-options={}", provider.options_of(cluster, index, addresses)),
        format!("--wsrep-cluster-name={}", cluster.name),
        format!("--wsrep-cluster-address=gcomm://{}", cluster.everybody),
        format!("--wsrep-node-name={}", member_name(index)),
        format!("--wsrep-node-address={host}"),
        "--wsrep-slave-threads=4".to_owned(),
        "--wsrep-sst-method=rsync".to_owned(),
        format!("--wsrep-sst-receive-address={host}:{}", addresses.sst),
    ]
}
