//! The other side of the wire protocol: the preloaded library and the `redoubt` command, as far as tests need them.

use redoubt_wire::compression::Compressor;
use redoubt_wire::control::{
    Attachment, KIND_DATA, KIND_JSON, KIND_JSON_PART, Reply, Request, decode_data, decode_json, encode_json,
};
use redoubt_wire::frame::{COMPRESSED, append_frame, decompress};
use redoubt_wire::greeting::{ANNOUNCED, ClientGreeting, Step};
use redoubt_wire::hello::{Compression, Hello, Role, Status, Welcome, decode_len};
use redoubt_wire::notice::Notice;
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::parts::PartWriter;
use redoubt_wire::stream::StreamFrame;
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES, Seq};
use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Timeout for any action of the node.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Says hello and returns the answer.
pub fn connect(address: SocketAddr, hello: &Hello) -> Result<(TcpStream, Welcome)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&hello.encode())?;
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut bytes = vec![0; decode_len(len).unwrap()];
    stream.read_exact(&mut bytes)?;
    Ok((stream, Welcome::decode(&bytes).unwrap()))
}

/// The same, with the features of this version.
pub fn connect_with_features(address: SocketAddr, hello: &Hello) -> Result<(TcpStream, Welcome)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut greeting, first) = ClientGreeting::begin(hello, ANNOUNCED);
    stream.write_all(&first)?;
    loop {
        let mut len = [0; 4];
        stream.read_exact(&mut len)?;
        let mut bytes = vec![0; decode_len(len).unwrap()];
        stream.read_exact(&mut bytes)?;
        match greeting.receive(&bytes).unwrap() {
            Step::Send(bytes) => stream.write_all(&bytes)?,
            Step::Done(welcome, _) => return Ok((stream, welcome)),
        }
    }
}

/// A log connection is not compressed; see [`LogClient::connect_with`].
pub fn hello(role: Role, volume: &str, generation: u64, session: u64, resume: u64) -> Hello {
    Hello {
        role,
        compression: if role == Role::Page { Compression::On } else { Compression::Off },
        generation,
        session,
        resume: Seq(resume),
        volume: volume.to_owned(),
    }
}

/// A whole frame.
pub fn frame(position: u64, stream_frame: &StreamFrame<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    stream_frame.encode_payload(&mut payload);
    let mut out = Vec::new();
    append_frame(&mut out, stream_frame.kind(), position, &payload).unwrap();
    out
}

/// Reads one frame: its kind without the compression bit, and the decompressed payload.
fn read_frame(stream: &mut impl Read, position: u64) -> Result<(u8, Vec<u8>)> {
    let mut header = [0; HEADER_LEN_BYTES];
    stream.read_exact(&mut header)?;
    let header = FrameHeader::decode(&header);
    let mut payload = vec![0; header.len_bytes as usize];
    stream.read_exact(&mut payload)?;
    header.check(position, &payload).unwrap();
    if header.compressed {
        payload = decompress(&payload).unwrap();
    }
    Ok((header.kind & !COMPRESSED, payload))
}

type Greet = fn(SocketAddr, &Hello) -> Result<(TcpStream, Welcome)>;

enum Packer {
    None,
    Whole(Compressor),
    Parts(PartWriter, u32),
}

/// A log connection, and that of its notices.
pub struct LogClient {
    pub stream: TcpStream,
    packer: Packer,
    notices_stream: TcpStream,
    pub welcome: Welcome,
    notices: Receiver<Notice>,
    pub durable: u64,
}

impl LogClient {
    /// Connects; the node must accept.
    pub fn connect(
        address: SocketAddr,
        volume: &str,
        generation: u64,
        session: u64,
        resume: u64,
    ) -> Result<Self> {
        Self::connect_as(connect, address, hello(Role::Log, volume, generation, session, resume))
    }

    /// The same, with the features of this version.
    pub fn with_features(address: SocketAddr, volume: &str, generation: u64, session: u64) -> Result<Self> {
        Self::connect_as(connect_with_features, address, hello(Role::Log, volume, generation, session, 0))
    }

    /// The same; with [`Compression::On`] all that is sent is compressed, with [`Compression::Auto`] every other write.
    pub fn connect_with(
        compression: Compression,
        address: SocketAddr,
        volume: &str,
        generation: u64,
        resume: u64,
    ) -> Result<Self> {
        let as_server = Hello { compression, ..hello(Role::Log, volume, generation, 1, resume) };
        Self::connect_as(connect, address, as_server)
    }

