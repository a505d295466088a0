//! Removes the remains of a killed test: mounts and loop devices of its temporary directory, network namespaces with
//! its process id in their names, and the directory itself.

use std::path::Path;
use std::process::{Command, Stdio};

/// Removes the remains of the test with this process id and temporary directory, as far as possible.
pub fn clean(id: u32, directory: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|point| Path::new(point).starts_with(directory));
    // Those inside of others come later in the list.
    for point in points.collect::<Vec<_>>().into_iter().rev() {
        run("umount", &["--lazy", point]);
    }
    for device in loop_devices(directory) {
        run("losetup", &["--detach", &device]);
    }
    for name in namespaces(id) {
        run("ip", &["netns", "del", &name]);
    }
    // Fails only where something is still mounted or written.
    let _ = std::fs::remove_dir_all(directory);
}

fn run(program: &str, arguments: &[&str]) {
    let _ = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).status();
}

fn loop_devices(directory: &Path) -> Vec<String> {
    let Ok(output) =
        Command::new("losetup").args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).output()
    else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let pairs = text.lines().filter_map(|line| line.trim().split_once(' '));
    let ours = pairs.filter(|(_, file)| Path::new(file.trim()).starts_with(directory));
    ours.map(|(device, _)| device.to_owned()).collect()
}

fn namespaces(id: u32) -> Vec<String> {
    let Ok(directory) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = directory.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.split('-').any(|part| part == id.to_string())).collect()
}
