//! Text in a file is replaced: each edit on the result of the one before, all
//! or none, in one write.

use std::io::Read as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Files;
use super::cancel::Cancel;
use super::content::Content;
use super::entry::Last;
use super::error::FileError;
use super::mutation::{
    Caller, Described, Durability, Outcome, Precondition, Reply, Step, check, look, request,
};
use super::object::{Facts, FileKind, Object};
use super::opened::CHUNK_BYTES;
use super::text::diff::{self, Diff};
use super::text::edits::{self, Applied, Edit, EditError};
use super::text::encoding::Text;
use super::version::Digest;
use super::write::{ATTEMPTS, Held, Put, hold, regular, shown};

/// Largest file that is edited, and largest text that an edit may make.
pub const EDIT_BYTES: u64 = 64 << 20;
/// Edits of one call.
pub const EDITS: usize = 1_000;
/// Of a kept result: bytes of its diff.
const KEPT_DIFF_BYTES: usize = 64 << 10;

/// What is to be replaced where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditSpec {
    /// As the caller names it.
    pub path: PathBuf,
    /// One to [`EDITS`].
    pub edits: Vec<Edit>,
    /// Not [`Precondition::MustNotExist`].
    pub precondition: Option<Precondition>,
    /// Say what would change and write nothing.
    pub dry_run: bool,
    /// Write into the file where replacing it would lose something.
    pub in_place: bool,
    /// A WHATWG label. `None`: UTF-8, or what a BOM says.
    pub encoding: Option<String>,
}

impl EditSpec {
    /// These edits, without conditions.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, edits: Vec<Edit>) -> Self {
        Self {
            path: path.into(),
            edits,
            precondition: None,
            dry_run: false,
            in_place: false,
            encoding: None,
        }
    }

    fn request(&self) -> [u8; 32] {
        #[derive(Serialize)]
        struct Asked<'a> {
            #[serde(with = "crate::path_bytes")]
            path: PathBuf,
            edits: Vec<(&'a str, &'a str, bool)>,
            precondition: Option<Precondition>,
            in_place: bool,
            encoding: Option<&'a str>,
        }
        let edits = self.edits.iter();
        let asked = Asked {
            path: self.path.clone(),
            edits: edits
                .map(|edit| (edit.old.as_str(), edit.new.as_str(), edit.replace_all))
                .collect(),
            precondition: self.precondition,
            in_place: self.in_place,
            encoding: self.encoding.as_deref(),
        };
        request("edit", &asked, &[])
    }
}

/// What an edit did, or, of a dry run, would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edited {
    /// The file; of a dry run, as it is.
    pub file: Described,
    /// Of the content before.
    pub digest_before: Digest,
    /// Of the content after.
    pub digest: Digest,
    /// Unified, at most 1 MiB; of a result that is told again, 64 KiB.
    pub diff: String,
    /// There is more of it.
    pub diff_truncated: bool,
    /// Lines that only the new text has.
    pub lines_added: u32,
    /// Lines that only the old text had.
    pub lines_removed: u32,
    /// Occurrences replaced, by edit.
    pub replacements: Vec<u32>,
    /// Line endings of an edit were taken as the file's.
    pub line_endings_adapted: bool,
    /// How it was written.
    pub durability: Durability,
    /// To take it back; `None`: it cannot be.
    pub undo_token: Option<String>,
}

impl Outcome for Edited {
    fn found(&mut self, facts: Facts) {
        self.file.facts = facts;
    }

    fn without_undo(&mut self) {
        self.undo_token = None;
    }

    fn shortened(&self) -> Option<Self> {
        if self.diff.len() <= KEPT_DIFF_BYTES {
            return None;
        }
        let mut short = self.clone();
        let within = short.diff.floor_char_boundary(KEPT_DIFF_BYTES);
        let end = short.diff.get(..within)?.rfind('\n').map_or(0, |at| at + 1);
        short.diff.truncate(end);
        short.diff_truncated = true;
        Some(short)
    }
}

impl Files {
    /// Edits a text file of at most [`EDIT_BYTES`]. Blocks; waits for its turn
    /// on the file.
    ///
    /// # Errors
    /// [`FileError::Edit`] names the edit, [`FileError::Text`] says why it is
    /// no text; else as [`Files::write`]. Nothing was changed then.
    pub fn edit(&self, caller: Caller<'_>, spec: &EditSpec) -> Result<Reply<Edited>, FileError> {
        let wrong = |field, why: &str| FileError::InvalidArgument {
            field,
            why: why.to_owned(),
        };
        if spec.edits.is_empty() || spec.edits.len() > EDITS {
            return Err(wrong("edits", "there must be 1 to 1,000"));
        }
        if spec.precondition == Some(Precondition::MustNotExist) {
            let why = "a file that does not exist cannot be edited; write it";
            return Err(wrong("precondition", why));
        }
        // Before anything is looked at: they are wrong for every file.
        for (edit, one) in spec.edits.iter().enumerate() {
            let error = match one {
                one if one.old.is_empty() => EditError::Empty { edit },
                one if one.old == one.new => EditError::Unchanged { edit },
                _ => continue,
            };
            return Err(FileError::Edit {
                given: spec.path.clone(),
                error,
            });
        }
        if spec.dry_run {
            return dry_run(caller, spec);
        }
        self.once(caller, &spec.path, spec.request(), |step| {
            for _ in 0..ATTEMPTS {
                match attempt(step, spec) {
                    Err(FileError::Changed { .. }) => {}
                    done => return done,
                }
            }
            Err(FileError::Changed {
                given: spec.path.clone(),
            })
        })
    }
}