    fn connect_as(greet: Greet, address: SocketAddr, as_server: Hello) -> Result<Self> {
        let (stream, welcome) = greet(address, &as_server)?;
        assert_eq!(welcome.status, Status::Accepted, "{}", welcome.message);
        assert_eq!(welcome.compression, as_server.compression);
        let of_notices =
            Hello { role: Role::Notices, resume: Seq(0), compression: Compression::Off, ..as_server };
        let (mut reader, answer) = greet(address, &of_notices)?;
        assert_eq!(answer.status, Status::Accepted, "{}", answer.message);
        reader.set_read_timeout(None)?;
        let notices_stream = reader.try_clone()?;
        let (send, notices) = channel();
        std::thread::spawn(move || {
            let mut position = 0;
            while let Ok((kind, payload)) = read_frame(&mut reader, position) {
                position += 1;
                if send.send(Notice::decode(kind, &payload).unwrap()).is_err() {
                    return;
                }
            }
        });
        let packer = match welcome.compression {
            Compression::Off => Packer::None,
            Compression::On => Packer::Whole(Compressor::new().unwrap()),
            Compression::Auto => Packer::Parts(PartWriter::default(), 0),
        };
        Ok(Self { stream, packer, notices_stream, welcome, notices, durable: 0 })
    }

    pub fn send(&mut self, wire: &[u8]) -> Result<()> {
        let mut packed = Vec::new();
        match &mut self.packer {
            Packer::None => packed.extend_from_slice(wire),
            Packer::Whole(compressor) => compressor.pack(wire, &mut packed).unwrap(),
            Packer::Parts(writer, writes) => {
                *writes += 1;
                writer.append(wire, writes.is_multiple_of(2), &mut packed).unwrap();
            }
        }
        self.stream.write_all(&packed)
    }

    /// Takes the notices that are here; `wanted` may end the wait.
    pub fn wait(&mut self, mut wanted: impl FnMut(&Notice, u64) -> bool) -> Option<Notice> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let notice = self.notices.recv_timeout(left).ok()?;
            if let Notice::Durable(seq) = notice {
                self.durable = self.durable.max(seq.0);
            }
            if wanted(&notice, self.durable) {
                return Some(notice);
            }
        }
    }

    /// Waits until everything before `seq` is durable. False: the connection ended first.
    pub fn wait_durable(&mut self, seq: u64) -> bool {
        self.durable >= seq || self.wait(|_, durable| durable >= seq).is_some()
    }

    /// Takes notices without waiting.
    pub fn poll(&mut self) {
        while let Ok(notice) = self.notices.try_recv() {
            if let Notice::Durable(seq) = notice {
                self.durable = self.durable.max(seq.0);
            }
        }
    }

    /// The node closed the connection (all notices before are taken).
    pub fn wait_closed(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.notices.recv_timeout(left) {
                Ok(_) => {}
                Err(error) => return error == std::sync::mpsc::RecvTimeoutError::Disconnected,
            }
        }
    }
}

impl Drop for LogClient {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.notices_stream.shutdown(std::net::Shutdown::Both);
    }
}

/// A page connection.
pub struct PageClient {
    stream: TcpStream,
    position: u64,
}

impl PageClient {
    pub fn connect(address: SocketAddr, volume: &str, generation: u64) -> Result<Self> {
        let (stream, welcome) = connect(address, &hello(Role::Page, volume, generation, 0, 0))?;
        if welcome.status != Status::Accepted {
            return Err(std::io::Error::other(welcome.message));
        }
        Ok(Self { stream, position: 0 })
    }

    pub fn ask<T>(&mut self, request: &PageRequest<'_>, take: impl FnOnce(PageReply<'_>) -> T) -> Result<T> {
        let mut payload = Vec::new();
        let kind = request.encode(&mut payload);
        let mut out = Vec::new();
        append_frame(&mut out, kind, self.position, &payload).unwrap();
        self.stream.write_all(&out)?;
        let (kind, payload) = read_frame(&mut self.stream, self.position)?;
        self.position += 1;
        Ok(take(PageReply::decode(kind, &payload).unwrap()))
    }

    /// Opens a file; `None`: there is none.
    pub fn open(&mut self, need: u64, path: &str) -> Result<Option<redoubt_wire::page::FileId>> {
        self.ask(&PageRequest::Open { need: Seq(need), path: path.as_bytes() }, |reply| match reply {
            PageReply::Opened { file, .. } => Some(file),
            PageReply::NotFound => None,
            other => panic!("open {path}: {other:?}"),
        })
    }

    /// Bytes of a file.
    pub fn read(
        &mut self,
        need: u64,
        file: redoubt_wire::page::FileId,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Result<Vec<u8>> {
        let request = PageRequest::Read { need: Seq(need), file, offset_bytes, len_bytes };
        self.ask(&request, |reply| match reply {
            PageReply::Bytes(bytes) => bytes.to_vec(),
            other => panic!("read: {other:?}"),
        })
    }
}

