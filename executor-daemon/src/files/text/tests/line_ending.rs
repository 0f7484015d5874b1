use super::super::line_ending::{LineEnding, to_crlf, to_lf};

#[test]
fn only_a_newline_with_an_optional_carriage_return_ends_a_line() {
    for (text, expected) in [
        ("", LineEnding::None),
        ("a", LineEnding::None),
        ("a\rb\r", LineEnding::None),
        ("\u{2028}\u{85}\u{b}\u{c}", LineEnding::None),
        ("\n", LineEnding::Lf),
        ("a\nb", LineEnding::Lf),
        ("a\r\nb", LineEnding::CrLf),
        ("a\r\r\nb", LineEnding::CrLf),
        ("a\r\nb\n", LineEnding::Mixed),
        ("\n\r\n", LineEnding::Mixed),
    ] {
        assert_eq!(LineEnding::of(text), expected, "{text:?}");
    }
}

#[test]
fn line_ends_are_written_the_other_way_and_nothing_else_is() {
    for (text, lf, crlf) in [
        ("", "", ""),
        ("a\rb", "a\rb", "a\rb"),
        ("a\nb\n", "a\nb\n", "a\r\nb\r\n"),
        ("a\r\nb\n", "a\nb\n", "a\r\nb\r\n"),
        ("\r\n\r\n", "\n\n", "\r\n\r\n"),
        ("\r\r\n", "\r\n", "\r\r\n"),
    ] {
        assert_eq!(to_lf(text), lf, "{text:?}");
        assert_eq!(to_crlf(text), crlf, "{text:?}");
    }
}

#[test]
fn two_texts_together_have_the_ending_of_both() {
    use LineEnding::{CrLf, Lf, Mixed, None};
    for (one, two, both) in [
        (None, None, None),
        (None, Lf, Lf),
        (CrLf, None, CrLf),
        (Lf, CrLf, Mixed),
        (Mixed, None, Mixed),
        (Lf, Mixed, Mixed),
    ] {
        assert_eq!(one.and(two), both);
        assert_eq!(two.and(one), both);
    }
}