fn dry_run(caller: Caller<'_>, spec: &EditSpec) -> Result<Reply<Edited>, FileError> {
    let entry = caller.fence.entry(spec.path.as_os_str(), Last::Follow)?;
    let before = look(&entry)?;
    check(spec.precondition, &entry, before.as_ref(), caller.cancel)?;
    let Some(before) = before else {
        return Err(caller.missing(spec));
    };
    let plan = Plan::of(spec, &before, caller.cancel)?;
    let durability = Durability {
        atomic: false,
        checked: false,
    };
    Ok(Reply {
        value: plan.outcome(&before, before.facts(), durability),
        replayed: false,
    })
}

fn attempt(step: &Step<'_>, spec: &EditSpec) -> Result<Edited, FileError> {
    let held = hold(step, &spec.path, Last::Follow)?;
    let Held { entry, before, .. } = &held;
    check(
        spec.precondition,
        entry,
        before.as_ref(),
        step.caller.cancel,
    )?;
    let Some(before) = before else {
        return Err(step.caller.missing(spec));
    };
    let plan = Plan::of(spec, before, step.caller.cancel)?;
    let outcome = |facts: &Facts, durability| plan.outcome(before, facts, durability);
    let put = Put {
        entry,
        before: Some(before),
        content: &plan.content,
        mode: None,
        in_place: spec.in_place,
        read: Some(plan.digest_before),
    };
    let (replaced, undo_token) = put.run(step, &outcome)?;
    Ok(Edited {
        undo_token,
        ..outcome(&replaced.facts, replaced.durability)
    })
}

impl Caller<'_> {
    /// The file is not there; with the names that look like it.
    fn missing(&self, spec: &EditSpec) -> FileError {
        match self.fence.object(spec.path.as_os_str(), Last::Follow) {
            Err(error) => error,
            Ok(_) => FileError::Changed {
                given: spec.path.clone(),
            },
        }
    }
}

/// The content that the edits make.
struct Plan {
    content: Content,
    digest_before: Digest,
    applied: Applied,
    diff: Diff,
}

impl Plan {
    fn of(spec: &EditSpec, before: &Object, cancel: &Cancel) -> Result<Self, FileError> {
        regular(Some(before))?;
        let bytes = read_all(before, cancel)?;
        let given = || before.given().to_owned();
        let no_text = |error| FileError::Text {
            given: given(),
            error,
        };
        let old = Text::read(&bytes, spec.encoding.as_deref()).map_err(no_text)?;
        let there = || !cancel.is_raised();
        let applied = edits::apply(&old.content, &spec.edits, EDIT_BYTES, &there);
        let applied = applied.map_err(|error| FileError::Edit {
            given: given(),
            error,
        })?;
        let mut applied = applied.ok_or(FileError::Cancelled)?;
        // As `patch -p1` wants it: at `/` for an absolute one.
        let name = shown(before.given().as_os_str());
        let name = name.trim_start_matches('/');
        let diff = diff::unified(name, &old.content, &applied.text);
        cancel.check()?;
        let new = Text {
            content: std::mem::take(&mut applied.text),
            encoding: old.encoding,
        };
        let content = Content::of(new.to_bytes().map_err(no_text)?);
        Ok(Self {
            digest_before: Digest::of(&bytes),
            content,
            applied,
            diff,
        })
    }

    fn outcome(&self, before: &Object, facts: &Facts, durability: Durability) -> Edited {
        Edited {
            file: Described::new(before.path(), *facts),
            digest_before: self.digest_before,
            digest: self.content.digest(),
            diff: self.diff.text.clone(),
            diff_truncated: self.diff.truncated,
            lines_added: self.diff.added,
            lines_removed: self.diff.removed,
            replacements: self.applied.replacements.clone(),
            line_endings_adapted: self.applied.line_endings_adapted,
            durability,
            undo_token: None,
        }
    }
}

/// The whole content of a file of at most [`EDIT_BYTES`], of one version.
///
/// # Errors
/// [`FileError::TooLarge`], [`FileError::Changed`], [`FileError::Cancelled`], and
/// as it cannot be read.
pub(super) fn read_all(object: &Object, cancel: &Cancel) -> Result<Vec<u8>, FileError> {
    let given = object.given();
    let too_large = |size| FileError::TooLarge {
        given: given.to_owned(),
        size,
        limit: EDIT_BYTES,
    };
    let facts = object.facts();
    if facts.kind == FileKind::Regular && facts.size > EDIT_BYTES {
        return Err(too_large(facts.size));
    }
    let mut file = object.content()?;
    let mut bytes = Vec::with_capacity(usize::try_from(facts.size).unwrap_or(0));
    loop {
        cancel.check()?;
        let mut chunk = (&mut file).take(CHUNK_BYTES as u64);
        let read = chunk
            .read_to_end(&mut bytes)
            .map_err(|error| FileError::from_io(&error, "reading", given))?;
        if bytes.len() as u64 > EDIT_BYTES {
            return Err(too_large(bytes.len() as u64));
        }
        if read < CHUNK_BYTES {
            break;
        }
    }
    if object.facts_now()?.version() != facts.version() {
        return Err(FileError::Changed {
            given: given.to_owned(),
        });
    }
    Ok(bytes)
}
