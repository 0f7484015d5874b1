//! Globs that choose among paths, with one meaning everywhere:
//!
//! - A glob is matched against the path relative to the directory that is
//!   searched. Without a `/` it matches the last name at any depth; with one,
//!   the whole path. `**/` at its beginning makes the rest match at any depth; a
//!   `/` at its beginning is as none, but anchors; with one at its end it means
//!   directories, and all that is below them (`src/` is `**/src/**`).
//! - `*` and `?` match within one name, `**` as a whole component any number of
//!   directories. `[a-z]`, `[!a-z]`, `{one,other}` (nested too); `\` takes the
//!   meaning of the character after it.
//! - After `!` a glob takes paths out, and a directory with all that is below
//!   it. A path is chosen if any of the others matches, or there is none, and
//!   none of these does, in whatever order they are.
//! - Upper and lower case differ unless the caller says otherwise.
//! - A name that begins with a dot is no exception for `*`. Whether hidden
//!   entries are looked at is decided elsewhere; but those that a component of
//!   a glob spells out by its own dot (`.github/*.yml`) are.

use globset::{Candidate, ErrorKind, Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::super::error::FileError;

/// Globs of one search.
pub const GLOBS_MAX: usize = 256;
/// Bytes of one glob.
pub const GLOB_BYTES: usize = 4096;

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(in super::super) struct PathGlobs {
    chosen: GlobSet,
    /// Names that begin with a dot and are spelled out.
    spelled_out: GlobSet,
    out: GlobSet,
    /// Out as directories only.
    directories_out: GlobSet,
}

impl PathGlobs {
    /// `field`: what the request calls them.
    ///
    /// # Errors
    /// [`FileError::Glob`] with the place in it; [`FileError::InvalidArgument`]
    /// for too many of them.
    pub(in super::super) fn new(
        globs: &[String],
        ignore_case: bool,
        field: &'static str,
    ) -> Result<Self, FileError> {
        if globs.len() > GLOBS_MAX {
            return Err(FileError::InvalidArgument {
                field,
                why: format!("there are {}, above the limit of {GLOBS_MAX}", globs.len()),
            });
        }
        let mut sets = [const { GlobSetBuilder::new }; 4].map(|new| new());
        let [chosen, spelled_out, out, directories_out] = &mut sets;
        for text in globs {
            let parsed = Parsed::new(text);
            let compiled = |glob: &str| {
                compiled(glob, ignore_case).map_err(|error| wrong(text, field, &error))
            };
            if text.len() > GLOB_BYTES {
                return Err(FileError::InvalidArgument {
                    field,
                    why: format!(
                        "one has {} bytes, above the limit of {GLOB_BYTES}",
                        text.len()
                    ),
                });
            }
            if parsed.pattern.trim_matches('/').is_empty() {
                return Err(FileError::Glob {
                    field,
                    glob: text.clone(),
                    offset: parsed.offset,
                    why: "it is empty".to_owned(),
                });
            }
            // As it stands, so that what is wrong is found in what was given.
            compiled(parsed.pattern)?;
            let anchored = parsed.anchored();
            if parsed.is_out {
                let set = if parsed.directory {
                    &mut *directories_out
                } else {
                    &mut *out
                };
                set.add(compiled(&anchored)?);
                continue;
            }
            for component in dotted(&anchored) {
                // A part of a `{…/…}` is none by itself.
                if let Ok(glob) = self::compiled(component, ignore_case) {
                    spelled_out.add(glob);
                }
            }
            if parsed.directory {
                chosen.add(compiled(&format!("{anchored}/**"))?);
            } else {
                chosen.add(compiled(&anchored)?);
            }
        }
        let built = sets.map(|set| {
            set.build().map_err(|error| FileError::InvalidArgument {
                field,
                why: format!("together they are too much: {}", error.kind()),
            })
        });
        let [chosen, spelled_out, out, directories_out] = built;
        Ok(Self {
            chosen: chosen?,
            spelled_out: spelled_out?,
            out: out?,
            directories_out: directories_out?,
        })
    }

    /// Every path is chosen.
    pub(in super::super) fn choose_all(&self) -> bool {
        self.chosen.is_empty() && self.out.is_empty()
    }

    /// Is what has this path, relative to the directory searched, and is no
    /// directory to be looked at?
    pub(in super::super) fn choose(&self, path: &[u8]) -> bool {
        if self.choose_all() {
            return true;
        }
        let candidate = Candidate::from_bytes(path);
        (self.chosen.is_empty() || self.chosen.is_match_candidate(&candidate))
            && !self.out.is_match_candidate(&candidate)
    }

    /// Is what is below the directory with this path out of the question?
    pub(in super::super) fn leave_out_directory(&self, path: &[u8]) -> bool {
        if self.out.is_empty() && self.directories_out.is_empty() {
            return false;
        }
        let candidate = Candidate::from_bytes(path);
        self.out.is_match_candidate(&candidate)
            || self.directories_out.is_match_candidate(&candidate)
    }

    /// Is the name, which begins with a dot, spelled out by a glob?
    pub(in super::super) fn spell_out(&self, name: &[u8]) -> bool {
        !self.spelled_out.is_empty()
            && self
                .spelled_out
                .is_match_candidate(&Candidate::from_bytes(name))
    }
}

struct Parsed<'a> {
    pattern: &'a str,
    /// Where in the text the pattern begins.
    offset: usize,
    is_out: bool,
    directory: bool,
}

