//! A deterministic scheduler for the threads that use this crate.
//!
//! [`run`] starts a simulation: its first thread runs the given body, and all threads that it starts belong to the
//! simulation. Each simulated thread is a thread of the operating system, so it has its own thread-local state.
//! Exactly one of them runs, and all others sleep at their *gate*. At every call of this crate the running thread
//! passes a *point*: the step hook checks the state, and the seeded generator selects the next thread.
//!
//! * **Time** is virtual. A step takes a microsecond. If no thread can run, time advances to the earliest deadline.
//!   Unless the simulation is calm ([`set_calm`]), a deadline sometimes passes early, while threads can still run: on
//!   a slow machine any operation may exceed its timeout.
//! * **Laziness.** From time to time one thread is not selected while any other can run. The frequency of context
//!   switches is itself a choice. So long delays at unfavourable points are as common as even progress.
//! * **Groups** are processes: [`kill`] ends all threads of a group at their current points. A killed thread unwinds
//!   from its point. Its destructors must have no effect outside (a killed process's disk must be closed to them).
//! * **Failures**: a panic in any thread, an `Err` of the step hook, [`fail`], a deadlock, too many steps. The first
//!   failure ends the simulation and is returned with the seed. The same seed and the same program fail again in the
//!   same way.
//! * **Planted bugs**: a simulation may turn on one of [`crate::planted`], in builds that have them.
//!
//! Hash maps with random keys, addresses and the real clock are not simulated. Code that has to be repeatable must not
//! depend on them.
//!
//! Locks: `state` is a leaf lock that only the running thread takes, never while it sleeps at its gate.

mod choice;
mod state;

use redoubt_locks::IgnorePoison;
use state::Scheduler;
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, PanicHookInfo, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

/// Settings of a simulation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of all choices.
    pub seed: u64,
    /// Maximum number of steps. A longer simulation fails, because a thread loops.
    pub max_steps: u64,
    /// The active planted bug.
    #[cfg(feature = "planted-bugs")]
    pub planted: Option<crate::planted::Bug>,
    /// Retain the texts of [`note`] for a failure.
    pub keep_notes: bool,
}

impl Options {
    /// Default options.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            max_steps: 3_000_000,
            #[cfg(feature = "planted-bugs")]
            planted: None,
            keep_notes: false,
        }
    }
}

/// Statistics of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of points.
    pub steps: u64,
    /// Number of context switches.
    pub switches: u64,
    /// Virtual time.
    pub time: Duration,
    /// Number of threads.
    pub threads: u64,
    /// Digest of all choices and traced values: equal runs have equal digests.
    pub trace: u64,
}

/// A simulation that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Seed of the simulation.
    pub seed: u64,
    /// Description of the failure, with the name of its thread.
    pub message: String,
    /// Statistics up to the failure.
    pub report: Report,
    /// The last texts of [`note`].
    pub notes: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        write!(f, "seed {}, step {}: {}", self.seed, self.report.steps, self.message)
    }
}

impl std::error::Error for Failure {}

/// Resource for which a thread can wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resource {
    Mutex(usize),
    ReadLock(usize),
    WriteLock(usize),
    Condvar(usize),
    Futex(usize),
    /// The end of another thread.
    Thread(usize),
    /// The end of all threads of a group.
    Group(u32),
    /// A call of unpark.
    Unpark,
    /// The thread's deadline only.
    Time,
}

impl Resource {
    /// Whether the resource is a lock: its holder releases it even if all threads are killed.
    fn is_lock(self) -> bool {
        matches!(self, Self::Mutex(_) | Self::ReadLock(_) | Self::WriteLock(_))
    }
}

/// Reason of the end of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    Notified,
    TimedOut,
}

impl Woken {
    pub(crate) fn timed_out(self) -> bool {
        self == Self::TimedOut
    }
}

/// Whether this process ever ran a simulation. Never reset, so that the check is as cheap as possible.
static HAS_SIMULATIONS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Task>>> = const { RefCell::new(None) };
}

/// Returns `false` in every process that never ran a simulation.
#[inline]
pub(crate) fn may_be_simulated() -> bool {
    HAS_SIMULATIONS.load(Ordering::Relaxed)
}

/// The running thread, if it is simulated and not in a step hook.
pub(crate) fn current() -> Option<Arc<Task>> {
    running().filter(|task| !task.in_hook.load(Ordering::Relaxed))
}

fn running() -> Option<Arc<Task>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// A point, at which another thread may be scheduled. No effect outside of a simulation.
#[inline]
pub fn point() {
    if may_be_simulated()
        && let Some(task) = current()
    {
        task.point();
    }
}

