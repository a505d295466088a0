//! Imports of a killed server's files: they lack changes of pages that were freed while they were dirty.

use super::client::{ControlClient, LogClient, PageClient};
use super::encoder::MtrWriter;
use super::protocol::FIRST_LSN;
use super::running::{LocalNode, SMALL, options};
use redoubt_page::{SpaceFlags, finalize, layout};
use redoubt_redo::mariadb::LogHeader;
use redoubt_redo::{Lsn, mysql};
use redoubt_wire::control::{
    ImportedLogFile, KIND_DATA, KIND_JSON, Reply, Request, encode_data, encode_json,
};

const FLAGS: SpaceFlags = SpaceFlags(0x15);
const PAGE_LEN: usize = 16_384;
const PAGES: usize = 8;
/// DELETE_ROW_FORMAT_DYNAMIC of a record at 100: nothing that a page without index records takes.
const DELETE: [u8; 4] = [9, 100, 5, 6];

/// A tablespace file with only page 0 written.
fn file(space: u32) -> Vec<u8> {
    let mut bytes = vec![0; PAGES * PAGE_LEN];
    let page0 = &mut bytes[..PAGE_LEN];
    page0[34..38].copy_from_slice(&space.to_be_bytes());
    page0[54..58].copy_from_slice(&FLAGS.0.to_be_bytes());
    assert!(layout::set_page_lsn(page0, FIRST_LSN));
    finalize(page0, FLAGS).unwrap();
    bytes
}

fn upload(control: &mut ControlClient, request: &Request, bytes: &[u8]) {
    control.send(KIND_JSON, &encode_json(request).unwrap()).unwrap();
    for (number, piece) in bytes.chunks(64 << 10).enumerate() {
        control.send(KIND_DATA, &encode_data((number * (64 << 10)) as u64, piece)).unwrap();
    }
    control.send(KIND_DATA, &[]).unwrap();
    let reply = control.reply().unwrap();
    assert!(matches!(reply, Reply::Done), "{reply:?}");
}

/// Imports tablespaces 5 and 6, and redo, as volume `i`.
fn import(node: &LocalNode, redo: &[u8]) -> Reply {
    import_of(node, redo, "test", &[])
}

/// The same; `creator` made the redo log, and `more` are files that are not tablespaces, or the system tablespace.
fn import_of(node: &LocalNode, redo: &[u8], creator: &str, more: &[(&str, &[u8])]) -> Reply {
    let mut control = ControlClient::connect(node.address).unwrap();
    let system_files = vec![("ibdata1".to_owned(), 0)];
    let begin = Request::ImportBegin {
        volume: "i".to_owned(),
        family: "MariaDB".to_owned(),
        system_files,
        encrypted: false,
    };
    assert!(matches!(control.ask(&begin).unwrap(), Reply::Done));
    for space in [5, 6] {
        let bytes = file(space);
        let (path, len_bytes) = (format!("t{space}.ibd"), bytes.len() as u64);
        let request = Request::ImportFile { path, mode: 0o660, len_bytes, tablespace: true };
        upload(&mut control, &request, &bytes);
    }
    for (path, bytes) in more {
        let (len_bytes, tablespace) = (bytes.len() as u64, *path == "ibdata1");
        let request = Request::ImportFile { path: (*path).to_owned(), mode: 0o660, len_bytes, tablespace };
        upload(&mut control, &request, bytes);
    }
    let log = Request::ImportLog {
        file_size_bytes: 12_288 + (16 << 20),
        header: LogHeader { first_lsn: FIRST_LSN, creator: creator.as_bytes().to_vec() }.build().to_vec(),
        checkpoints: [vec![0; 64], vec![0; 64]],
        start_lsn: FIRST_LSN.0,
    };
    upload(&mut control, &log, redo);
    control.ask(&Request::ImportEnd).unwrap()
}

fn mtr(fill: impl FnOnce(&mut MtrWriter)) -> Vec<u8> {
    let mut writer = MtrWriter::new();
    fill(&mut writer);
    writer.finish(1)
}

/// Redo of many tables of the index, for page 7 of tablespace 5.
fn much_redo() -> Vec<u8> {
    let one = |n: u32| mtr(|mtr| _ = mtr.init((5, 7)).write_absolute((5, 7), 100, &[n as u8; 1000]));
    (0..400).flat_map(one).collect()
}

