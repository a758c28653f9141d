//! Failure conditions of a run, such as `p99>50ms`: parsed, then compared with the measurements.
//!
//! A condition states what must not be the case, as `--fail-if` takes it. This module does not
//! judge whether the run was valid.

use std::fmt;

use crate::measure::{ErrorKind, RunOutcome, TimeHistogram};

/// A failure condition: a metric, an operator and a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    subject: String,
    metric: Metric,
    operator: Operator,
    limit: f64,
    unit: Unit,
}

/// The result of evaluating a condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// True if the condition holds, so that the run fails.
    pub holds: bool,
    /// The measured value, in the condition's own unit.
    pub measured: f64,
}

/// A condition with its result, ready for display.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionResult {
    /// The failure condition.
    pub condition: Condition,
    /// Its result; `None` if there was nothing to measure.
    pub evaluation: Option<Evaluation>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    Time { distribution: usize, statistic: Statistic },
    Errors(Option<ErrorKind>),
    Rate,
    Achieved,
    Replies,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    Quantile(f64),
    Mean,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    More,
    MoreOrEqual,
    Less,
    LessOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Microseconds,
    Milliseconds,
    Seconds,
    Percent,
    PerSecond,
    Count,
}

/// Distributions a condition may name, in the order of `Distributions::rows`.
const DISTRIBUTIONS: [&str; 8] =
    ["lag", "connect", "handshake", "send", "wait", "transfer", "service", "response"];

impl Condition {
    /// Parses `METRIC OPERATOR VALUE`, with or without spaces.
    ///
    /// # Errors
    /// A sentence that names the mistake and lists the accepted forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let at = text.find(['<', '>']).ok_or_else(|| wrong(text, "has no operator"))?;
        let (subject, rest) = text.split_at(at);
        let (operator, value) = Operator::split(rest);
        let subject = subject.trim();
        let metric = Metric::parse(subject).ok_or_else(|| {
            wrong(text, &format!("names no metric that exists, {subject:?} is not one"))
        })?;
        let (limit, unit) = split_value(value.trim())
            .ok_or_else(|| wrong(text, "has no value, a number and its unit"))?;
        let unit = metric.unit(unit).ok_or_else(|| wrong(text, "has a unit that does not fit"))?;
        let (text, subject) = (text.trim().into(), subject.into());
        Ok(Self { text, subject, metric, operator, limit, unit })
    }

    /// Evaluates the condition; `None` if there was nothing to measure, such as the p99 of no
    /// replies.
    pub fn evaluate(&self, outcome: &RunOutcome) -> Option<Evaluation> {
        let measured = self.metric.measure(outcome, self.unit)?;
        Some(Evaluation { holds: self.operator.compare(measured, self.limit), measured })
    }

    /// Evaluates the condition, as [`Condition::evaluate`] does, and returns it with its result.
    pub fn result(&self, outcome: &RunOutcome) -> ConditionResult {
        ConditionResult { condition: self.clone(), evaluation: self.evaluate(outcome) }
    }

    /// Returns the unit of [`Evaluation::measured`]: `us`, `ms`, `s`, `%`, `/s`, or empty for a
    /// count.
    pub fn unit(&self) -> &'static str {
        self.unit.name()
    }

    /// Returns whether the metric is a time.
    pub fn is_about_time(&self) -> bool {
        matches!(self.metric, Metric::Time { .. })
    }
}

/// Displays the condition as it was given.
impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Displays the result, as in `it holds: p99 = 61.2 ms > 50 ms`.
impl fmt::Display for ConditionResult {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Condition { subject, operator, limit, unit, .. } = &self.condition;
        let Some(Evaluation { holds, measured }) = self.evaluation else {
            return write!(out, "it cannot be told: there is no {subject} to measure");
        };
        let verdict = if holds { "it holds" } else { "it does not hold" };
        let is = if holds { "" } else { ", not" };
        let (measured, limit) = (unit.show(shorten(measured)), unit.show(limit.to_string()));
        write!(out, "{verdict}: {subject} = {measured}{is} {} {limit}", operator.name())
    }
}

impl Metric {
    fn parse(name: &str) -> Option<Self> {
        let kind = ErrorKind::ALL.into_iter().find(|kind| kind.name() == name);
        Some(match name {
            "errors" => Metric::Errors(None),
            "rate" => Metric::Rate,
            "achieved" => Metric::Achieved,
            "replies" => Metric::Replies,
            _ if kind.is_some() => Metric::Errors(kind),
            _ => return Self::time(name),
        })
    }

