use super::*;
use crate::home::Folder;
use crate::options::NodeOptions;
use redoubt_redo::Lsn;
use std::path::Path;

fn point(seq: u64) -> Point {
    Point { seq: Seq(seq), lsn: Lsn(seq * 100) }
}

fn cover(found: Option<Point>) -> Cover {
    let directory = tempfile::tempdir().unwrap();
    let own = Folder::open(directory.path()).unwrap();
    let options = NodeOptions::new(Path::new("unused").to_owned(), "127.0.0.1:0".to_owned());
    Cover::found(&Arc::new(Context::new("v", own, &options)), found)
}

#[test]
fn cover_is_unknown_where_the_log_does_not_reach() {
    let retention = Retention::default();
    [point(50), point(100), point(1000)].into_iter().for_each(|start| retention.begin(start));
    let batch = AppliedBatch { start: point(2000), applied: point(3000), kept_from: point(100) };
    let of = |found: Option<u64>, oldest| cover(found.map(point)).of(oldest, &retention, &batch);
    assert_eq!(of(None, None), Some(point(3000)), "files lack nothing");
    assert_eq!(of(Some(200), Some(UNKNOWN_ORIGIN)), None);
    for (found, is_known) in [(None, false), (Some(99), false), (Some(100), true), (Some(101), true)] {
        let expected = found.filter(|_| is_known).map(point);
        assert_eq!(of(found, Some(FOUND_ORIGIN)), expected, "{found:?}");
    }
    for (oldest, expected) in [(99, None), (100, Some(100)), (999, Some(100)), (1000, Some(1000))] {
        assert_eq!(of(None, Some(oldest)), expected.map(point), "{oldest}");
    }
    // A remembered position before the log that is kept does not count.
    let batch = AppliedBatch { kept_from: point(75), ..batch };
    assert_eq!(cover(None).of(Some(80), &retention, &batch), Some(point(75)));
}
