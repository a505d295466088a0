#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redoubt_fuzz::net_admission::run(data));
