//! Threads with the calls of `std::thread`.
//!
//! A thread that a simulated thread starts belongs to the same simulation. Unless specified, it also belongs to the
//! same group.

use crate::simulation::{self, Born, Resource, Task};
use redoubt_locks::IgnorePoison;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs `action`; `Err`: it panicked, with this message. The end of a killed simulated thread is not held up.
///
/// # Errors
/// The message of the panic.
pub fn catch_panic<T>(action: impl FnOnce() -> T) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(action)).map_err(|payload| {
        if simulation::is_kill(&*payload) {
            resume_unwind(payload);
        }
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
    })
}

/// Return value of a thread, or the payload of its panic.
pub type Result<T> = std::thread::Result<T>;

/// Settings of a new thread.
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
}

/// A started thread.
#[derive(Debug)]
pub struct JoinHandle<T>(Kind<T>);

#[derive(Debug)]
enum Kind<T> {
    Real(std::thread::JoinHandle<T>),
    Simulated { id: usize, result: Arc<Mutex<Option<Result<T>>>> },
}

impl Builder {
    /// Settings of a thread without a name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the thread's name.
    #[must_use]
    pub fn name(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system cannot create another thread.
    pub fn spawn<F, T>(self, body: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let mut builder = std::thread::Builder::new();
        let name = self.name.clone().unwrap_or_default();
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        let Some(task) = simulation::may_be_simulated().then(simulation::current).flatten() else {
            return Ok(JoinHandle(Kind::Real(builder.spawn(body)?)));
        };
        task.point();
        let born = task.bear(&name, None);
        let id = born.id();
        let result = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&result);
        builder.spawn(move || {
            born.live(|| {
                let returned = catch_unwind(AssertUnwindSafe(body));
                *theirs.lock().ignore_poison() = Some(returned);
            });
        })?;
        Ok(JoinHandle(Kind::Simulated { id, result }))
    }
}

/// Starts a thread.
///
/// # Panics
/// If the operating system cannot create another thread.
pub fn spawn<F, T>(body: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match Builder::new().spawn(body) {
        Ok(handle) => handle,
        Err(error) => panic!("cannot start a thread: {error}"),
    }
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended.
    ///
    /// # Errors
    /// The payload of the thread's panic.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        match self.0 {
            Kind::Real(handle) => handle.join(),
            Kind::Simulated { id, result } => {
                if let Some(task) = simulation::current() {
                    task.join(id, Location::caller());
                }
                let returned = result.lock().ignore_poison().take();
                returned.unwrap_or_else(|| Err(Box::new("the thread was killed")))
            }
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::Real(handle) => handle.is_finished(),
            Kind::Simulated { result, .. } => {
                simulation::point();
                result.lock().ignore_poison().is_some()
            }
        }
    }
}

/// Starts threads that end before [`scope`] returns.
pub struct Scope<'scope, 'env: 'scope> {
    inner: &'scope std::thread::Scope<'scope, 'env>,
    simulated: Option<Children>,
}

/// The simulated threads of a scope; when dropped, waits until they have ended.
struct Children {
    task: Arc<Task>,
    ids: Mutex<Vec<usize>>,
    place: &'static Location<'static>,
}

impl Drop for Children {
    fn drop(&mut self) {
        let ids = std::mem::take(&mut *self.ids.lock().ignore_poison());
        for id in ids {
            self.task.join_quietly(id, self.place);
        }
    }
}

/// Runs `body`, which may start threads with borrowed data. Returns when these threads have ended.
#[track_caller]
pub fn scope<'env, F, T>(body: F) -> T
where
    F: for<'scope> FnOnce(&Scope<'scope, 'env>) -> T,
{
    let place = Location::caller();
    std::thread::scope(|inner| {
        let task = simulation::may_be_simulated().then(simulation::current).flatten();
        let simulated = task.map(|task| Children { task, ids: Mutex::default(), place });
        body(&Scope { inner, simulated })
    })
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread of the scope.
    pub fn spawn<F>(&self, body: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        match &self.simulated {
            None => {
                self.inner.spawn(body);
            }
            Some(children) => {
                let born: Born = children.task.bear("scoped", None);
                children.ids.lock().ignore_poison().push(born.id());
                self.inner.spawn(move || {
                    let mut failed = None;
                    born.live(|| failed = catch_unwind(AssertUnwindSafe(body)).err());
                    // A killed thread needs no report: the waiting thread is killed, too.
                    if let Some(payload) = failed.filter(|payload| !simulation::is_kill(&**payload)) {
                        resume_unwind(payload);
                    }
                });
            }
        }
    }
}

/// Handle of a thread for [`park`] and [`Thread::unpark`].
#[derive(Clone, Debug)]
pub struct Thread(Parked);

#[derive(Clone)]
enum Parked {
    Real(std::thread::Thread),
    Simulated(Arc<Task>),
}

impl std::fmt::Debug for Parked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Real(thread) => thread.fmt(f),
            Self::Simulated(task) => write!(f, "simulated thread {}", task.id()),
        }
    }
}

/// The running thread.
pub fn current() -> Thread {
    match simulation::may_be_simulated().then(simulation::current).flatten() {
        Some(task) => Thread(Parked::Simulated(task)),
        None => Thread(Parked::Real(std::thread::current())),
    }
}

impl Thread {
    /// Ends the current or next [`park`] of the thread.
    pub fn unpark(&self) {
        match &self.0 {
            Parked::Real(thread) => thread.unpark(),
            Parked::Simulated(task) => task.unpark(),
        }
    }
}

/// Sleeps until [`Thread::unpark`].
#[track_caller]
pub fn park() {
    match simulation::may_be_simulated().then(simulation::current).flatten() {
        Some(task) => task.park(Location::caller()),
        None => {
            std::thread::park();
        }
    }
}

/// Sleeps for a duration.
#[track_caller]
pub fn sleep(time: Duration) {
    match simulation::may_be_simulated().then(simulation::current).flatten() {
        Some(task) => {
            let deadline = task.now().saturating_add(time);
            task.block(Resource::Time, Some(deadline), Location::caller());
        }
        None => {
            std::thread::sleep(time);
        }
    }
}

/// Lets other threads run.
pub fn yield_now() {
    match simulation::may_be_simulated().then(simulation::current).flatten() {
        Some(task) => task.point(),
        None => {
            std::thread::yield_now();
        }
    }
}
