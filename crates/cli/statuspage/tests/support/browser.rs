//! A headless browser, where there is one.

#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The browser's command; prints a note if there is none.
pub fn find(test: &str) -> Option<&'static str> {
    let is_there = |name: &str| {
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let found = NAMES.into_iter().find(|name| is_there(name));
    if found.is_none() {
        redoubt_test_support::skip(test, "no headless browser; install the package chromium");
    }
    found
}

fn command(browser: &str, width: u32, height: u32) -> (Command, tempfile::TempDir) {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ])
        .args(["--hide-scrollbars", "--disable-extensions", "--disable-background-networking"])
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .stdin(Stdio::null());
    (command, profile)
}

/// The page's elements after it has run for some seconds of its own time, which passes faster than the node's. The
/// time is too short for its message that the node gives no new figures.
pub fn dom(browser: &str, url: &str) -> String {
    let (mut command, _profile) = command(browser, 1280, 900);
    let output = command.args(["--virtual-time-budget=3000", "--dump-dom", url]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A picture of the page; `dark`: as for people who like it dark.
pub fn screenshot(browser: &str, url: &str, file: &Path, (width, height): (u32, u32), dark: bool) {
    let _ = std::fs::remove_file(file);
    let (mut command, _profile) = command(browser, width, height);
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    let output = command
        .args(["--virtual-time-budget=6000", &format!("--screenshot={}", file.display()), url])
        .output()
        .unwrap();
    let size = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
    assert!(size > 20_000, "{size} bytes in {}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(file).unwrap();
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(&bytes[1..4], b"PNG");
    assert_eq!((number(16), number(20)), (width, height));
}

/// Directory of the pictures: `status-page` in the target directory.
pub fn pictures() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let directory = test.ancestors().nth(3).unwrap().join("status-page");
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
