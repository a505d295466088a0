//! A private authority, which issues certificates for nodes, volumes, administrators and members of groups.
//!
//! Layout of its directory (mode 0700; keys 0600):
//!
//! | | |
//! |---|---|
//! | `authority/` | `certificate.pem` and `key.pem` of the authority; the key stays here |
//! | `node-HOST/`, `volume-NAME/`, `member-GROUP-NAME/`, `administrator/` | bundles: `authority.pem`, `certificate.pem`, `key.pem`, to be copied to where they are used |
//! | `removed`, and a copy in each bundle of a node or a member | serial numbers of certificates that these must not accept any more |
//!
//! Invariants: an existing file is replaced only at the caller's request. A file is either complete or missing. A key
//! is never readable by others, even temporarily.

mod files;
mod issue;
pub mod key;

use files::{make_directory, write_file};
use issue::Issuer;
use redoubt_transport::certificate::CertificateFacts;
use redoubt_transport::credentials::certificates;
use redoubt_transport::{Identity, TransportError, check_name, check_volume_name};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Default validity of certificates, in days.
pub const DEFAULT_DAYS: u32 = 365;
/// Default validity of an authority, in days.
pub const DEFAULT_AUTHORITY_DAYS: u32 = 3650;

/// Reason of a failure. Each message is one sentence for a person.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// An existing certificate or key is unusable.
    #[error("{0}")]
    Unusable(#[from] TransportError),
    /// The creation of a certificate failed.
    #[error("cannot make a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    /// A condition that the user has to change.
    #[error("{0}")]
    Refused(String),
}

type Result<T> = std::result::Result<T, CertificatesError>;

/// Bundles to create.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// For each node its host names and addresses; the first names the bundle.
    pub nodes: Vec<Vec<String>>,
    /// Volumes.
    pub volumes: Vec<String>,
    /// Members of groups.
    pub members: Vec<WantedMember>,
    /// The administrator.
    pub administrator: bool,
}

/// A member of a group of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedMember {
    /// Name of the group.
    pub group: String,
    /// Name of the member in the group.
    pub name: String,
    /// Names and addresses under which the others reach the member.
    pub hosts: Vec<String>,
}

/// One bundle, or the authority.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Directory of the bundle.
    pub directory: PathBuf,
    /// Content of its certificate.
    pub facts: CertificateFacts,
    /// Whether nodes reject its certificate.
    pub removed: bool,
}

/// Creates an authority in `directory`, which must not have one, and the wanted bundles.
///
/// # Errors
/// [`CertificatesError`]; existing files stay unchanged.
pub fn create(directory: &Path, wanted: &Wanted, days: u32, authority_days: u32) -> Result<Vec<Bundle>> {
    check(wanted)?;
    if directory.join("authority").exists() {
        return Err(CertificatesError::Refused(format!(
            "{} has an authority already; add to it with `redoubt certificates add`, or choose another directory",
            directory.display()
        )));
    }
    if std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CertificatesError::Refused(format!(
            "{} is not empty; choose a new directory",
            directory.display()
        )));
    }
    make_directory(directory)?;
    Issuer::create(&directory.join("authority"), authority_days)?;
    add(directory, wanted, days, false)
}

/// Creates further bundles with the authority in `directory`. With `renew`, existing bundles get a new key and
/// certificate. With `renew` and without names, this applies to all bundles that are not removed.
///
/// # Errors
/// [`CertificatesError`].
pub fn add(directory: &Path, wanted: &Wanted, days: u32, renew: bool) -> Result<Vec<Bundle>> {
    check(wanted)?;
    let issuer = Issuer::open(&directory.join("authority"))?;
    let mut wanted: Vec<(PathBuf, Identity, Vec<String>)> = named(directory, wanted);
    if wanted.is_empty() && renew {
        for bundle in list(directory)?.into_iter().filter(|bundle| !bundle.removed) {
            if let Some(identity) = bundle.facts.identity() {
                wanted.push((bundle.directory, identity, bundle.facts.hosts));
            }
        }
    }
    if wanted.is_empty() {
        return Err(CertificatesError::Refused(
            "nothing to make; name it with --node, --volume, --member or --administrator, or renew all with --renew"
                .to_owned(),
        ));
    }
    if let Some((existing, ..)) = wanted.iter().find(|(path, ..)| !renew && path.exists()) {
        return Err(CertificatesError::Refused(format!(
            "{} exists already; replace its key and certificate with --renew",
            existing.display()
        )));
    }
    let mut made = Vec::new();
    for (path, identity, hosts) in wanted {
        let issued = issuer.issue(&identity, &hosts, days)?;
        make_directory(&path)?;
        // The key comes first: a certificate without its key is useless.
        write_file(&path.join("key.pem"), &issued.key_pem, 0o600)?;
        write_file(&path.join("certificate.pem"), &issued.certificate_pem, 0o644)?;
        write_file(&path.join("authority.pem"), issuer.certificate_pem(), 0o644)?;
        if has_removed(&identity) {
            copy_removed(directory, &path)?;
        }
        made.push(read_bundle(&path, &BTreeSet::new())?);
    }
    Ok(made)
}

/// Whether the holder accepts connections.
const fn has_removed(identity: &Identity) -> bool {
    matches!(identity, Identity::Node | Identity::Member { .. })
}

