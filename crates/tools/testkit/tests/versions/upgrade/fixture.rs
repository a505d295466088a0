//! Unpacks a fixture, and starts a node on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::server::ServerConfig;

/// A node on an unpacked fixture.
pub struct Fixture {
    pub node: Node,
    /// Holds the node's data as `node`.
    _directory: tempfile::TempDir,
}

impl Fixture {
    /// Unpacks one, changes the volume's directory, and starts a node on it.
    pub fn unpack_and(name: &str, change: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::Builder::new().prefix("rdtu-").tempdir().unwrap();
        let data = directory.path().join("node");
        std::fs::create_dir(&data).unwrap();
        unpack(&packed(name), &data);
        change(&data.join("volumes/v"));
        let node = Node::in_directory(&find_redoubt().unwrap(), directory.path(), &NODE_ARGS)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { node, _directory: directory }
    }
}

pub const NODE_ARGS: [&str; 6] = ["--ring", "16MiB", "--batch", "1MiB", "--apply-interval", "1"];

pub fn packed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/volumes/{name}.tar.zst"))
}

/// A sparse archive: holes stay holes, so that the segments of 64 MiB cost nothing.
pub fn unpack(archive: &Path, to: &Path) {
    let packed = std::fs::File::open(archive).unwrap();
    let mut tar = tempfile::NamedTempFile::new().unwrap();
    zstd::stream::copy_decode(packed, &mut tar).unwrap();
    let status = Command::new("tar").arg("-xf").arg(tar.path()).arg("-C").arg(to).status().unwrap();
    assert!(status.success(), "tar cannot unpack {}", archive.display());
}

/// A server as the fixtures' was: small pages, no undo tablespaces, no system tables.
pub fn config(launcher: Launcher) -> ServerConfig {
    let mut config = ServerConfig::new(launcher)
        .innodb_arg("--innodb-data-file-path=ibdata1:10M:autoextend")
        .innodb_arg("--innodb-undo-tablespaces=0")
        .innodb_arg("--innodb-stats-persistent=0")
        .server_arg("--skip-grant-tables");
    config.page_size_bytes = 4096;
    config.buffer_pool_bytes = 8 << 20;
    config.log_file_size_bytes = 4 << 20;
    config
}
