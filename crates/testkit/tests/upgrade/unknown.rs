//! Files of versions that do not exist yet.
