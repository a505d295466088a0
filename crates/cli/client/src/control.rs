//! A control connection to a node.

use crate::error::{ClientError, Result};
use redoubt_redo::Family;
use redoubt_transport::{Connection, Connector, Reader, TransportError};
use redoubt_wire::control::{
    KIND_DATA, KIND_JSON, KIND_JSON_PART, MAX_REPLY_LEN_BYTES, NodeStatus, Reply, Request, decode_data,
    decode_json, encode_data, encode_json,
};
use redoubt_wire::frame::append_frame;
use redoubt_wire::greeting::{self, ANNOUNCED, GreetingError, SEEN_GENERATION, SERVER_VERSION};
use redoubt_wire::hello::{Compression, Hello, Role, Status};
use redoubt_wire::negotiation::{Agreement, Features};
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES, OLDEST_PROTOCOL_VERSION, Seq, ServerVersion, WireError};
use std::io::{BufReader, ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A node greets at once; later replies may take long.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// A node that lives tells its state at once, however busy it is.
const STATUS_TIMEOUT: Duration = Duration::from_secs(30);

/// The same error, in words if the other side has closed the connection.
fn closed_by_peer(source: std::io::Error) -> std::io::Error {
    match source.kind() {
        // A close with bytes unread arrives as a reset.
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            std::io::Error::new(source.kind(), "the other side closed it")
        }
        _ => source,
    }
}

/// A control connection to a node.
pub struct Client {
    address: String,
    reader: BufReader<Reader>,
    connection: Arc<dyn Connection>,
    read_position: u64,
    write_position: u64,
    agreement: Agreement,
}

impl Client {
    /// Connects and says hello.
    ///
    /// # Errors
    /// [`ClientError::Connect`], [`ClientError::Trust`], or what the node answers.
    pub fn connect(connector: &Connector) -> Result<Self> {
        let address = connector.address.clone();
        let failed = |source| ClientError::Connect { address: address.clone(), source };
        let connection =
            connector.connect(CONNECT_TIMEOUT, GREETING_TIMEOUT).map_err(|error| match error {
                TransportError::Io(source) => failed(source),
                TransportError::Trust(why) => ClientError::Trust { address: address.clone(), why },
                TransportError::Credentials(why) => ClientError::Usage(why),
            })?;
        let reader = BufReader::with_capacity(256 << 10, Reader(Arc::clone(&connection)));
        let mut client = Self {
            address: address.clone(),
            reader,
            connection,
            read_position: 0,
            write_position: 0,
            // Until the greeting is read.
            agreement: Agreement { version: OLDEST_PROTOCOL_VERSION, features: Features::NONE },
        };
        client.hello().map_err(|error| client.silence(error))?;
        client.connection.set_deadline(None).map_err(failed)?;
        Ok(client)
    }

    fn hello(&mut self) -> Result<()> {
        let hello = Hello {
            role: Role::Control,
            compression: Compression::Off,
            generation: 0,
            session: 0,
            resume: Seq(0),
            volume: String::new(),
        };
        let (connection, reader) = (&self.connection, &mut self.reader);
        let write = |bytes: &[u8]| connection.write_all(bytes);
        let read = |out: &mut [u8]| reader.read_exact(out);
        let greeted = greeting::exchange(&hello, ANNOUNCED, write, read);
        let (welcome, agreement) = greeted.map_err(|error| match error {
            GreetingError::Io(source) => self.broken(closed_by_peer(source)),
            GreetingError::Wire(source) => self.wire(source),
        })?;
        self.agreement = agreement;
        if welcome.status == Status::Accepted {
            Ok(())
        } else {
            Err(ClientError::Node(printable(&welcome.message)))
        }
    }

    /// Refuses what this node cannot do, before it is asked.
    ///
    /// # Errors
    /// [`ClientError::NodeLacks`], saying what needs the feature.
    pub fn require(&self, feature: Features, what: impl FnOnce() -> String) -> Result<()> {
        if self.agreement.has(feature) {
            return Ok(());
        }
        let name = greeting::ALL.iter().find(|(known, _)| *known == feature).map_or("?", |(_, name)| *name);
        Err(ClientError::NodeLacks {
            what: what(),
            address: self.address.clone(),
            version: self.agreement.version,
            name,
        })
    }

