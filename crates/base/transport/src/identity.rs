//! Identity of a connection's peer, and its rights.
//!
//! A certificate contains it as its only URI: `redoubt:node`, `redoubt:administrator`, `redoubt:volume/NAME` or
//! `redoubt:member/GROUP/NAME`.

use std::fmt::{Display, Formatter};

/// Maximum length of the name of a volume, a group or a member.
const NAME_LIMIT_BYTES: usize = 64;
const NODE: &str = "redoubt:node";
const ADMINISTRATOR: &str = "redoubt:administrator";
const VOLUME: &str = "redoubt:volume/";
const MEMBER: &str = "redoubt:member/";

/// The authenticated identity of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// None: the connection is not authenticated. Only nodes in trusted networks accept such connections, and then
    /// every peer has all rights.
    Unproven,
    /// An administrator, with all rights.
    Administrator,
    /// A client of the volume with this name.
    Volume(String),
    /// A storage node.
    Node,
    /// A member of a group of servers.
    Member {
        /// Name of the group.
        group: String,
        /// Name of the member in the group.
        name: String,
    },
}

impl Identity {
    /// Parses the URI of a certificate. Returns `None` for any other text.
    pub fn from_uri(uri: &str) -> Option<Self> {
        match uri {
            NODE => Some(Self::Node),
            ADMINISTRATOR => Some(Self::Administrator),
            _ if uri.starts_with(MEMBER) => {
                let (group, name) = uri.strip_prefix(MEMBER)?.split_once('/')?;
                check_name("group", group).ok()?;
                check_name("member", name).ok()?;
                Some(Self::Member { group: group.to_owned(), name: name.to_owned() })
            }
            _ => {
                let name = uri.strip_prefix(VOLUME)?;
                check_volume_name(name).ok()?;
                Some(Self::Volume(name.to_owned()))
            }
        }
    }

    /// The URI of the identity; `None` if certificates do not contain it.
    pub fn uri(&self) -> Option<String> {
        match self {
            Self::Unproven => None,
            Self::Node => Some(NODE.to_owned()),
            Self::Administrator => Some(ADMINISTRATOR.to_owned()),
            Self::Volume(name) => Some(format!("{VOLUME}{name}")),
            Self::Member { group, name } => Some(format!("{MEMBER}{group}/{name}")),
        }
    }

    /// Whether the peer may change the node: create, import and delete volumes, and see all of them.
    pub const fn is_administrator(&self) -> bool {
        matches!(self, Self::Administrator | Self::Unproven)
    }

    /// Whether the peer is a member of the group with this name.
    pub fn is_in_group(&self, name: &str) -> bool {
        matches!(self, Self::Member { group, .. } if group == name)
    }

    /// Whether the peer may use the volume with this name.
    pub fn may_use(&self, volume: &str) -> bool {
        match self {
            Self::Administrator | Self::Unproven => true,
            Self::Volume(name) => name == volume,
            Self::Node | Self::Member { .. } => false,
        }
    }
}

impl Display for Identity {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unproven => write!(out, "an unauthenticated client"),
            Self::Administrator => write!(out, "the administrator"),
            Self::Volume(name) => write!(out, "volume {name}"),
            Self::Node => write!(out, "a storage node"),
            Self::Member { group, name } => write!(out, "member {name} of group {group}"),
        }
    }
}

/// Checks the name of a volume, which is a directory name on the node and part of a URI in certificates.
///
/// # Errors
/// The defect, for the user.
pub fn check_volume_name(name: &str) -> Result<(), String> {
    check_name("volume", name)
}

/// Like [`check_volume_name`], for the name of a group or a member as in certificates.
///
/// # Errors
/// The defect, for the user, who knows the text as the name of a `what`.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' || byte == b'.';
    if name.is_empty() || name.len() > NAME_LIMIT_BYTES || name.starts_with('.') || !name.bytes().all(allowed)
    {
        return Err(format!(
            "{what} name {name:?} is not usable: letters, digits, '-', '_' and '.', not starting with '.', at most \
             {NAME_LIMIT_BYTES} characters"
        ));
    }
    Ok(())
}
