//! Places of the options that a file or the environment gives, for errors that show only once all
//! options are put together.

use super::option::Found;

/// The places, each by the name of its option.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Path of the file, and a colon; empty if there is none.
    file: String,
    of: Vec<(String, String)>,
}

impl Places {
    /// Creates the places of a file.
    pub(super) fn of_file(path: &std::path::Path) -> Self {
        Self { file: format!("{}:", path.display()), of: Vec::new() }
    }

    pub(super) fn add(&mut self, found: &Found) {
        self.of.push((found.name.clone(), found.place.clone()));
    }

    /// Puts a place before an error that has none: that of the option at fault, if it has one.
    pub(crate) fn locate(&self, error: String) -> String {
        if !self.file.is_empty() && error.starts_with(&self.file) {
            return error;
        }
        let place = self.place_of(&error).unwrap_or_default();
        format!("{place}{error}")
    }

    /// Puts the place of an option before an error that is about it, if it has one.
    pub(crate) fn locate_at(&self, option: &str, error: &str) -> String {
        let place = self.of.iter().find(|(name, _)| name == option);
        format!("{}{error}", place.map_or("", |(_, place)| place))
    }

    /// Returns the place of the option that an error names first, which is the one at fault.
    pub(super) fn place_of(&self, error: &str) -> Option<&str> {
        let named = first_option(error);
        let known = self.of.iter().find(|(known, _)| known == named);
        known.map(|(_, place)| place.as_str())
    }
}

/// Returns the name of the option that an error names first; an empty one if it names none.
pub(super) fn first_option(error: &str) -> &str {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let mut words = error.split([' ', '\'', '"', '(', '[', '=']);
    let first = words.find_map(|word| word.strip_prefix("--")).unwrap_or_default();
    let length = first.bytes().take_while(|byte| is_of_name(byte)).count();
    &first[..length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn an_error_has_the_place_of_the_first_option_it_names() {
        let mut places = Places::of_file(Path::new("f"));
        for (name, place) in [("arch", "f: line 2, column 8: "), ("admin", "WEIR_ADMIN: ")] {
            let (name, place) = (name.to_owned(), place.to_owned());
            places.add(&Found { id: String::new(), name, place, args: Vec::new() });
        }
        for (error, located) in [
            ("--arch ring speaks no TLS", "f: line 2, column 8: --arch ring speaks no TLS"),
            ("the '--admin <A>' and --arch", "WEIR_ADMIN: the '--admin <A>' and --arch"),
            ("--listen and --admin=x", "--listen and --admin=x"),
            ("--route /x--arch=y", "--route /x--arch=y"),
            ("--archive is not --arch-", "--archive is not --arch-"),
            ("f: line 1, column 1: --arch", "f: line 1, column 1: --arch"),
            ("no option -- at all --", "no option -- at all --"),
        ] {
            assert_eq!(places.locate(error.into()), located);
        }
    }
}
