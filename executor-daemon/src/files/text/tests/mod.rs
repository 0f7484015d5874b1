mod diff;
mod edits;
mod elision;
mod encoding;
mod line_ending;
