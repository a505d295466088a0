//! The packages of a workspace and their dependencies, as cargo reads them.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A question to cargo that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cargo could not be started, or refused.
    #[error("cargo {arguments:?} failed: {reason}")]
    Cargo {
        /// The arguments.
        arguments: Vec<String>,
        /// Cargo's message.
        reason: String,
    },
    /// The answer of cargo could not be read.
    #[error("the answer of cargo metadata cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
    /// A package is not below `crates/PART/NAME`.
    #[error("package {package} is at {manifest}, and not below crates/PART/NAME")]
    NoPart {
        /// The package.
        package: String,
        /// Its manifest.
        manifest: String,
    },
}

/// A package of the workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The folder below `crates/` that it is in.
    pub part: String,
    /// The packages of the workspace that its manifest names.
    pub dependencies: Vec<Dependency>,
}

/// An edge that a manifest names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// The package that is depended on.
    pub to: String,
    /// `dependencies`, `dev-dependencies` or `build-dependencies`.
    pub table: &'static str,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<RawPackage>,
}

#[derive(Deserialize)]
struct RawPackage {
    name: String,
    manifest_path: String,
    dependencies: Vec<RawDependency>,
}

#[derive(Deserialize)]
struct RawDependency {
    name: String,
    kind: Option<String>,
    /// Set for packages of the workspace only.
    path: Option<String>,
}

/// The packages of the workspace in `root`.
///
/// # Errors
/// [`Error`]
pub fn read(root: &Path) -> Result<Vec<Package>, Error> {
    let answer = cargo(root, &["metadata", "--no-deps", "--format-version", "1", "--offline"])?;
    let metadata: Metadata = serde_json::from_str(&answer)?;
    metadata.packages.into_iter().map(|raw| package(root, raw)).collect()
}

/// The packages in `folder`, which is not in the workspace and belongs to `part`.
///
/// # Errors
/// [`Error`]
pub fn read_outside(folder: &Path, part: &str) -> Result<Vec<Package>, Error> {
    let answer = cargo(folder, &["metadata", "--no-deps", "--format-version", "1", "--offline"])?;
    let metadata: Metadata = serde_json::from_str(&answer)?;
    Ok(metadata.packages.into_iter().map(|raw| in_part(part, raw)).collect())
}

fn package(root: &Path, raw: RawPackage) -> Result<Package, Error> {
    let relative = Path::new(&raw.manifest_path).strip_prefix(root).ok();
    let parts: Vec<_> = relative.into_iter().flatten().filter_map(|part| part.to_str()).collect();
    let &["crates", part, _, "Cargo.toml"] = parts.as_slice() else {
        return Err(Error::NoPart { package: raw.name, manifest: raw.manifest_path });
    };
    let part = part.to_owned();
    Ok(in_part(&part, raw))
}

fn in_part(part: &str, raw: RawPackage) -> Package {
    let dependencies = raw.dependencies.into_iter().filter(|dependency| dependency.path.is_some());
    let dependencies = dependencies.map(|dependency| Dependency {
        to: dependency.name,
        table: match dependency.kind.as_deref() {
            Some("dev") => "dev-dependencies",
            Some("build") => "build-dependencies",
            _ => "dependencies",
        },
    });
    Package { name: raw.name, part: part.to_owned(), dependencies: dependencies.collect() }
}

/// The packages that `package` links with the features that these options of cargo select, all the way down, without
/// itself and without macros that run at build time.
///
/// # Errors
/// [`Error`]
pub fn linked(root: &Path, package: &str, options: &[&str]) -> Result<BTreeSet<String>, Error> {
    let edges = "normal,no-proc-macro";
    let mut arguments =
        vec!["tree", "--package", package, "--edges", edges, "--prefix", "none", "--offline", "--locked"];
    arguments.extend(options);
    let answer = cargo(root, &arguments)?;
    let names = answer.lines().filter_map(|line| line.split_whitespace().next());
    Ok(names.filter(|name| *name != package).map(str::to_owned).collect())
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String, Error> {
    let failed = |reason: String| Error::Cargo {
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        reason,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(arguments).current_dir(root).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