#[test]
fn redo_of_pages_that_were_freed_while_dirty_is_left_out_also_across_tables() {
    let delete = |page| mtr(|mtr| _ = mtr.extended(page, &DELETE));
    // Redo that makes the first record of the page void, long after it.
    let resets = [
        ((5, 4), mtr(|mtr| _ = mtr.free((5, 4)))),
        ((5, 4), mtr(|mtr| _ = mtr.write((5, 4), 3, &[1]).free((5, 4)))),
        ((5, 4), mtr(|mtr| _ = mtr.init((5, 4)).write_absolute((5, 4), 100, b"new"))),
        ((6, 4), mtr(|mtr| _ = mtr.file(0x90, 6, b"./t6.ibd"))),
        (
            (6, 4),
            mtr(|mtr| _ = mtr.trim((6, 640)).init((6, 0)).write_absolute((6, 0), 54, &FLAGS.0.to_be_bytes())),
        ),
        // Its file is gone, so the format of its pages is unknown.
        ((7, 4), mtr(|mtr| _ = mtr.file(0x90, 7, b"./t7.ibd"))),
    ];
    for (page, reset) in resets {
        let directory = tempfile::tempdir().unwrap();
        let node = LocalNode::open(&options(directory.path(), SMALL));
        let redo = [delete(page), much_redo(), reset, much_redo()].concat();
        let reply = import(&node, &redo);
        assert!(matches!(reply, Reply::Done), "{page:?}: {reply:?}");
        let mut control = ControlClient::connect(node.address).unwrap();
        assert_eq!(control.status().a_lsn, FIRST_LSN.0 + redo.len() as u64, "not all was applied");
        drop(control);
        // The next start has only the stored pages and later redo.
        node.stop();
        let node = LocalNode::open(&options(directory.path(), SMALL));
        let mut control = ControlClient::connect(node.address).unwrap();
        let generation = control.attach("i").generation;
        let log = LogClient::connect(node.address, "i", generation, 1, 0).unwrap();
        let need = log.welcome.next_seq.0;
        let mut pages = PageClient::connect(node.address, "i", generation).unwrap();
        let file = pages.open(need, "t5.ibd").unwrap().unwrap();
        let bytes = pages.read(need, file, 7 * PAGE_LEN as u64, PAGE_LEN as u32).unwrap();
        assert!(bytes[100..1100] == [(399 % 256) as u8; 1000], "{:?}", &bytes[100..130]);
    }
}

/// Nothing voids it: a log that does not fit its files is refused, and nothing of the volume stays.
#[test]
fn redo_that_fits_nothing_and_counts_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let node = LocalNode::open(&options(directory.path(), SMALL));
    let other = mtr(|mtr| _ = mtr.free((5, 5)));
    let redo = [mtr(|mtr| _ = mtr.extended((5, 4), &DELETE)), much_redo(), other].concat();
    let reply = import(&node, &redo);
    assert!(
        matches!(&reply, Reply::Failed { message, .. } if message.contains("not an index page")),
        "{reply:?}"
    );
    assert!(!directory.path().join("volumes/i").exists());
}

/// A command whose source was refused ends; the same command with another source follows at once.
#[test]
fn the_name_of_an_import_that_was_given_up_is_free_for_who_comes_next() {
    let directory = tempfile::tempdir().unwrap();
    let node = LocalNode::open(&options(directory.path(), SMALL));
    for number in 0..50 {
        let volume = format!("i{number}");
        let mut first = ControlClient::connect(node.address).unwrap();
        let system_files = vec![("ibdata1".to_owned(), 0)];
        let begin = Request::ImportBegin {
            volume: volume.clone(),
            family: "MariaDB".to_owned(),
            system_files,
            encrypted: false,
        };
        assert!(matches!(first.ask(&begin).unwrap(), Reply::Done));
        let mut second = ControlClient::connect(node.address).unwrap();
        drop(first);
        assert!(matches!(second.ask(&begin).unwrap(), Reply::Done), "{volume}");
    }
    node.stop();
}

