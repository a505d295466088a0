//! One crash, recovered by the stock server and taken by a node: pages and contents.
//!
//! * Pages: a stock server recovers with `innodb_force_recovery=3`, which applies all redo and rolls nothing back, and
//!   is shut down, which writes every page. The directory is imported as a volume, and the volume exported. Each page must
//!   be of the same state (`redoubt_page::mysql::compare`), but for those that the server's own redo after the
//!   recovery names, and those of ROW_FORMAT=COMPRESSED tables, whose redo is not the node's to apply.
//! * Contents: a stock server recovers a copy, with rollback and purge, and says `CHECKSUM TABLE` and definition of
//!   each table; a server on the volume must say the same, and `CHECK TABLE` must find nothing.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_harness::sparse_files::copy_directory;
use redoubt_page::layout::{self, TYPE_RTREE};
use redoubt_page::{Format, page_is_never_written};
use redoubt_redo::{PageId, PageNo, SpaceId};
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Verify;
use redoubt_workload::server::{Server, ServerConfig};
use serde::Serialize;

use super::files::{Tablespace, Tablespaces};
use super::frozen::{self, Contents};
use redoubt_workload::check::{Snapshot, check_all_but};

/// Timeout of a shutdown: a server that does not roll back sometimes never ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Buffer pool of a stock server whose recovery did not end with a smaller one.
const LARGER_POOL_BYTES: u64 = 64 << 20;
/// Differences of one crash that are described.
const DESCRIBED: usize = 8;

/// PAGE_DIRECTION and PAGE_N_DIRECTION. The server that runs leaves them alone on R-tree pages, and so does the node.
/// Its recovery sets them: redo does not say of an index that it is spatial (`page_cur_insert_rec_low` in
/// `page/page0cur.cc`, `mlog_parse_index` in `mtr/mtr0log.cc`).
const DIRECTION_OF_INSERTS: std::ops::Range<usize> = 50..54;

/// Results of crashes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Checked {
    /// Crashes.
    pub crashes: u64,
    /// Of these: with the log cut before its end.
    pub cuts: u64,
    /// Of these: cut inside a mini-transaction.
    pub cuts_inside: u64,
    /// Redo that their recoveries applied, in bytes.
    pub redo_bytes: u64,
    /// Mini-transactions of it.
    pub mtrs: u64,
    /// Records of it.
    pub records: u64,
    /// Pages compared that redo touched.
    pub touched: u64,
    /// Pages compared that it did not.
    pub untouched: u64,
    /// Pages left out because they are of ROW_FORMAT=COMPRESSED tables: their redo is applied by the server that starts
    /// on the volume. Only the contents of these tables are compared.
    pub compressed: u64,
    /// Pages left out because the stock server changed them after its recovery.
    pub changed_since: u64,
    /// Tables whose checksums and definitions were compared.
    pub tables: u64,
    /// Tables checked on volumes.
    pub tables_checked: u64,
    /// Dropped page writes of the servers on volumes that were compared.
    pub pages_verified: u64,
    /// Crashes whose pages were not compared: the stock server does not end such a start, or the redo since is gone.
    pub only_rows: u64,
    /// Crashes between two system calls of a truncation of an undo tablespace, which were not checked.
    pub without_undo: u64,
    /// Recoveries that the stock server did not end with its first buffer pool.
    pub larger_pools: u64,
    /// Recoveries that it did not end with a larger one either.
    pub refused: u64,
    /// The end of its log at the last of them.
    pub refusal: String,
}

impl Checked {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        let Self { refusal, .. } = other;
        for (mine, theirs) in [
            (&mut self.crashes, other.crashes),
            (&mut self.cuts, other.cuts),
            (&mut self.cuts_inside, other.cuts_inside),
            (&mut self.redo_bytes, other.redo_bytes),
            (&mut self.mtrs, other.mtrs),
            (&mut self.records, other.records),
            (&mut self.touched, other.touched),
            (&mut self.compressed, other.compressed),
            (&mut self.untouched, other.untouched),
            (&mut self.changed_since, other.changed_since),
            (&mut self.tables, other.tables),
            (&mut self.tables_checked, other.tables_checked),
            (&mut self.pages_verified, other.pages_verified),
            (&mut self.without_undo, other.without_undo),
            (&mut self.larger_pools, other.larger_pools),
            (&mut self.refused, other.refused),
            (&mut self.only_rows, other.only_rows),
        ] {
            *mine += theirs;
        }
        if !refusal.is_empty() {
            self.refusal.clone_from(refusal);
        }
    }
}

