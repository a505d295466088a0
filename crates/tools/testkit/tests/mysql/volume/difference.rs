//! Pages of the node that are sound, but not the server's: `--verify=all --on-difference=heal`, the default for MySQL.
//!
//! The planted difference is a byte of a row, changed in the node's page store with a right checksum. This is what a defect of
//! the replay leaves.

use super::VOLUME;
use redoubt_harness::battery::Restart;
use redoubt_harness::command::PATIENCE;
use redoubt_harness::fetched::find_or_skip;
use redoubt_harness::node::Node;
use redoubt_page::Format;
use redoubt_page::layout::{TYPE_INDEX, page_type};
use redoubt_redo::Family;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::product::FetchedServer;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PAGE_LEN: usize = 16384;
/// Stands in the row beside the one that is changed.
const MARK: &str = "this text stands in the row that nobody changes";

struct Setup {
    node: Node,
    server: Server,
}

impl Setup {
    fn new(test: &str) -> Option<Self> {
        let product = find_or_skip(FetchedServer::MySql97, test)?;
        // Without a journal, from which the good page would be read.
        let protection = ["--page-protection", "atomic", "--pretend-atomic"];
        let sizes = ["--ring", "64MiB", "--batch", "1MiB", "--apply-interval", "1"];
        let node = Node::create(&find_redoubt().unwrap(), &[&sizes[..], &protection[..]].concat()).unwrap();
        node.create_volume(VOLUME).unwrap();
        let config = ServerConfig::new(node.launcher(VOLUME, Verify::Default)).product(product);
        let mut setup = Self { server: Server::create(config).unwrap(), node };
        setup.sql(&[
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b VARCHAR(100))",
            &format!("INSERT INTO d.t VALUES (1, 1, 'changed'), (2, 2, '{MARK}'), (3, 3, 'last')"),
        ]);
        setup.write_pages();
        setup.node.wait_applied(VOLUME).unwrap();
        setup.node.stop().unwrap();
        plant(&setup.node.data().join("volumes").join(VOLUME).join("pages"));
        setup.node.start().unwrap();
        Some(setup)
    }

    fn sql(&mut self, statements: &[&str]) {
        let mut conn = self.server.connect().unwrap();
        for statement in statements {
            execute(&mut conn, statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }

    /// The server writes all dirty pages of the table.
    fn write_pages(&mut self) {
        self.sql(&["FLUSH TABLES d.t FOR EXPORT", "UNLOCK TABLES"]);
    }

    fn volume(&self) -> Value {
        self.node.status(VOLUME).unwrap()["volumes"][0].clone()
    }

    fn counter(&self, name: &str) -> u64 {
        self.volume()["counters"][name].as_u64().unwrap()
    }

    fn wait_for(&self, name: &str, value: u64) {
        let done = || Ok((self.counter(name) == value).then_some(()));
        poll_until(&format!("{name} to be {value}"), PATIENCE, done)
            .unwrap_or_else(|error| panic!("{error}\n{}\nnode: {}", self.volume(), self.node.log_tail(20)));
    }

    /// A server in an empty directory finds the row, from the node's page.
    fn require_whole(&mut self) {
        let volume = self.volume();
        assert_eq!((volume["state"].as_str(), volume["quarantined"].as_u64()), (Some("attached"), Some(0)));
        Restart::KillAndAttach.apply(&mut self.server).unwrap();
        let mut conn = self.server.connect().unwrap();
        let rows = query_text(&mut conn, "SELECT b FROM d.t WHERE id = 2").unwrap();
        assert_eq!(rows, [[MARK.to_owned()]]);
        let checked = query_text(&mut conn, "CHECK TABLE d.t EXTENDED").unwrap();
        assert_eq!(checked[0].last().map(String::as_str), Some("OK"), "{checked:?}");
    }
}

/// Changes a letter of the row's text in the node's page.
fn plant(pages: &Path) {
    let files = std::fs::read_dir(pages).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<(PathBuf, usize, usize)> = files
        .filter(|file| file.extension().is_some_and(|extension| extension == "pages"))
        .flat_map(|file| {
            let bytes = std::fs::read(&file).unwrap();
            let pages = bytes.chunks_exact(PAGE_LEN).enumerate();
            let with_mark = pages.filter(|(_, page)| page_type(page) == Some(TYPE_INDEX));
            let at = |page: &[u8]| page.windows(MARK.len()).position(|window| window == MARK.as_bytes());
            with_mark.filter_map(|(number, page)| Some((file.clone(), number, at(page)?))).collect::<Vec<_>>()
        })
        .collect();
    let [(path, number, at)] = &found[..] else { panic!("{found:?}") };
    let bytes = std::fs::read(path).unwrap();
    let format = Format::of_page0(Family::MySql, &bytes[..PAGE_LEN]).unwrap();
    let mut page = bytes[number * PAGE_LEN..][..PAGE_LEN].to_vec();
    page[*at] ^= 0x20;
    format.finalize(&mut page).unwrap();
    format.verify(&page).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&page, (number * PAGE_LEN) as u64).unwrap();
    file.sync_all().unwrap();
}

/// Its last write is still kept by the library, and is sent at once.
#[test]
fn differing_page_that_is_clean_in_the_server_is_healed() {
    let Some(mut setup) = Setup::new("mysql volume") else { return };
    setup.sql(&["UPDATE d.t SET a = a + 1 WHERE id = 1"]);
    setup.write_pages();
    setup.wait_for("pages_healed", 1);
    assert_eq!(setup.counter("page_mismatches"), 1);
    let own = setup.node.data().join("volumes").join(VOLUME);
    let names =
        std::fs::read_dir(own).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut evidence: Vec<_> = names.filter(|name| name.starts_with("mismatch-")).collect();
    evidence.sort();
    let kinds: Vec<_> = evidence.iter().map(|name| name.split_once('.').unwrap().1).collect();
    assert_eq!(kinds, ["node.page", "server.page", "txt"]);
    setup.require_whole();
}

/// The page is changed all the time, so that it is dirty in the server when the difference is found: its next write is sent.
#[test]
fn differing_page_that_the_server_keeps_changing_is_healed() {
    let Some(mut setup) = Setup::new("mysql volume") else { return };
    let healed = poll_until("the server's page on the node", PATIENCE, || {
        for _ in 0..20 {
            setup.sql(&["UPDATE d.t SET a = a + 1 WHERE id = 1"]);
        }
        setup.write_pages();
        setup.sql(&["UPDATE d.t SET a = a + 1 WHERE id = 1"]);
        Ok((setup.counter("pages_healed") > 0).then_some(()))
    });
    healed.unwrap_or_else(|error| panic!("{error}\n{}\nnode: {}", setup.volume(), setup.node.log_tail(20)));
    setup.write_pages();
    poll_until("an empty quarantine", PATIENCE, || Ok((setup.volume()["quarantined"] == 0).then_some(())))
        .unwrap();
    assert_eq!(setup.counter("page_mismatches"), 1, "{}", setup.volume());
    setup.require_whole();
}
