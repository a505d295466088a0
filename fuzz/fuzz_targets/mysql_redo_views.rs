#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redoubt_fuzz::mysql_redo_views::run(data));
