//! The plain files of a data directory, and whether the node has the same.
//!
//! Everything but InnoDB's files is replicated byte for byte; InnoDB's files are stubs without content on the server's
//! side. A few names stay on the host by design.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;

use crate::node::Node;

/// How often the directory may change under the comparison.
const ATTEMPTS: u32 = 10;

/// Contents of a data directory, by relative path.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Directories.
    pub directories: BTreeSet<String>,
    /// Replicated files with their bytes.
    pub plain: BTreeMap<String, Vec<u8>>,
    /// InnoDB files with the number of blocks they have on disk.
    pub stubs: BTreeMap<String, u64>,
}

/// How much was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compared {
    /// Replicated files.
    pub plain_files: usize,
    /// InnoDB files.
    pub stubs: usize,
}

/// InnoDB's files: the node has them as pages and as redo.
fn is_innodb(path: &str) -> bool {
    let undo = path.strip_prefix("undo").map(|rest| rest.strip_prefix('_').unwrap_or(rest));
    path.ends_with(".ibd")
        || undo.is_some_and(|rest| rest.len() == 3 && !rest.contains('/'))
        || path.starts_with("#innodb_redo/")
        || ["ibdata1", "ib_logfile0"].contains(&path)
}

/// See [`is_local_directory`].
const ORPHANS: &str = ".redoubt-orphans";

/// Files that stay on a host, by design.
fn is_local(path: &str) -> bool {
    !path.contains('/')
        // `mysql_upgrade_info` is written by mariadb-install-db, not by the server.
        && ([".redoubt", ".redoubt-checksums", ".redoubt-unsent", "ib_buffer_pool", "ibtmp1", "mysql_upgrade_info"].contains(&path)
            || path.ends_with(".pid")
            // Doublewrite files of MySQL.
            || path.ends_with("dblwr")
            || path.ends_with("-slow.log"))
}

/// A directory that stays on a host: that of what a server had not made durable in the volume when it was cut off, and
/// that of MySQL's temporary tablespaces.
fn is_local_directory(path: &str) -> bool {
    path == ORPHANS || path == "#innodb_temp"
}

fn list(root: &Path, relative: &str, contents: &mut Contents) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root.join(relative))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if relative.is_empty() { name } else { format!("{relative}/{name}") };
        let metadata = entry.metadata()?;
        if is_local_directory(&path) {
            continue;
        }
        if metadata.is_dir() {
            contents.directories.insert(path.clone());
            list(root, &path, contents)?;
        } else if is_innodb(&path) {
            contents.stubs.insert(path, metadata.blocks());
        } else if !is_local(&path) {
            contents.plain.insert(path, std::fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// Reads a data directory.
///
/// # Errors
/// [`Error::Io`], also when a file goes away meanwhile.
pub fn contents(root: &Path) -> Result<Contents> {
    let mut contents = Contents::default();
    list(root, "", &mut contents).map_err(Error::io_at("read", root))?;
    Ok(contents)
}

/// Requires that node and server have the same plain files, and that the server's stubs are empty. The server is
/// stopped by a global read lock. Aria writes some files of its own accord, so the comparison is repeated if local
/// files change during the export. Exports go to `folder`.
///
/// # Errors
/// [`Error::Violation`] that names the difference; [`Error::Sql`], [`Error::Command`], [`Error::Io`].
pub fn require_same(node: &Node, volume: &str, server: &Server, folder: &Path) -> Result<Compared> {
    let mut conn = server.connect()?;
    execute(&mut conn, "FLUSH TABLES WITH READ LOCK")?;
    for attempt in 0..ATTEMPTS {
        let before = contents(&server.datadir())?;
        let to = folder.join(format!("export-{attempt}"));
        let (address, to_text) = (node.address().to_string(), to.to_string_lossy().into_owned());
        node.redoubt(&["volume", "export", "--node", &address, volume, "--to", &to_text])?;
        let exported = contents(&to)?;
        if contents(&server.datadir())? != before {
            continue;
        }
        compare(&before, &exported).map_err(Error::Violation)?;
        execute(&mut conn, "UNLOCK TABLES")?;
        return Ok(Compared { plain_files: before.plain.len(), stubs: before.stubs.len() });
    }
    Err(Error::State("the data directory never stood still".into()))
}

fn compare(local: &Contents, node: &Contents) -> std::result::Result<(), String> {
    let filled: Vec<_> = local.stubs.iter().filter(|(_, blocks)| **blocks != 0).collect();
    if !filled.is_empty() {
        return Err(format!("stubs with content: {filled:?}"));
    }
    let one_sided: Vec<_> = local.directories.symmetric_difference(&node.directories).collect();
    if !one_sided.is_empty() {
        return Err(format!("directories on one side only: {one_sided:?}"));
    }
    let names = |contents: &Contents| contents.plain.keys().cloned().collect::<BTreeSet<_>>();
    let (here, there) = (names(local), names(node));
    let one_sided: Vec<_> = here.symmetric_difference(&there).collect();
    if !one_sided.is_empty() {
        return Err(format!("plain files on one side only: {one_sided:?}"));
    }
    for ((path, bytes), other) in local.plain.iter().zip(node.plain.values()) {
        if bytes != other {
            let differs = bytes.iter().zip(other).position(|(left, right)| left != right);
            return Err(format!(
                "{path}: {} bytes here, {} on the node, first difference at {differs:?}",
                bytes.len(),
                other.len()
            ));
        }
    }
    Ok(())
}
