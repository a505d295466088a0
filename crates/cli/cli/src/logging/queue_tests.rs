//! The queue with real pipes: read, full, and closed.

use super::*;
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::sync::mpsc;

/// Guards against a hang.
const PATIENCE: Duration = Duration::from_secs(60);

fn with_pipe() -> (Queue, PipeReader, mpsc::Receiver<u64>) {
    let (reader, writer) = io::pipe().unwrap();
    let (reports, reported) = mpsc::channel();
    let queue = Queue::start(writer, move |lines| reports.send(lines).unwrap()).unwrap();
    (queue, reader, reported)
}

#[test]
fn lines_are_written_in_their_order() {
    let (queue, reader, _reported) = with_pipe();
    for n in 0..100 {
        queue.push(format!("line {n}\n").as_bytes());
    }
    queue.flush(PATIENCE);
    let lines: Vec<_> = BufReader::new(reader).lines().take(100).map(Result::unwrap).collect();
    assert!(lines.iter().enumerate().all(|(n, line)| *line == format!("line {n}")), "{lines:?}");
}

#[test]
fn lines_beyond_the_limit_are_dropped_and_counted() {
    let (queue, mut reader, reported) = with_pipe();
    // More than the pipe, the thread and the queue hold together, without a reader.
    let line = [b"x".repeat(999), vec![b'\n']].concat();
    // More than the pipe holds: the thread waits with it, and takes no other line.
    let plug = [b"p".repeat((128 << 10) - 1), vec![b'\n']].concat();
    queue.push(&plug);
    let taken = Instant::now() + PATIENCE;
    while !queue.0.lock().lines.is_empty() {
        assert!(Instant::now() < taken, "the thread takes no line");
        std::thread::yield_now();
    }
    let pushed = 4 * MAX_QUEUED_BYTES / line.len();
    for _ in 0..pushed {
        queue.push(&line);
    }
    queue.flush(Duration::ZERO);
    let dropped = queue.0.lock().dropped_lines as usize;
    assert!(dropped > MAX_QUEUED_BYTES / line.len(), "{dropped} of {pushed}");

    let mut read = vec![0; plug.len()];
    reader.read_exact(&mut read).unwrap();
    assert_eq!(read, plug);
    let mut read = vec![0; (pushed - dropped) * line.len()];
    reader.read_exact(&mut read).unwrap();
    assert!(read.chunks(line.len()).all(|found| found == line), "every line that was written is whole");
    let mut counted = 0;
    while counted < dropped {
        counted += reported.recv_timeout(PATIENCE).unwrap() as usize;
    }
    assert_eq!(counted, dropped);
    queue.push(b"after it\n");
    let mut after = String::new();
    BufReader::new(reader).read_line(&mut after).unwrap();
    assert_eq!(after, "after it\n");
}

#[test]
fn log_without_a_reader_ends_nothing() {
    let (queue, reader, _reported) = with_pipe();
    drop(reader);
    for _ in 0..3 {
        queue.push(b"unheard\n");
        queue.flush(PATIENCE);
    }
    assert!(queue.0.lock().lines.is_empty());
}
