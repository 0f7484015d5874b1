//! Text, without files: what the bytes of a text file say, how its lines end,
//! and what an edit makes of it.
//!
//! Nothing here reads or writes: bytes and strings go in, values come out, so
//! everything can be tested by value. [`encoding`] turns bytes into text and
//! back, [`edits`] changes text, [`diff`] says what changed, [`nearest`] says
//! what was probably meant, [`elision`] finds the lines that stand for text
//! somebody left out.
//!
//! Every byte that an edit does not name stays as it was: a BOM is kept apart
//! from the text and put back, and a file whose bytes the encoding would not
//! give back is refused before anything is changed.

pub mod diff;
pub mod edits;
pub mod elision;
pub mod encoding;
pub mod line_ending;
pub mod nearest;

#[cfg(test)]
mod tests;
