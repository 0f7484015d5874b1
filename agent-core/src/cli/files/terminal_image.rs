//! Images in terminals that say that they can show them.
//!
//! - kitty: <https://sw.kovidgoyal.net/kitty/graphics-protocol/>, PNG in pieces.
//! - iTerm2: <https://iterm2.com/documentation-images.html>, a file of any kind.

use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::ImageFormat;

/// Characters of one piece.
const PIECE: usize = 4096;

/// How a terminal is given an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// kitty's.
    Kitty,
    /// iTerm2's.
    Inline,
}

impl Protocol {
    /// What the environment says of the terminal. A multiplexer in between would
    /// have to pass it on, and mostly does not.
    pub(super) fn of<'a>(variable: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let set = |name| variable(name).is_some_and(|value| !value.is_empty());
        let is = |name, wanted| variable(name) == Some(wanted);
        let terminal = variable("TERM").unwrap_or_default();
        if set("TMUX")
            || set("STY")
            || terminal.starts_with("screen")
            || terminal.starts_with("tmux")
        {
            return None;
        }
        if matches!(terminal, "xterm-kitty" | "xterm-ghostty") {
            return Some(Self::Kitty);
        }
        let inline = is("TERM_PROGRAM", "iTerm.app")
            || is("TERM_PROGRAM", "WezTerm")
            || is("LC_TERMINAL", "iTerm2");
        inline.then_some(Self::Inline)
    }

    /// What makes the terminal show the image; `None`: it is none that can be
    /// converted.
    pub(super) fn sequence(self, data: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Kitty => Some(kitty(&as_png(data)?)),
            Self::Inline => Some(inline(data)),
        }
    }
}

fn as_png(data: &[u8]) -> Option<Vec<u8>> {
    if image::guess_format(data).ok()? == ImageFormat::Png {
        return Some(data.to_owned());
    }
    let image = image::load_from_memory(data).ok()?;
    let mut png = Cursor::new(Vec::new());
    image.write_to(&mut png, ImageFormat::Png).ok()?;
    Some(png.into_inner())
}

fn kitty(png: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(png);
    let mut sequence = Vec::with_capacity(text.len() + text.len() / 256 + 64);
    let mut pieces = text.as_bytes().chunks(PIECE).peekable();
    let mut control = "a=T,f=100,";
    while let Some(piece) = pieces.next() {
        let more = u8::from(pieces.peek().is_some());
        sequence.extend(format!("\x1b_G{control}m={more};").as_bytes());
        sequence.extend(piece);
        sequence.extend(b"\x1b\\");
        control = "";
    }
    sequence
}

fn inline(data: &[u8]) -> Vec<u8> {
    let (size, text) = (data.len(), STANDARD.encode(data));
    format!("\x1b]1337;File=inline=1;size={size};preserveAspectRatio=1:{text}\x07").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_given_an_image_only_if_it_says_that_it_shows_them() {
        let of = |variables: &[(&str, &'static str)]| {
            Protocol::of(|name| {
                let found = variables.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| *value)
            })
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("TERM", "xterm-256color")]), None);
        assert_eq!(of(&[("TERM", "xterm-kitty")]), Some(Protocol::Kitty));
        let wezterm = ("TERM_PROGRAM", "WezTerm");
        assert_eq!(of(&[wezterm]), Some(Protocol::Inline));
        assert_eq!(of(&[wezterm, ("TMUX", "/tmp/tmux-0/default,1,0")]), None);
        assert_eq!(of(&[wezterm, ("TERM", "tmux-256color")]), None);
    }

    #[test]
    fn kitty_gets_pieces_of_which_the_last_one_says_so() {
        let png: Vec<u8> = (0..7_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let sequence = String::from_utf8(kitty(&png)).unwrap();
        let pieces: Vec<_> = sequence
            .split("\x1b\\")
            .filter(|piece| !piece.is_empty())
            .map(|piece| {
                piece
                    .strip_prefix("\x1b_G")
                    .unwrap()
                    .split_once(';')
                    .unwrap()
            })
            .collect();
        let controls: Vec<_> = pieces.iter().map(|(control, _)| *control).collect();
        assert_eq!(controls, ["a=T,f=100,m=1", "m=1", "m=0"]);
        assert!(pieces.iter().all(|(_, text)| text.len() <= PIECE));
        let text: String = pieces.iter().map(|(_, text)| *text).collect();
        assert_eq!(STANDARD.decode(text).unwrap(), png);
    }

    #[test]
    fn what_is_no_png_is_made_one_for_kitty() {
        let mut jpeg = Cursor::new(Vec::new());
        let image = image::RgbImage::from_pixel(8, 8, image::Rgb([200, 10, 10]));
        image.write_to(&mut jpeg, ImageFormat::Jpeg).unwrap();
        let png = as_png(&jpeg.into_inner()).unwrap();
        assert_eq!(image::guess_format(&png).unwrap(), ImageFormat::Png);
        assert_eq!(as_png(b"no image"), None);
    }
}
