//! The options that an experiment file may pass to servers and load generators.
//!
//! An experiment is data and may come from a third party; an option of another program may run a
//! command, or read or write a file. Each program's own module lists the options that can do
//! neither, and the values they take. Any other option needs the operator's permission. Nothing
//! here starts a program.

/// The options of a program that are passed on without the operator's permission.
#[derive(Clone, Copy, Debug)]
pub struct AllowList {
    /// The program.
    pub program: &'static str,
    /// Option syntax of the program.
    pub syntax: Syntax,
    /// The options by name, with the values each may take. With such a value an option runs nothing
    /// and names no file.
    pub options: &'static [(&'static str, ValueShape)],
}

/// Option syntax of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Words on a command line: `--name value` or `--name=value`.
    Words,
    /// A line `name value`.
    Line,
    /// A line `name value`, optionally ended by a semicolon.
    Statement,
    /// A line `name: value`.
    Colon,
    /// A line `name = value`; values other than numbers are in double quotes.
    Equals,
}

/// Permitted values of an option. No shape accepts white space, quotes, braces, semicolons,
/// slashes, dollar signs or backslashes, except that [`ValueShape::Word`] accepts dollar signs. A
/// value therefore cannot end its line, name a file or refer to a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueShape {
    /// No value: the name alone.
    Nothing,
    /// No value, `on` or `off`.
    Switch,
    /// A number, such as `12` or `0.5`.
    Number,
    /// A number with a unit, such as `10ms` or `4k`.
    Quantity,
    /// Numbers separated by commas.
    Numbers,
    /// A name and a number, such as `pool=64`.
    Setting,
    /// A value from this list.
    OneOf(&'static [&'static str]),
    /// A number, or a value from this list.
    NumberOr(&'static [&'static str]),
    /// Names separated by commas.
    Names,
    /// Letters, digits and any of `. _ - + $`, starting with a letter or a digit. For command lines
    /// only, which are not parsed a second time.
    Word,
}

/// An option of an experiment that is not on the allow-list.
pub(crate) type Refused<'a> = &'a str;

impl AllowList {
    /// Fails with the first option that is not allowed.
    pub(crate) fn check<'a>(&self, options: &'a [String]) -> Result<(), Refused<'a>> {
        match self.syntax {
            Syntax::Words => self.command_line(options),
            _ => options.iter().try_for_each(|option| self.directive(option)),
        }
    }

    fn shape(&self, name: &str) -> Option<ValueShape> {
        let allowed = self.options.iter().find(|(allowed, _)| *allowed == name)?;
        Some(allowed.1)
    }

    /// Checks a command line. No permitted value begins with a dash, so a word checked as a value
    /// here cannot be an option's name to the program.
    fn command_line<'a>(&self, command_line: &'a [String]) -> Result<(), Refused<'a>> {
        let mut command_line = command_line.iter();
        while let Some(word) = command_line.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), None),
            };
            let shape = self.shape(name).ok_or(word.as_str())?;
            let value = match (value, shape) {
                (None, ValueShape::Nothing | ValueShape::Switch) => continue,
                (None, _) => command_line.next().map_or("", String::as_str),
                (Some(value), _) => value,
            };
            if !shape.accepts(value) {
                return Err(word);
            }
        }
        Ok(())
    }

    /// Checks a line of a configuration file.
    fn directive<'a>(&self, option: &'a str) -> Result<(), Refused<'a>> {
        let directive = match self.syntax {
            Syntax::Statement => option.strip_suffix(';').unwrap_or(option),
            _ => option,
        };
        let separator = match self.syntax {
            Syntax::Colon => ":",
            Syntax::Equals => "=",
            Syntax::Words | Syntax::Line | Syntax::Statement => " ",
        };
        let (name, value) = directive.split_once(separator).unwrap_or((directive, ""));
        let (name, value) = (name.trim_matches(' '), value.trim_matches(' '));
        let quoted = || value.strip_prefix('"')?.strip_suffix('"');
        let value = match self.syntax {
            Syntax::Equals => quoted().unwrap_or(value),
            _ => value,
        };
        let accepts = self.shape(name).is_some_and(|shape| shape.accepts(value));
        if accepts { Ok(()) } else { Err(option) }
    }
}

impl ValueShape {
    fn accepts(self, value: &str) -> bool {
        match self {
            Self::Nothing => value.is_empty(),
            Self::Switch => ["on", "off"].contains(&value.to_ascii_lowercase().as_str()),
            Self::Number => is_number(value),
            Self::Quantity => is_number(value.trim_end_matches(|c: char| c.is_ascii_alphabetic())),
            Self::Numbers => value.split(',').all(is_number),
            Self::Setting => value
                .split_once('=')
                .is_some_and(|(name, number)| is_name(name) && is_number(number)),
            Self::OneOf(names) => names.contains(&value),
            Self::NumberOr(names) => is_number(value) || names.contains(&value),
            Self::Names => value.split(',').all(is_name),
            Self::Word => {
                value.starts_with(|c: char| c.is_ascii_alphanumeric()) && value.bytes().all(in_word)
            }
        }
    }

    /// Returns a description of the shape for readers.
    pub fn describe(self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Switch => "on or off".to_owned(),
            Self::Number => "N".to_owned(),
            Self::Quantity => "N and a unit".to_owned(),
            Self::Numbers => "N,N…".to_owned(),
            Self::Setting => "NAME=N".to_owned(),
            Self::OneOf(names) => names.join(", "),
            Self::NumberOr(names) => format!("N, {}", names.join(", ")),
            Self::Names => "NAME,NAME…".to_owned(),
            Self::Word => "NAME".to_owned(),
        }
    }
}

fn is_number(text: &str) -> bool {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| (1..=12).contains(&part.len()) && part.bytes().all(is_digit);
    digits(whole) && digits(decimals)
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-+$".contains(&byte)
}
