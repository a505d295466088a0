use super::*;
use crate::memory::MemoryBudget;
use redoubt_redo::Lsn;

const LONG: Duration = Duration::from_secs(600);

fn chunk(start: u64, len: usize, logged: bool) -> Chunk {
    let end = if logged { start + len as u64 } else { start };
    Chunk {
        kind: 1,
        logged,
        start: Point { seq: Seq(start), lsn: Lsn(start) },
        end: Point { seq: Seq(end), lsn: Lsn(end) },
        wire: vec![0; len],
        raw: None,
    }
}

#[test]
fn both_readers_see_every_frame_in_order_and_the_writer_only_logged_ones() {
    let buffer = LogBuffer::new(1000, Point::default(), &Arc::new(VolumeMemory::unbounded()));
    assert!(matches!(buffer.push(chunk(0, 10, true), LONG), Pushed::Yes));
    assert!(matches!(buffer.push(chunk(10, 5, false), LONG), Pushed::Yes));
    assert!(matches!(buffer.push(chunk(10, 20, true), LONG), Pushed::Yes));
    let written: Vec<_> = buffer.take_for_device().iter().map(|c| c.end.seq.0).collect();
    assert_eq!(written, [10, 30]);
    let Next::Chunks(parsed) = buffer.take_for_parser(Instant::now()) else { panic!("frames expected") };
    assert_eq!(parsed.iter().map(|c| c.logged).collect::<Vec<_>>(), [true, false, true]);
    assert!(matches!(buffer.take_for_parser(Instant::now()), Next::Idle));
}

#[test]
fn a_full_ring_holds_the_receiver_until_something_is_applied() {
    let buffer = Arc::new(LogBuffer::new(100, Point::default(), &Arc::new(VolumeMemory::unbounded())));
    assert!(matches!(buffer.push(chunk(0, 100, true), LONG), Pushed::Yes));
    assert_eq!(buffer.waits_for(), Some(Stage::Device));
    buffer.set_durable(Seq(100));
    assert_eq!(buffer.waits_for(), Some(Stage::Parser));
    buffer.set_parsed(Seq(100));
    assert_eq!(buffer.waits_for(), Some(Stage::Apply));
    let receiver = {
        let buffer = Arc::clone(&buffer);
        std::thread::spawn(move || buffer.push(chunk(100, 10, true), LONG))
    };
    redoubt_test_support::wait::until("a receiver that waits for room", || {
        buffer.state.lock().waiting.is_some_and(|(stage, _)| stage == Stage::Apply)
    });
    assert_eq!(buffer.received().seq, Seq(100), "nothing was appended");
    buffer.set_applied(Seq(60));
    assert!(matches!(receiver.join().unwrap(), Pushed::Yes));
    assert_eq!(buffer.received().seq, Seq(110));
}

#[test]
fn closing_lets_everyone_go() {
    let buffer = LogBuffer::new(10, Point::default(), &Arc::new(VolumeMemory::unbounded()));
    assert!(matches!(buffer.push(chunk(0, 10, true), LONG), Pushed::Yes));
    buffer.close();
    assert!(matches!(buffer.push(chunk(10, 10, true), LONG), Pushed::Closed));
    assert!(buffer.take_for_device().is_empty() && !buffer.wait_for_device_work());
    assert!(matches!(buffer.take_for_parser(Instant::now()), Next::Closed));
}

fn unlogged(at: u64, memory: usize) -> Chunk {
    Chunk { raw: Some(vec![0; memory]), ..chunk(at, 8, false) }
}

#[test]
fn a_frame_longer_than_the_ring_asks_the_parser_to_close_its_table() {
    let buffer = Arc::new(LogBuffer::new(1000, Point::default(), &Arc::new(VolumeMemory::unbounded())));
    assert!(matches!(buffer.push(chunk(0, 100, true), LONG), Pushed::Yes));
    let Next::Chunks(_) = buffer.take_for_parser(Instant::now()) else { panic!("a frame was expected") };
    let receiver = {
        let buffer = Arc::clone(&buffer);
        std::thread::spawn(move || buffer.push(chunk(100, 5000, true), LONG))
    };
    let far = Instant::now() + Duration::from_secs(60);
    assert!(matches!(buffer.take_for_parser(far), Next::RoomWanted));
    buffer.set_applied(Seq(100));
    assert!(matches!(receiver.join().unwrap(), Pushed::Yes));
    assert_eq!(buffer.used_bytes(), 5000);
}

