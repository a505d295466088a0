//! State of a simulation: its threads with their waits, the time, and failures.

use super::choice::Choice;
use super::{Options, Report, Resource, Task, Woken};
use std::collections::{BTreeSet, VecDeque};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Virtual duration of a point.
const STEP: Duration = Duration::from_micros(1);
/// Early deadlines are not later than this from now, except for one in [`FAR`].
const NEAR: Duration = Duration::from_secs(1);
const FAR: u32 = 16;
const NOTES_KEPT: usize = 400;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Ready,
    Blocked { on: Resource, place: &'static Location<'static> },
    Ended,
}

struct Thread {
    task: Arc<Task>,
    name: String,
    group: u32,
    status: Status,
    deadline: Option<Duration>,
    woken: Woken,
}

pub(crate) struct Scheduler {
    threads: Vec<Thread>,
    /// Threads that have not ended.
    live: Vec<usize>,
    choice: Choice,
    pub now: Duration,
    pub steps: u64,
    max_steps: u64,
    switches: u64,
    trace: u64,
    failure: Option<String>,
    notes: VecDeque<String>,
    /// Killed groups: a new thread of such a group is killed, too.
    killed: BTreeSet<u32>,
}

impl Scheduler {
    pub fn new(options: &Options) -> Self {
        Self {
            threads: Vec::new(),
            live: Vec::new(),
            choice: Choice::new(options.seed),
            now: Duration::ZERO,
            steps: 0,
            max_steps: options.max_steps,
            switches: 0,
            trace: 0,
            failure: None,
            notes: VecDeque::new(),
            killed: BTreeSet::new(),
        }
    }

    pub fn next_id(&self) -> usize {
        self.threads.len()
    }

    /// Adds a thread that can run, and returns a seed for it.
    pub fn add(&mut self, task: &Arc<Task>, name: &str, group: u32) -> u64 {
        self.live.push(task.id);
        // After a failure, new threads are killed as well.
        let is_killed = self.failure.is_some() || self.killed.contains(&group);
        task.is_killed.store(is_killed, Ordering::Release);
        self.threads.push(Thread {
            task: Arc::clone(task),
            name: name.to_owned(),
            group,
            status: Status::Ready,
            deadline: None,
            woken: Woken::Notified,
        });
        self.choice.rng.u64(..)
    }

    pub fn group_of(&self, id: usize) -> u32 {
        self.threads[id].group
    }

    pub fn fork_random(&mut self) -> u64 {
        self.choice.rng.u64(..)
    }

    pub fn set_calm(&mut self, is_calm: bool) {
        self.choice.is_calm = is_calm;
    }

