//! Reading of TOML files: errors as sentences, with their place in the text.

/// Deserializes TOML. An error is a sentence, with its line number where TOML tells one.
pub(crate) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let says = error.message().trim().replace('\n', ", ");
        let upto = error.span().and_then(|span| text.get(..span.start));
        match upto {
            Some(upto) => format!("line {}: {says}", upto.matches('\n').count() + 1),
            None => says,
        }
    })
}
