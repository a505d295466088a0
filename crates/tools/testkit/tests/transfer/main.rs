//! Data on its way into a volume and out of one, and other readers of a volume, with real servers.

mod backup;
mod bank;
mod import_killed;
mod import_tablespace;
mod nfs;
mod reader;
mod round_trip;
