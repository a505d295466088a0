use super::*;
use crate::mariadb::test_encoder::MtrWriter;
use crate::mariadb::{SequenceRule, walk_mtrs};

/// The resets of these mini-transactions, and where each starts.
fn resets(mtrs: &[MtrWriter]) -> (LastResets, Vec<Lsn>) {
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    for mtr in mtrs {
        starts.push(Lsn(1000 + bytes.len() as u64));
        bytes.extend(mtr.finish(1));
    }
    let mut resets = LastResets::default();
    walk_mtrs(&bytes, Lsn(1000), SequenceRule::Any, &mut resets).unwrap();
    (resets, starts)
}

fn mtr(fill: impl FnOnce(&mut MtrWriter)) -> MtrWriter {
    let mut writer = MtrWriter::new();
    fill(&mut writer);
    writer
}

#[test]
fn what_is_before_the_last_init_or_free_of_a_page_is_void() {
    let page = PageId::new(7, 40);
    let write = || mtr(|mtr| _ = mtr.write((7, 40), 100, &[1]));
    let free = || mtr(|mtr| _ = mtr.write((7, 40), 100, &[1]).free((7, 40)));
    let init = || mtr(|mtr| _ = mtr.init((7, 40)));
    let again = || mtr(|mtr| _ = mtr.free((7, 40)).init((7, 40)));
    for (last, is_void) in [(free(), true), (init(), false), (again(), false)] {
        let (resets, starts) = resets(&[write(), init(), write(), last, write()]);
        let void: Vec<_> = starts.iter().map(|start| resets.void_page(page, *start)).collect();
        assert_eq!(void, [true, true, true, is_void, false]);
        assert!(resets.starts_anew(page));
        assert!(!resets.void_page(PageId::new(7, 41), starts[0]) && !resets.starts_anew(PageId::new(7, 41)));
    }
    assert!(!resets(&[write(), write()]).0.starts_anew(page));
}

/// MySQL may have filled it without redo after that: it is not reset then.
#[test]
fn what_a_stored_page_has_is_void_and_its_init_too() {
    let page = PageId::new(7, 40);
    let write = || mtr(|mtr| _ = mtr.write((7, 40), 100, &[1]));
    let init = || mtr(|mtr| _ = mtr.init((7, 40)));
    for (stored, void, starts_anew) in [
        (1, [true, false, false, false], true),
        (2, [true, true, false, false], false),
        (3, [true, true, true, false], false),
    ] {
        let (mut resets, starts) = resets(&[write(), init(), write(), write()]);
        // The end of the mini-transaction before.
        resets.note_stored(page, starts[stored]);
        assert_eq!(
            starts.iter().map(|start| resets.void_page(page, *start)).collect::<Vec<_>>(),
            void,
            "{stored}"
        );
        assert_eq!(resets.starts_anew(page), starts_anew, "{stored}");
    }
}

#[test]
fn what_is_before_the_trim_or_the_end_of_a_tablespace_is_void() {
    let write = || mtr(|mtr| _ = mtr.write((7, 40), 100, &[1]).write((8, 40), 100, &[1]));
    let trim = || mtr(|mtr| _ = mtr.trim((7, 640)).init((7, 0)));
    let delete = || mtr(|mtr| _ = mtr.file(0x90, 7, b"./t.ibd"));
    for (last, is_trim) in [(trim(), true), (delete(), false)] {
        let (resets, starts) = resets(&[write(), last, write()]);
        let void = |space, at: usize| resets.void_space(SpaceId(space), starts[at]);
        assert_eq!([void(7, 0), void(7, 1), void(7, 2), void(8, 0)], [true, false, false, false]);
        assert!(!resets.starts_anew(PageId::new(8, 40)));
        assert_eq!(resets.starts_anew(PageId::new(7, 3)), is_trim);
    }
}

/// The file that an import reads ends there, and its pages before that are not reset.
#[test]
fn what_a_cut_of_the_system_tablespace_leaves_is_not_void() {
    let write =
        || mtr(|mtr| _ = mtr.write((0, 40), 100, &[1]).write((0, 900), 100, &[1]).write((0, 700), 100, &[1]));
    let cut =
        |pages| mtr(|mtr| _ = mtr.write((0, 40), 100, &[1]).write((0, 900), 100, &[1]).trim((0, pages)));
    let (resets, starts) = resets(&[write(), cut(640), write(), cut(768), write()]);
    let void =
        |page_no| starts.iter().map(|start| resets.void_page(PageId::new(0, page_no), *start)).collect();
    let expected: [(u32, Vec<bool>, bool); 4] = [
        (40, vec![false; 5], false),
        (639, vec![false; 5], false),
        (700, vec![true, true, false, false, false], true),
        (900, vec![true, true, true, true, false], true),
    ];
    for (page_no, of_page, anew) in expected {
        let found: Vec<bool> = void(page_no);
        assert_eq!((found, resets.starts_anew(PageId::new(0, page_no))), (of_page, anew), "page {page_no}");
    }
    assert!(starts.iter().all(|start| !resets.void_space(SpaceId(0), *start)));
}

/// Torn pages of a file that was put there for IMPORT TABLESPACE must not become zeros.
#[test]
fn a_file_that_is_there_after_the_end_of_its_tablespace_matters() {
    let init = |page_no| mtr(|mtr| _ = mtr.init((7, page_no)));
    let delete = mtr(|mtr| _ = mtr.file(0x90, 7, b"./t.ibd"));
    let (resets, _) = resets(&[init(3), init(4), delete, init(4)]);
    assert!(!resets.starts_anew(PageId::new(7, 3)) && resets.starts_anew(PageId::new(7, 4)));
}

#[test]
fn a_name_is_of_the_tablespace_that_got_it_last() {
    let name = |kind, space, path: &'static [u8]| mtr(|mtr| _ = mtr.file(kind, space, path));
    let (resets, _) = resets(&[
        name(0xb0, 5, b"./d/alter.ibd"),
        name(0xa0, 5, b"./d/alter.ibd\0./d/t.ibd"),
        name(0x80, 6, b"./d/alter.ibd"),
    ]);
    let last = |space, path: &[u8]| resets.is_file_of(SpaceId(space), path, |_| true);
    assert!(last(5, b"./d/t.ibd") && last(6, b"./d/alter.ibd") && !last(5, b"./d/alter.ibd"));
}

#[test]
fn a_tablespace_has_the_file_with_the_last_of_its_names_that_is_there() {
    let name = |kind, path: &'static [u8]| mtr(|mtr| _ = mtr.file(kind, 5, path));
    let (resets, _) = resets(&[
        name(0xb0, b"./d/t.ibd"),
        name(0xa0, b"./d/t.ibd\0./d/aside.ibd"),
        name(0xb0, b"./d/t.ibd"),
        name(0xa0, b"./d/t.ibd\0./d/old.ibd"),
    ]);
    let files = |there: &[&[u8]]| {
        let names: [&[u8]; 3] = [b"./d/t.ibd", b"./d/aside.ibd", b"./d/old.ibd"];
        names.map(|path| resets.is_file_of(SpaceId(5), path, |name| there.contains(&name)))
    };
    assert_eq!(files(&[b"./d/t.ibd", b"./d/old.ibd"]), [false, false, true]);
    assert_eq!(files(&[b"./d/t.ibd"]), [true, false, true], "the rename was not done");
    assert_eq!(files(&[b"./d/aside.ibd"]), [true, true, true]);
}
