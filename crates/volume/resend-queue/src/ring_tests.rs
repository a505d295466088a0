use super::*;
use crate::layout::{FILE_LEN_BYTES, HEAD_LEN_BYTES, head, may_keep, new_head, read};
use redoubt_wire::frame::append_frame;
use std::cell::RefCell;

const VOLUME: &str = "0123456789abcdef0123456789abcdef";

thread_local! {
    /// Every store, in order, while a test wants them.
    static STORES: RefCell<Option<Vec<(usize, u64)>>> = const { RefCell::new(None) };
}

pub(super) fn note(at: usize, value: u64) {
    STORES.with_borrow_mut(|stores| {
        if let Some(stores) = stores {
            stores.push((at, value));
        }
    });
}

fn words(area_len_bytes: u64) -> &'static [AtomicU64] {
    let mut bytes = head(VOLUME, area_len_bytes).unwrap();
    bytes.resize(HEAD_LEN_BYTES + area_len_bytes as usize, 0);
    let words: Vec<_> = bytes
        .chunks_exact(8)
        .map(|chunk| AtomicU64::new(u64::from_le_bytes(chunk.try_into().unwrap())))
        .collect();
    Vec::leak(words)
}

fn bytes(words: &[AtomicU64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
}

fn frame(position: Seq, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let payload: Vec<u8> = (0..len).map(|at| (at as u64 ^ position.0) as u8).collect();
    append_frame(&mut out, 1, position.0, &payload).unwrap();
    out
}

#[test]
fn the_longest_frame_has_room_whenever_the_library_lets_a_server_go_on() {
    assert_eq!(new_head(VOLUME).unwrap().len(), HEAD_LEN_BYTES);
    assert!(new_head("short").is_err());
    // Half of what 64 MiB in use leave.
    assert!((FILE_LEN_BYTES - HEAD_LEN_BYTES as u64 - (64 << 20)) / 2 >= (1 << 24) + 8);
}

#[test]
fn a_new_file_keeps_nothing_and_a_session_that_was_all_durable_neither() {
    let words = words(1024);
    assert_eq!(read(&bytes(words)).unwrap().kept, None);
    let file = UnsentFile::new(words);
    let mut ring = file.begin(3, 9, Seq(1000));
    assert_eq!(read(&bytes(words)).unwrap().kept, None);
    ring.push(&frame(Seq(1000), 20)).unwrap();
    let kept = read(&bytes(words)).unwrap().kept.unwrap();
    assert_eq!((kept.generation, kept.session, kept.oldest), (3, 9, Seq(1000)));
    assert_eq!((kept.sound_end, kept.end, kept.unconfirmed_bytes()), (Seq(1028), Seq(1028), 28));
    file.note_durable(Seq(1028));
    assert_eq!(read(&bytes(words)).unwrap().kept, None);
    ring.push(&frame(Seq(1028), 20)).unwrap();
    assert!(read(&bytes(words)).unwrap().kept.is_some());
    file.note_nothing_kept();
    assert_eq!(read(&bytes(words)).unwrap().kept, None);
}

/// Requires that a reader finds everything that was pushed and not trimmed. `ends`: positions before and after the
/// call; a frame that is being pushed may be there.
fn require_kept(file: &[u8], from: Seq, ends: (Seq, Seq)) {
    assert!(may_keep(&file[..HEAD_LEN_BYTES]).unwrap() || read(file).unwrap().kept.is_none());
    let Some(kept) = read(file).unwrap().kept else { return assert_eq!(from, ends.0) };
    assert_eq!(kept.sound_end, kept.end, "a kill left frames that are not whole");
    assert!(kept.end == ends.0 || kept.end == ends.1, "{kept:?} {ends:?}");
    assert!(kept.oldest <= from, "{kept:?} from {from}");
    let mut at = kept.oldest;
    for (position, range) in &kept.frames {
        assert_eq!(*position, at);
        assert_eq!(file[range.clone()], frame(at, range.len() - 8));
        at = Seq(at.0 + range.len() as u64);
    }
    assert_eq!(at, kept.end);
}

/// Random frames through a small area, killed after every single store.
#[test]
fn a_kill_between_any_two_stores_leaves_all_that_was_written_before() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let words = words(2048);
        let file = UnsentFile::new(words);
        let mut ring = file.begin(1, 1, Seq(random.u64(..1 << 50)));
        let mut durable = ring.end();
        for _ in 0..200 {
            let mut image = bytes(words);
            let (was_durable, was_end) = (durable, ring.end());
            STORES.set(Some(Vec::new()));
            if random.bool() {
                let ends: Vec<_> = ring.positions().skip(1).chain([ring.end()]).collect();
                durable = ends[random.usize(..ends.len())].max(durable);
                ring.trim(durable);
            } else {
                let new = frame(ring.end(), random.usize(0..300));
                let pushed = ring.push(&new);
                assert!(pushed.is_ok() || ring.used_bytes() + 2 * 308 > 2048, "{pushed:?}");
            }
            for (at, value) in STORES.take().unwrap_or_default() {
                image[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
                require_kept(&image, was_durable.max(durable), (was_end, ring.end()));
            }
            assert!(image == bytes(words), "a store was not noted");
            require_kept(&image, durable, (ring.end(), ring.end()));
        }
    }
}

