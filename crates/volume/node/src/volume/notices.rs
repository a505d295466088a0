//! The path from a volume to its server: the connection for notices, if there is one.
//!
//! Any thread may send. A connection that fails is closed, which ends the server's log connection as well: the server
//! then connects again.
//!
//! Lock order: line, then writer. The line's lock is never held while a notice is written.

use redoubt_sync::Mutex;
use redoubt_transport::Connection;
use redoubt_wire::HEADER_LEN_BYTES;
use redoubt_wire::notice::Notice;
use std::sync::Arc;

/// Sends notices; their position counts from 0 per connection.
pub struct NoticeWriter {
    stream: Arc<dyn Connection>,
    position: u64,
}

impl NoticeWriter {
    /// A writer to a new connection.
    pub fn new(stream: &Arc<dyn Connection>) -> Self {
        Self { stream: Arc::clone(stream), position: 0 }
    }

    /// Sends one; an error means that the connection is gone, which its reader notices too.
    pub fn send(&mut self, notice: &Notice) {
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
