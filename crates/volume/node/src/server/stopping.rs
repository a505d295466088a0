//! Steps that a stopping node waits for, in words for the operator.

use redoubt_sync::Mutex;

/// Steps of stopping that are under way.
#[derive(Default)]
pub struct Steps {
    under_way: Mutex<Vec<String>>,
}

impl Steps {
    /// Runs one step; while it runs, [`Steps::describe`] names it.
    pub fn run(&self, what: String, step: impl FnOnce()) {
        self.under_way.lock().push(what.clone());
        step();
        let mut under_way = self.under_way.lock();
        if let Some(at) = under_way.iter().position(|step| *step == what) {
            under_way.remove(at);
        }
    }

    /// The steps under way and the threads that are left; `None`: nothing is under way.
    pub fn describe(&self) -> Option<String> {
        let under_way = self.under_way.lock();
        if under_way.is_empty() {
            return None;
        }
        let mut steps = under_way.clone();
        drop(under_way);
        // A second caller of stop waits for the same.
        steps.sort();
        steps.dedup();
        let threads = thread_names();
        let threads = if threads.is_empty() { "not known".to_owned() } else { threads.join(", ") };
        Some(format!("{}; threads that still run: {threads}", steps.join(", ")))
    }
}

/// Names of this process's threads, as far as the kernel keeps them (15 bytes), with the kernel's letter for their
/// state (D: it waits for a device and cannot be interrupted). Idle helpers are among them: a thread in the list need
/// not be the one that stopping waits for.
fn thread_names() -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let mut names: Vec<_> = tasks
        .flatten()
        .filter_map(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
            let (_, rest) = stat.split_once('(')?;
            let (name, rest) = rest.rsplit_once(')')?;
            Some(format!("{name} ({})", rest.trim_start().chars().next()?))
        })
        .collect();
    names.sort();
    names
}
