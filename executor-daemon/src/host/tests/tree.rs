//! Messages as trees of MessagePack, without their types.

use rmpv::Value;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// Reads a body.
pub(super) fn tree(bytes: &[u8]) -> Value {
    let mut rest = bytes;
    let value = rmpv::decode::read_value(&mut rest).unwrap();
    assert!(rest.is_empty(), "a body is one value");
    value
}

/// Writes one.
pub(super) fn bytes(tree: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, tree).unwrap();
    bytes
}

/// A struct's fields: not the one entry that names a variant, and not a time,
/// whose two fields are the standard library's for good.
fn is_struct(entries: &[(Value, Value)]) -> bool {
    entries.iter().all(|(name, _)| {
        let name = name.as_str();
        name.is_some_and(|name| name.starts_with(char::is_lowercase) && !name.contains("secs"))
    })
}

/// The same message of a release that has one field more in every struct.
pub(super) fn with_more_fields(tree: &Value) -> Value {
    match tree {
        Value::Map(entries) => {
            let mut more: Vec<_> = entries
                .iter()
                .map(|(name, value)| (name.clone(), with_more_fields(value)))
                .collect();
            if is_struct(entries) {
                let value = Value::Array(vec![Value::from("x"), Value::Map(Vec::new())]);
                more.insert(0, ("a_later_field".into(), value.clone()));
                more.push(("another_later_field".into(), value));
            }
            Value::Map(more)
        }
        Value::Array(values) => Value::Array(values.iter().map(with_more_fields).collect()),
        other => other.clone(),
    }
}

/// The same message of a release that did not know the fields that are empty
/// here.
pub(super) fn without_empty_fields(tree: &Value) -> Value {
    match tree {
        Value::Map(entries) => Value::Map(
            entries
                .iter()
                .filter(|(_, value)| !value.is_nil())
                .map(|(name, value)| (name.clone(), without_empty_fields(value)))
                .collect(),
        ),
        Value::Array(values) => Value::Array(values.iter().map(without_empty_fields).collect()),
        other => other.clone(),
    }
}

/// Whether whoever reads `old` finds the same in `new`, which may have more
/// fields. Says where not.
pub(super) fn missing(old: &Value, new: &Value, at: &str) -> Option<String> {
    match (old, new) {
        (Value::Map(old), Value::Map(new)) => old.iter().find_map(|(name, value)| {
            let at = format!("{at}.{name}");
            match new.iter().find(|(other, _)| other == name) {
                Some((_, other)) => missing(value, other, &at),
                None => Some(at),
            }
        }),
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let pairs = old.iter().zip(new).enumerate();
            pairs
                .into_iter()
                .find_map(|(index, (old, new))| missing(old, new, &format!("{at}[{index}]")))
        }
        (old, new) => (old != new).then(|| format!("{at}: {old} is {new}")),
    }
}

/// Every name and text in it.
pub(super) fn texts(tree: &Value, found: &mut Vec<String>) {
    match tree {
        Value::Map(entries) => {
            for (name, value) in entries {
                texts(name, found);
                texts(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, found)),
        other => found.extend(other.as_str().map(str::to_owned)),
    }
}

/// The names of an enum's variants, as it is read.
pub(super) fn variants<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // The reader only looks at what is asked of it.
    let _ = T::deserialize(Names(&mut names));
    assert!(
        !names.is_empty(),
        "{} is no enum",
        std::any::type_name::<T>()
    );
    names
}

struct Names<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("no enum"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = variants;
        Err(Error::custom("only asked"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}
