//! What the wire alone can get wrong about files.

use executor_proto::id::OperationId;
use executor_proto::reason::Reason;
use executor_proto::v1::{self, precondition::Condition};

use super::change::{edit_spec, operation, part, remove_spec, write_spec};
use super::read::{CheckedRange, CheckedStat, list_options, read_lines};
use super::search::{glob, grep};
use crate::files::entry::Last;
use crate::files::list::LIMIT_DEFAULT;
use crate::files::mutation::Precondition;
use crate::limits::Limits;

#[test]
fn what_is_left_out_has_its_default() {
    let (_, asked) = read_lines(v1::ReadLinesRequest::default(), &Limits::default()).unwrap();
    assert_eq!((asked.offset, asked.limit, asked.encoding), (1, 200, None));
    let (_, options) =
        list_options(v1::ListDirectoryRequest::default(), &Limits::default()).unwrap();
    assert_eq!((options.depth, options.limit), (1, LIMIT_DEFAULT));
    let stat = CheckedStat::new(v1::StatFileRequest::default()).unwrap();
    assert_eq!(stat.last, Last::Follow);
    let range = CheckedRange::new(v1::ReadBytesRequest::default()).unwrap();
    assert_eq!((range.offset, range.length, range.version), (0, None, None));
}

#[test]
fn what_is_said_is_taken_as_it_is() {
    // 0 is a value where a field says whether it is set.
    let request = v1::ReadLinesRequest {
        offset: Some(0),
        limit: Some(0),
        ..Default::default()
    };
    let (_, asked) = read_lines(request, &Limits::default()).unwrap();
    assert_eq!((asked.offset, asked.limit), (0, 0));
}

#[test]
fn a_path_that_cannot_be_one_is_refused_with_its_field() {
    for path in [b"a\0b".to_vec(), vec![b'a'; 5_000]] {
        let request = v1::RemoveFileRequest {
            path,
            ..Default::default()
        };
        let failure = remove_spec(request).unwrap_err();
        assert_eq!(failure.reason, Reason::InvalidArgument);
        assert_eq!(failure.metadata["field"], "path");
    }
}

#[test]
fn a_precondition_is_one_that_can_hold() {
    let with = |condition| v1::WriteFileOpen {
        precondition: Some(v1::Precondition { condition }),
        ..Default::default()
    };
    let spec = write_spec(v1::WriteFileOpen::default()).unwrap();
    assert_eq!(spec.precondition, None);
    let spec = write_spec(with(Some(Condition::MustNotExist(true)))).unwrap();
    assert_eq!(spec.precondition, Some(Precondition::MustNotExist));
    let digest = "ab".repeat(32);
    let spec = write_spec(with(Some(Condition::Digest(digest)))).unwrap();
    assert!(matches!(spec.precondition, Some(Precondition::Digest(_))));
    for condition in [
        None,
        Some(Condition::MustNotExist(false)),
        Some(Condition::Digest("AB".into())),
        Some(Condition::Version("1".into())),
    ] {
        let failure = write_spec(with(condition)).unwrap_err();
        assert_eq!(failure.metadata["field"], "precondition");
    }
}

#[test]
fn an_operation_id_is_one_of_ours() {
    let id = OperationId::random();
    assert_eq!(operation(&id.to_string()).unwrap(), id);
    for text in ["", "op_", "prc_aaaaaaaaaaaaaaaaaaaaaaaaaa"] {
        let failure = operation(text).unwrap_err();
        assert_eq!(failure.metadata["field"], "operation_id");
    }
}

#[test]
fn a_part_of_a_content_has_at_most_a_mebibyte() {
    assert!(part("data", 1 << 20).is_ok());
    let failure = part("data", (1 << 20) + 1).unwrap_err();
    assert_eq!(failure.metadata["field"], "data");
}

#[test]
fn edits_keep_their_order_and_their_bytes() {
    let edit = |old: &str, replace_all| v1::Edit {
        old: old.into(),
        new: "$&\\n".into(),
        replace_all,
    };
    let request = v1::EditFileRequest {
        edits: vec![edit("b", true), edit("a", false)],
        ..Default::default()
    };
    let spec = edit_spec(request).unwrap();
    let olds: Vec<_> = spec.edits.iter().map(|edit| edit.old.as_str()).collect();
    assert_eq!(olds, ["b", "a"]);
    assert!(spec.edits.iter().all(|edit| edit.new == "$&\\n"));
    assert!(spec.edits[0].replace_all && !spec.edits[1].replace_all);
}

#[test]
fn what_is_left_out_of_a_search_has_its_default() {
    use crate::files::search::request::{Glob, Grep, Ignore};
    let asked = glob(v1::GlobRequest::default()).unwrap();
    assert_eq!(asked, Glob::default());
    assert_eq!(asked.scope.ignore, Ignore::default());
    assert_eq!(grep(v1::GrepRequest::default()).unwrap(), Grep::default());
}

#[test]
fn a_switch_turns_off_the_ignore_files_that_it_names() {
    let ignore = |change: fn(&mut v1::SearchScope)| {
        let mut scope = v1::SearchScope::default();
        change(&mut scope);
        let request = v1::GlobRequest {
            scope: Some(scope),
            ..Default::default()
        };
        let ignore = glob(request).unwrap().scope.ignore;
        [
            ignore.dot,
            ignore.git,
            ignore.exclude,
            ignore.global,
            ignore.above,
        ]
    };
    assert_eq!(ignore(|scope| scope.no_ignore = true), [false; 5]);
    let vcs = ignore(|scope| scope.no_ignore_vcs = true);
    assert_eq!(vcs, [true, false, false, false, true]);
    let dot = ignore(|scope| scope.no_ignore_dot = true);
    assert_eq!(dot, [false, true, true, true, true]);
    let exclude = ignore(|scope| scope.no_ignore_exclude = true);
    assert_eq!(exclude, [true, true, false, true, true]);
    let global = ignore(|scope| scope.no_ignore_global = true);
    assert_eq!(global, [true, true, true, false, true]);
    let parent = ignore(|scope| scope.no_ignore_parent = true);
    assert_eq!(parent, [true, true, true, true, false]);
    let path = v1::GlobRequest {
        scope: Some(v1::SearchScope {
            paths: vec![b"a\0b".to_vec()],
            ..Default::default()
        }),
        ..Default::default()
    };
    assert_eq!(glob(path).unwrap_err().metadata["field"], "paths");
}