/// Revokes the certificates of these bundles for nodes and members: adds them to the lists in `directory`. The bundles
/// themselves stay. Returns the lists to copy.
///
/// # Errors
/// [`CertificatesError`].
pub fn remove(directory: &Path, names: &[String]) -> Result<Vec<PathBuf>> {
    let bundles = list(directory)?;
    let mut serials = removed(directory)?;
    let mut lines = std::fs::read_to_string(directory.join("removed")).unwrap_or_default();
    for name in names {
        let bundle = bundles
            .iter()
            .find(|bundle| bundle.directory.file_name().is_some_and(|file| file == name.as_str()))
            .ok_or_else(|| {
                CertificatesError::Refused(format!(
                    "{} has no {name}; see `redoubt certificates show {0}`",
                    directory.display()
                ))
            })?;
        if serials.insert(bundle.facts.serial_text()) {
            lines.push_str(&format!("{} # {name}\n", bundle.facts.serial_text()));
        }
    }
    write_file(&directory.join("removed"), &lines, 0o644)?;
    let mut lists = Vec::new();
    for bundle in &bundles {
        if bundle.facts.identity().is_some_and(|identity| has_removed(&identity)) {
            copy_removed(directory, &bundle.directory)?;
            lists.push(bundle.directory.join("removed"));
        }
    }
    Ok(lists)
}

/// The authority, then its bundles by name.
///
/// # Errors
/// [`CertificatesError`].
pub fn show(directory: &Path) -> Result<Vec<Bundle>> {
    if directory.join("certificate.pem").exists() {
        return Ok(vec![read_bundle(directory, &BTreeSet::new())?]);
    }
    let authority = directory.join("authority");
    if !authority.exists() {
        return Err(CertificatesError::Refused(format!(
            "{} has neither an authority nor a certificate.pem; `redoubt certificates create` makes an authority",
            directory.display()
        )));
    }
    let mut shown = vec![read_bundle(&authority, &BTreeSet::new())?];
    shown.extend(list(directory)?);
    Ok(shown)
}

fn list(directory: &Path) -> Result<Vec<Bundle>> {
    let failed = |source| CertificatesError::Io { action: "list", path: directory.to_owned(), source };
    let removed = removed(directory)?;
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_authority = path.file_name().is_some_and(|name| name == "authority");
        if !is_authority && path.join("certificate.pem").exists() {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| read_bundle(path, &removed)).collect()
}

fn read_bundle(directory: &Path, removed: &BTreeSet<String>) -> Result<Bundle> {
    let path = directory.join("certificate.pem");
    let facts = certificates(&path)?.first().and_then(|first| CertificateFacts::read(first));
    let facts = facts.ok_or_else(|| {
        CertificatesError::Refused(format!("{} has a certificate that cannot be read", path.display()))
    })?;
    Ok(Bundle { directory: directory.to_owned(), removed: removed.contains(&facts.serial_text()), facts })
}

fn removed(directory: &Path) -> Result<BTreeSet<String>> {
    let path = directory.join("removed");
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let serial = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
            Ok(text.lines().map(serial).filter(|serial| !serial.is_empty()).collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(source) => Err(CertificatesError::Io { action: "read", path, source }),
    }
}

fn copy_removed(directory: &Path, node: &Path) -> Result<()> {
    match std::fs::read_to_string(directory.join("removed")) {
        Ok(text) => write_file(&node.join("removed"), &text, 0o644),
        Err(_) => Ok(()),
    }
}

fn named(directory: &Path, wanted: &Wanted) -> Vec<(PathBuf, Identity, Vec<String>)> {
    let mut named = Vec::new();
    for hosts in &wanted.nodes {
        let name = hosts.first().map_or("", String::as_str);
        named.push((directory.join(format!("node-{name}")), Identity::Node, hosts.clone()));
    }
    for volume in &wanted.volumes {
        let path = directory.join(format!("volume-{volume}"));
        named.push((path, Identity::Volume(volume.clone()), Vec::new()));
    }
    for WantedMember { group, name, hosts } in &wanted.members {
        let path = directory.join(format!("member-{group}-{name}"));
        named.push((path, Identity::Member { group: group.clone(), name: name.clone() }, hosts.clone()));
    }
    if wanted.administrator {
        named.push((directory.join("administrator"), Identity::Administrator, Vec::new()));
    }
    named
}

fn check(wanted: &Wanted) -> Result<()> {
    for volume in &wanted.volumes {
        check_volume_name(volume).map_err(CertificatesError::Refused)?;
    }
    let mut seen = BTreeSet::new();
    for hosts in &wanted.nodes {
        if hosts.first().is_none_or(|first| !seen.insert(first)) {
            return Err(CertificatesError::Refused("--node is given twice for the same host".to_owned()));
        }
        for host in hosts {
            check_host(host)?;
        }
    }
    for WantedMember { group, name, hosts } in &wanted.members {
        check_name("group", group)
            .and_then(|()| check_name("member", name))
            .map_err(CertificatesError::Refused)?;
        if hosts.is_empty() {
            return Err(CertificatesError::Refused(format!("member {group}/{name} is given without a host")));
        }
        hosts.iter().try_for_each(|host| check_host(host))?;
    }
    Ok(())
}

fn check_host(host: &str) -> Result<()> {
    let is_name = host.split('.').all(|label| {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(letters)
    });
    if host.len() <= 253 && (is_name || host.parse::<std::net::IpAddr>().is_ok()) {
        return Ok(());
    }
    Err(CertificatesError::Refused(format!(
        "{host:?} is not a host name or address; give names and addresses without a port"
    )))
}
