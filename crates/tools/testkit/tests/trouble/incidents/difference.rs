//! A difference that only `--verify=all` can find: the node's page is sound, but it is not the server's.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use redoubt_harness::node::Node;
use redoubt_page::layout::page_id;
use redoubt_page::{finalize, flags_of_page0, verify};
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::process::poll_until;

use super::{NODE_ARGS, PATIENCE, Setup, VOLUME, in_background};

const PAGE_LEN_BYTES: usize = 16384;
/// Stands in the row beside the one that is changed.
const MARK: &[u8] = b"this text stands in the row that nobody changes";

/// A page of the node's store with the text, and where the text is in it.
struct Place {
    file: PathBuf,
    offset_bytes: u64,
    at: usize,
    page: Vec<u8>,
    page_0: Vec<u8>,
}

fn find_mark(pages: &Path) -> Place {
    for entry in std::fs::read_dir(pages).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "pages") {
            continue;
        }
        let bytes = std::fs::read(&file).unwrap();
        for (number, page) in bytes.chunks_exact(PAGE_LEN_BYTES).enumerate() {
            if let Some(at) = page.windows(MARK.len()).position(|window| window == MARK) {
                let (page, page_0) = (page.to_vec(), bytes[..PAGE_LEN_BYTES].to_vec());
                let offset_bytes = (number * PAGE_LEN_BYTES) as u64;
                // Undo pages have it too; the table is what has page 0 with another space id than 0.
                if u16::from_be_bytes([page[24], page[25]]) == 17855 {
                    return Place { file, offset_bytes, at, page, page_0 };
                }
            }
        }
    }
    panic!("no page in {} has the mark", pages.display());
}

#[test]
fn a_planted_difference_stops_the_volume_and_is_reported() {
    // Without a journal, from which the good page would be read.
    let protection = ["--page-protection", "atomic", "--pretend-atomic"];
    let node = Node::create(&find_redoubt().unwrap(), &[&NODE_ARGS[..], &protection[..]].concat()).unwrap();
    let mut setup = Setup::on(node, Verify::All, &[]);
    let mark = std::str::from_utf8(MARK).unwrap();
    setup.sql(&[
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b VARCHAR(100)) ENGINE=InnoDB",
        &format!("INSERT INTO d.t VALUES (1, 1, 'changed'), (2, 2, '{mark}'), (3, 3, 'last')"),
        "FLUSH TABLES d.t FOR EXPORT",
    ]);
    setup.node.wait_applied(VOLUME).unwrap();
    setup.node.stop().unwrap();
    let place = find_mark(&setup.node.data().join("volumes").join(VOLUME).join("pages"));
    let flags = flags_of_page0(&place.page_0).unwrap();
    let mut damaged = place.page.clone();
    damaged[place.at] ^= 0x20;
    finalize(&mut damaged, flags).unwrap();
    verify(&damaged, flags).unwrap();
    let file = File::options().write(true).open(&place.file).unwrap();
    file.write_all_at(&damaged, place.offset_bytes).unwrap();
    file.sync_all().unwrap();
    setup.node.start().unwrap();

    // The server has the page in its pool: it changes another row and writes the page.
    setup.sql(&["UPDATE d.t SET a = a + 1 WHERE id = 1"]);
    let flush = in_background(&setup.server, "FLUSH TABLES d.t FOR EXPORT");
    let reason = setup.wait_for_log(&[
        "[ERROR]",
        "[redoubt]",
        "stopped the volume",
        "d/t.ibd",
        "differs",
        "mismatch-",
    ]);
    drop(flush);
    let commit = in_background(&setup.server, "INSERT INTO d.t VALUES (4, 4, 'too late')");
    let code = setup.server.wait_exit_code(PATIENCE);
    let code = code.unwrap_or_else(|error| panic!("{error}\n{}", setup.server.error_log_tail(20)));
    assert_ne!(code, Some(0), "the server ended as if all was well");
    assert!(commit.recv_timeout(PATIENCE).unwrap().is_err(), "a commit was acknowledged by a stopped volume");

    let report = reason.split("see ").nth(1).unwrap().split(". ").next().unwrap();
    let id = page_id(&place.page).unwrap();
    let text = poll_until("the server's image in the report", PATIENCE, || {
        let text = std::fs::read_to_string(report).unwrap();
        Ok(text.contains("differing byte ranges").then_some(text))
    })
    .unwrap_or_else(|error| panic!("{error}: {}", std::fs::read_to_string(report).unwrap()));
    println!("{text}");
    assert!(text.contains(&format!("page {id} of d/t.ibd")), "{text}");
    assert!(text.contains("server: LSN") && text.contains("node: LSN"), "{text}");
    // The byte that was planted, and with it nothing but the checksum.
    let ours = format!("{:02x} / {:02x}", place.page[place.at], damaged[place.at]);
    assert!(text.contains(&format!("  {}..{}: {ours}", place.at, place.at + 1)), "{text}");

    let volume = setup.volume();
    assert_eq!(volume["state"], "stopped", "{volume}");
    assert!(volume["reason"].as_str().unwrap().contains("differs"), "{volume}");
    assert_eq!(volume["counters"]["page_mismatches"], 1, "{volume}");
    // A server on it is refused, with the reason, also after a restart of the node.
    let error = setup.server.start().unwrap_err().to_string();
    assert!(error.contains("differs"), "{error}");
    setup.node.stop().unwrap();
    setup.node.start().unwrap();
    assert_eq!(setup.volume()["state"], "unusable", "{}", setup.volume());
    let error = setup.server.start().unwrap_err().to_string();
    assert!(error.contains("could not be opened") && error.contains("differs"), "{error}");
}
