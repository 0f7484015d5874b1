//! Why an operation on files is refused or failed.
//!
//! One enum for the module. Each variant holds what its message needs, and the
//! message says what happened, the value, the limit and what to do next: a
//! model reads it. Names are shown with [`shown`](super::resolve::shown), so
//! that bytes that are no text can be told apart and a long one is cut on a
//! character.

mod errno;
mod message;

use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

use self::message::{Candidates, Name, Now};
use super::image::error::ImageError;
use super::instance::InstanceError;
use super::object::FileKind;
use super::resolve::ResolveError;
use super::text::edits::EditError;
use super::text::encoding::TextError;
use super::version::{Digest, Version};

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The name leads nowhere that may be used.
    #[error(transparent)]
    Resolve(ResolveError),
    /// Nothing has the name, or a part of it.
    #[error("{} does not exist{}", Name(given), Candidates(candidates))]
    NotFound {
        /// As it was given.
        given: PathBuf,
        /// Names that are there and equal after normalising. Never opened in
        /// its place.
        candidates: Vec<PathBuf>,
    },
    /// A directory above it does not exist, and it would be made.
    #[error(
        "{} cannot be made: the directory {} above it does not exist{}; make it first, or have missing directories made with `parents`",
        Name(given),
        Name(missing),
        Candidates(candidates)
    )]
    NoParent {
        /// As it was given.
        given: PathBuf,
        /// The first directory on the way that does not exist, as it was given.
        missing: PathBuf,
        /// As with [`FileError::NotFound`].
        candidates: Vec<PathBuf>,
    },
    /// No name that a file could have.
    #[error("{} is not a usable path: {why}", Name(given))]
    InvalidPath {
        /// As it was given, shortened.
        given: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another argument that cannot be used.
    #[error("{field}: {why}")]
    InvalidArgument {
        /// Its name in the request.
        field: &'static str,
        /// What is wrong with it and what is allowed.
        why: String,
    },
    /// A glob that is none.
    #[error("{field}: {glob:?} is no glob: {why}, at byte {offset}")]
    Glob {
        /// The name in the request.
        field: &'static str,
        /// As it was given.
        glob: String,
        /// Bytes from its beginning.
        offset: usize,
        /// What is wrong there.
        why: String,
    },
    /// A pattern that the engine does not take.
    #[error("{field}: the engine {engine} does not take the pattern: {why}")]
    Pattern {
        /// The name in the request.
        field: &'static str,
        /// Which engine.
        engine: &'static str,
        /// Bytes from the pattern's beginning, where that can be told.
        offset: Option<usize>,
        /// What the engine says, and what to do.
        why: String,
    },
    /// It lies in a root that may only be read.
    #[error(
        "{} leads to {}, in the root {}, which is read-only; write in another root",
        Name(given),
        Name(resolved),
        Name(root)
    )]
    RootReadOnly {
        /// As it was given.
        given: PathBuf,
        /// Where it leads.
        resolved: PathBuf,
        /// The root.
        root: PathBuf,
    },
    /// The operator keeps it from agents.
    #[error(
        "{} is a secret file on this machine (rule {rule:?}); no file operation is allowed on it, under this name or another",
        Name(given)
    )]
    Secret {
        /// As it was given.
        given: PathBuf,
        /// The glob, or what else makes it secret.
        rule: String,
    },
    /// A directory cannot be taken as a whole because of what is in it.
    #[error(
        "{} cannot be removed with all that is in it: {} is a secret file on this machine (rule {rule:?}); remove the rest part by part",
        Name(given),
        Name(secret)
    )]
    SecretWithin {
        /// As it was given.
        given: PathBuf,
        /// What is in it: as given, and the way on from there.
        secret: PathBuf,
        /// The glob, or what else makes it secret.
        rule: String,
    },
    /// Content is asked of something that has none.
    #[error("{} is not a regular file ({kind}); it is not opened", Name(given))]
    NotARegularFile {
        /// As it was given.
        given: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// A file is asked for and it is a directory.
    #[error("{} is a directory", Name(given))]
    IsADirectory {
        /// As it was given.
        given: PathBuf,
    },
    /// A root itself, or a directory named by `.` or `..`, is to be changed.
    #[error(
        "{} names a root or, by \".\" or \"..\", a directory from within; that cannot be replaced, renamed or removed",
        Name(given)
    )]
    IsARoot {
        /// As it was given.
        given: PathBuf,
    },
    /// The name is taken.
    #[error("{} exists already ({kind})", Name(given))]
    Exists {
        /// As it was given.
        given: PathBuf,
        /// What has the name.
        kind: FileKind,
    },
    /// A directory has entries.
    #[error(
        "the directory {} is not empty; remove it with `recursive`",
        Name(given)
    )]
    DirectoryNotEmpty {
        /// As it was given.
        given: PathBuf,
    },
    /// A precondition does not hold. Nothing was changed.
    #[error("{} is not what was expected ({expected}): {}; read it again", Name(given), Now(now.as_deref()))]
    PreconditionFailed {
        /// As it was given.
        given: PathBuf,
        /// The precondition, in words.
        expected: String,
        /// What the file is; `None`: there is none.
        now: Option<Box<(Version, Option<Digest>)>>,
    },
    /// Somebody else changed it while it was read or written.
    #[error(
        "{} was changed by somebody else meanwhile; read it again",
        Name(given)
    )]
    Changed {
        /// As it was given.
        given: PathBuf,
    },
    /// Other mutations of the same file did not end in time.
    #[error("{} is being changed by others; gave up after {} ms (limits.file_wait_seconds); try again", Name(given), waited.as_millis())]
    Busy {
        /// As it was given.
        given: PathBuf,
        /// How long.
        waited: Duration,
    },
    /// The file's mode lets nobody write it.
    #[error(
        "{} has mode {mode:04o}, which lets nobody write it; change the mode first if it is to be changed",
        Name(given)
    )]
    ReadOnly {
        /// As it was given.
        given: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Replacing it would leave its other names with the old content.
    #[error(
        "{} has {links} hard links; replacing it would separate them; ask for `in_place` to write into the file itself, which is not atomic",
        Name(given)
    )]
    WouldBreakLinks {
        /// As it was given.
        given: PathBuf,
        /// How many names it has.
        links: u64,
    },
    /// A replacement could not have the same owner or group.
    #[error(
        "{} belongs to {uid}:{gid}, which a replacement could not be given; ask for `in_place` to write into the file itself, which is not atomic",
        Name(given)
    )]
    WouldChangeOwner {
        /// As it was given.
        given: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A replacement could not have an extended attribute, ACL or label.
    #[error(
        "{} has the attribute {attribute:?}, which a replacement could not be given; ask for `in_place` to write into the file itself, which is not atomic",
        Name(given)
    )]
    WouldLoseAttributes {
        /// As it was given.
        given: PathBuf,
        /// Its name.
        attribute: String,
    },
    /// It cannot be replaced by a rename.
    #[error(
        "{} cannot be replaced: {why}; ask for `in_place` to write into the file itself, which is not atomic",
        Name(given)
    )]
    CannotReplace {
        /// As it was given.
        given: PathBuf,
        /// Why.
        why: String,
    },
    /// Something is mounted on it or in it, so that it is not removed.
    #[error(
        "{} is not removed, and nothing in it: something is mounted on {at:?}; unmount that first",
        Name(given)
    )]
    Mounted {
        /// As it was given.
        given: PathBuf,
        /// Where.
        at: PathBuf,
    },
    /// Content that is not text in the encoding, a binary file, an encoding
    /// that there is not, or a text that the encoding cannot write.
    #[error("{}: {error}", Name(given))]
    Text {
        /// As it was given.
        given: PathBuf,
        /// What is wrong.
        error: TextError,
    },
    /// A line that no page can hold.
    #[error(
        "line {line} of {} has {length} bytes, above the {limit} of one page; ask for `clip_long_lines`",
        Name(given)
    )]
    LineTooLong {
        /// As it was given.
        given: PathBuf,
        /// Which, from 1.
        line: u64,
        /// Bytes as UTF-8.
        length: u64,
        /// Bytes of a page.
        limit: u64,
    },
    /// No such line.
    #[error("offset {offset} is beyond the end: {} has {lines} lines", Name(given))]
    LineOffsetAhead {
        /// As it was given.
        given: PathBuf,
        /// As asked for.
        offset: u64,
        /// How many there are.
        lines: u64,
    },
    /// More bytes than the operation takes.
    #[error(
        "{} has {size} bytes, above the limit of {limit} for this operation",
        Name(given)
    )]
    TooLarge {
        /// As it was given.
        given: PathBuf,
        /// What it has, or has at least.
        size: u64,
        /// What is allowed.
        limit: u64,
    },
    /// More bytes than are read of a file that says it has none.
    #[error(
        "{} says it has no bytes and has more than {limit} (limits.file_unsized_bytes)",
        Name(given)
    )]
    UnsizedTooLarge {
        /// As it was given.
        given: PathBuf,
        /// What is allowed.
        limit: u64,
    },
    /// It is no image that can be given out.
    #[error("{}: {error}", Name(given))]
    Image {
        /// As it was given.
        given: PathBuf,
        /// Why not.
        error: ImageError,
    },
    /// No room. What was there is as it was.
    #[error(
        "no space is left for {} on its file system; it is as it was",
        Name(given)
    )]
    NoSpace {
        /// As it was given.
        given: PathBuf,
    },
    /// The file system is mounted read-only.
    #[error(
        "{doing} {} failed: its file system is mounted read-only; write elsewhere, or have it mounted read-write",
        Name(given)
    )]
    FileSystemReadOnly {
        /// As it was given.
        given: PathBuf,
        /// What was being done, as `writing`.
        doing: &'static str,
    },
    /// The system uses it: something is mounted on it, or a program runs from it.
    #[error(
        "{doing} {} failed: {}",
        Name(given),
        if *errno == Errno::TXTBSY { "a program runs from it; end the program, or remove the file and write a new one" } else { "the system uses it, as where something is mounted on it; unmount that, or name another" }
    )]
    InUse {
        /// As it was given.
        given: PathBuf,
        /// What was being done, as `writing`.
        doing: &'static str,
        /// errno(3): `EBUSY` or `ETXTBSY`.
        errno: Errno,
    },
    /// Another program has a lease or lock on it that is being given up.
    #[error(
        "{doing} {} is not possible at this moment: another program holds it; try again",
        Name(given)
    )]
    NotNow {
        /// As it was given.
        given: PathBuf,
        /// What was being done, as `opening`.
        doing: &'static str,
    },
    /// The file system does not know the operation, or takes no such name.
    #[error(
        "{doing} {} failed: its file system does not take this name or does not know this operation ({errno}); choose a plainer name, or another directory",
        Name(given)
    )]
    FileSystemRefuses {
        /// As it was given.
        given: PathBuf,
        /// What was being done, as `renaming`.
        doing: &'static str,
        /// errno(3).
        errno: Errno,
    },
    /// The daemon or the machine lacks descriptors or memory.
    #[error(
        "{doing} {} failed: the machine lacks descriptors or memory for it ({errno}); end something and try again",
        Name(given)
    )]
    OutOfResources {
        /// As it was given.
        given: PathBuf,
        /// What was being done, as `opening`.
        doing: &'static str,
        /// errno(3).
        errno: Errno,
    },
    /// The system refuses or fails.
    #[error("{doing} {} failed: {errno}", Name(given))]
    Io {
        /// As it was given.
        given: PathBuf,
        /// What was being done, as `reading`.
        doing: &'static str,
        /// errno(3).
        errno: Errno,
    },
    /// A rename between two file systems.
    #[error(
        "{} and {} are on different file systems, so it cannot be renamed; write a copy and remove the first",
        Name(from),
        Name(to)
    )]
    CrossesFileSystems {
        /// As it was given.
        from: PathBuf,
        /// As it was given.
        to: PathBuf,
    },
    /// An edit does not fit the text. Nothing was changed.
    #[error("{}: {error}", Name(given))]
    Edit {
        /// As it was given.
        given: PathBuf,
        /// Which, and why.
        error: EditError,
    },
    /// A line of the new content stands for text that was left out.
    #[error(
        "line {line} of the new content of {} is {text:?}, which the old content has not: it seems to stand for text that was left out and would be lost; write the whole content, edit the file instead, or set `allow_elision`",
        Name(given)
    )]
    Elision {
        /// As it was given.
        given: PathBuf,
        /// Which, from 1.
        line: u64,
        /// What it says, shortened.
        text: String,
    },
    /// The token is used up, unknown, or no longer kept.
    #[error("the undo token {token:?} is used up or no longer kept; nothing was changed")]
    UndoForgotten {
        /// As it was given, shortened.
        token: String,
    },
    /// The file is not as the mutation left it. Nothing was changed.
    #[error(
        "{} is not as it was left ({why}); nothing was taken back",
        Name(given)
    )]
    UndoConflict {
        /// The file.
        given: PathBuf,
        /// In which way.
        why: String,
    },
    /// The result of an operation is no longer kept. Nothing was done.
    #[error(
        "operation {operation} was done before and its result is no longer kept; nothing was done; look at the file, and use a new operation id"
    )]
    OperationForgotten {
        /// Its id.
        operation: String,
    },
    /// The operation's id was used for another request. Nothing was done.
    #[error(
        "operation {operation} was another request before; nothing was done; use a new operation id for each mutation"
    )]
    OperationConflict {
        /// Its id.
        operation: String,
    },
    /// The daemon died while the operation was done, and somebody else has
    /// changed since what would tell whether it was.
    #[error(
        "operation {operation} was interrupted, and whether it was done cannot be told any more; look at the file, and use a new operation id"
    )]
    OperationOutcomeUnknown {
        /// Its id.
        operation: String,
    },
    /// No file can be changed without a place to record it.
    #[error("no file can be changed on this machine: {0}; the operator must make it usable")]
    StateUnusable(InstanceError),
    /// The caller gave up.
    #[error("cancelled by the caller")]
    Cancelled,
}
