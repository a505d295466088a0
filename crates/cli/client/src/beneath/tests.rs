use super::*;
use std::io::Write;
use std::os::unix::fs::symlink;

/// A directory with something beside it that must stay as it is.
fn fixture() -> (tempfile::TempDir, Beneath) {
    let top = tempfile::tempdir().unwrap();
    std::fs::create_dir(top.path().join("data")).unwrap();
    std::fs::create_dir(top.path().join("outside")).unwrap();
    std::fs::write(top.path().join("outside/precious"), "precious").unwrap();
    let beneath = Beneath::open(&top.path().join("data"), None).unwrap();
    (top, beneath)
}

fn outside(top: &tempfile::TempDir) -> Vec<(String, Vec<u8>)> {
    std::fs::read_dir(top.path().join("outside"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect()
}

fn untouched(top: &tempfile::TempDir) {
    assert_eq!(outside(top), [("precious".to_owned(), b"precious".to_vec())]);
    let mut names: Vec<_> =
        std::fs::read_dir(top.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["data", "outside"]);
}

fn attempts(beneath: &Beneath, name: &str) -> [bool; 3] {
    [
        beneath.directory(name).is_ok(),
        beneath.write(name).is_ok_and(|mut file| file.write_all(b"evil").is_ok()),
        beneath.create_new(name).is_ok(),
    ]
}

#[test]
fn names_that_lead_out_are_refused() {
    let (top, beneath) = fixture();
    let long = "x".repeat(256);
    let deep = "d/".repeat(2100) + "x";
    let absolute = top.path().join("outside/precious").display().to_string();
    for name in [
        "",
        "/",
        "..",
        ".",
        "../outside/precious",
        "a/../../outside/precious",
        "a/..",
        "a//b",
        "a/",
        "./a",
        "a\0b",
        ".redoubt",
        ".redoubt-orphans/x",
        "d/.redoubt",
        &absolute,
        &long,
        &deep,
    ] {
        assert_eq!(attempts(&beneath, name), [false; 3], "{name:?}");
    }
    untouched(&top);
}

#[test]
fn planted_links_are_not_followed() {
    let (top, beneath) = fixture();
    let data = top.path().join("data");
    symlink("../outside", data.join("link")).unwrap();
    symlink("../outside/precious", data.join("file.frm")).unwrap();
    symlink("../outside/new", data.join("dangling.frm")).unwrap();
    std::fs::create_dir(data.join("d")).unwrap();
    symlink("../../outside/precious", data.join("d/inner.frm")).unwrap();
    for name in ["link", "link/precious", "link/new", "file.frm", "dangling.frm", "d/inner.frm"] {
        assert_eq!(attempts(&beneath, name), [false; 3], "{name}");
    }
    let error = beneath.write("file.frm").unwrap_err().to_string();
    assert!(error.contains("symbolic link"), "{error}");
    untouched(&top);
}

#[test]
fn a_pipe_does_not_hold_the_command() {
    let (top, beneath) = fixture();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        top.path().join("data/pipe"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert!(beneath.write("pipe").unwrap_err().to_string().contains("regular file"));
}

#[test]
fn ordinary_names_work_and_modes_are_tamed() {
    let (top, beneath) = fixture();
    beneath.directory("shop").unwrap();
    let mut file = beneath.create_new("shop/deep/t.frm").unwrap();
    file.write_all(b"x").unwrap();
    beneath.finish("shop/deep/t.frm", &file, 0o6777, 0o660).unwrap();
    let mode = std::fs::metadata(top.path().join("data/shop/deep/t.frm")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o775);
    assert!(beneath.create_new("shop/deep/t.frm").is_err());
    assert_eq!(beneath.write("shop/deep/t.frm").unwrap().metadata().unwrap().len(), 1);
}

/// Names put together from pieces that are dangerous somewhere, by a seed.
#[test]
fn random_names_never_leave_the_directory() {
    let (top, beneath) = fixture();
    symlink("../outside", top.path().join("data/l")).unwrap();
    let pieces =
        ["..", ".", "/", "//", "a", "l", "\0", "precious", "\\", "%2e", "~", " ", "\u{202e}", "c:", "-"];
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..3000 {
        let name: String = (0..random.usize(1..7)).map(|_| pieces[random.usize(..pieces.len())]).collect();
        if attempts(&beneath, &name).contains(&true) {
            assert!(!name.starts_with('/') && !name.contains('\0'), "{name:?}");
            assert!(!name.split('/').any(|part| matches!(part, ".." | "." | "")), "{name:?}");
            assert_ne!(name.split('/').next(), Some("l"), "{name:?}");
        }
    }
    untouched(&top);
}
