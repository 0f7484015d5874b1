//! Files in `--json`: names as in the protocol. A name is text where it is
//! UTF-8; else `path` is absent and `path_base64` has its bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use executor_client::v1;
use serde_json::{Map, Value, json};

use super::shown;

/// Puts a name under `key`.
pub(super) fn put_name(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(key.into(), text.into()),
        Err(_) => object.insert(format!("{key}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// An object with a name under `path`.
pub(super) fn at(path: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    put_name(&mut object, "path", path);
    object
}

/// What a path names.
pub(super) fn info(info: &v1::FileInfo) -> Map<String, Value> {
    let mut object = at(&info.path);
    let rest = json!({
        "kind": shown::kind(info.kind()),
        "size": info.size,
        "mode": format!("{:04o}", info.mode),
        "uid": info.uid,
        "gid": info.gid,
        "links": info.links,
        "modified_at": info.modified_at.map(|at| at.to_string()),
        "version": info.version,
    });
    extend(&mut object, rest);
    if info.kind() == v1::FileKind::Link {
        put_name(&mut object, "link_target", &info.link_target);
    }
    object
}

/// One entry of a directory.
pub(super) fn entry(entry: &v1::DirectoryEntry) -> Value {
    let mut object = at(&entry.path);
    let rest = json!({
        "kind": shown::kind(entry.kind()),
        "size": entry.size,
        "mode": format!("{:04o}", entry.mode),
        "modified_at": entry.modified_at.map(|at| at.to_string()),
    });
    extend(&mut object, rest);
    if entry.kind() == v1::FileKind::Link {
        put_name(&mut object, "link_target", &entry.link_target);
    }
    object.into()
}

/// The last line of a listing.
pub(super) fn summary(summary: &v1::ListSummary) -> Value {
    let mut object = at(&summary.path);
    let problems: Vec<Value> = summary
        .problems
        .iter()
        .map(|problem| {
            let mut object = at(&problem.path);
            object.insert("message".into(), problem.message.clone().into());
            object.into()
        })
        .collect();
    let rest = json!({
        "entries": summary.entries,
        "ignored": summary.ignored,
        "limit_reached": summary.limit_reached,
        "unreadable": summary.unreadable,
        "problems": problems,
    });
    extend(&mut object, rest);
    json!({ "summary": object })
}

/// The last line of a search; `shown` gives a path as results have it.
pub(super) fn search_summary(
    summary: &v1::SearchSummary,
    shown: impl Fn(&[u8]) -> Vec<u8>,
) -> Value {
    let problems = summary.problems.iter().map(|problem| {
        let mut object = at(&shown(&problem.path));
        object.insert("message".into(), problem.message.clone().into());
        Value::from(object)
    });
    json!({"summary": {
        "matches": summary.matches,
        "files_matched": summary.files_matched,
        "files": summary.files,
        "directories": summary.directories,
        "bytes": summary.bytes,
        "complete": summary.complete,
        "limit_reached": summary.limit_reached,
        "lines_clipped": summary.lines_clipped,
        "files_cut": summary.files_cut,
        "ignored": summary.ignored,
        "hidden": summary.hidden,
        "filtered": summary.filtered,
        "too_deep": summary.too_deep,
        "links": summary.links,
        "special": summary.special,
        "secret": summary.secret,
        "binary": summary.binary,
        "too_large": summary.too_large,
        "unreadable": summary.unreadable,
        "problems": problems.collect::<Vec<_>>(),
    }})
}

/// Adds what `more`, an object, has.
pub(super) fn extend(object: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        object.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_text_or_its_bytes() {
        assert_eq!(at("é".as_bytes())["path"], "é");
        let odd = at(b"\xff.txt");
        assert_eq!(odd["path_base64"], "/y50eHQ=");
        assert!(!odd.contains_key("path"));
    }
}
