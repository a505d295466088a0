//! [`NoDescriptors`]: a lack of descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// This process can open no descriptor while this value lives. For child processes ([`crate::child`]), because it affects
/// all threads.
pub struct NoDescriptors(Rlimit);

impl NoDescriptors {
    /// The lack begins.
    ///
    /// # Panics
    /// If the limit cannot be changed.
    pub fn begin() -> Self {
        let limit = getrlimit(Resource::Nofile);
        let changed = setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: limit.maximum });
        assert!(changed.is_ok() && std::fs::File::open("/").is_err(), "descriptors cannot be limited");
        Self(limit)
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}