impl<'a> Parsed<'a> {
    fn new(text: &'a str) -> Self {
        let (pattern, is_out) = match text.strip_prefix('!') {
            Some(pattern) => (pattern, true),
            None => (text, false),
        };
        Self {
            pattern,
            offset: usize::from(is_out),
            is_out,
            directory: pattern.ends_with('/') && !pattern.ends_with("\\/"),
        }
    }

    /// The glob for the whole relative path.
    fn anchored(&self) -> String {
        let pattern = self.pattern.strip_suffix('/').filter(|_| self.directory);
        let pattern = pattern.unwrap_or(self.pattern).trim_end_matches('/');
        match pattern.trim_start_matches('/') {
            path if path.contains('/') || path.len() < pattern.len() => path.to_owned(),
            name => format!("**/{name}"),
        }
    }
}

fn compiled(glob: &str, ignore_case: bool) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob)
        .literal_separator(true)
        .case_insensitive(ignore_case)
        .backslash_escape(true)
        .empty_alternates(true)
        .build()
}

/// Components that begin with a dot which can match nothing else.
fn dotted(glob: &str) -> impl Iterator<Item = &str> {
    glob.split('/').filter(|component| {
        let dot = component.trim_start_matches(['{', '\\']);
        dot.starts_with('.') && !matches!(*component, "." | "..")
    })
}

fn wrong(text: &str, field: &'static str, error: &globset::Error) -> FileError {
    let pattern = Parsed::new(text);
    FileError::Glob {
        field,
        glob: text.to_owned(),
        offset: pattern.offset + position(pattern.pattern, error.kind()),
        why: error.kind().to_string(),
    }
}

/// Where in a glob the thing is that is wrong with it: bytes from its
/// beginning. What has no place is at its beginning.
fn position(glob: &str, kind: &ErrorKind) -> usize {
    if let ErrorKind::InvalidRange(low, high) = kind {
        return glob.find(&format!("{low}-{high}")).unwrap_or(0);
    }
    let mut braces = Vec::new();
    let mut characters = glob.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' if characters.next().is_none() => return at,
            '{' => {
                braces.push(at);
                if *kind == ErrorKind::TooManyNestedAlternates && braces.len() > NESTED {
                    return at;
                }
            }
            '}' if braces.pop().is_none() && *kind == ErrorKind::UnopenedAlternates => return at,
            '[' if !skip_class(&mut characters) => return at,
            _ => {}
        }
    }
    braces.last().copied().unwrap_or(0)
}

/// Alternates within alternates that globset takes.
const NESTED: usize = 100;

