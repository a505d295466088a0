use super::*;

#[test]
fn shares_leave_descriptors_for_the_rest() {
    for limit in [256, 1024, 4096, 65_536, 1 << 20, usize::MAX] {
        let shares = [
            share(limit, CONNECTION_PARTS, MOST_CONNECTIONS),
            share(limit, FILE_PARTS, MOST_OPEN_FILES),
            share(limit, GREETING_PARTS, MOST_GREETING),
        ];
        assert!(shares.iter().sum::<usize>() <= limit / PARTS * (PARTS - 1), "{limit}: {shares:?}");
    }
    for (open_files, expected) in [(SMALLEST_SHARE, 2), (256, 32), (512, 64), (MOST_OPEN_FILES, 64)] {
        assert_eq!(idle_volumes(open_files), expected, "{open_files}");
    }
    assert_eq!(share(1024, CONNECTION_PARTS, MOST_CONNECTIONS), 512);
    assert_eq!(share(1024, FILE_PARTS, MOST_OPEN_FILES), 256);
    assert_eq!(share(65_536, FILE_PARTS, MOST_OPEN_FILES), MOST_OPEN_FILES);
}