/// A control connection.
pub struct ControlClient {
    pub stream: TcpStream,
    written: u64,
    read: u64,
}

impl ControlClient {
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let (stream, welcome) = connect(address, &hello(Role::Control, "", 0, 0, 0))?;
        if welcome.status != Status::Accepted {
            return Err(std::io::Error::other(welcome.message));
        }
        Ok(Self { stream, written: 0, read: 0 })
    }

    pub fn send(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        append_frame(&mut out, kind, self.written, payload).unwrap();
        self.written += 1;
        self.stream.write_all(&out)
    }

    pub fn next(&mut self) -> Result<(u8, Vec<u8>)> {
        let frame = read_frame(&mut self.stream, self.read)?;
        self.read += 1;
        Ok(frame)
    }

    pub fn reply(&mut self) -> Result<Reply> {
        let mut json = Vec::new();
        loop {
            let (kind, payload) = self.next()?;
            json.extend(payload);
            if kind == KIND_JSON {
                return Ok(decode_json(&json).unwrap());
            }
            assert_eq!(kind, KIND_JSON_PART);
        }
    }

    pub fn ask(&mut self, request: &Request) -> Result<Reply> {
        self.send(KIND_JSON, &encode_json(request).unwrap())?;
        self.reply()
    }

    pub fn create(&mut self, volume: &str) {
        let reply = self.ask(&Request::VolumeCreate { volume: volume.to_owned(), encrypted: false }).unwrap();
        assert!(matches!(reply, Reply::Done), "{reply:?}");
    }

    pub fn attach(&mut self, volume: &str) -> Attachment {
        let request = Request::Attach {
            volume: volume.to_owned(),
            who: "the test".to_owned(),
            server: None,
            seen_generation: None,
        };
        match self.ask(&request).unwrap() {
            Reply::Attached(attachment) => attachment,
            other => panic!("{other:?}"),
        }
    }

    /// Status of the only volume.
    pub fn status(&mut self) -> redoubt_wire::control::VolumeStatus {
        match self.ask(&Request::Status).unwrap() {
            Reply::Status(mut status) => status.volumes.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// Status of all volumes.
    pub fn status_of_all(&mut self) -> Vec<redoubt_wire::control::VolumeStatus> {
        match self.ask(&Request::Status).unwrap() {
            Reply::Status(status) => status.volumes,
            other => panic!("{other:?}"),
        }
    }

    /// Status of the volume of this name.
    pub fn status_of(&mut self, volume: &str) -> redoubt_wire::control::VolumeStatus {
        self.status_of_all().into_iter().find(|of| of.name == volume).unwrap()
    }

    /// Status of the only volume once it is in `state`: a node sees a little later than a client that the client has
    /// gone, and listens before its volumes have recovered.
    pub fn wait_state(&mut self, state: &str) -> redoubt_wire::control::VolumeStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if status.state == state {
                return status;
            }
            assert!(Instant::now() < deadline, "{}, not {state}: {}", status.state, status.reason);
        }
    }

    /// Status of the only volume once its redo up to `lsn` is applied.
    pub fn wait_applied(&mut self, lsn: u64) -> redoubt_wire::control::VolumeStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if status.a_lsn >= lsn {
                return status;
            }
            assert!(Instant::now() < deadline, "not applied: {status:?}");
        }
    }

    /// Contents of a file after [`Request::Fetch`] or [`Request::ExportFile`].
    pub fn file(&mut self, request: &Request) -> Result<Vec<u8>> {
        let (contents, reply) = self.file_and_reply(request)?;
        assert!(matches!(reply, Reply::Done), "{reply:?}");
        Ok(contents)
    }

    /// The same, with the reply after the file.
    pub fn file_and_reply(&mut self, request: &Request) -> Result<(Vec<u8>, Reply)> {
        let len_bytes = match self.ask(request)? {
            Reply::FileFollows { len_bytes } => len_bytes,
            other => panic!("{other:?}"),
        };
        let mut contents = vec![0; len_bytes as usize];
        loop {
            let (kind, payload) = self.next()?;
            assert_eq!(kind, KIND_DATA);
            let Some((offset, bytes)) = decode_data(&payload).unwrap() else { break };
            contents[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let reply = self.reply()?;
        Ok((contents, reply))
    }
}