/// The planted bug of the simulation that the running thread belongs to.
#[cfg(feature = "planted-bugs")]
pub(crate) fn planted() -> Option<crate::planted::Bug> {
    if may_be_simulated() { running()?.shared.planted } else { None }
}

type Hook = Box<dyn FnMut() -> Result<(), String> + Send>;

pub(crate) struct Shared {
    state: Mutex<Scheduler>,
    hook: Mutex<Option<Hook>>,
    #[cfg(feature = "planted-bugs")]
    planted: Option<crate::planted::Bug>,
    keep_notes: bool,
    /// Real instant of virtual time 0, for callers that need an instant.
    base: Instant,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Scheduler> {
        self.state.lock().ignore_poison()
    }

    fn set_over(&self) {
        *self.is_over.lock().ignore_poison() = true;
        self.over.notify_all();
    }
}

/// A simulated thread.
pub(crate) struct Task {
    shared: Arc<Shared>,
    id: usize,
    /// The thread's gate: open when it is scheduled.
    may_run: Mutex<bool>,
    gate: Condvar,
    in_hook: AtomicBool,
    is_killed: AtomicBool,
    is_unparked: AtomicBool,
}

/// The payload with which a killed thread unwinds.
struct Killed;

/// Whether this panic's payload is that of a killed thread.
pub(crate) fn is_kill(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Killed>()
}

/// Notifies threads that wait for a lock when dropped after its release.
pub(crate) struct Released(pub(crate) Resource);

impl Drop for Released {
    #[inline]
    fn drop(&mut self) {
        if may_be_simulated() {
            self.tell();
        }
    }
}

impl Released {
    #[cold]
    fn tell(&self) {
        let Some(task) = current() else { return };
        task.wake_all(self.0);
        if let Resource::ReadLock(addr) = self.0 {
            task.wake_all(Resource::WriteLock(addr));
        }
        // Another thread may take the lock between the release and the next call. A destructor must not unwind,
        // though.
        if !std::thread::panicking() {
            task.pass_point();
        }
    }
}

impl Task {
    pub(crate) fn id(&self) -> usize {
        self.id
    }

    pub(crate) fn now(&self) -> Duration {
        self.shared.state().now
    }

    pub(crate) fn now_instant(&self) -> Instant {
        self.shared.base + self.now()
    }

