//! Finds places in a parsed file: which key stands at a span, and which span a key has.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Line and column of a byte, counted from one; columns count characters.
pub(super) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        line,
        before.get(start..).unwrap_or_default().chars().count() + 1,
    )
}

/// The span of the value at a path, or where the path ends early, of the last key that is there.
pub(super) fn span_of(table: &DeTable<'_>, path: &[&str]) -> Option<Range<usize>> {
    let (first, rest) = path.split_first()?;
    let (key, value) = table.get_key_value(*first)?;
    match value.get_ref() {
        DeValue::Table(inner) if !rest.is_empty() => span_of(inner, rest).or(Some(key.span())),
        _ => Some(value.span()),
    }
}

/// Takes out what stands at a span: the key, its value, or the element of an array. Gives its
/// dotted path.
pub(super) fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<String> {
    let mut found = None;
    for (key, value) in table.iter_mut() {
        if contains(&key.span(), span) {
            found = Some(key.get_ref().to_string());
            break;
        }
        let own_span = value.span();
        match value.get_mut() {
            DeValue::Table(inner) => {
                if let Some(path) = take_out(inner, span) {
                    return Some(format!("{}.{path}", key.get_ref()));
                }
            }
            DeValue::Array(array) => {
                if let Some(at) = array
                    .iter()
                    .position(|element| contains(&element.span(), span))
                {
                    *array = without(array, at);
                    return Some(key.get_ref().to_string());
                }
            }
            _ => {}
        }
        if contains(&own_span, span) {
            found = Some(key.get_ref().to_string());
            break;
        }
    }
    let key = found?;
    table.remove(key.as_str())?;
    Some(key)
}

/// The value whose span is exactly this one.
pub(super) fn value_at<'t, 'i>(
    table: &'t mut DeTable<'i>,
    span: &Range<usize>,
) -> Option<&'t mut Spanned<DeValue<'i>>> {
    for (_, value) in table.iter_mut() {
        if value.span() == *span && !value.get_ref().is_table() {
            return Some(value);
        }
        if let DeValue::Table(inner) = value.get_mut()
            && let Some(found) = value_at(inner, span)
        {
            return Some(found);
        }
    }
    None
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn without<'i>(array: &DeArray<'i>, at: usize) -> DeArray<'i> {
    let mut rest = DeArray::new();
    for (_, element) in array.iter().enumerate().filter(|(n, _)| *n != at) {
        rest.push(element.clone());
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        assert_eq!(line_and_column("a = 1\nö = 2\n", 8), (2, 2));
        assert_eq!(line_and_column("", 0), (1, 1));
        assert_eq!(line_and_column("a", 99), (1, 2));
    }
}
