//! Figures in prose: numbers that say how much of something there is, with their units and, in
//! brackets behind them, their intervals. The number of a section, a version or a repetition is
//! none.

use anyhow::Result;
use regex::Regex;

/// What a figure counts, as far as it decides in which forms a record may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Percent,
    Time,
    /// "times", "×", or a decimal without a unit.
    Ratio,
    Rate,
    Size,
    /// A long number, or one of a list, a bracket or a cell.
    Bare,
}

/// A number as it is quoted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    pub(super) value: f64,
    /// Half of the last digit that is quoted.
    pub(super) tolerance: f64,
    pub(super) unit: Unit,
}

/// A figure: a number, and the numbers of the bracket behind it.
#[derive(Debug, PartialEq)]
pub(super) struct Quote {
    /// The first byte of the number in the text.
    pub(super) at: usize,
    /// The byte after its unit.
    pub(super) end: usize,
    pub(super) number: Number,
    pub(super) interval: Vec<Number>,
}

/// A number of the text, which may be no figure.
struct Token {
    at: usize,
    end: usize,
    unit_end: usize,
    value: f64,
    tolerance: f64,
    unit: Option<Unit>,
    is_reference: bool,
    is_interval: bool,
}

/// The patterns by which figures are found.
pub(super) struct Grammar {
    number: Regex,
    unit: Regex,
    reference: Regex,
    joint: Regex,
    opens: Regex,
    closes: Regex,
    cell: Regex,
}

const NUMBER: &str = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)*(?:e-?\d+)?";
const UNIT: &str = r"(?x) ^ \s? (?:
    (?P<percent> %)
  | (?P<ratio> × | [-]?(?: times | fold ) \b )
  | (?P<size> (?: [kMGT]B | [KMG]iB | bytes? | [kMG]bit/s | cycles | instructions ) \b )
  | (?P<time> (?: µs | us | ms | ns | s | min | minutes? | seconds? | hours? ) \b )
  | (?P<rate> (?: [a-z][\w-]* \s ){0,3}? (?: [a-z]* / s | (?: per | an? ) \s second ) \b )
)";
const REFERENCE: &str = r"(?x) (?: § | \b (?: [Ff]igs?\.? | [Ff]igures? | [Tt]ables? | [Ss]ections?
    | chapters? | ch\. | pages? | eqs?\. | n\s= | n | RFC | TLS | HTTP/? | versions? | Debian
    | Linux (?: \s from )? | nginx | h2o | lighttpd | HAProxy | Apache | Squid | November ) \s ) $";
/// Between two numbers of one list.
const JOINT: &str = r"^(?:,? (?:and|or|to) |, |–| / )$";
/// From a number to the first of the bracket that has its interval.
const OPENS: &str = r"^[^().;:]*\((?:range |only )?$";
/// Behind the last number of an interval.
const CLOSES: &str = r"^(?:\s?(?:%|×|times|µs|ms|s|us))?(?:[),;]|$)";
/// A cell that holds numbers and nothing else.
const CELL: &str = r"^(?:[\d\s.,()×%–−/;=+-]|\b(?:to|and|n|range|one point|ms|µs|us|s|times)\b)*$";

