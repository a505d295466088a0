//! Who is at the other end of a connection.

/// What a peer has proved about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nothing: the connection is not authenticated. Only networks where everybody is trusted are served so.
    Unproven,
    /// It may do everything.
    Administrator,
    /// It speaks for the volume of this name.
    Volume(String),
    /// It is a storage node.
    Node,
}
