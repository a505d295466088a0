//! Compares packages with the rules. Every function returns violations, each as one message.

use crate::rules::{EXPERIMENTAL_FEATURE, Exception, Loaded, Part, ServerTests};
use crate::workspace::Package;
use std::collections::{BTreeMap, BTreeSet};

/// Edges that the picture does not allow, parts that are not known, and exceptions that are not needed.
pub fn edges(packages: &[Package], parts: &[Part], exceptions: &[Exception]) -> Vec<String> {
    let part_of: BTreeMap<&str, &str> =
        packages.iter().map(|package| (package.name.as_str(), package.part.as_str())).collect();
    let mut violations = Vec::new();
    let mut needed = BTreeSet::new();
    for package in packages {
        let Some(part) = parts.iter().find(|part| part.name == package.part) else {
            violations.push(format!("{} is in crates/{}, which is no part", package.name, package.part));
            continue;
        };
        for dependency in &package.dependencies {
            let to_part = part_of.get(dependency.to.as_str()).copied().unwrap_or("outside of the workspace");
            if part.may_use.contains(&to_part) {
                continue;
            }
            let edge = (package.name.as_str(), dependency.to.as_str());
            if exceptions.iter().any(|exception| (exception.from, exception.to) == edge) {
                needed.insert(edge);
                continue;
            }
            violations.push(format!(
                "{} ({}) -> {} ({to_part}) in [{}]: {}",
                package.name, package.part, dependency.to, dependency.table, part.rule
            ));
        }
    }
    let unneeded = exceptions.iter().filter(|exception| !needed.contains(&(exception.from, exception.to)));
    violations.extend(unneeded.map(|exception| {
        format!("the exception {} -> {} is not needed any more: remove it", exception.from, exception.to)
    }));
    violations
}

/// Crates outside of tools that use a package for tests in the product.
pub fn test_packages(packages: &[Package], for_tests: &[&str]) -> Vec<String> {
    let mut violations = Vec::new();
    for package in packages.iter().filter(|package| package.part != "tools") {
        for dependency in &package.dependencies {
            let is_test_package = for_tests.contains(&dependency.to.as_str());
            if is_test_package && dependency.table != "dev-dependencies" {
                violations.push(format!(
                    "{} -> {} in [{}]: the package is for tools and tests, and may be in [dev-dependencies] only",
                    package.name, dependency.to, dependency.table
                ));
            }
        }
    }
    violations
}

/// Packages that depend on one for tests on real servers and are not listed as its users, and users that are listed and
/// do not.
pub fn server_tests(packages: &[Package], rules: &[ServerTests]) -> Vec<String> {
    let mut violations = Vec::new();
    for rule in rules {
        let depends = |package: &&Package| package.dependencies.iter().any(|edge| edge.to == rule.package);
        let users: BTreeSet<&str> =
            packages.iter().filter(depends).map(|package| package.name.as_str()).collect();
        let beyond = users.iter().filter(|user| !rule.users.contains(*user));
        violations.extend(beyond.map(|user| {
            format!("{user} -> {}: for tests on real servers, used by {:?} only", rule.package, rule.users)
        }));
        let unneeded = rule.users.iter().filter(|user| !users.contains(*user));
        violations
            .extend(unneeded.map(|user| {
                format!("{user} may use {} and does not: remove it from the list", rule.package)
            }));
    }
    violations
}

/// Packages that depend on a library which is loaded into a server, and are not listed as its users.
pub fn users(packages: &[Package], loaded: &[Loaded]) -> Vec<String> {
    let mut violations = Vec::new();
    for library in loaded {
        if !packages.iter().any(|package| package.name == library.package) {
            violations
                .push(format!("{} is listed as loaded into a server, and is no package", library.package));
        }
        let depends = |package: &&Package| package.dependencies.iter().any(|edge| edge.to == library.package);
        for package in packages.iter().filter(depends) {
            if !library.users.contains(&package.name.as_str()) {
                violations.push(format!(
                    "{} -> {}: the library is loaded into a server and may be used by {:?} only",
                    package.name, library.package, library.users
                ));
            }
        }
    }
    violations
}

/// Packages that a library loaded into a server links beyond its list, and packages of the workspace that are listed and
/// not linked.
pub fn links(library: &Loaded, linked: &BTreeSet<String>) -> Vec<String> {
    let beyond = linked.iter().filter(|name| !library.may_link.contains(&name.as_str())).map(|name| {
        format!(
            "{} links {name}, which is not in its list of what may be loaded into a server",
            library.package
        )
    });
    let unneeded =
        library.may_link.iter().filter(|name| name.starts_with("redoubt-") && !linked.contains(**name)).map(
            |name| {
                format!("{} may link {name} and does not any more: remove it from the list", library.package)
            },
        );
    beyond.chain(unneeded).collect()
}

/// Experimental packages that the default build of `package` links.
pub fn experimental(package: &str, linked: &BTreeSet<String>, experimental: &[&str]) -> Vec<String> {
    let found = linked.iter().filter(|name| experimental.contains(&name.as_str()));
    found
        .map(|name| format!("{package} links {name}: only the feature {EXPERIMENTAL_FEATURE} may do that"))
        .collect()
}

/// Packages for options and output that the library `package` links.
pub fn command_line(package: &str, linked: &BTreeSet<String>, command_line: &[&str]) -> Vec<String> {
    let found = linked.iter().filter(|name| command_line.contains(&name.as_str()));
    found.map(|name| format!("{package} links {name}: it is a library without options and output")).collect()
}
