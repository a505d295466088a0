#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redoubt_fuzz::group_log::run(data));
