//! The edges between the crates of this repository, and made-up manifests that the check must refuse.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use redoubt_layers::rules::{
    COMMAND_LINE, DEFAULT_BUILDS, EXCEPTIONS, EXPERIMENTAL, Exception, FOR_TESTS, LOADED, Loaded, OPTIONAL,
    OUTSIDE, PARTS, WITH_EXPERIMENTAL, WITHOUT_COMMAND_LINE,
};
use redoubt_layers::workspace::Package;
use redoubt_layers::{check, rules, workspace};
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// All packages of the repository, those outside of the workspace included.
fn all_packages() -> Vec<Package> {
    let root = repository();
    let mut packages = workspace::read(&root).unwrap();
    for (folder, part) in OUTSIDE {
        packages.extend(workspace::read_outside(&root.join(folder), part).unwrap());
    }
    packages
}

/// Folders two below `crates` that have a manifest.
fn folders_with_manifest() -> usize {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect()
    };
    let parts = entries(&repository().join("crates"));
    parts.iter().flat_map(|part| entries(part)).filter(|folder| folder.join("Cargo.toml").exists()).count()
}

#[test]
fn every_manifest_is_read() {
    // `fuzz` is beside `crates`.
    assert_eq!(all_packages().len(), folders_with_manifest() + 1);
}