/// Checks the crash in `crash`, a data directory, with a server that is started as `config` says. `directory` is an
/// empty one to work in.
///
/// # Errors
/// [`Error::Violation`] for what differs.
pub fn check(
    node: &Node,
    volume: &str,
    crash: &Path,
    config: &ServerConfig,
    directory: &Path,
) -> Result<Checked> {
    let contents = frozen::contents(crash)?;
    let mut checked = Checked {
        crashes: 1,
        redo_bytes: contents.redo_bytes,
        mtrs: contents.mtrs,
        records: contents.records,
        ..Checked::default()
    };
    import(node, volume, crash)?;
    let by_pages = pages(node, volume, crash, config, directory, &contents, &mut checked);
    if let Some(log) = refused(by_pages)? {
        // A server that would go on with the truncation of an undo tablespace asserts that it may.
        checked.only_rows += 1;
        checked.refusal = log;
    }
    if let Some(log) = contents_of_tables(node, volume, crash, config, directory, &mut checked)? {
        checked.refused += 1;
        checked.refusal = log;
    }
    redoubt(node, &["volume", "delete", volume, "--force", "--yes"])?;
    Ok(checked)
}

/// Why a crash was not compared.
enum Refused {
    /// The stock server does not recover from it.
    ByStock(String),
    /// Anything else.
    Error(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The end of the stock server's log if that refused.
fn refused(result: std::result::Result<(), Refused>) -> Result<Option<String>> {
    match result {
        Ok(()) => Ok(None),
        Err(Refused::ByStock(log)) => Ok(Some(log)),
        Err(Refused::Error(error)) => Err(error),
    }
}

/// Runs `redoubt` with these arguments and the node's address.
///
/// # Errors
/// [`Error::Violation`] with what it said.
pub(super) fn redoubt(node: &Node, args: &[&str]) -> Result<()> {
    let address = node.address().to_string();
    let args = args.iter().copied().chain(["--node", &address]);
    Outcome::of(node.redoubt_bin(), args, PATIENCE)?
        .require_success()
        .map_err(|error| Error::Violation(format!("{error}\nnode: {}", node.log_tail(15))))?;
    Ok(())
}

fn import(node: &Node, volume: &str, crash: &Path) -> Result<()> {
    redoubt(node, &["volume", "import", volume, "--from", &crash.display().to_string()])
}

/// A server on a copy of the crash; [`Refused::ByStock`] if it does not start.
fn stock(
    crash: &Path,
    config: &ServerConfig,
    directory: &Path,
    args: &[&str],
) -> std::result::Result<Server, Refused> {
    fs::create_dir(directory).map_err(Error::io_at("create", directory))?;
    let mut server = Server::in_directory(config.clone(), directory)?;
    copy_directory(crash, &server.datadir())?;
    match server.start_with(args) {
        Ok(()) => Ok(server),
        Err(Error::Exited { .. } | Error::Deadline { .. }) => {
            Err(Refused::ByStock(server.error_log_tail(60)))
        }
        Err(error) => Err(error.into()),
    }
}

fn pages(
    node: &Node,
    volume: &str,
    crash: &Path,
    config: &ServerConfig,
    directory: &Path,
    contents: &Contents,
    checked: &mut Checked,
) -> std::result::Result<(), Refused> {
    let config = ServerConfig { stop_timeout: STOP_TIMEOUT, ..config.clone() };
    let mut server = stock(crash, &config, &directory.join("pages"), &["--innodb-force-recovery=3"])?;
    match server.shutdown() {
        Ok(()) => {}
        Err(Error::Exited { .. } | Error::Deadline { .. }) => {
            return Err(Refused::ByStock(server.error_log_tail(60)));
        }
        Err(error) => return Err(error.into()),
    }
    let exported = directory.join("exported");
    redoubt(node, &["volume", "export", volume, "--to", &exported.display().to_string()])?;
    let Some(since) = frozen::contents_since(&server.datadir(), contents.end_lsn)? else {
        checked.only_rows += 1;
        return Ok(());
    };
    let theirs = Tablespaces::read(&server.datadir())?;
    let ours = Tablespaces::read(&exported)?;
    let mut comparison =
        Comparison { touched: &contents.pages, since: &since.pages, checked, differences: Vec::new() };
    for (space, theirs) in &theirs.0 {
        match ours.0.get(space) {
            Some(ours) => comparison.space(*space, ours, theirs),
            None => comparison.differs(format!("{} is not in the export", theirs.path.display())),
        }
    }
    for (_, ours) in ours.0.iter().filter(|(space, _)| !theirs.0.contains_key(space)) {
        comparison.differs(format!("{} is only in the export", ours.path.display()));
    }
    let (count, described) = (comparison.differences.len(), comparison.differences);
    fs::remove_dir_all(&exported).map_err(Error::io_at("remove", &exported))?;
    if count > 0 {
        let described: Vec<_> = described.into_iter().take(DESCRIBED).collect();
        return Err(Error::Violation(format!("{count} differ: {}", described.join("; "))).into());
    }
    Ok(())
}

struct Comparison<'c> {
    touched: &'c HashSet<PageId>,
    since: &'c HashSet<PageId>,
    checked: &'c mut Checked,
    differences: Vec<String>,
}

impl Comparison<'_> {
    fn differs(&mut self, what: String) {
        self.differences.push(what);
    }