    pub fn mix(&mut self, value: u64) {
        self.trace = (self.trace ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn step(&mut self, id: usize) {
        self.steps += 1;
        self.now += STEP;
        self.mix(self.steps << 8 | id as u64);
        if self.steps > self.max_steps {
            self.fail(id, &format!("not done after {} steps:{}", self.max_steps, self.describe()));
        }
        if self.choice.wants_early_deadline() {
            self.bring_deadline_forward();
        }
        self.wake_due();
    }

    /// Thread `id` can continue: selects the thread that does.
    pub fn pass_point(&mut self, id: usize) -> Arc<Task> {
        self.step(id);
        let next = if self.choice.wants_change(self.steps) { self.choose().unwrap_or(id) } else { id };
        self.change(id, next)
    }

    /// Thread `id` waits: selects the next thread. `None`: no thread can run, and the simulation has failed.
    pub fn block(
        &mut self,
        id: usize,
        on: Resource,
        deadline: Option<Duration>,
        place: &'static Location<'static>,
    ) -> Option<Arc<Task>> {
        self.step(id);
        let thread = &mut self.threads[id];
        thread.status = Status::Blocked { on, place };
        thread.deadline = deadline;
        let next = self.choose_or_wait().or_else(|| {
            let what = self.describe();
            self.fail(id, &format!("deadlock:{what}"));
            // All threads unwind now, if possible.
            self.choose_or_wait()
        });
        next.map(|next| self.change(id, next))
    }

    /// Reason of the end of thread `id`'s last wait.
    pub fn woken(&self, id: usize) -> Woken {
        self.threads[id].woken
    }

    fn change(&mut self, from: usize, to: usize) -> Arc<Task> {
        if from != to {
            self.switches += 1;
        }
        Arc::clone(&self.threads[to].task)
    }

    fn choose(&mut self) -> Option<usize> {
        let ready: Vec<usize> =
            self.live.iter().copied().filter(|&id| self.threads[id].status == Status::Ready).collect();
        (!ready.is_empty()).then(|| self.choice.one_of(&ready, self.steps))
    }

    /// Selects a thread. If none can run, time advances to the next deadline.
    fn choose_or_wait(&mut self) -> Option<usize> {
        if let Some(id) = self.choose() {
            return Some(id);
        }
        let next = self.deadlines().map(|(deadline, _)| deadline).min()?;
        self.now = self.now.max(next);
        self.wake_due();
        self.choose()
    }

    fn deadlines(&self) -> impl Iterator<Item = (Duration, usize)> {
        self.live.iter().filter_map(|&id| {
            let thread = &self.threads[id];
            let is_blocked = matches!(thread.status, Status::Blocked { .. });
            thread.deadline.filter(|_| is_blocked).map(|deadline| (deadline, id))
        })
    }

    fn bring_deadline_forward(&mut self) {
        let limit = if self.choice.rng.u32(..FAR) == 0 { Duration::MAX } else { self.now + NEAR };
        let near: Vec<Duration> =
            self.deadlines().map(|(deadline, _)| deadline).filter(|deadline| *deadline <= limit).collect();
        if !near.is_empty() {
            self.now = self.now.max(near[self.choice.rng.usize(..near.len())]);
        }
    }

    fn wake_due(&mut self) {
        let due: Vec<usize> =
            self.deadlines().filter(|(deadline, _)| *deadline <= self.now).map(|(_, id)| id).collect();
        for id in due {
            self.wake(id, Woken::TimedOut);
        }
    }

    fn wake(&mut self, id: usize, woken: Woken) {
        let thread = &mut self.threads[id];
        thread.status = Status::Ready;
        thread.deadline = None;
        thread.woken = woken;
    }

    fn waiting_for(&self, resource: Resource) -> Vec<usize> {
        let waits =
            |id: &usize| matches!(self.threads[*id].status, Status::Blocked { on, .. } if on == resource);
        self.live.iter().copied().filter(waits).collect()
    }

    pub fn is_waited_for(&self, resource: Resource) -> bool {
        !self.waiting_for(resource).is_empty()
    }

    pub fn wake_all(&mut self, resource: Resource) {
        for id in self.waiting_for(resource) {
            self.wake(id, Woken::Notified);
        }
    }

    pub fn wake_one(&mut self, resource: Resource) {
        let waiting = self.waiting_for(resource);
        if !waiting.is_empty() {
            let id = waiting[self.choice.rng.usize(..waiting.len())];
            self.wake(id, Woken::Notified);
        }
    }

    pub fn wake_thread(&mut self, id: usize, resource: Resource) {
        if matches!(self.threads[id].status, Status::Blocked { on, .. } if on == resource) {
            self.wake(id, Woken::Notified);
        }
    }

    pub fn has_ended(&self, id: usize) -> bool {
        self.threads[id].status == Status::Ended
    }

    pub fn has_group_ended(&self, group: u32) -> bool {
        self.live.iter().all(|&id| self.threads[id].group != group)
    }

    pub fn kill(&mut self, group: u32) {
        self.killed.insert(group);
        for id in self.live.clone() {
            if self.threads[id].group == group {
                self.kill_thread(id);
            }
        }
    }

    fn kill_thread(&mut self, id: usize) {
        self.threads[id].task.is_killed.store(true, Ordering::Release);
        if matches!(self.threads[id].status, Status::Blocked { .. }) {
            self.wake(id, Woken::Notified);
        }
    }

    /// Thread `id` has ended: selects the next thread. `None`: no thread can ever run again.
    pub fn end(&mut self, id: usize) -> Option<Arc<Task>> {
        self.threads[id].status = Status::Ended;
        self.live.retain(|&other| other != id);
        self.wake_all(Resource::Thread(id));
        let group = self.threads[id].group;
        if self.has_group_ended(group) {
            self.wake_all(Resource::Group(group));
        }
        if id == 0 {
            // The end of the first thread ends all others.
            for id in self.live.clone() {
                self.kill_thread(id);
            }
        }
        if self.live.is_empty() {
            return None;
        }
        let next = self.choose_or_wait().or_else(|| {
            let what = self.describe();
            self.fail(id, &format!("deadlock:{what}"));
            self.choose_or_wait()
        });
        next.map(|next| self.change(id, next))
    }

    /// Records the first failure, and kills all threads.
    pub fn fail(&mut self, id: usize, message: &str) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some(format!("thread {}: {message}", self.threads[id].name));
        for id in self.live.clone() {
            self.kill_thread(id);
        }
    }

    pub fn note(&mut self, id: usize, text: &str) {
        if self.notes.len() == NOTES_KEPT {
            self.notes.pop_front();
        }
        let text = format!(
            "{:>9} {:>12.6} {:<16} {text}",
            self.steps,
            self.now.as_secs_f64(),
            self.threads[id].name
        );
        self.notes.push_back(text);
    }

    /// Describes the wait of each thread.
    fn describe(&self) -> String {
        let mut text = String::new();
        for thread in self.live.iter().map(|&id| &self.threads[id]) {
            let line = match thread.status {
                Status::Blocked { on, place } => match thread.deadline {
                    Some(deadline) => {
                        format!("waits for {on:?} at {place} until {:.6}", deadline.as_secs_f64())
                    }
                    None => format!("waits for {on:?} at {place}"),
                },
                _ => "can run".to_owned(),
            };
            text.push_str(&format!("\n  {} (group {}) {line}", thread.name, thread.group));
        }
        text
    }

    pub fn conclude(&mut self) -> (Option<String>, Report, Vec<String>) {
        let report = Report {
            steps: self.steps,
            switches: self.switches,
            time: self.now,
            threads: self.threads.len() as u64,
            trace: self.trace,
        };
        (self.failure.take(), report, self.notes.drain(..).collect())
    }
}