/// Goes on behind the class whose `[` was before; `false`: it has no end.
fn skip_class(characters: &mut std::str::CharIndices<'_>) -> bool {
    let mut begun = false;
    for (count, (_, character)) in characters.by_ref().enumerate() {
        match character {
            '!' | '^' if count == 0 => {}
            // One that comes first is one of the class.
            ']' if begun => return true,
            _ => begun = true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(texts: &[&str]) -> Result<PathGlobs, FileError> {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        PathGlobs::new(&texts, false, "globs")
    }

    const PATHS: [&str; 9] = [
        "a.rs",
        "A.RS",
        "src/a.rs",
        "src/deep/b.rs",
        "x/src/c.rs",
        ".github/workflows/ci.yml",
        "[x]",
        "a/b",
        "src",
    ];

    #[test]
    fn b059_a_glob_has_one_meaning() {
        for (texts, expected) in [
            (
                &["*.rs"][..],
                &["a.rs", "src/a.rs", "src/deep/b.rs", "x/src/c.rs"][..],
            ),
            (&["/*.rs"], &["a.rs"]),
            (&["src/*.rs"], &["src/a.rs"]),
            (&["/src/*.rs"], &["src/a.rs"]),
            (&["**/src/*.rs"], &["src/a.rs", "x/src/c.rs"]),
            (&["src/**/*.rs"], &["src/a.rs", "src/deep/b.rs"]),
            (&["src/"], &["src/a.rs", "src/deep/b.rs", "x/src/c.rs"]),
            (&["/src/"], &["src/a.rs", "src/deep/b.rs"]),
            (&["src/**"], &["src/a.rs", "src/deep/b.rs"]),
            (&["src"], &["src"]),
            (&["*.RS"], &["A.RS"]),
            (&["\\[x\\]"], &["[x]"]),
            (
                &["[!as]*"],
                &[
                    "A.RS",
                    "src/deep/b.rs",
                    "x/src/c.rs",
                    ".github/workflows/ci.yml",
                    "[x]",
                    "a/b",
                ],
            ),
            (
                &[".github/workflows/*.{yml,yaml}"],
                &[".github/workflows/ci.yml"],
            ),
            (
                &["**/.github/workflows/*.yml"],
                &[".github/workflows/ci.yml"],
            ),
            (&["{a,x}/**"], &["x/src/c.rs", "a/b"]),
            (&["*.rs", "!src/**"], &["a.rs", "x/src/c.rs"]),
            (&["!a.rs", "*.rs"], &["src/deep/b.rs", "x/src/c.rs"]),
            (
                &["?.rs"],
                &["a.rs", "src/a.rs", "src/deep/b.rs", "x/src/c.rs"],
            ),
        ] {
            let globs = globs(texts).unwrap();
            let chosen = PATHS
                .into_iter()
                .filter(|path| globs.choose(path.as_bytes()));
            assert_eq!(chosen.collect::<Vec<_>>(), expected, "{texts:?}");
        }
        let any_case = PathGlobs::new(&["*.RS".to_owned()], true, "globs").unwrap();
        assert!(any_case.choose(b"src/a.rs") && any_case.choose(b"A.RS"));
        assert!(globs(&[]).unwrap().choose(b"\xff/anything"));
        assert!(globs(&["*.txt"]).unwrap().choose(b"d/\xff.txt"));
    }

    #[test]
    fn a_directory_is_left_out_with_all_below() {
        let out = globs(&["!node_modules", "!gen/", "!a/b"]).unwrap();
        for path in ["node_modules", "x/node_modules", "gen", "x/gen", "a/b"] {
            assert!(out.leave_out_directory(path.as_bytes()), "{path}");
        }
        assert!(!out.leave_out_directory(b"x/a/b") && !out.leave_out_directory(b"src"));
        assert!(out.choose(b"gen"), "a file is no directory");
        assert!(!globs(&["src"]).unwrap().leave_out_directory(b"other"));
    }

    #[test]
    fn a_dot_that_is_spelled_out_is_no_secret() {
        let dotted = globs(&[".github/*.yml", "**/.{env,cache}/*", "*.rs"]).unwrap();
        for (name, spelled) in [
            (".github", true),
            (".env", true),
            (".cache", true),
            (".git", false),
            (".rs", false),
        ] {
            assert_eq!(dotted.spell_out(name.as_bytes()), spelled, "{name}");
        }
    }

    #[test]
    fn b059_what_is_no_glob_is_told_with_its_place() {
        for (text, place) in [
            ("a[", 1),
            ("ab[c", 2),
            ("{a,b", 0),
            ("x{a,{b}", 1),
            ("a}", 1),
            ("!a}", 2),
            ("a\\", 1),
            ("[z-a]", 1),
            ("", 0),
            ("!", 1),
            ("/", 0),
        ] {
            match globs(&["ok", text]).unwrap_err() {
                FileError::Glob { glob, offset, .. } => {
                    assert_eq!((glob.as_str(), offset), (text, place), "{text:?}");
                }
                other => panic!("{text:?}: {other}"),
            }
        }
        let many = vec!["a".to_owned(); GLOBS_MAX + 1];
        assert!(PathGlobs::new(&many, false, "globs").is_err());
        assert!(globs(&[&"a".repeat(GLOB_BYTES + 1)]).is_err());
    }
}