#[test]
fn a_session_can_be_killed_while_it_begins() {
    let words = words(1024);
    let mut ring = UnsentFile::new(words).begin(1, 1, Seq(10));
    ring.push(&frame(Seq(10), 100)).unwrap();
    let mut image = bytes(words);
    STORES.set(Some(Vec::new()));
    // Only after everything kept was sent.
    UnsentFile::new(words).begin(2, 7, Seq(118));
    for (at, value) in STORES.take().unwrap() {
        image[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
        assert_eq!(read(&image).unwrap().kept, None);
    }
}

#[test]
fn frames_are_copied_out_as_they_went_in() {
    let mut ring = UnsentFile::new(words(4096)).begin(1, 1, Seq(5));
    let frames = [0, 1, 7, 8, 9, 500].map(|len| {
        let new = frame(ring.end(), len);
        ring.push(&new).unwrap();
        new
    });
    let mut out = vec![1];
    for (number, frame) in frames.iter().enumerate() {
        assert!(ring.copy(number, &mut out));
        assert_eq!(&out, frame);
    }
    assert!(!ring.copy(frames.len(), &mut out));
}

/// After a loss of power any page of the file may be as it was earlier.
#[test]
fn frames_that_are_not_whole_end_what_is_sound() {
    let words = words(4096);
    let mut ring = UnsentFile::new(words).begin(1, 1, Seq(0));
    for _ in 0..5 {
        ring.push(&frame(ring.end(), 92)).unwrap();
    }
    let mut image = bytes(words);
    let kept = read(&image).unwrap().kept.unwrap();
    assert_eq!((kept.frames.len(), kept.damaged_bytes()), (5, 0));
    image[HEAD_LEN_BYTES + 3 * 104 + 20] ^= 1;
    let kept = read(&image).unwrap().kept.unwrap();
    assert_eq!((kept.frames.len(), kept.sound_end, kept.damaged_bytes()), (3, Seq(300), 200));
}

#[test]
fn used_room_grows_and_is_given_back() {
    let mut ring = UnsentFile::new(words(1 << 20)).begin(1, 1, Seq(0));
    for _ in 0..1000 {
        ring.push(&frame(ring.end(), 1000)).unwrap();
    }
    assert!(ring.push(&frame(ring.end(), 100_000)).is_err());
    assert!(ring.used_bytes() >= 1_000_000);
    ring.trim(Seq(1008 * 999));
    // The last frame lies at the end of the area; the next ones go in front of it.
    assert_eq!(ring.used_bytes(), 1008);
    for _ in 0..900 {
        ring.push(&frame(ring.end(), 1000)).unwrap();
    }
    ring.trim(ring.end());
    assert_eq!(ring.used_bytes(), 0);
}
