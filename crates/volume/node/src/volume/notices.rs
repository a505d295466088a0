//! The path from a volume to its server: the connection for notices, if there is one.
//!
//! Any thread may send. A connection that fails is closed, which ends the server's log connection as well: the server
//! then connects again.
//!
//! Lock order: line, then writer. The line's lock is never held while a notice is written.

use redoubt_sync::Mutex;
use redoubt_transport::Connection;
use redoubt_wire::HEADER_LEN_BYTES;
use redoubt_wire::greeting::Features;
use redoubt_wire::notice::Notice;
use std::sync::Arc;

/// Sends notices; their position counts from 0 per connection.
pub struct NoticeWriter {
    stream: Arc<dyn Connection>,
    features: Features,
    position: u64,
}

impl NoticeWriter {
    /// A writer to a new connection, whose peer has these features.
    pub fn new(stream: &Arc<dyn Connection>, features: Features) -> Self {
        Self { stream: Arc::clone(stream), features, position: 0 }
    }

    /// Sends one, unless the peer does not know it; an error means that the connection is gone, which its reader notices too.
    pub fn send(&mut self, notice: &Notice) {
        if !self.features.contains(notice.needs()) {
            return;
        }
        let (kind, payload) = notice.encode();
        let mut frame = Vec::with_capacity(HEADER_LEN_BYTES + payload.len());
        if redoubt_wire::frame::append_frame(&mut frame, kind, self.position, &payload).is_ok()
            && self.stream.write_all(&frame).is_err()
        {
            // Its reader must notice. Frames that the server sent on its log connection still count.
            self.stream.shutdown();
        }
        self.position += 1;
    }
}

/// The connection for notices. It ends when this is dropped.
struct Line {
    stream: Arc<dyn Connection>,
    writer: Arc<Mutex<NoticeWriter>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stream.shutdown();
    }
}

/// The path from a volume to its server: the connection for notices, if there is one.
#[derive(Default)]
pub struct Notices(Mutex<Option<Line>>);

impl Notices {
    /// Sends a notice to the server, if one is connected.
    pub fn send(&self, notice: &Notice) {
        let writer = self.0.lock().as_ref().map(|line| Arc::clone(&line.writer));
        if let Some(writer) = writer {
            writer.lock().send(notice);
        }
    }

    /// From now on notices go through `writer` to `stream`. The connection before it is ended.
    pub fn connect(&self, stream: &Arc<dyn Connection>, writer: &Arc<Mutex<NoticeWriter>>) {
        let line = Line { stream: Arc::clone(stream), writer: Arc::clone(writer) };
        let before = self.0.lock().replace(line);
        drop(before);
    }

    /// Ends the connection, if there is one.
    pub fn disconnect(&self) {
        let before = self.0.lock().take();
        drop(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_transport::{Identity, Written};
    use redoubt_wire::FrameHeader;
    use redoubt_wire::greeting::{DAMAGED_PAGES, UNKNOWN_FILES};
    use std::io::Result;
    use std::time::Duration;

    /// Keeps the written frames.
    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<Vec<u8>>>);

    impl Connection for Kept {
        fn read(&self, _: &mut [u8]) -> Result<usize> {
            Ok(0)
        }
        fn write_all(&self, bytes: &[u8]) -> Result<()> {
            self.0.lock().push(bytes.to_vec());
            Ok(())
        }
        fn write_now(&self, _: &[u8]) -> Result<Written> {
            Ok(Written::All)
        }
        fn shutdown(&self) {}
        fn set_read_timeout(&self, _: Option<Duration>) -> Result<()> {
            Ok(())
        }
        fn set_write_timeout(&self, _: Option<Duration>) -> Result<()> {
            Ok(())
        }
        fn set_deadline(&self, _: Option<Duration>) -> Result<()> {
            Ok(())
        }
        fn peer(&self) -> &str {
            "kept"
        }
        fn identity(&self) -> &Identity {
            &Identity::Unproven
        }
    }

    #[test]
    fn peer_without_the_feature_does_not_get_the_notice() {
        let want = Notice::WantImage { path: b"d/t.ibd".to_vec(), page_no: 3 };
        let unknown = Notice::UnknownFile { path: b"d/t.MYD".to_vec() };
        let other = Notice::Trace { one_in: 7 };
        for (features, expected) in [
            (Features::NONE, vec![&other]),
            (Features::NONE.with(DAMAGED_PAGES), vec![&want, &other]),
            (Features::NONE.with(UNKNOWN_FILES), vec![&unknown, &other]),
        ] {
            let kept = Arc::new(Kept::default());
            let stream: Arc<dyn Connection> = Arc::<Kept>::clone(&kept);
            let mut writer = NoticeWriter::new(&stream, features);
            writer.send(&want);
            writer.send(&unknown);
            writer.send(&other);
            let frames = kept.0.lock().clone();
            assert_eq!(frames.len(), expected.len());
            for ((frame, notice), position) in frames.iter().zip(expected).zip(0..) {
                let (head, payload) = frame.split_first_chunk().unwrap();
                let header = FrameHeader::decode(head);
                // Positions have no gap.
                header.check(position, payload).unwrap();
                assert_eq!(Notice::decode(header.kind, payload).unwrap(), *notice);
            }
        }
    }
}
