#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redoubt_fuzz::node_files::run(data));