#[test]
fn manifests_have_allowed_edges_only() {
    let packages = all_packages();
    let parts: std::collections::BTreeSet<&str> =
        packages.iter().map(|package| package.part.as_str()).collect();
    assert_eq!(
        parts.len(),
        PARTS.len(),
        "a part without a package, or packages that were not read: {parts:?}"
    );
    let violations = check::edges(&packages, &PARTS, EXCEPTIONS);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn product_uses_no_package_for_tests() {
    let packages = workspace::read(&repository()).unwrap();
    for name in FOR_TESTS {
        assert!(packages.iter().any(|package| package.name == name), "{name} is no package");
    }
    let violations = check::test_packages(&packages, &FOR_TESTS);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn server_test_packages_have_listed_users_only() {
    let packages = workspace::read(&repository()).unwrap();
    for rule in rules::SERVER_TESTS {
        assert!(
            packages.iter().any(|package| package.name == rule.package),
            "{} is no package",
            rule.package
        );
    }
    let violations = check::server_tests(&packages, rules::SERVER_TESTS);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn loaded_libraries_have_listed_users_only() {
    let packages = workspace::read(&repository()).unwrap();
    let violations = check::users(&packages, LOADED);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn loaded_libraries_link_listed_packages_only() {
    let root = repository();
    for library in LOADED {
        let linked = workspace::linked(&root, library.package, &[]).unwrap();
        let violations = check::links(library, &linked);
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }
}

#[test]
fn default_builds_link_no_experimental_package() {
    let root = repository();
    for (package, has_feature) in DEFAULT_BUILDS {
        let linked = workspace::linked(&root, package, &[]).unwrap();
        let violations = check::experimental(package, &linked, &EXPERIMENTAL);
        assert!(violations.is_empty(), "{}", violations.join("\n"));
        if has_feature {
            let linked = workspace::linked(&root, package, &WITH_EXPERIMENTAL).unwrap();
            let found = check::experimental(package, &linked, &EXPERIMENTAL);
            assert_eq!(found.len(), EXPERIMENTAL.len(), "{package} with the feature: {found:?}");
        }
    }
}

#[test]
fn command_without_features_links_no_optional_package() {
    let root = repository();
    let found = |options| {
        let linked = workspace::linked(&root, "redoubt-cli", options).unwrap();
        OPTIONAL.into_iter().filter(|&name| linked.contains(name)).collect::<Vec<_>>()
    };
    assert_eq!(found(&["--no-default-features"]), Vec::<&str>::new());
    assert_eq!(found(&[]), OPTIONAL);
}

#[test]
fn client_and_doctor_link_no_command_line() {
    let root = repository();
    let found = |package| {
        let linked = workspace::linked(&root, package, &WITH_EXPERIMENTAL).unwrap();
        check::command_line(package, &linked, &COMMAND_LINE)
    };
    for package in WITHOUT_COMMAND_LINE {
        let violations = found(package);
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }
    assert_eq!(found("redoubt-cli").len(), COMMAND_LINE.len());
}

/// A workspace with one crate in each of some parts, and these manifest lines after `[package]`.
fn workspace_of(crates: &[(&str, &str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(
        root.path().join("Cargo.toml"),
        "[workspace]\nmembers = [\"crates/*/*\"]\nresolver = \"3\"\n",
    )
    .unwrap();
    for (part, name, lines) in crates {
        let folder = root.path().join("crates").join(part).join(name);
        std::fs::create_dir_all(folder.join("src")).unwrap();
        std::fs::write(folder.join("src/lib.rs"), "").unwrap();
        let manifest =
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{lines}\n");
        std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    }
    root
}

fn violations_of(crates: &[(&str, &str, &str)], exceptions: &[Exception]) -> Vec<String> {
    let root = workspace_of(crates);
    let packages = workspace::read(&root.path().canonicalize().unwrap()).unwrap();
    assert_eq!(packages.len(), crates.len());
    check::edges(&packages, &PARTS, exceptions)
}

#[test]
fn allowed_edges_pass() {
    let none = violations_of(
        &[
            ("base", "b", ""),
            ("volume", "v", "[dependencies]\nb = { path = \"../../base/b\" }"),
            ("cli", "c", "[dependencies]\nv = { path = \"../../volume/v\" }"),
            ("tools", "t", "[dev-dependencies]\nc = { path = \"../../cli/c\" }"),
        ],
        &[],
    );
    assert_eq!(none, [""; 0]);
}

#[test]
fn forbidden_edge_is_named_with_its_rule() {
    for (table, from, to, rule) in [
        ("dependencies", "net", "volume", "net depends on base only"),
        ("dev-dependencies", "group", "tools", "group depends on base only"),
        ("build-dependencies", "volume", "net", "volume depends on base and devices only"),
        ("dependencies", "base", "devices", "base depends on nothing but base"),
        ("target.'cfg(windows)'.dependencies", "devices", "volume", "devices depends on base only"),
        ("dependencies", "cli", "tools", "cli depends on all parts of the product, and never on tools"),
    ] {
        let lines = format!("[{table}]\nb = {{ path = \"../../{to}/b\", optional = false }}");
        let found = violations_of(&[(from, "a", &lines), (to, "b", "")], &[]);
        let table = table.rsplit('.').next().unwrap();
        let expected = format!("a ({from}) -> b ({to}) in [{table}]: {rule}");
        assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?} is not {expected}");
    }
}

#[test]
fn package_for_tests_is_refused_in_dependencies() {
    let uses = |table: &str| format!("[{table}]\nt = {{ path = \"../../base/t\" }}");
    for (part, table, count) in
        [("volume", "dependencies", 1), ("volume", "dev-dependencies", 0), ("tools", "dependencies", 0)]
    {
        let root = workspace_of(&[("base", "t", ""), (part, "a", &uses(table))]);
        let packages = workspace::read(&root.path().canonicalize().unwrap()).unwrap();
        let found = check::test_packages(&packages, &["t"]);
        assert_eq!(found.len(), count, "{part} {table}: {found:?}");
        assert!(found.iter().all(|message| message.starts_with("a -> t in [dependencies]: ")), "{found:?}");
    }
}

#[test]
fn user_of_a_server_test_package_must_be_listed_and_needed() {
    let uses = "[dev-dependencies]\nh = { path = \"../h\" }";
    let root = workspace_of(&[("tools", "h", ""), ("tools", "a", uses)]);
    let packages = workspace::read(&root.path().canonicalize().unwrap()).unwrap();
    let found = |users| check::server_tests(&packages, &[rules::ServerTests { package: "h", users }]);
    assert_eq!(found(&["a"]), [""; 0]);
    assert_eq!(found(&[]), ["a -> h: for tests on real servers, used by [] only"]);
    assert_eq!(found(&["a", "b"]), ["b may use h and does not: remove it from the list"]);
}

#[test]
fn optional_edge_counts() {
    let lines = "[dependencies]\nb = { path = \"../../group/b\", optional = true }";
    assert_eq!(violations_of(&[("net", "a", lines), ("group", "b", "")], &[]).len(), 1);
}

#[test]
fn exception_covers_its_edge_only_and_must_be_needed() {
    let lines = "[dependencies]\nb = { path = \"../../volume/b\" }";
    let crates = [("net", "a", lines), ("volume", "b", "")];
    let exception = |from, to| Exception { from, to, reason: "a test" };
    assert_eq!(violations_of(&crates, &[exception("a", "b")]), [""; 0]);
    let found = violations_of(&crates, &[exception("b", "a")]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].contains("exception b -> a is not needed"), "{found:?}");
}

#[test]
fn crate_in_an_unknown_part_is_refused() {
    let found = violations_of(&[("misc", "a", "")], &[]);
    assert_eq!(found, ["a is in crates/misc, which is no part"]);
}

#[test]
fn link_beyond_the_list_is_named() {
    let library = Loaded { package: "a", users: &[], may_link: &["redoubt-b", "libc", "redoubt-d"] };
    let linked = ["libc", "redoubt-b", "io-uring"].map(str::to_owned).into();
    let found = check::links(&library, &linked);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("a links io-uring, which is not in its list"), "{found:?}");
    assert!(found[1].contains("redoubt-d and does not any more"), "{found:?}");
}

#[test]
fn user_of_a_loaded_library_must_be_listed() {
    let root = workspace_of(&[
        ("volume", "a", ""),
        ("cli", "b", "[dependencies]\na = { path = \"../../volume/a\" }"),
    ]);
    let packages = workspace::read(&root.path().canonicalize().unwrap()).unwrap();
    let listed = |users| [Loaded { package: "a", users, may_link: &[] }];
    assert_eq!(check::users(&packages, &listed(&["b"])), [""; 0]);
    let found = check::users(&packages, &listed(&[]));
    assert!(
        found.len() == 1 && found[0].starts_with("b -> a: the library is loaded into a server"),
        "{found:?}"
    );
}
