//! Page files that were cut while the page journal has some of their pages.

use super::encoder::MtrWriter;
use super::protocol::changed;
use super::quarantine::{OTHER_PAGE, start};
use super::rescue::{PAGE_LEN, PAGE_NO, Prepared, prepare};
use super::stored_files::quarantined_at_start;
use redoubt_pagestore::PageProtection;
use redoubt_redo::mariadb::CheckpointBlock;
use redoubt_wire::Seq;
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::{FileKind, StreamFrame, SystemFile};
use std::os::unix::fs::FileExt;

fn set_protection(prepared: &mut Prepared, protection: PageProtection) {
    prepared.options.pages.protection = Some(protection);
    prepared.options.pages.pretend_atomic = protection == PageProtection::Atomic;
}

/// Changes the last page, and stops the node when that is applied.
pub fn change(prepared: &mut Prepared, session: u64) {
    let mut running = start(prepared, session);
    let wire = prepared.stream.change(OTHER_PAGE, b"changed");
    running.send(&prepared.stream, &wire);
    running.control.wait_applied(prepared.stream.lsn.0);
    running.stop();
}

#[test]
fn cut_page_file_is_noticed_though_the_journal_has_its_end() {
    for protection in [PageProtection::Journal, PageProtection::Doublewrite] {
        let mut prepared = prepare(protection, 200);
        // All pages go home, and their file is listed.
        set_protection(&mut prepared, PageProtection::Atomic);
        change(&mut prepared, 11);
        set_protection(&mut prepared, protection);
        change(&mut prepared, 12);
        let file = std::fs::File::options().write(true).open(prepared.file()).unwrap();
        assert!(file.metadata().unwrap().len() >= u64::from(OTHER_PAGE + 1) * PAGE_LEN as u64);
        file.set_len(3 * PAGE_LEN as u64).unwrap();
        for session in [13, 14] {
            let mut running = start(&mut prepared, session);
            let status = running.wait_quarantined(3);
            let pages: Vec<_> =
                status.quarantine.iter().map(|entry| (entry.file.as_str(), entry.page_no)).collect();
            let lost = [3, 4, OTHER_PAGE + 1].map(|page_no| ("d/t.ibd", Some(page_no)));
            assert_eq!(pages, lost, "{protection}");
            // The journal has it.
            let need = prepared.stream.seq;
            assert_eq!(changed(&mut running.pages(), need, OTHER_PAGE, 7), b"changed");
            running.stop();
        }
    }
}

#[test]
fn page_file_that_is_only_in_the_journal_is_not_cut() {
    let mut prepared = prepare(PageProtection::Journal, 20);
    for session in [11, 12, 13] {
        change(&mut prepared, session);
    }
    let mut running = start(&mut prepared, 14);
    // Its names, and so the entries of its files, are complete.
    running.control.wait_applied(prepared.stream.lsn.0);
    running.wait_quarantined(0);
    running.stop();
}

#[test]
fn page_that_a_read_found_leaves_the_list_with_a_cut() {
    let mut prepared = prepare(PageProtection::Atomic, 20);
    let of_table = prepared.file();
    let mut running = start(&mut prepared, 11);
    let path = b"ibdata1";
    let set_len = |pages: u64| StreamFrame::SetLen { path, len_bytes: pages * PAGE_LEN as u64 };
    let stream = &mut prepared.stream;
    let files = vec![SystemFile { path: path.to_vec(), len_bytes: 0 }];
    let mut wire = stream.frame(&StreamFrame::SystemFiles(files));
    wire.extend(stream.frame(&StreamFrame::Create { path, kind: FileKind::Tablespace, mode: 0o660 }));
    let mut mtr = MtrWriter::new();
    mtr.init((0, 0)).write_absolute((0, 0), 54, &0x15_u32.to_be_bytes());
    mtr.init((0, 5)).write((0, 5), 100, b"first");
    wire.extend(stream.redo(&mtr));
    wire.extend(stream.frame(&set_len(8)));
    running.send(&prepared.stream, &wire);
    // The log gives up the redo from which the page could be rebuilt.
    for n in 0..200 {
        let stream = &mut prepared.stream;
        let mut wire = Vec::new();
        if n == 198 {
            let block = CheckpointBlock { checkpoint_lsn: stream.lsn, end_lsn: stream.lsn }.build();
            wire.extend(stream.frame(&StreamFrame::Checkpoint { slot: 0, block: &block }));
        }
        wire.extend(stream.change(PAGE_NO, &[n; 1000]));
        running.send(&prepared.stream, &wire);
    }
    running.control.wait_applied(prepared.stream.lsn.0);
    running.stop();
    let pages = std::fs::read_dir(of_table.parent().unwrap()).unwrap();
    let mut pages = pages.map(|entry| entry.unwrap().path());
    let is_system = |path: &std::path::PathBuf| {
        path.extension().is_some_and(|extension| extension == "pages") && *path != of_table
    };
    let file = std::fs::File::options().write(true).open(pages.find(is_system).unwrap()).unwrap();
    file.write_all_at(&[0xdb; 512], 5 * PAGE_LEN as u64 + 4096).unwrap();

    let mut running = start(&mut prepared, 12);
    let need = prepared.stream.seq;
    let mut client = running.pages();
    let file = client.open(need, "ibdata1").unwrap().unwrap();
    let (offset_bytes, len_bytes) = (5 * PAGE_LEN as u64, PAGE_LEN as u32);
    let request = PageRequest::Read { need: Seq(need), file, offset_bytes, len_bytes };
    let is_refused =
        client.ask(&request, |reply: PageReply<'_>| matches!(reply, PageReply::Failed { .. })).unwrap();
    assert!(is_refused);
    running.wait_quarantined(1);
    let mut mtr = MtrWriter::new();
    mtr.trim((0, 5));
    let stream = &mut prepared.stream;
    let wire = [stream.redo(&mtr), stream.frame(&set_len(5)), stream.change(OTHER_PAGE, b"kept")].concat();
    running.send(&prepared.stream, &wire);
    running.wait_quarantined(0);
    drop(client);
    running.stop();
}

#[test]
fn missing_file_with_pages_in_the_journal_does_not_come_back() {
    let mut prepared = prepare(PageProtection::Journal, 20);
    change(&mut prepared, 11);
    assert_eq!(quarantined_at_start(&prepared), 0);
    let file = prepared.file();
    let away = prepared.directory.path().join("away");
    std::fs::rename(&file, &away).unwrap();
    assert_eq!(quarantined_at_start(&prepared), 1);
    // The journal may have given its pages up meanwhile.
    std::fs::rename(&away, &file).unwrap();
    assert_eq!(quarantined_at_start(&prepared), 1);
}