    pub(crate) fn since_start(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.shared.base)
    }

    /// A point, at which another thread may be scheduled.
    pub(crate) fn point(&self) {
        self.pass_point();
        self.leave_if_killed();
    }

    fn pass_point(&self) {
        self.call_hook();
        let next = self.shared.state().pass_point(self.id);
        self.hand_over(Some(next));
    }

    /// Unwinds if the thread was killed, unless it is already unwinding.
    pub(crate) fn leave_if_killed(&self) {
        if self.is_killed.load(Ordering::Acquire) && !std::thread::panicking() {
            resume_unwind(Box::new(Killed));
        }
    }

    pub(crate) fn block(
        &self,
        on: Resource,
        deadline: Option<Duration>,
        place: &'static Location<'static>,
    ) -> Woken {
        let woken = self.block_quietly(on, deadline, place);
        self.leave_if_killed();
        woken
    }

    /// Sleeps until a wake-up for `on`, or until the deadline. Does not unwind.
    pub(crate) fn block_quietly(
        &self,
        on: Resource,
        deadline: Option<Duration>,
        place: &'static Location<'static>,
    ) -> Woken {
        self.call_hook();
        if self.is_killed.load(Ordering::Acquire) && !std::thread::panicking() && !on.is_lock() {
            return Woken::Notified;
        }
        let next = self.shared.state().block(self.id, on, deadline, place);
        self.hand_over(next);
        self.shared.state().woken(self.id)
    }

    pub(crate) fn is_waited_for(&self, resource: Resource) -> bool {
        self.shared.state().is_waited_for(resource)
    }

    pub(crate) fn wake_all(&self, resource: Resource) {
        self.shared.state().wake_all(resource);
    }

    pub(crate) fn wake_one(&self, resource: Resource) {
        self.shared.state().wake_one(resource);
    }

    pub(crate) fn join(&self, id: usize, place: &'static Location<'static>) {
        self.join_quietly(id, place);
        self.leave_if_killed();
    }

    /// Waits for a thread's end even if this one was killed, because then the other one was killed, too.
    pub(crate) fn join_quietly(&self, id: usize, place: &'static Location<'static>) {
        self.call_hook();
        while !self.shared.state().has_ended(id) {
            let next = self.shared.state().block(self.id, Resource::Thread(id), None, place);
            self.hand_over(next);
        }
    }

    pub(crate) fn park(&self, place: &'static Location<'static>) {
        self.point();
        if !self.is_unparked.swap(false, Ordering::AcqRel) {
            self.block(Resource::Unpark, None, place);
            self.is_unparked.store(false, Ordering::Release);
        }
    }

    pub(crate) fn unpark(&self) {
        point();
        self.is_unparked.store(true, Ordering::Release);
        self.shared.state().wake_thread(self.id, Resource::Unpark);
    }

    /// Creates a thread that begins when it is selected.
    pub(crate) fn bear(&self, name: &str, group: Option<u32>) -> Born {
        let mut state = self.shared.state();
        let group = group.unwrap_or_else(|| state.group_of(self.id));
        Born::new(&self.shared, &mut state, name, group)
    }

    fn call_hook(&self) {
        if std::thread::panicking() || self.is_killed.load(Ordering::Acquire) {
            return;
        }
        let mut hook = self.shared.hook.lock().ignore_poison();
        let Some(check) = hook.as_mut() else { return };
        self.in_hook.store(true, Ordering::Relaxed);
        let checked = catch_unwind(AssertUnwindSafe(check));
        self.in_hook.store(false, Ordering::Relaxed);
        match checked {
            Ok(Ok(())) => {}
            Ok(Err(message)) => self.shared.state().fail(self.id, &message),
            Err(_) => self.shared.state().fail(self.id, "the step hook panicked"),
        }
    }

    /// Lets `next` run, and sleeps until this thread is selected again.
    fn hand_over(&self, next: Option<Arc<Task>>) {
        match next {
            Some(next) if next.id == self.id => return,
            Some(next) => next.open_gate(),
            // The simulation has failed, and no thread can run, even to its end. This gate stays closed permanently.
            None => self.shared.set_over(),
        }
        self.wait_at_gate();
    }

    fn open_gate(&self) {
        *self.may_run.lock().ignore_poison() = true;
        self.gate.notify_one();
    }

    fn wait_at_gate(&self) {
        let mut may_run = self.may_run.lock().ignore_poison();
        while !std::mem::take(&mut *may_run) {
            may_run = self.gate.wait(may_run).ignore_poison();
        }
    }
}

/// A created thread that does not run yet.
pub(crate) struct Born {
    task: Arc<Task>,
    random_seed: u64,
}

impl Born {
    fn new(shared: &Arc<Shared>, state: &mut Scheduler, name: &str, group: u32) -> Self {
        let task = Arc::new(Task {
            shared: Arc::clone(shared),
            id: state.next_id(),
            may_run: Mutex::new(false),
            gate: Condvar::new(),
            in_hook: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            is_unparked: AtomicBool::new(false),
        });
        let random_seed = state.add(&task, name, group);
        Self { task, random_seed }
    }

    pub(crate) fn id(&self) -> usize {
        self.task.id
    }

    /// Runs `body` on the current operating-system thread, as this simulated thread. A kill ends here.
    pub(crate) fn live(self, body: impl FnOnce()) {
        self.task.wait_at_gate();
        CURRENT.with(|current| *current.borrow_mut() = Some(Arc::clone(&self.task)));
        fastrand::seed(self.random_seed);
        // Data of an unstarted thread of a killed group is dropped in the same way as data of a killed thread.
        let is_killed = self.task.is_killed.load(Ordering::Acquire);
        let lived = catch_unwind(AssertUnwindSafe(|| if is_killed { drop(body) } else { body() }));
        CURRENT.with(|current| *current.borrow_mut() = None);
        // Any other panic was recorded when it occurred.
        drop(lived);
        let next = self.task.shared.state().end(self.task.id);
        match next {
            Some(next) => next.open_gate(),
            None => self.task.shared.set_over(),
        }
    }
}

