//! The library is layers: no module uses one of a layer above its own, and within a layer no two use each other.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// From below.
const LAYERS: [&str; 5] = ["base", "connections", "content", "kinds", "calls"];

/// A module: its layer, and its name there (empty for what the layer's own file has).
type Module = (usize, String);

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

/// The module that a source file is of, by its path below `src`. `None`: the root.
fn module_of(path: &str) -> Option<Module> {
    let mut parts = path.trim_end_matches(".rs").split('/');
    let first = parts.next().unwrap();
    if first == "lib" {
        return None;
    }
    let layer = layer_of(first).unwrap_or_else(|| panic!("{path} is in none of the layers {LAYERS:?}"));
    Some((layer, parts.next().unwrap_or_default().to_owned()))
}

fn identifier(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    &text[..end]
}

/// The modules that a file of `own` names, by `crate::` or by `super::`.
fn named(text: &str, own: &Module, is_layers_child: bool) -> BTreeSet<Module> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut found = BTreeSet::new();
    let mut add = |layer: usize, rest: &str| {
        let names: Vec<&str> = match rest.strip_prefix('{') {
            Some(list) => {
                list.split('}').next().unwrap().split(',').map(|name| identifier(name.trim())).collect()
            }
            None => vec![identifier(rest)],
        };
        for name in names {
            // A name that is no module is of the layer's own file.
            let is_module = name.starts_with(|letter: char| letter.is_lowercase()) && name != "new_session";
            found.insert((layer, if is_module { name.to_owned() } else { String::new() }));
        }
    };
    for rest in code.split("crate::").skip(1) {
        let first = identifier(rest);
        if let (Some(layer), Some(rest)) = (layer_of(first), rest[first.len()..].strip_prefix("::")) {
            add(layer, rest);
        }
    }
    for rest in code.split("super::").skip(1).filter(|_| is_layers_child) {
        add(own.0, rest);
    }
    found.remove(own);
    found
}

/// Violations in these files, by path below `src`.
fn faults(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut uses: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (path, text) in files {
        // Tests build what they need.
        if path.contains("tests") {
            continue;
        }
        let Some(own) = module_of(path) else { continue };
        let text = text.split("#[cfg(test)]").next().unwrap();
        for other in named(text, &own, path.matches('/').count() == 1) {
            if other.0 > own.0 {
                let (layer, name) = (LAYERS[other.0], &other.1);
                faults.push(format!("{path} uses {layer}::{name}, which is above it"));
            }
            // A layer's own file puts its modules together.
            if !(own.1.is_empty() && other.0 == own.0) {
                uses.entry(own.clone()).or_default().insert(other);
            }
        }
    }
    let modules: Vec<Module> = uses.keys().cloned().collect();
    for module in modules {
        let mut seen = BTreeSet::new();
        let mut next: Vec<Module> = uses[&module].iter().cloned().collect();
        while let Some(other) = next.pop() {
            if other == module {
                faults.push(format!("{}::{} uses itself through others", LAYERS[module.0], module.1));
                break;
            }
            if seen.insert(other.clone()) {
                next.extend(uses.get(&other).into_iter().flatten().cloned());
            }
        }
    }
    faults
}

fn read(directory: &Path, prefix: &str, into: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            read(&entry.path(), &format!("{name}/"), into);
        } else if name.ends_with(".rs") {
            into.insert(name, std::fs::read_to_string(entry.path()).unwrap());
        }
    }
}

#[test]
fn no_arrow_runs_back_up() {
    let mut files = BTreeMap::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut files);
    assert!(files.len() > 40, "{}", files.len());
    let faults = faults(&files);
    assert!(faults.is_empty(), "{faults:#?}");

    // It would be found.
    let mut with_arrow = files.clone();
    with_arrow.get_mut("kinds/plain.rs").unwrap().insert_str(0, "use crate::calls::process::active;\n");
    assert!(
        self::faults(&with_arrow).iter().any(|fault| fault.contains("kinds/plain.rs uses calls::process"))
    );
    let mut with_circle = files;
    with_circle.get_mut("base/real.rs").unwrap().insert_str(0, "use super::{config, message};\n");
    assert!(self::faults(&with_circle).iter().any(|fault| fault.contains("base::real uses itself")));
}