    /// The server version in a request to attach. It is not sent to a node without this field, which assumes MariaDB
    /// 10.11 for every server.
    ///
    /// # Errors
    /// [`ClientError::NodeLacks`] for another server and such a node.
    pub fn server_to_attach(&self, server: ServerVersion) -> Result<Option<ServerVersion>> {
        if !self.agreement.has(SERVER_VERSION) && server.is_of_series(Family::MariaDb, (10, 11)) {
            return Ok(None);
        }
        let required = greeting::required_by_all([server]);
        for (feature, _) in greeting::ALL.into_iter().filter(|(feature, _)| required.contains(*feature)) {
            self.require(feature, || format!("{server} on a volume"))?;
        }
        Ok(Some(server))
    }

    /// The generation in a request to attach. It is not sent to a node without this field.
    pub fn seen_generation(&self, generation: u64) -> Option<u64> {
        self.agreement.has(SEEN_GENERATION).then_some(generation)
    }

    /// A greeting that is missing or invalid means a wrong address.
    fn silence(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::Connection { address, source }
                if matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                ClientError::Silent { address, after: GREETING_TIMEOUT }
            }
            // The message of a node of another version is clear enough.
            ClientError::Wire { address, source } if !matches!(source, WireError::Disagreement(_)) => {
                ClientError::NotANode { address, source }
            }
            other => other,
        }
    }

    fn wire(&self, source: WireError) -> ClientError {
        ClientError::Wire { address: self.address.clone(), source }
    }

    fn read(&mut self, out: &mut [u8]) -> Result<()> {
        self.reader.read_exact(out).map_err(|source| self.broken(closed_by_peer(source)))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.connection.write_all(bytes).map_err(|source| self.broken(source))
    }

    fn broken(&self, source: std::io::Error) -> ClientError {
        let address = self.address.clone();
        match TransportError::from_io(source) {
            TransportError::Io(source) => ClientError::Connection { address, source },
            TransportError::Trust(why) | TransportError::Credentials(why) => {
                ClientError::Trust { address, why }
            }
        }
    }

    fn send(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        let mut frame = Vec::with_capacity(HEADER_LEN_BYTES + payload.len());
        append_frame(&mut frame, kind, self.write_position, payload).map_err(|source| self.wire(source))?;
        self.write_position += 1;
        self.write(&frame)
    }

    fn receive(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut header = [0; HEADER_LEN_BYTES];
        self.read(&mut header)?;
        let header = FrameHeader::decode(&header);
        let mut payload = vec![0; header.len_bytes as usize];
        self.read(&mut payload)?;
        header.check(self.read_position, &payload).map_err(|source| self.wire(source))?;
        self.read_position += 1;
        Ok((header.kind, payload))
    }

    /// State of the node.
    ///
    /// # Errors
    /// [`ClientError::NoStatus`] if it does not come in time; errors of the connection.
    pub fn status(&mut self) -> Result<NodeStatus> {
        self.set_deadline(Some(STATUS_TIMEOUT))?;
        let reply = self.call(&Request::Status).map_err(|error| match error {
            ClientError::Connection { address, source }
                if matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                ClientError::NoStatus { address, after: STATUS_TIMEOUT }
            }
            other => other,
        })?;
        self.set_deadline(None)?;
        match reply {
            Reply::Status(status) => Ok(status),
            other => Err(self.unexpected(&other)),
        }
    }

    fn set_deadline(&self, patience: Option<Duration>) -> Result<()> {
        self.connection.set_deadline(patience).map_err(|source| self.broken(source))
    }

    /// Sends a request without waiting for its reply.
    ///
    /// # Errors
    /// [`ClientError::Connection`].
    pub fn request(&mut self, request: &Request) -> Result<()> {
        let json = encode_json(request).map_err(|source| self.wire(source))?;
        self.send(KIND_JSON, &json)
    }

    /// Waits for a reply.
    ///
    /// # Errors
    /// [`ClientError::Node`] if the node reports that the request failed.
    pub fn reply(&mut self) -> Result<Reply> {
        let mut json = Vec::new();
        loop {
            let (kind, payload) = self.receive()?;
            if !matches!(kind, KIND_JSON | KIND_JSON_PART) {
                return Err(self.wire(WireError::UnknownKind { kind, role: "control" }));
            }
            if json.len() + payload.len() > MAX_REPLY_LEN_BYTES {
                return Err(self.wire(WireError::TooLong {
                    what: "reply",
                    len_bytes: (json.len() + payload.len()) as u64,
                    limit_bytes: MAX_REPLY_LEN_BYTES as u64,
                }));
            }
            json.extend_from_slice(&payload);
            if kind == KIND_JSON {
                break;
            }
        }
        match decode_json(&json).map_err(|source| self.wire(source))? {
            Reply::Failed { message, .. } => Err(ClientError::Node(printable(&message))),
            reply => Ok(reply),
        }
    }

    /// Sends a request and receives its reply.
    ///
    /// # Errors
    /// As [`Client::reply`].
    pub fn call(&mut self, request: &Request) -> Result<Reply> {
        self.request(request)?;
        self.reply()
    }

    /// An answer that does not fit the question.
    pub fn unexpected(&self, reply: &Reply) -> ClientError {
        self.wire(WireError::Invalid {
            what: "reply",
            field: "kind",
            why: format!("{reply:?} was not expected"),
        })
    }

    /// Asks for a file; `piece` gets its non-zero pieces. Returns its length.
    ///
    /// # Errors
    /// As [`Client::reply`], or what `piece` reports.
    pub fn download(
        &mut self,
        request: &Request,
        piece: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<u64> {
        self.request(request)?;
        self.receive_file(piece)
    }

    /// Waits for a file that was asked for; as [`Client::download`].
    ///
    /// # Errors
    /// As [`Client::reply`], or what `piece` reports.
    pub fn receive_file(&mut self, piece: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<u64> {
        self.receive_file_and_reply(piece).map(|(len_bytes, _)| len_bytes)
    }

    /// As [`Client::receive_file`]; also returns the reply after the file.
    ///
    /// # Errors
    /// As [`Client::receive_file`].
    pub fn receive_file_and_reply(
        &mut self,
        piece: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<(u64, Reply)> {
        let len_bytes = match self.reply()? {
            Reply::FileFollows { len_bytes } => len_bytes,
            other => return Err(self.unexpected(&other)),
        };
        Ok((len_bytes, self.pieces(len_bytes, piece)?))
    }

    /// The node has this feature.
    pub fn has(&self, feature: Features) -> bool {
        self.agreement.has(feature)
    }

    /// The pieces of a file of this length, and the reply after them.
    ///
    /// # Errors
    /// As [`Client::reply`], or what `piece` reports.
    pub fn pieces(
        &mut self,
        len_bytes: u64,
        mut piece: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Reply> {
        let mut failure = None;
        loop {
            let (kind, payload) = self.receive()?;
            if kind != KIND_DATA {
                return Err(self.wire(WireError::UnknownKind { kind, role: "control" }));
            }
            let Some((offset, bytes)) = decode_data(&payload).map_err(|source| self.wire(source))? else {
                break;
            };
            // A node that is not to be trusted must not fill the disk past the length that was announced.
            if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > len_bytes) {
                return Err(self.wire(WireError::Invalid {
                    what: "data frame",
                    field: "offset",
                    why: format!("it reaches past the announced length of {len_bytes} bytes"),
                }));
            }
            if failure.is_none() {
                failure = piece(offset, bytes).err();
            }
        }
        let reply = self.reply()?;
        failure.map_or(Ok(reply), Err)
    }

    /// Sends a piece of a file.
    ///
    /// # Errors
    /// [`ClientError::Connection`].
    pub fn upload_piece(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        self.send(KIND_DATA, &encode_data(offset_bytes, bytes))
    }

    /// Ends a file and waits for the answer.
    ///
    /// # Errors
    /// As [`Client::reply`].
    pub fn upload_end(&mut self) -> Result<Reply> {
        self.send(KIND_DATA, &[])?;
        self.reply()
    }
}

/// A node's message, without control characters that a terminal would interpret.
pub fn printable(message: &str) -> String {
    message.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}
