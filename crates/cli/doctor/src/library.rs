//! The preloaded library: where it is, who may change it, whether the loader and the security modules let it in.

use super::report::Check;
use redoubt_client::preload;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NAME: &str = "library";
const INSTALL: &str = "`make install` puts it where the command finds it; or say where it is with --library";
const PROFILES: &str = "/sys/kernel/security/apparmor/profiles";

/// Judges the place of the library; `None`: it was not found.
pub fn find(found: &Result<PathBuf, String>) -> (Check, Option<&Path>) {
    match found {
        Ok(path) => {
            let writable = writable_by_others(path);
            (judge_place(path, writable), Some(path))
        }
        Err(error) => (Check::refused(NAME, error, INSTALL), None),
    }
}

/// The file, or a directory on the way to it, that every user may change.
fn writable_by_others(path: &Path) -> Option<PathBuf> {
    const EVERYBODY: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    path.ancestors()
        .find(|part| {
            std::fs::metadata(part).is_ok_and(|data| {
                data.mode() & EVERYBODY != 0 && !(data.is_dir() && data.mode() & STICKY != 0)
            })
        })
        .map(Path::to_owned)
}

fn judge_place(path: &Path, writable: Option<PathBuf>) -> Check {
    let found = path.display().to_string();
    match writable {
        Some(writable) => Check::problem(
            NAME,
            format!("{found}; every user may change {}", writable.display()),
            format!("chmod o-w {}: the server runs what is there", writable.display()),
        ),
        None => Check::ok(NAME, found),
    }
}

/// Tries to preload it.
pub fn preloads(binary: &Path, library: &Path) -> Check {
    const NAME: &str = "preload";
    match preload::check(binary, library) {
        Ok(()) => Check::ok(NAME, format!("the loader takes it into {}", binary.display())),
        Err(error) => Check::refused(NAME, &error, INSTALL),
    }
}

/// A profile of AppArmor that confines the server. Nothing without one, or where they cannot be read.
pub fn confinement(binary: &Path, library: &Path, datadir: Option<&Path>) -> Option<Check> {
    let profiles = std::fs::read_to_string(PROFILES).ok()?;
    judge_profiles(&profiles, binary, library, datadir)
}

fn judge_profiles(profiles: &str, binary: &Path, library: &Path, datadir: Option<&Path>) -> Option<Check> {
    let name = binary.file_name()?.to_str()?;
    let profile = profiles.lines().find(|line| {
        line.strip_suffix(" (enforce)").is_some_and(|profile| profile.rsplit('/').next() == Some(name))
    })?;
    let datadir = datadir.map_or_else(|| "DATADIR".to_owned(), |path| path.display().to_string());
    let change = format!(
        "allow it `{} mr,`, `{datadir}/** rwk,`, `network inet stream,` and the files of --tls (a file in /etc/apparmor.d/local), \
         or the server runs without what it needs",
        library.display()
    );
    Some(Check::warning("apparmor", format!("profile {profile} confines the server"), change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_everybody_may_change_is_not_to_be_run() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("libredoubt.so");
        std::fs::write(&library, "").unwrap();
        let found = Ok(library.clone());
        let (check, path) = find(&found);
        assert_eq!((check.level, path.is_some()), (Level::Ok, true), "{check:?}");
        std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o666)).unwrap();
        let (check, _) = find(&found);
        assert_eq!(check.level, Level::Problem);
        assert!(check.change.is_some_and(|change| change.contains("chmod o-w")));
        let missing = Err("there is no library".to_owned());
        let (check, path) = find(&missing);
        assert_eq!((check.level, path), (Level::Problem, None));
    }

    #[test]
    fn a_profile_in_force_is_pointed_out() {
        let judged = |profiles: &str| {
            judge_profiles(profiles, Path::new("/usr/sbin/mariadbd"), Path::new("/lib/l.so"), None)
        };
        let check = judged("/usr/bin/man (enforce)\n/usr/sbin/mariadbd (enforce)\n").unwrap();
        assert!(
            check.level == Level::Warning && check.change.is_some_and(|text| text.contains("/lib/l.so mr"))
        );
        assert!(judged("mariadbd (enforce)\n").is_some());
        assert!(judged("/usr/sbin/mariadbd (complain)\n/usr/sbin/mariadbd-safe (enforce)\n").is_none());
    }
}
