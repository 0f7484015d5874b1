//! Every bound of the daemon: its name, its default, the values it may take.
//!
//! The name is the configuration key (`limits.NAME`), the environment variable
//! (`EXECUTOR_LIMITS_NAME`) and the metadata `limit` of the error that tells of
//! it, so that whoever meets a bound knows what to change.

/// One bound as the configuration sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Its name.
    pub name: &'static str,
    /// What holds when nobody says otherwise.
    pub default: u64,
    /// The smallest value that works.
    pub min: u64,
    /// The largest value that is promised to work.
    pub max: u64,
    /// What it bounds, with its unit.
    pub about: &'static str,
}

/// Why a limit cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// No such limit.
    #[error("there is no limit of that name; the limits are {}", names())]
    Unknown,
    /// Too small or too large.
    #[error("it must be {min} to {max}")]
    OutOfRange {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
}

fn names() -> String {
    let names: Vec<_> = Limits::BOUNDS.iter().map(|bound| bound.name).collect();
    names.join(", ")
}

macro_rules! limits {
    ($($name:ident: $type:ty = $default:expr, $min:expr, $max:expr, $about:literal;)*) => {
        /// The bounds in force. Passed in, never global.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $(#[doc = $about] pub $name: $type,)*
        }

        impl Limits {
            /// All bounds, in the order of their documentation.
            pub const BOUNDS: &'static [Bound] = &[
                $(Bound {
                    name: stringify!($name),
                    default: $default,
                    min: $min,
                    max: $max,
                    about: $about,
                },)*
            ];

            /// Sets one bound by its name.
            ///
            /// # Errors
            /// For a name that is none, and for a value out of the bound's
            /// range; then nothing is changed.
            pub fn set(&mut self, name: &str, value: u64) -> Result<(), LimitError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = <$type>::try_from(value)
                            .ok()
                            .filter(|_| ($min..=$max).contains(&value))
                            .ok_or(LimitError::OutOfRange { min: $min, max: $max })?;
                    })*
                    _ => return Err(LimitError::Unknown),
                }
                Ok(())
            }

            /// All bounds with their values.
            #[must_use]
            pub fn values(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), self.$name.to_string()),)*]
            }
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }
    };
}

limits! {
    sessions: usize = 256, 1, 65_536, "Sessions that may be open at a time.";
    processes_per_session: usize = 64, 1, 65_536, "Processes kept in one session, running and finished.";
    receipts_per_session: usize = 65_536, 64, 1_048_576, "Processes that a session may start in its life.";
    log_head_bytes: usize = 64 << 10, 64 << 10, 64 << 10, "Bytes of each log's beginning that are retained.";
    log_tail_bytes: usize = 1 << 20, 1 << 20, 1 << 20, "Newest bytes of each log that are retained.";
    log_total_bytes: u64 = 1 << 30, 4 << 20, 64 << 30, "Bytes of memory for all logs together.";
    read_page_bytes: usize = 64 << 10, 1 << 10, 64 << 10, "Bytes of output in one ReadOutput or StartProcess reply.";
    stream_page_bytes: usize = 256 << 10, 4 << 10, 256 << 10, "Bytes of output in one message of StreamOutput.";
    stdin_write_bytes: usize = 128 << 10, 1 << 10, 128 << 10, "Bytes of one WriteStdin.";
    stdin_queue_bytes: usize = 256 << 10, 128 << 10, 16 << 20, "Bytes of input queued for one process.";
    stdin_writers: usize = 64, 1, 1_024, "Writers of one process.";
    command_bytes: usize = 4 << 20, 4 << 10, 4 << 20, "Bytes of one command.";
    wait_seconds: usize = 300, 1, 300, "Longest wait of one call, in seconds.";
    message_bytes: usize = 8 << 20, 1 << 20, 16 << 20, "Bytes of one request message.";
    request_bytes: usize = 64 << 20, 16 << 20, 1 << 30, "Bytes of requests that have begun and not yet arrived whole, on all connections.";
    connections: usize = 1_024, 8, 65_536, "Connections; one more is closed at once.";
    calls: usize = 4_096, 16, 1_048_576, "Calls in flight on all connections.";
    concurrent_streams: usize = 65_536, 16, 1_048_576, "Calls in flight on one connection.";
    blocking_threads: usize = 16, 2, 512, "Threads for work that blocks, besides those for files.";
    file_reads: usize = 16, 1, 256, "Reads of files and directories at work at a time; more wait.";
    file_changes: usize = 8, 1, 256, "Changes of files at work at a time; more wait.";
    file_wait_seconds: usize = 10, 1, 300, "Longest wait of an operation on files for a place, and of a change for its turn, in seconds.";
    file_read_lines: u32 = 2_000, 1, 10_000, "Lines of one page of a file.";
    file_list_entries: u32 = 100_000, 1, 1_000_000, "Entries of one listing.";
    file_unsized_bytes: u64 = 64 << 20, 1 << 20, 1 << 30, "Bytes that are read of a file that says it has none, as those of /proc.";
    file_indexes: usize = 256, 0, 65_536, "Files whose lines are found again without being counted again; 48 KiB of memory each.";
    undo_mutations: usize = 50, 0, 10_000, "Changes of one session that can be taken back.";
    undo_file_bytes: u64 = 64 << 20, 0, 4 << 30, "Largest file that is kept so that a change of it can be taken back.";
    undo_session_bytes: u64 = 256 << 20, 0, 64 << 30, "Bytes of files that are kept so that changes of one session can be taken back.";
    file_writes: usize = 256, 1, 4_096, "Writes whose content is arriving; each may take 2 MiB of memory.";
    file_searches: usize = 64, 1, 1_024, "Searches that are open; each may take 16 MiB of memory, more where directories are huge.";
    search_threads: usize = 16, 1, 256, "Threads of all searches together.";
    image_reads: usize = 2, 1, 64, "Images read at a time; more wait. The largest take up to 1 GiB of memory each.";
}

impl Limits {
    /// All threads for work that blocks: none for files takes one of the others.
    #[must_use]
    pub fn threads(&self) -> usize {
        let searches = self.file_searches + self.search_threads;
        let files = self.file_reads + self.file_changes + self.image_reads;
        self.blocking_threads + files + searches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_lie_in_their_ranges_and_can_be_set() {
        let mut limits = Limits::default();
        for bound in Limits::BOUNDS {
            assert!(
                (bound.min..=bound.max).contains(&bound.default),
                "{bound:?}"
            );
            assert_eq!(limits.set(bound.name, bound.default), Ok(()));
            assert_eq!(
                limits.set(bound.name, bound.max + 1),
                Err(LimitError::OutOfRange {
                    min: bound.min,
                    max: bound.max
                })
            );
        }
        assert_eq!(limits, Limits::default());
        assert_eq!(limits.set("sesions", 1), Err(LimitError::Unknown));
    }
}
