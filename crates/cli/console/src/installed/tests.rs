use super::*;

/// An empty installation: `bin` with the command, `lib/redoubt`, and a directory for PATH.
struct Installation(tempfile::TempDir);

impl Installation {
    fn new() -> Self {
        let installation = Self(tempfile::tempdir().unwrap());
        for directory in ["bin", "lib/redoubt", "other"] {
            std::fs::create_dir_all(installation.at(directory)).unwrap();
        }
        installation
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    fn put(&self, path: &str, mode: u32) -> PathBuf {
        std::fs::write(self.at(path), "").unwrap();
        std::fs::set_permissions(self.at(path), std::fs::Permissions::from_mode(mode)).unwrap();
        self.at(path)
    }

    fn tool(&self) -> Result<PathBuf, NotInstalled> {
        let command = self.at("bin/redoubt");
        let found = find_tool("redoubt-x", "redoubt-tools", Some(&command), self.at("other").as_os_str());
        found.map(|path| path.canonicalize().unwrap())
    }
}

#[test]
fn tool_beside_command_precedes_library_directory_and_path() {
    let installation = Installation::new();
    let last = installation.put("other/redoubt-x", 0o755);
    assert_eq!(installation.tool().unwrap(), last);
    let second = installation.put("lib/redoubt/redoubt-x", 0o755);
    assert_eq!(installation.tool().unwrap(), second);
    let first = installation.put("bin/redoubt-x", 0o755);
    assert_eq!(installation.tool().unwrap(), first);
}

#[test]
fn missing_tool_names_program_and_package() {
    let installation = Installation::new();
    // Neither a file without permission to execute nor a directory is a program.
    installation.put("bin/redoubt-x", 0o644);
    std::fs::create_dir(installation.at("other/redoubt-x")).unwrap();
    let error = installation.tool().unwrap_err().to_string();
    let named = [
        "redoubt-x is not installed",
        "Debian package redoubt-tools",
        "bin/redoubt-x",
        "lib/redoubt/redoubt-x",
    ];
    assert!(named.iter().all(|words| error.contains(words)), "{error}");
}

#[test]
fn relative_entries_of_path_are_ignored() {
    assert_eq!(in_path(OsStr::new(":.:/usr/bin"), "x"), [PathBuf::from("/usr/bin/x")]);
}

#[test]
fn library_is_beside_command_or_in_library_directory() {
    let installation = Installation::new();
    let command = installation.at("bin/redoubt");
    let find = |given: Option<&Path>| find_library("lib.so", given, "--library", Some(&command));
    let error = find(None).unwrap_err().to_string();
    assert!(error.contains("bin/lib.so or ") && error.contains("say where it is with --library"), "{error}");
    let library = installation.put("lib/redoubt/lib.so", 0o644);
    assert_eq!(find(None).unwrap(), library);
    let error = find(Some(Path::new("/nowhere.so"))).unwrap_err().to_string();
    assert_eq!(error, "the library lib.so is not at /nowhere.so; say where it is with --library");
}

#[test]
fn experimental_command_shares_tools_and_has_its_own_library() {
    let installation = Installation::new();
    std::fs::create_dir(installation.at("lib/redoubt/experimental")).unwrap();
    let command = installation.at("lib/redoubt/experimental/redoubt");
    let find = || find_library("lib.so", None, "--library", Some(&command)).unwrap();
    let shared = installation.put("lib/redoubt/lib.so", 0o644);
    assert_eq!(find(), shared);
    let own = installation.put("lib/redoubt/experimental/lib.so", 0o644);
    assert_eq!(find(), own);
    let tool = installation.put("lib/redoubt/redoubt-x", 0o755);
    let found = find_tool("redoubt-x", "redoubt-tools", Some(&command), OsStr::new("")).unwrap();
    assert_eq!(found.canonicalize().unwrap(), tool);
}

#[test]
fn command_is_given_beside_tool_in_bin_or_in_path() {
    let installation = Installation::new();
    let (tool, path) = (installation.at("lib/redoubt/redoubt-x"), installation.at("other"));
    let find = |given: Option<&Path>| find_command(given, Some(&tool), path.as_os_str());
    assert!(find(None).unwrap_err().to_string().contains("REDOUBT_BIN"));
    let in_path = installation.put("other/redoubt", 0o755);
    assert_eq!(find(None).unwrap(), in_path);
    let in_bin = installation.put("bin/redoubt", 0o755);
    assert_eq!(find(None).unwrap(), in_bin);
    let beside = installation.put("lib/redoubt/redoubt", 0o755);
    assert_eq!(find(None).unwrap(), beside);
    assert_eq!(find(Some(&in_path)).unwrap(), in_path);
    assert!(find(Some(Path::new("/nowhere/redoubt"))).is_err());
}