impl Grammar {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            number: Regex::new(NUMBER)?,
            unit: Regex::new(UNIT)?,
            reference: Regex::new(REFERENCE)?,
            joint: Regex::new(JOINT)?,
            opens: Regex::new(OPENS)?,
            closes: Regex::new(CLOSES)?,
            cell: Regex::new(CELL)?,
        })
    }

    /// Returns the figures of a sentence; of a cell of numbers every number is one.
    pub(super) fn quotes(&self, text: &str, is_cell: bool) -> Vec<Quote> {
        let mut tokens = self.tokens(text);
        self.share_units(text, &mut tokens);
        let mut intervals = self.take_intervals(text, &mut tokens);
        let every = is_cell && self.cell.is_match(text);
        let figures = tokens.iter().enumerate().filter(|(_, token)| !token.is_interval);
        let figures = figures.filter_map(|(index, token)| {
            let interval = std::mem::take(intervals.get_mut(index)?);
            let counts = token.unit.is_some() || every || !interval.is_empty();
            (counts && !token.is_reference).then(|| Quote {
                at: token.at,
                end: token.unit_end,
                number: token.number(token.unit),
                interval,
            })
        });
        figures.collect()
    }

    /// Returns every number of a text of measurements, and whether a per cent sign follows.
    pub(super) fn numbers(&self, text: &str) -> Vec<(f64, bool)> {
        let found = self.number.find_iter(text).filter(|found| stands_alone(text, found.range()));
        let read = found.filter_map(|found| {
            let value = found.as_str().replace(',', "").parse().ok()?;
            let rest = text.get(found.end()..)?;
            Some((value, rest.trim_start().starts_with('%')))
        });
        read.collect()
    }

    fn tokens(&self, text: &str) -> Vec<Token> {
        let mut tokens: Vec<Token> = Vec::new();
        for found in self.number.find_iter(text) {
            let (Some(before), Some(after)) = (text.get(..found.start()), text.get(found.end()..))
            else {
                continue;
            };
            let (unit, length) = self.unit_of(after);
            let Ok(value) = found.as_str().replace(',', "").parse::<f64>() else { continue };
            if unit.is_none() && !stands_alone(text, found.range()) {
                continue;
            }
            let is_listed = tokens.last().is_some_and(|last| {
                last.is_reference && self.is_joint(text, last.end, found.start())
            });
            tokens.push(Token {
                at: found.start(),
                end: found.end(),
                unit_end: found.end() + length,
                value,
                tolerance: tolerance(found.as_str(), value),
                unit: unit.or_else(|| unit_of_form(found.as_str())),
                is_reference: unit.is_none() && (self.reference.is_match(before) || is_listed),
                is_interval: false,
            });
        }
        tokens
    }

    fn unit_of(&self, after: &str) -> (Option<Unit>, usize) {
        let Some(found) = self.unit.captures(after) else { return (None, 0) };
        let named = [
            ("percent", Unit::Percent),
            ("ratio", Unit::Ratio),
            ("rate", Unit::Rate),
            ("time", Unit::Time),
            ("size", Unit::Size),
        ];
        let unit = named.iter().find(|(name, _)| found.name(name).is_some());
        (unit.map(|(_, unit)| *unit), found.get(0).map_or(0, |whole| whole.len()))
    }

    fn is_joint(&self, text: &str, from: usize, to: usize) -> bool {
        text.get(from..to).is_some_and(|between| self.joint.is_match(between))
    }

    /// Gives the numbers of a list the unit of the last.
    fn share_units(&self, text: &str, tokens: &mut [Token]) {
        for at in (1..tokens.len()).rev() {
            let Some([first, second]) = tokens.get_mut(at - 1..=at) else { continue };
            let has_own = matches!(first.unit, Some(unit) if unit != Unit::Ratio)
                && first.unit != Some(Unit::Bare);
            let inherits = !has_own && first.unit_end == first.end && second.unit.is_some();
            if inherits && !first.is_reference && self.is_joint(text, first.end, second.at) {
                first.unit = second.unit;
            }
        }
    }

    /// Returns the numbers of the brackets, by the number that each of them belongs to.
    fn take_intervals(&self, text: &str, tokens: &mut [Token]) -> Vec<Vec<Number>> {
        let mut intervals = vec![Vec::new(); tokens.len()];
        let mut at = 1;
        while at < tokens.len() {
            let length = self.bracket(text, tokens, at);
            let owner = (length > 1).then(|| self.owner(text, tokens, at, length)).flatten();
            if let Some(owner) = owner {
                let unit = tokens.get(owner).and_then(|token| token.unit);
                for token in tokens.iter_mut().skip(at).take(length) {
                    token.is_interval = true;
                    intervals[owner].push(token.number(unit));
                }
            }
            at += length.max(1);
        }
        intervals
    }

    /// Returns how many numbers a bracket has that begins with the number `at`.
    fn bracket(&self, text: &str, tokens: &[Token], at: usize) -> usize {
        let opened = text.get(..tokens[at].at).is_some_and(|before| {
            before.trim_end_matches("range ").trim_end_matches("only ").ends_with('(')
        });
        if !opened || tokens[at].is_reference {
            return 0;
        }
        let listed = tokens.get(at..).unwrap_or_default().windows(2).take_while(|pair| {
            !pair[1].is_reference && self.is_joint(text, pair[0].unit_end, pair[1].at)
        });
        let length = 1 + listed.count();
        let after = tokens.get(at + length - 1).and_then(|last| text.get(last.end..));
        if after.is_some_and(|after| self.closes.is_match(after)) { length } else { 0 }
    }

    /// Returns the nearest number before a bracket that lies within it; else the nearest figure.
    fn owner(&self, text: &str, tokens: &[Token], at: usize, length: usize) -> Option<usize> {
        let bracket = tokens.get(at..at + length)?;
        let (low, high) = bracket.iter().fold((f64::MAX, f64::MIN), |(low, high), token| {
            (low.min(token.value - token.tolerance), high.max(token.value + token.tolerance))
        });
        let reaches = |&index: &usize| {
            let token = &tokens[index];
            let between = text.get(token.end..bracket[0].at);
            !token.is_interval
                && !token.is_reference
                && between.is_some_and(|between| self.opens.is_match(between))
        };
        let before: Vec<usize> = (0..at).rev().filter(reaches).collect();
        let within = before.iter().find(|&&index| (low..=high).contains(&tokens[index].value));
        let figure = before.iter().find(|&&index| tokens[index].unit.is_some());
        within.or(figure).copied()
    }
}

impl Token {
    fn number(&self, unit: Option<Unit>) -> Number {
        let unit = unit.unwrap_or(Unit::Bare);
        Number { value: self.value, tolerance: self.tolerance, unit }
    }
}

