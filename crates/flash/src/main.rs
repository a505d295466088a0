//! `redoubt-flash`: the flash model on the command line.

fn main() {}
