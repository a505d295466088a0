//! Groups of real servers that replicate each other.

mod catch_up;
mod commands;
mod isolation;
mod members;
mod network;
mod newcomers;
mod on_volumes;
mod rounds;
mod streaming;
mod two_members;
mod versions;
