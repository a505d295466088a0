//! Redo of MariaDB 10.8 and later (one file, one byte stream, a CRC-32C per mini-transaction).

pub mod record;