#[test]
fn decompressed_payloads_fill_the_ring() {
    let buffer = Arc::new(LogBuffer::new(1000, Point::default(), &Arc::new(VolumeMemory::unbounded())));
    for number in 0..3 {
        let packed = Chunk { raw: Some(vec![0; 1000]), ..chunk(number * 10, 10, true) };
        assert!(matches!(buffer.push(packed, LONG), Pushed::Yes));
    }
    let receiver = {
        let buffer = Arc::clone(&buffer);
        std::thread::spawn(move || {
            buffer.push(Chunk { raw: Some(vec![0; 1000]), ..chunk(30, 10, true) }, LONG)
        })
    };
    let Next::Chunks(parsed) = buffer.take_for_parser(Instant::now()) else { panic!("frames expected") };
    assert_eq!(parsed.len(), 3);
    let far = Instant::now() + Duration::from_secs(60);
    assert!(matches!(buffer.take_for_parser(far), Next::RoomWanted));
    buffer.set_applied(Seq(30));
    assert!(matches!(receiver.join().unwrap(), Pushed::Yes));
    let (waits, [device, parser, apply]) = buffer.full_waits();
    assert_eq!(waits, 1);
    assert!(apply > Duration::ZERO && device + parser == Duration::ZERO, "{device:?} {parser:?} {apply:?}");
}

#[test]
fn unlogged_frames_wait_for_readers_that_lag() {
    let buffer = Arc::new(LogBuffer::new(1000, Point::default(), &Arc::new(VolumeMemory::unbounded())));
    let sender = {
        let buffer = Arc::clone(&buffer);
        std::thread::spawn(move || {
            (0..1000).all(|_| matches!(buffer.push(unlogged(0, 1000), LONG), Pushed::Yes))
        })
    };
    let far = Instant::now() + Duration::from_secs(60);
    let mut seen = 0;
    let writer = {
        let buffer = Arc::clone(&buffer);
        std::thread::spawn(move || {
            // Woken when there is no room.
            while buffer.wait_for_device_work() {
                assert!(buffer.take_for_device().is_empty());
            }
        })
    };
    while seen < 1000 {
        match buffer.take_for_parser(far) {
            Next::Chunks(chunks) => {
                assert!(chunks.len() <= 8, "{} frames of 1000 bytes in a ring of 1000", chunks.len());
                seen += chunks.len();
            }
            Next::RoomWanted => {}
            _ => panic!("frames expected"),
        }
    }
    assert!(sender.join().unwrap());
    buffer.close();
    writer.join().unwrap();
}

#[test]
fn whoever_waits_for_room_gets_the_frame_back_when_woken_or_out_of_patience() {
    let buffer = Arc::new(LogBuffer::new(100, Point::default(), &Arc::new(VolumeMemory::unbounded())));
    assert!(matches!(buffer.push(chunk(0, 100, true), LONG), Pushed::Yes));
    buffer.set_durable(Seq(100));
    buffer.set_parsed(Seq(100));
    let soon = Duration::from_millis(5);
    let Pushed::Full(back, Stage::Apply) = buffer.push(chunk(100, 10, true), soon) else {
        panic!("there is room")
    };
    assert_eq!(back.end.seq, Seq(110));
    let receiver = {
        let buffer = Arc::clone(&buffer);
        std::thread::spawn(move || buffer.push(back, LONG))
    };
    redoubt_test_support::wait::until("the end of the wait for room", || {
        buffer.wake_waiting();
        receiver.is_finished()
    });
    let Pushed::Full(back, Stage::Apply) = receiver.join().unwrap() else {
        panic!("it did not end its wait")
    };
    assert_eq!(buffer.received().seq, Seq(100), "nothing was appended");
    buffer.set_applied(Seq(100));
    assert!(matches!(buffer.push(back, LONG), Pushed::Yes));
}

#[test]
fn volumes_share_the_memory_of_their_node_and_none_starves() {
    let budget = Arc::new(MemoryBudget::new(4000));
    let volume = || Arc::new(VolumeMemory::new(&budget));
    let (first_memory, second_memory) = (volume(), volume());
    let first = LogBuffer::new(100_000, Point::default(), &first_memory);
    let second = LogBuffer::new(100_000, Point::default(), &second_memory);
    let soon = Duration::from_millis(1);
    for number in 0..3 {
        assert!(matches!(first.push(chunk(number * 1000, 1000, true), soon), Pushed::Yes));
    }
    assert!(matches!(first.push(chunk(3000, 1000, true), soon), Pushed::Full(_, _)));
    // The second volume has nothing unapplied: it gets one frame in, and no more.
    assert!(matches!(second.push(chunk(0, 1000, true), soon), Pushed::Yes));
    assert!(matches!(second.push(chunk(1000, 1000, true), soon), Pushed::Full(_, _)));
    // The index counts as the frames do.
    first.set_applied(Seq(3000));
    first_memory.add(3000);
    assert!(matches!(second.push(chunk(1000, 1000, true), soon), Pushed::Full(_, _)));
    first_memory.remove(3000);
    assert!(matches!(second.push(chunk(1000, 1000, true), soon), Pushed::Yes));
    let kept_bytes = second_memory.used_bytes();
    assert!(kept_bytes > 2000 && budget.used_bytes() == kept_bytes, "{kept_bytes}, {}", budget.used_bytes());
    drop((second, second_memory));
    assert_eq!(budget.used_bytes(), 0, "a volume that is closed keeps nothing");
}