/// Returns whether the number at `range` is no part of a name, a path or a version.
fn stands_alone(text: &str, range: std::ops::Range<usize>) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '#');
    let mut before = text.get(..range.start).unwrap_or_default().chars().rev();
    let led = match before.next() {
        Some('-' | '.' | '–') => before.next().is_some_and(char::is_alphabetic),
        Some(c) => is_part(c),
        None => false,
    };
    let mut after = text.get(range.end..).unwrap_or_default().chars();
    let followed = match after.next() {
        Some('-') => after.next().is_some_and(char::is_alphanumeric),
        Some(c) => c.is_alphanumeric() || c == '_',
        None => false,
    };
    !led && !followed
}

/// Returns the unit of a number that has none, by its form: a decimal is a ratio.
fn unit_of_form(digits: &str) -> Option<Unit> {
    match (digits.contains('.'), digits.contains(',')) {
        (true, _) => Some(Unit::Ratio),
        (false, true) => Some(Unit::Bare),
        (false, false) => None,
    }
}

/// Returns half of the last digit quoted. The zeros at the end of a long number are no digits,
/// except for the first two.
fn tolerance(digits: &str, value: f64) -> f64 {
    if let Some((_, decimals)) = digits.split_once('.') {
        return 0.5 * 10f64.powi(-i32::try_from(decimals.len()).unwrap_or(0));
    }
    let plain = digits.replace(',', "");
    let zeros = plain.len() - plain.trim_end_matches('0').len();
    let rounded = if value < 1000.0 { 0 } else { zeros.min(plain.len() - 2) };
    0.5 * 10f64.powi(i32::try_from(rounded).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of a sentence, as `value unit [interval]`.
    fn found(text: &str) -> Vec<String> {
        shown(text, false)
    }

    fn shown(text: &str, is_cell: bool) -> Vec<String> {
        let quotes = Grammar::new().unwrap().quotes(text, is_cell);
        let ends = |quote: &Quote| quote.interval.iter().map(|end| end.value).collect::<Vec<_>>();
        let quotes = quotes.iter().map(|quote| {
            let number = quote.number;
            format!("{} {:?} {:?}", number.value, number.unit, ends(quote))
        });
        quotes.collect()
    }

    #[test]
    fn numbers_with_units_are_figures() {
        let text = "It takes 5 µs, 1.5 s or 40 KiB, and keeps 93 % of 61,833 replies/s.";
        let expected = ["5 Time []", "1.5 Time []", "40 Size []", "93 Percent []", "61833 Rate []"];
        assert_eq!(found(text), expected);
        assert_eq!(found("11 times, 2× and 0.98"), ["11 Ratio []", "2 Ratio []", "0.98 Ratio []"]);
        assert_eq!(found("13,100 connections a second"), ["13100 Rate []"]);
    }

    #[test]
    fn numbers_of_a_list_share_the_unit() {
        assert_eq!(found("100, 98 and 93 %"), ["100 Percent []", "98 Percent []", "93 Percent []"]);
        assert_eq!(found("from 2 to 5 ms"), ["2 Time []", "5 Time []"]);
    }

    #[test]
    fn a_bracket_of_numbers_is_an_interval() {
        assert_eq!(
            found("1.07 times that of CM (1.06, 1.09; the paper: 1.17)")[0],
            "1.07 Ratio [1.06, 1.09]"
        );
        assert_eq!(found("it is 119 (112 to 126, n = 3)"), ["119 Bare [112.0, 126.0]"]);
        assert_eq!(found("1.3 % of limit 1's time (1.2, 1.4; n = 2)"), ["1.3 Percent [1.2, 1.4]"]);
        assert_eq!(found("12 µs (range 11 to 13)"), ["12 Time [11.0, 13.0]"]);
    }

    #[test]
    fn counts_names_and_references_are_no_figures() {
        for text in [
            "64 connections, n = 3",
            "fig. 4.12, tables 4.1 and 4.2, §6.6",
            "Linux 6.18, TLS 1.3",
            "RFC 9112 section 7.1.1",
            "Accept-25 and p99",
            "io_uring in 1.1.20",
            "a 64-bit word",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn every_number_of_a_cell_of_numbers_is_a_figure() {
        assert_eq!(shown("9, 63", true), ["9 Bare []", "63 Bare []"]);
        assert_eq!(shown("9 threads", true), [""; 0]);
    }

    #[test]
    fn a_long_number_may_be_rounded_to_two_digits() {
        let tolerances = [("61,833", 0.5), ("13,100", 50.0), ("150,000", 5000.0), ("500", 0.5)];
        for (digits, expected) in tolerances {
            let value = digits.replace(',', "").parse().unwrap();
            assert_eq!(tolerance(digits, value), expected, "{digits}");
        }
        assert!((tolerance("1.07", 1.07) - 0.005).abs() < 1e-12);
    }
}
