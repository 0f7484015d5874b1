//! The arguments of the commands on files.

use std::path::PathBuf;

use clap::Subcommand;

use super::search_args::{GlobArgs, GrepArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum FileCommand {
    /// List a directory.
    Ls(LsArgs),
    /// List a directory and those below it, without what .gitignore leaves out.
    Tree(TreeArgs),
    /// Print files, byte for byte.
    Cat(CatArgs),
    /// Tell what a path names: kind, size, mode, owner, times.
    Stat(StatArgs),
    /// Find files by their names.
    Glob(GlobArgs),
    /// Find text in files.
    Grep(Box<GrepArgs>),
    /// Replace text in a file.
    Edit(EditArgs),
    /// Make a file, or replace its content, with what comes on stdin.
    Write(WriteArgs),
    /// Remove files and directories.
    Rm(RmArgs),
    /// Give a file or directory another name.
    Mv(MvArgs),
    /// Make directories.
    Mkdir(MkdirArgs),
    /// Take a change back, by the token that it told.
    Undo(UndoArgs),
    /// Tell what an image is, and show it where the terminal can.
    View(ViewArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor ls
  executor ls -al src
  executor ls -l src Cargo.toml
  executor ls --json src | jq -r '.path // empty'

A name with bytes that are no text is shown with \\xNN for each of them. The
last line of --json is a summary.")]
pub(crate) struct LsArgs {
    /// Directories, and files; without any the current directory.
    #[arg(default_value = ".")]
    pub(crate) paths: Vec<PathBuf>,

    /// Also names that begin with a dot.
    #[arg(long, short)]
    pub(crate) all: bool,

    /// Kind and mode, size and time before each name.
    #[arg(long, short)]
    pub(crate) long: bool,

    /// At most this many entries of each, 1 to 100000.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor tree
  executor tree -d 2 src
  executor tree --no-ignore --all

What was left out is counted in the last line. Links are listed, not followed.")]
pub(crate) struct TreeArgs {
    /// The directory; without it the current one.
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,

    /// How deep, 1 to 8.
    #[arg(long, short, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(crate) depth: u32,

    /// Also names that begin with a dot.
    #[arg(long, short)]
    pub(crate) all: bool,

    /// Also what .gitignore and .ignore files leave out.
    #[arg(long)]
    pub(crate) no_ignore: bool,

    /// At most this many entries, 1 to 100000.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor cat Cargo.toml
  executor cat big.bin > copy.bin
  executor cat --offset 1000000 --length 100 big.log")]
pub(crate) struct CatArgs {
    /// The files.
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,

    /// Begin at this byte.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub(crate) offset: u64,

    /// At most so many bytes of each file.
    #[arg(long, value_name = "BYTES")]
    pub(crate) length: Option<u64>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor stat Cargo.toml
  executor stat --digest --json Cargo.toml")]
pub(crate) struct StatArgs {
    /// The paths.
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,

    /// Also the BLAKE3 digest of the content.
    #[arg(long)]
    pub(crate) digest: bool,

    /// Tell of a link itself instead of what it leads to.
    #[arg(long, short = 'P')]
    pub(crate) no_follow: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor edit src/main.rs --old 'let x = 1;' --new 'let x = 2;'
  executor edit notes.txt --old colour --new color --all
  executor edit -n config.toml --old 8080 --new 9090    show the change only

The text must be in the file exactly once, unless --all is given. Line endings
of the file stay as they are, and all that is not named too. Prints what changed
as a diff.")]
pub(crate) struct EditArgs {
    /// The file.
    pub(crate) path: PathBuf,

    /// The text that is there, exactly.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) old: String,

    /// The text that is to be there; may be empty.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) new: String,

    /// Replace every occurrence.
    #[arg(long)]
    pub(crate) all: bool,

    /// Change nothing; show what would change.
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,

    /// Write into the file where replacing it would lose something, as its
    /// other hard links. Not atomic.
    #[arg(long)]
    pub(crate) in_place: bool,

    /// Encoding of the file, as utf-16le or windows-1252, where it is not UTF-8
    /// and has no byte order mark.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) encoding: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  echo hello | executor write greeting.txt
  executor write --new -p deep/down/new.txt < content
  executor write --if-digest \"$(executor stat --digest --json f | jq -r .digest)\" f < f2

Readers see the old content or the new one, never half of it.")]
pub(crate) struct WriteArgs {
    /// The file.
    pub(crate) path: PathBuf,

    /// Only if nothing has the name yet.
    #[arg(long, conflicts_with_all = ["if_digest", "if_version"])]
    pub(crate) new: bool,

    /// Only if the content has this BLAKE3 digest.
    #[arg(long, value_name = "DIGEST", conflicts_with = "if_version")]
    pub(crate) if_digest: Option<String>,

    /// Only if the file has this version, as stat tells it.
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<String>,

    /// Permission bits, as 755.
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Option<u32>,

    /// Make missing directories above it.
    #[arg(long, short)]
    pub(crate) parents: bool,

    /// Write into the file where replacing it would lose something, as its
    /// other hard links. Not atomic.
    #[arg(long)]
    pub(crate) in_place: bool,

    /// Accept a line such as "... rest unchanged", which mostly stands for text
    /// that somebody left out.
    #[arg(long)]
    pub(crate) allow_elision: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor rm old.txt
  executor rm -r target
  executor rm -f maybe.txt")]
pub(crate) struct RmArgs {
    /// What to remove. A link is removed itself, not what it leads to.
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,

    /// Directories with all that is in them.
    #[arg(long, short)]
    pub(crate) recursive: bool,

    /// What is not there is no error.
    #[arg(long, short)]
    pub(crate) force: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor mv draft.txt final.txt
  executor mv --replace new.conf app.conf

The new name is the whole one: a directory as target does not mean \"into it\".")]
pub(crate) struct MvArgs {
    /// The name it has.
    pub(crate) from: PathBuf,

    /// The name it gets.
    pub(crate) to: PathBuf,

    /// Take the place of a file that has the new name.
    #[arg(long, short = 'f')]
    pub(crate) replace: bool,

    /// Make missing directories above the new name.
    #[arg(long, short)]
    pub(crate) parents: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor mkdir build
  executor mkdir -p deep/down/here")]
pub(crate) struct MkdirArgs {
    /// The directories.
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,

    /// Also those above; one that is there is no error.
    #[arg(long, short)]
    pub(crate) parents: bool,

    /// Permission bits, as 700.
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each write, edit, rm and mv under your daemon tells a token. It can be used once,
while the file is as that change left it; the newest 50 changes are kept.")]
pub(crate) struct UndoArgs {
    /// The token.
    pub(crate) token: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor view photo.jpg
  executor view --max-side 800 --save small.jpg photo.jpg
  executor view --json diagram.png | jq .original

Terminals that are known to show images (kitty, Ghostty, iTerm2, WezTerm) show it;
what is shown or saved is what a model would be given.")]
pub(crate) struct ViewArgs {
    /// The image: PNG, JPEG, GIF, WebP, BMP or TIFF.
    pub(crate) path: PathBuf,

    /// Write the image, as the machine returns it, into this file here.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    /// At most so large, in units of 1,024 bytes; what is larger is scaled.
    #[arg(long, value_name = "KB", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=4_000))]
    pub(crate) max_kb: u32,

    /// Neither side longer, in pixels; what is longer is scaled.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=8_000))]
    pub(crate) max_side: Option<u32>,

    /// Do not show it.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Octal digits.
fn parse_mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| format!("{text:?} is no mode; give octal digits up to 777"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_octal() {
        assert_eq!(parse_mode("755"), Ok(0o755));
        assert_eq!(parse_mode("0600"), Ok(0o600));
        for text in ["", "8", "rwx", "1000", "4755", "-1"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }
}
