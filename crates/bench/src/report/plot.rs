//! Placeholder of this file's content: see the next lines.
