#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redoubt_fuzz::raw_device::run(data));