/// All changes of the MySQL server were in its files when it was killed, and no mini-transaction starts in the block
/// with its checkpoint. So there is no redo to import, and the composed log ends where it begins.
#[test]
fn a_log_of_mysql_without_redo_is_composed() {
    let directory = tempfile::tempdir().unwrap();
    let node = LocalNode::open(&options(directory.path(), SMALL));
    let mut control = ControlClient::connect(node.address).unwrap();
    let begin = Request::ImportBegin {
        volume: "i".to_owned(),
        family: "MySQL".to_owned(),
        system_files: vec![("ibdata1".to_owned(), 0)],
        encrypted: false,
    };
    assert!(matches!(control.ask(&begin).unwrap(), Reply::Done));
    let (start, checkpoint) = (16 * 512, Lsn(100 * 496));
    let header = mysql::LogFileHeader {
        set_id: 7,
        start_lsn: start,
        creator: b"MySQL 9.7.4".to_vec(),
        flags: mysql::LogFlags::default(),
    };
    let path = "#innodb_redo/#ib_redo3".to_owned();
    let slot = mysql::CheckpointSlot::First.offset();
    let checkpoint_block = mysql::log_file::build_checkpoint(mysql::server_lsn(checkpoint)).to_vec();
    let log = Request::ImportLogSet {
        files: vec![ImportedLogFile {
            path: path.clone(),
            mode: 0o640,
            len_bytes: 1 << 20,
            blocks: vec![(0, header.build().to_vec()), (slot as u32, checkpoint_block)],
        }],
        start_lsn: checkpoint.0,
    };
    upload(&mut control, &log, &[]);
    let reply = control.ask(&Request::ImportEnd).unwrap();
    assert!(matches!(reply, Reply::Done), "{reply:?}");

    assert_eq!(control.status().newest_server, Some("MySQL 9.7.4".parse().unwrap()));

    let reply = control.ask(&Request::ExportBegin { volume: "i".to_owned() }).unwrap();
    assert!(matches!(reply, Reply::Attached(_)), "{reply:?}");
    let file =
        control.file(&Request::ExportFile { volume: "i".to_owned(), path, with_damaged: false }).unwrap();
    let block_lsn = mysql::position::block_start(checkpoint);
    let first = (mysql::log_file::FILE_HEADER_BYTES + block_lsn - start) as usize;
    let block = mysql::Block::parse(file[first..].first_chunk().unwrap(), block_lsn).unwrap();
    assert_eq!((block.start, block.payload.len()), (checkpoint, 0));
    assert_eq!(block.first_group, Some(checkpoint), "where the server goes on");
    node.stop();
}

/// A system tablespace. Its change buffer has been removed, or is empty, or its root was never written.
fn system_tablespace(root: Option<&[u8; 16]>) -> Vec<u8> {
    let mut bytes = file(0);
    if let Some(free_list) = root {
        let page = &mut bytes[4 * PAGE_LEN..5 * PAGE_LEN];
        page[4..8].copy_from_slice(&4_u32.to_be_bytes());
        page[74..90].copy_from_slice(free_list);
        assert!(layout::set_page_lsn(page, FIRST_LSN));
        finalize(page, FLAGS).unwrap();
    }
    bytes
}

#[test]
fn import_notes_the_newest_server_that_its_source_shows() {
    const EMPTY: [u8; 16] = [0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 255, 255, 255, 255, 0, 0];
    let removed = system_tablespace(Some(&[0; 16]));
    let (empty, unwritten) = (system_tablespace(Some(&EMPTY)), system_tablespace(None));
    let upgraded: (&str, &[u8]) = ("mariadb_upgrade_info", b"11.4.7-MariaDB\n");
    for (creator, more, newest) in [
        ("MariaDB 11.8.9", &[][..], Some("MariaDB 11.8.9")),
        ("Backup 11.8.9-MariaDB-log", &[], Some("MariaDB 11.8.9")),
        ("MariaDB 10.11.19", &[upgraded], Some("MariaDB 11.4.7")),
        ("MariaDB 11.8.9", &[("mysql_upgrade_info", b"10.11.19-MariaDB")], Some("MariaDB 11.8.9")),
        ("MariaDB 10.11.19", &[("ibdata1", &removed)], Some("MariaDB 11.0.0")),
        ("MariaDB 10.11.19", &[("ibdata1", &empty)], Some("MariaDB 10.11.19")),
        ("MariaDB 10.11.19", &[("ibdata1", &unwritten)], Some("MariaDB 10.11.19")),
        ("test", &[("d/mariadb_upgrade_info", b"11.8.9-MariaDB")], None),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let node = LocalNode::open(&options(directory.path(), SMALL));
        let reply = import_of(&node, &much_redo(), creator, more);
        assert!(matches!(reply, Reply::Done), "{creator}: {reply:?}");
        let mut control = ControlClient::connect(node.address).unwrap();
        let newest: Option<redoubt_wire::ServerVersion> = newest.map(|newest| newest.parse().unwrap());
        assert_eq!(control.status().newest_server, newest, "{creator}");
        let older = Request::Attach {
            volume: "i".to_owned(),
            who: "the test".to_owned(),
            server: Some("MariaDB 10.11.19".parse().unwrap()),
            seen_generation: None,
        };
        let is_refused = matches!(control.ask(&older).unwrap(), Reply::Failed { .. });
        assert_eq!(is_refused, newest.is_some_and(|newest| newest.major == 11), "{creator}");
        drop(control);
        node.stop();
    }
}
