//! Real servers with the network library.

mod admission;
mod lab;
mod layer;
mod user_tcp;
mod user_tcp_faults;
mod user_tcp_hostile;