    fn time(name: &str) -> Option<Self> {
        let (distribution, statistic) = name
            .split_once('.')
            .filter(|(distribution, _)| DISTRIBUTIONS.contains(distribution))
            .unwrap_or(("response", name));
        let distribution = DISTRIBUTIONS.iter().position(|known| *known == distribution)?;
        let statistic = match statistic {
            "mean" => Statistic::Mean,
            "min" => Statistic::Min,
            "max" => Statistic::Max,
            _ => Statistic::Quantile(quantile(statistic.strip_prefix('p')?)?),
        };
        Some(Metric::Time { distribution, statistic })
    }

    /// Returns the unit that `name` denotes for this metric, if it is a unit of it.
    fn unit(self, name: &str) -> Option<Unit> {
        Some(match (self, name) {
            (Metric::Time { .. }, "us") => Unit::Microseconds,
            (Metric::Time { .. }, "ms") => Unit::Milliseconds,
            (Metric::Time { .. }, "s") => Unit::Seconds,
            (Metric::Errors(_) | Metric::Achieved, "%") => Unit::Percent,
            (Metric::Rate, "/s" | "") => Unit::PerSecond,
            (Metric::Errors(_) | Metric::Replies, "") => Unit::Count,
            _ => return None,
        })
    }

    fn measure(self, outcome: &RunOutcome, unit: Unit) -> Option<f64> {
        let counts = &outcome.counts;
        match self {
            Metric::Time { distribution, statistic } => {
                let (_, times) = outcome.times.rows().into_iter().nth(distribution)?;
                statistic.of(times).map(|time_ns| time_ns / unit.nanoseconds())
            }
            Metric::Errors(kind) => {
                let errors = kind.map_or(counts.errors.total(), |kind| counts.errors.of(kind));
                let ended = counts.replies + counts.errors.total();
                if unit == Unit::Percent { percent(errors, ended) } else { Some(errors as f64) }
            }
            Metric::Rate => (outcome.elapsed_ns > 0)
                .then(|| counts.replies as f64 * 1e9 / outcome.elapsed_ns as f64),
            Metric::Achieved => percent(counts.started, counts.planned),
            Metric::Replies => Some(counts.replies as f64),
        }
    }
}

impl Statistic {
    /// Returns the statistic in nanoseconds; `None` if there are no values.
    fn of(self, times: &TimeHistogram) -> Option<f64> {
        (times.count() > 0).then(|| match self {
            Statistic::Quantile(quantile) => times.at(quantile) as f64,
            Statistic::Mean => times.mean(),
            Statistic::Min => times.min() as f64,
            Statistic::Max => times.max() as f64,
        })
    }
}

impl Operator {
    /// Splits `rest` into the operator it begins with and the remaining text.
    fn split(rest: &str) -> (Self, &str) {
        let signs =
            [(">=", Operator::MoreOrEqual), ("<=", Operator::LessOrEqual), (">", Operator::More)];
        signs
            .into_iter()
            .find_map(|(sign, operator)| Some((operator, rest.strip_prefix(sign)?)))
            .unwrap_or((Operator::Less, rest.strip_prefix('<').unwrap_or(rest)))
    }

    fn compare(self, measured: f64, limit: f64) -> bool {
        match self {
            Operator::More => measured > limit,
            Operator::MoreOrEqual => measured >= limit,
            Operator::Less => measured < limit,
            Operator::LessOrEqual => measured <= limit,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Operator::More => ">",
            Operator::MoreOrEqual => ">=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
        }
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::Percent => "%",
            Unit::PerSecond => "/s",
            Unit::Count => "",
        }
    }

    fn nanoseconds(self) -> f64 {
        match self {
            Unit::Microseconds => 1e3,
            Unit::Milliseconds => 1e6,
            _ => 1e9,
        }
    }

    fn show(self, number: String) -> String {
        match self {
            Unit::Count => number,
            Unit::PerSecond => number + "/s",
            _ => number + " " + self.name(),
        }
    }
}

/// Parses the digits of a percentile as a share: `99.9` is 0.999, rounded once.
fn quantile(digits: &str) -> Option<f64> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let share = format!("{digits}e-2").parse().ok()?;
    (plain && (0.0..=1.0).contains(&share)).then_some(share)
}

