//! Links the unwinder of the Rust runtime into the library itself.
//!
//! A server may be started with libraries other than the system's (a loader with `--library-path`). The preloaded
//! library must then find all it needs there, so it may need nothing but the C library, which every server has.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is_gnu_linux = std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu");
    if is_gnu_linux {
        // Before the standard library's own request for the shared one, which then has nothing left to do.
        println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
    }
}