    fn space(&mut self, space: SpaceId, ours: &Tablespace, theirs: &Tablespace) {
        let format = theirs.format;
        // A node has page 0 of a compressed table as an image, and learns from it that the file has a dictionary copy.
        if ours.path != theirs.path || format.is_replayed() && ours.format != format {
            self.differs(format!(
                "tablespace {space} is {} with flags {:#x}, of the server {} with {:#x}",
                ours.path.display(),
                ours.format.flags,
                theirs.path.display(),
                format.flags
            ));
            return;
        }
        let size = format.physical_page_size_bytes();
        let zeros = vec![0; size];
        let pages = ours.bytes.len().max(theirs.bytes.len()) / size;
        for page_no in 0..pages {
            let id = PageId { space, page_no: PageNo(page_no as u32) };
            let page =
                |file: &Tablespace| file.bytes.get(page_no * size..(page_no + 1) * size).map(<[u8]>::to_vec);
            let (ours, theirs) =
                (page(ours).unwrap_or_else(|| zeros.clone()), page(theirs).unwrap_or_else(|| zeros.clone()));
            self.page(id, format, &ours, &theirs);
        }
    }

    fn page(&mut self, id: PageId, format: Format, ours: &[u8], theirs: &[u8]) {
        if self.since.contains(&id) {
            self.checked.changed_since += 1;
            return;
        }
        if !format.is_replayed() {
            self.checked.compressed += 1;
            return;
        }
        let is_touched = self.touched.contains(&id);
        self.checked.touched += u64::from(is_touched);
        self.checked.untouched += u64::from(!is_touched);
        if page_is_never_written(ours) && page_is_never_written(theirs) {
            return;
        }
        let plain = |page: &[u8]| match format.decompress(page) {
            Ok(Some(plain)) => Ok(plain),
            Ok(None) => Ok(page.to_vec()),
            Err(error) => Err(format!("page {id}: {error}")),
        };
        match (plain(ours), plain(theirs)) {
            (Ok(ours), Ok(theirs)) => {
                let mut ranges = format.differing_ranges(&ours, &theirs);
                if layout::page_type(&theirs) == Some(TYPE_RTREE) {
                    ranges.retain(|range| !DIRECTION_OF_INSERTS.contains(&range.start));
                }
                if let Some(first) = ranges.first() {
                    let bytes = |page: &[u8]| {
                        page.get(first.start..first.end.min(first.start + 8)).map(<[u8]>::to_vec)
                    };
                    self.differs(format!(
                        "page {id}, type {:?}, touched {is_touched}, {} ranges from {first:?}: {:?}, server {:?}",
                        layout::page_type(&theirs),
                        ranges.len(),
                        bytes(&ours),
                        bytes(&theirs)
                    ));
                }
            }
            (Err(what), _) | (_, Err(what)) => self.differs(what),
        }
    }
}

/// Compares the contents of the tables; the end of the stock server's log if it does not start.
///
/// Sometimes a stock server with a pool of a few hundred pages never ends a recovery ("Difficult to find free blocks in
/// the buffer pool"). It then gets a larger one.
fn contents_of_tables(
    node: &Node,
    volume: &str,
    crash: &Path,
    config: &ServerConfig,
    directory: &Path,
    checked: &mut Checked,
) -> Result<Option<String>> {
    let first = refused(rows(node, volume, crash, config, &directory.join("rows"), checked))?;
    if first.is_none() || config.buffer_pool_bytes >= LARGER_POOL_BYTES {
        return Ok(first);
    }
    checked.larger_pools += 1;
    let config = ServerConfig { buffer_pool_bytes: LARGER_POOL_BYTES, ..config.clone() };
    refused(rows(node, volume, crash, &config, &directory.join("larger"), checked))
}

fn rows(
    node: &Node,
    volume: &str,
    crash: &Path,
    config: &ServerConfig,
    directory: &Path,
    checked: &mut Checked,
) -> std::result::Result<(), Refused> {
    fs::create_dir(directory).map_err(Error::io_at("create", directory))?;
    let mut server = stock(crash, config, &directory.join("stock"), &[])?;
    let expected = Snapshot::take(&mut server.connect()?, None, &[])?;
    server.kill9()?;
    checked.tables += expected.checksums.len() as u64;

    let mut config = config.clone();
    config.launcher = node.launcher_with(volume, Verify::All, &["--on-difference=stop"]);
    let on_volume = directory.join("volume");
    fs::create_dir(&on_volume).map_err(Error::io_at("create", &on_volume))?;
    let mut server = Server::in_directory(config, &on_volume)?;
    let mut compare = || {
        server.start()?;
        let shown = Snapshot::take(&mut server.connect()?, None, &[])?;
        expected.require_same(&shown, "on the volume")?;
        let tables = check_all_but(&mut server.connect()?, &expected.without_tablespace)?;
        server.shutdown()?;
        Ok(tables)
    };
    let tables = compare().map_err(|error: Error| {
        let log = server.error_log_tail(60);
        Error::Violation(format!("{error}\nserver: {log}\nnode: {}", node.log_tail(15)))
    })?;
    checked.tables_checked += tables as u64;
    checked.pages_verified += node.require_verified(volume, 0)?;
    Ok(())
}

#[cfg(test)]
mod tests;