fn split_value(value: &str) -> Option<(f64, &str)> {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let at = value.find(|c| !digits(c)).unwrap_or(value.len());
    let (number, unit) = value.split_at(at);
    Some((number.parse().ok()?, unit.trim()))
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// Rounds to the number of digits to which times are kept.
fn shorten(number: f64) -> String {
    let digits = match number {
        _ if number >= 100.0 => 1,
        _ if number >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

fn wrong(text: &str, what: &str) -> String {
    let kinds: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.name()).collect();
    format!(
        "the condition {text:?} {what}: it is METRIC OPERATOR VALUE, such as p99>50ms, where \
         METRIC is p50 to p99.99, mean, min or max in us, ms or s (of the response, or after {}.), \
         errors or one kind of them ({}) as a number or in %, rate in /s, achieved in %, or \
         replies; and OPERATOR is >, >=, < or <=",
        DISTRIBUTIONS.join("., "),
        kinds.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A run of ten seconds: 1,000 planned, 990 started, 980 answered in 1 to 980 ms, 20 errors.
    fn outcome() -> RunOutcome {
        let mut outcome = RunOutcome { elapsed_ns: 10_000 * MS, ..RunOutcome::default() };
        outcome.counts.planned = 1_000;
        outcome.counts.started = 990;
        outcome.counts.replies = 980;
        (1..=980).for_each(|time_ms| outcome.times.response.record(time_ms * MS));
        (0..10).for_each(|_| outcome.times.lag.record(MS / 2));
        (0..15).for_each(|_| outcome.counts.errors.count(ErrorKind::ReplyTimeout));
        (0..5).for_each(|_| outcome.counts.errors.count(ErrorKind::Reset));
        outcome
    }

    fn found(text: &str) -> Evaluation {
        Condition::parse(text).unwrap().evaluate(&outcome()).unwrap()
    }

    #[test]
    fn every_form_of_the_grammar_is_measured_in_its_own_unit() {
        let forms = [
            ("p99>50ms", true, 971.0),
            ("p50 >= 10 s", false, 0.49),
            ("response.p50<500000us", true, 490_000.0),
            ("mean>10ms", true, 490.5),
            ("min<2ms", true, 1.0),
            ("max<=980ms", false, 980.0),
            ("lag.p99.9>1ms", false, 0.5),
            ("errors>0", true, 20.0),
            ("errors>2%", false, 2.0),
            ("errors>=2%", true, 2.0),
            ("reply-timeout>15", false, 15.0),
            ("reset<1%", true, 0.5),
            ("rate<1000", true, 98.0),
            ("rate>97.5/s", true, 98.0),
            ("achieved<99.5%", true, 99.0),
            ("replies<=980", true, 980.0),
        ];
        for (text, holds, measured) in forms {
            let evaluation = found(text);
            assert_eq!(evaluation.holds, holds, "{text}: {evaluation:?}");
            assert!((evaluation.measured / measured - 1.0).abs() < 0.002, "{text}: {evaluation:?}");
        }
    }

    #[test]
    fn every_kind_of_error_and_every_clock_can_be_named() {
        for kind in ErrorKind::ALL {
            assert!(!Condition::parse(&format!("{}>0", kind.name())).unwrap().is_about_time());
        }
        let rows = outcome().times.rows().map(|(name, _)| name);
        assert_eq!(rows, DISTRIBUTIONS);
        for distribution in DISTRIBUTIONS {
            assert!(
                Condition::parse(&format!("{distribution}.p99.99>1us")).unwrap().is_about_time()
            );
        }
    }

    #[test]
    fn a_condition_without_a_measurement_is_neither_true_nor_false() {
        for text in ["p99>1us", "connect.max>1us", "achieved<99%", "errors>1%", "rate<1"] {
            let result = Condition::parse(text).unwrap().result(&RunOutcome::default());
            assert_eq!(result.evaluation, None, "{text}");
            assert!(result.to_string().starts_with("it cannot be told"), "{result}");
        }
        let evaluation = Condition::parse("errors>0").unwrap().evaluate(&RunOutcome::default());
        assert_eq!(evaluation, Some(Evaluation { holds: false, measured: 0.0 }));
    }

    #[test]
    fn a_finding_is_a_sentence() {
        let says = |text| Condition::parse(text).unwrap().result(&outcome()).to_string();
        assert_eq!(says("min > 0.5ms"), "it holds: min = 1 ms > 0.5 ms");
        assert_eq!(says("errors>1%"), "it holds: errors = 2 % > 1 %");
        assert_eq!(says("rate<90"), "it does not hold: rate = 98/s, not < 90/s");
        assert_eq!(says("reset>=5"), "it holds: reset = 5 >= 5");
    }

    #[test]
    fn a_wrong_condition_gets_one_sentence_that_lists_what_exists() {
        let wrongs = [
            "",
            "p99",
            "p99=5ms",
            "p99>",
            "p99>ms",
            "p99>5",
            "p99>5%",
            "p99>5m",
            "p101>5ms",
            "pinf>5ms",
            "p>5ms",
            "p-1>5ms",
            "q99>5ms",
            "lag>5ms",
            "lag.rate>5",
            "foo.p99>5ms",
            "errors>5ms",
            "errors>x",
            "errors>-1",
            "achieved<0.99",
            "rate>1%",
            "replies>5/s",
            "p99>>5ms",
            "p99>inf",
            "p99>1.2.3ms",
            "p9e1>5ms",
        ];
        for text in wrongs {
            let error = Condition::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("the condition {text:?} ")), "{error}");
            assert!(error.contains("reply-timeout") && error.contains("lag., connect."), "{error}");
            assert!(!error.contains('\n'));
        }
    }
}
