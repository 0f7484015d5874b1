//! Names of files as the bytes that they are, where values are written down:
//! serde itself takes only names that are UTF-8. In a format for people one that
//! is text is written as text.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize as _, Deserializer, Serializer};

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) if serializer.is_human_readable() => serializer.serialize_str(text),
        _ => serializer.serialize_bytes(path.as_os_str().as_bytes()),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let bytes = if deserializer.is_human_readable() {
        match Written::deserialize(deserializer)? {
            Written::Text(text) => text.into_bytes(),
            Written::Bytes(bytes) => bytes,
        }
    } else {
        serde_bytes::deserialize(deserializer)?
    };
    Ok(OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Named(#[serde(with = "super")] PathBuf);

    #[test]
    fn every_name_comes_back_and_text_is_text_for_people() {
        for bytes in [&b"/plain"[..], b"/\xff\xfe", b"", "/\u{e9}".as_bytes()] {
            let named = Named(OsString::from_vec(bytes.to_vec()).into());
            let json = serde_json::to_string(&named).unwrap();
            assert_eq!(serde_json::from_str::<Named>(&json).unwrap(), named);
            let packed = rmp_serde::to_vec_named(&named).unwrap();
            assert_eq!(rmp_serde::from_slice::<Named>(&packed).unwrap(), named);
        }
        let text = serde_json::to_string(&Named("/a".into())).unwrap();
        assert_eq!(text, "\"/a\"");
    }
}