/// Runs `body` as the first thread of a simulation, in group 0. When `body` returns, the remaining threads are killed.
///
/// # Errors
/// The first failure.
pub fn run<T: Send + 'static>(
    options: &Options,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, Report), Failure> {
    static HOOK: Once = Once::new();
    HOOK.call_once(record_panics);
    HAS_SIMULATIONS.store(true, Ordering::Relaxed);
    let base = Instant::now();
    let shared = Arc::new(Shared {
        state: Mutex::new(Scheduler::new(options)),
        hook: Mutex::new(None),
        #[cfg(feature = "planted-bugs")]
        planted: options.planted,
        keep_notes: options.keep_notes,
        base,
        is_over: Mutex::new(false),
        over: Condvar::new(),
    });
    let first = Born::new(&shared, &mut shared.state(), "main", 0);
    first.task.open_gate();
    let result = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&result);
    let started = std::thread::Builder::new().name("simulation".to_owned()).spawn(move || {
        first.live(|| {
            let returned = body();
            *theirs.lock().ignore_poison() = Some(returned);
        });
    });
    if let Err(error) = started {
        panic!("cannot start a thread: {error}");
    }
    let mut is_over = shared.is_over.lock().ignore_poison();
    while !*is_over {
        is_over = shared.over.wait(is_over).ignore_poison();
    }
    drop(is_over);
    // The hook may own data of the threads.
    drop(shared.hook.lock().ignore_poison().take());
    let (failure, report, notes) = shared.state().conclude();
    let returned = result.lock().ignore_poison().take();
    match (failure, returned) {
        (None, Some(returned)) => Ok((returned, report)),
        (failure, _) => {
            let message = failure.unwrap_or_else(|| "its first thread was killed".to_owned());
            Err(Failure { seed: options.seed, message, report, notes })
        }
    }
}

/// Records a panic in a simulated thread as the simulation's failure, without output on standard error.
fn record_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| match running() {
        Some(task) => {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let payload = info.payload();
            let text = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("(no text)");
            let message = format!("panic at {place}: {text}");
            match task.shared.state.try_lock() {
                Ok(mut state) => state.fail(task.id, &message),
                Err(_) => before(info),
            }
        }
        None => before(info),
    }));
}

/// The running simulated thread, in a step hook or not.
fn expect_running() -> Arc<Task> {
    match running() {
        Some(task) => task,
        None => panic!("this is for threads of a simulation"),
    }
}

/// Sets a function that every thread calls at every point. It must not wait, because threads that sleep at a point may
/// hold locks. An `Err` is the simulation's failure.
pub fn set_step_hook(check: impl FnMut() -> Result<(), String> + Send + 'static) {
    let task = expect_running();
    *task.shared.hook.lock().ignore_poison() = Some(Box::new(check));
}

/// Ends the simulation with a failure.
pub fn fail(message: &str) {
    let task = expect_running();
    task.shared.state().fail(task.id, message);
    if !task.in_hook.load(Ordering::Relaxed) {
        task.leave_if_killed();
    }
}

/// A random generator derived from the seed.
pub fn random() -> fastrand::Rng {
    let task = expect_running();
    let seed = task.shared.state().fork_random();
    fastrand::Rng::with_seed(seed)
}

/// Sets calm: deadlines pass only when no thread can run, and no thread is lazy. So every operation meets its deadline
/// if it can.
pub fn set_calm(is_calm: bool) {
    expect_running().shared.state().set_calm(is_calm);
}

/// Virtual time since the start of the simulation.
pub fn time() -> Duration {
    expect_running().now()
}

/// Number of points so far.
pub fn steps() -> u64 {
    expect_running().shared.state().steps
}

/// Adds a value to the digest of the run.
pub fn trace(value: u64) {
    if let Some(task) = running() {
        task.shared.state().mix(value);
    }
}

/// Adds a text to the report of a failure, if notes are retained.
pub fn note(text: impl FnOnce() -> String) {
    if let Some(task) = running() {
        let text = text();
        if task.shared.keep_notes {
            task.shared.state().note(task.id, &text);
        }
    }
}

/// Starts a thread in a group, which stands for a process.
pub fn spawn_in_group(group: u32, name: &str, body: impl FnOnce() + Send + 'static) {
    let born = expect_running().bear(name, Some(group));
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || born.live(body));
    if let Err(error) = started {
        panic!("cannot start a thread: {error}");
    }
}

/// Kills all threads of a group, like those of a killed process. The caller must be of another group.
pub fn kill(group: u32) {
    expect_running().shared.state().kill(group);
}

/// Waits until a group has no threads left. Only the group's own threads may delay that.
#[track_caller]
pub fn wait_for_end_of(group: u32) {
    let task = expect_running();
    let place = Location::caller();
    task.point();
    while !task.shared.state().has_group_ended(group) {
        task.block(Resource::Group(group), None, place);
    }
}

/// Whether a group has no threads left.
pub fn has_ended(group: u32) -> bool {
    expect_running().shared.state().has_group_ended(group)
}
