//! Traces of a volume: begun and fetched by the `redoubt` command; see [`crate::trace`].

use super::Volume;
use crate::error::NodeError;
use crate::trace::Joined;
use redoubt_wire::notice::Notice;
use redoubt_wire::trace::{Sample, Traced};

impl Volume {
    /// Begins to measure one in so many commits and page reads.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if the volume is being traced already; [`NodeError::Stopped`].
    pub fn begin_trace(&self, one_in: u32) -> Result<(), NodeError> {
        self.context.check_running()?;
        if !self.context.tracer.begin(one_in) {
            return Err(NodeError::Refused(format!(
                "volume {} is being traced already; wait until that trace ends",
                self.context.name
            )));
        }
        self.context.notices.send(&Notice::Trace { one_in: self.context.tracer.one_in() });
        Ok(())
    }

    /// Ends the trace.
    pub fn end_trace(&self) {
        self.context.tracer.end();
        self.context.notices.send(&Notice::Trace { one_in: 0 });
    }

    /// The samples that were completed since the last call, and how many were lost.
    pub fn take_trace(&self) -> (Vec<Sample>, u64) {
        let (joined, lost) = self.context.tracer.take();
        let names = self.indexing.names.read();
        let sample = |joined: Joined| {
            let what = match joined.page {
                None => Traced::Commit { position: joined.position.0 },
                Some((file, offset_bytes)) => {
                    let path = names.file(file).map_or_else(String::new, |entry| entry.path.clone());
                    Traced::Read { path, offset_bytes }
                }
            };
            let total_nanos = joined.stages.iter().map(|(_, nanos)| nanos).sum();
            Sample { what, total_nanos, stages: joined.stages.into_iter().collect() }
        };
        (joined.into_iter().map(sample).collect(), lost)
    }
}
