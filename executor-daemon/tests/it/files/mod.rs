//! Programs that embed the files and are killed.

mod crash;
mod program;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use executor_daemon::files::Files;
use executor_daemon::files::cancel::Cancel;
use executor_daemon::files::content::Content;
use executor_daemon::files::edit::{EditSpec, Edited};
use executor_daemon::files::error::FileError;
use executor_daemon::files::fence::Fence;
use executor_daemon::files::mutation::Caller;
use executor_daemon::files::resolve::{Means, Resolver, directory};
use executor_daemon::files::roots::{Root, Roots};
use executor_daemon::files::secret::SecretFiles;
use executor_daemon::files::text::edits::Edit;
use executor_daemon::files::write::{WriteSpec, Written};
use executor_daemon::session::record::Access;
use executor_proto::id::{OperationId, SessionId};

/// A root and what is shared, as one program has it.
struct Mutator {
    files: Files,
    fence: Fence,
    session: SessionId,
}

impl Mutator {
    fn new(root: &Path, state: &Path, session: SessionId) -> Self {
        let files = Files::open(state);
        let roots = Roots::new(vec![Root::open(root, Access::ReadWrite).unwrap()]);
        let cwd = directory(&roots, Path::new("/"), root.as_os_str(), Means::Kernel).unwrap();
        let none: [&str; 0] = [];
        let secrets = Arc::new(SecretFiles::new(none, []).unwrap());
        let fence = Fence::new(Resolver::new(roots, cwd, Means::Kernel), secrets);
        Self {
            files,
            fence,
            session,
        }
    }

    fn caller(&self, operation: OperationId) -> Caller<'_> {
        Caller {
            session: self.session,
            fence: &self.fence,
            operation,
            cancel: Cancel::never(),
        }
    }

    fn write(&self, name: &str, content: String, in_place: bool) -> Result<Written, FileError> {
        let spec = WriteSpec {
            in_place,
            // Looking for such a line takes longer here than writing.
            allow_elision: true,
            ..WriteSpec::new(name)
        };
        let content = Content::of(content.into_bytes());
        let caller = self.caller(OperationId::random());
        Ok(self.files.write(caller, &spec, &content)?.value)
    }

    fn edit(
        &self,
        operation: OperationId,
        name: &str,
        old: &str,
        new: &str,
        in_place: bool,
    ) -> Result<Edited, FileError> {
        let edit = Edit {
            old: old.to_owned(),
            new: new.to_owned(),
            replace_all: true,
        };
        let spec = EditSpec {
            in_place,
            ..EditSpec::new(name, vec![edit])
        };
        Ok(self.files.edit(self.caller(operation), &spec)?.value)
    }
}

/// A content that tells whether it is whole: `lines` times the same word, and
/// how many there are.
fn whole(word: u32, lines: usize) -> String {
    let line = format!("w{word:08}\n");
    format!("{lines}\n{}end\n", line.repeat(lines))
}

/// The word of a whole content; `None`: it is none.
fn word_of(content: &str) -> Option<u32> {
    let mut all = content.split_inclusive('\n');
    let lines: usize = all.next()?.trim_end().parse().ok()?;
    let first = content.split_inclusive('\n').nth(1)?.trim_end();
    let word = first.strip_prefix('w')?.parse().ok()?;
    (whole(word, lines) == content).then_some(word)
}

/// A number that looks like any other; `xorshift`.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}
