//! Reading of TOML files: errors are sentences with their line and column, where TOML tells them.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

/// Parses TOML whose texts are fit for a terminal: no control characters but line breaks and tabs.
///
/// # Errors
/// Returns the first error, with its place.
pub fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, String> {
    let table = DeTable::parse(text).map_err(|error| sentence(text, &error))?;
    in_table(table.get_ref()).map_err(|(span, says)| located(text, Some(span), &says))?;
    Ok(table)
}

/// Reads a value from a parsed document. `text` is the document's.
///
/// # Errors
/// Returns the first field that does not fit, with its place.
pub(crate) fn decode<T: DeserializeOwned>(
    text: &str,
    table: Spanned<DeTable<'_>>,
) -> Result<T, String> {
    T::deserialize(Deserializer::from(table)).map_err(|error| sentence(text, &error))
}

/// Parses a document and reads a value from it.
///
/// # Errors
/// Returns the first error, with its place.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    decode(text, parse(text)?)
}

/// Puts the line and the column of `span` before a sentence about it.
pub fn located(text: &str, span: Option<Range<usize>>, says: &str) -> String {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else {
        return says.to_owned();
    };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {says}")
}

fn sentence(text: &str, error: &Error) -> String {
    let says = error.message().trim().replace('\n', ", ");
    match error.span().and_then(|span| key_before(text.get(..span.start)?)) {
        Some(key) => located(text, error.span(), &format!("{key}: {says}")),
        None => located(text, error.span(), &says),
    }
}

/// Returns the key of a value that follows a text.
fn key_before(text: &str) -> Option<&str> {
    let entry = text.rsplit(['\n', '{', ',']).next()?;
    Some(entry.trim_end().strip_suffix('=')?.trim())
}

type Found = (Range<usize>, String);

fn in_table(table: &DeTable<'_>) -> Result<(), Found> {
    table.iter().try_for_each(|(key, value)| {
        in_text(key.span(), key.get_ref()).and_then(|()| in_value(value))
    })
}

fn in_value(value: &Spanned<DeValue<'_>>) -> Result<(), Found> {
    match value.get_ref() {
        DeValue::String(text) => in_text(value.span(), text),
        DeValue::Array(values) => values.iter().try_for_each(in_value),
        DeValue::Table(table) => in_table(table),
        _ => Ok(()),
    }
}

fn in_text(span: Range<usize>, text: &str) -> Result<(), Found> {
    match text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        true => Err((span, format!("{text:?} has a control character"))),
        false => Ok(()),
    }
}
