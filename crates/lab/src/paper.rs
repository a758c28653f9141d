//! A paper's file: the numbers given in the paper's text and its claims, as data. It contains only
//! what the text says; results measured here are kept elsewhere.

use serde::Deserialize;

use crate::experiment::{self, At, Experiment};
use crate::metrics;

/// A paper: one TOML file of `experiments/papers`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Paper {
    /// The paper's title.
    pub title: String,
    /// The paper's authors.
    pub authors: String,
    /// Year of publication.
    pub year: u32,
    /// The machines, kernel, network and clients used in the paper.
    pub set_up: String,
    /// Numbers given in the text.
    #[serde(default)]
    pub value: Vec<Value>,
    /// Claims made in the paper.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

impl Paper {
    /// Parses and validates a paper's file.
    ///
    /// # Errors
    /// Returns a sentence that names the place of the first problem: a TOML or field error, a claim
    /// that says neither how it is judged nor why it cannot be, or a metric that does not exist.
    pub fn parse(text: &str) -> Result<Self, String> {
        let paper: Self = experiment::read(text)?;
        for (index, claim) in paper.claim.iter().enumerate() {
            if claim.id.is_empty() || paper.claim[..index].iter().any(|one| one.id == claim.id) {
                return Err(format!("claim `{}`: an id is not empty, and unique", claim.id));
            }
            claim.check().map_err(|why| format!("claim {}: {why}", claim.id))?;
        }
        for value in &paper.value {
            let at = || format!("value `{}` of {}", value.what, value.figure);
            if value.figure.is_empty() || !value.value.is_finite() {
                return Err(format!("{}: it needs a figure and a finite number", at()));
            }
            if let Some(name) = &value.metric {
                known(name).map_err(|why| format!("{}: {why}", at()))?;
            }
        }
        Ok(paper)
    }

    /// Checks that experiment `id` has the sweeps, servers and values that the paper's claims about
    /// it name.
    ///
    /// # Errors
    /// Returns a sentence with the first claim that does not fit, and what is missing.
    pub fn fits(&self, id: &str, experiment: &Experiment) -> Result<(), String> {
        self.claim.iter().filter(|claim| claim.experiment == id).try_for_each(|claim| {
            claim.sides(experiment).map_err(|why| format!("claim {}: {why}", claim.id))
        })
    }
}

impl Claim {
    /// Returns this claim with its experiment set to `id`. A claim in an experiment's own file does
    /// not name its experiment.
    pub fn of_experiment(&self, id: &str) -> Self {
        Self { experiment: id.to_owned(), ..self.clone() }
    }

    /// Checks that a claim in an experiment's own file is valid, and that the experiment has what
    /// it names.
    ///
    /// # Errors
    /// Returns a sentence with the first problem.
    pub(crate) fn check_own(&self, experiment: &Experiment) -> Result<(), String> {
        if !self.experiment.is_empty() {
            return Err("it is of its own experiment, so none is named".to_owned());
        }
        self.of_experiment("own").check()?;
        self.sides(experiment)
    }

    fn check(&self) -> Result<(), String> {
        if self.figure.is_empty() || self.text.trim().is_empty() {
            return Err("it needs a figure and a text".to_owned());
        }
        let bounds = [self.above, self.below];
        if bounds.iter().chain([&self.paper]).flatten().any(|bound| !bound.is_finite()) {
            return Err("its numbers are not finite".to_owned());
        }
        let judged = self.top.is_some() || self.bottom.is_some() || bounds != [None, None];
        let named = !self.experiment.is_empty() || !self.sweep.is_empty();
        if self.not_measurable.is_some() {
            return if judged || named {
                Err("it is not measurable, and yet says how it is measured".to_owned())
            } else {
                Ok(())
            };
        }
        if self.experiment.is_empty() || self.sweep.is_empty() || self.top.is_none() {
            return Err("it needs an experiment, a sweep and a top, or not-measurable".to_owned());
        }
        match (self.above, self.below) {
            (None, None) => return Err("it needs `above` or `below`".to_owned()),
            (Some(above), Some(below)) if above >= below => {
                return Err(format!("nothing is above {above} and below {below}"));
            }
            _ => {}
        }
        self.top.iter().chain(&self.bottom).try_for_each(|one| known(&one.metric))
    }

    /// Checks that the experiment has the sweep, servers and values that this claim names.
    fn sides(&self, experiment: &Experiment) -> Result<(), String> {
        for side in self.top.iter().chain(&self.bottom) {
            let named = side.sweep.as_ref().unwrap_or(&self.sweep);
            let sweep = experiment.sweep.iter().find(|sweep| sweep.id == *named);
            let sweep = sweep.ok_or_else(|| format!("there is no sweep {named}"))?;
            let servers = experiment.servers_of(sweep, &[]);
            let id = &side.server;
            if !servers.iter().any(|index| experiment.server[*index].id == *id) {
                return Err(format!("sweep {named} has no server {id}"));
            }
            if let At::Value(x) = side.at
                && sweep.index_of(x).is_none()
            {
                return Err(format!("{x} is not a value of sweep {named}"));
            }
        }
        Ok(())
    }
}

fn known(metric: &str) -> Result<(), String> {
    metrics::find(metric).map(|_| ()).ok_or_else(|| format!("there is no metric {metric}"))
}

/// A number given in the paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Value {
    /// The figure or table it belongs to: `fig-4.12`.
    pub figure: String,
    /// Description of the number, for readers.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Its unit, such as `replies/s`.
    pub unit: String,
    /// Place in the paper's text: `§4.2.1`, `table 4.1`.
    #[serde(rename = "where")]
    pub place: String,
    /// Id of the server in an experiment that the number is shown beside, if one matches.
    #[serde(default)]
    pub server: Option<String>,
    /// Metric that the number is shown beside.
    #[serde(default)]
    pub metric: Option<String>,
}

/// A claim made in the paper, and the criteria to judge it from points.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// Id of the claim, unique in the paper.
    pub id: String,
    /// The figure or table it belongs to.
    pub figure: String,
    /// The claim as the paper puts it, for readers.
    pub text: String,
    /// Place in the paper's text.
    #[serde(rename = "where")]
    pub place: String,
    /// The paper's number for `top / bottom` (or for `top`), where its text gives one.
    #[serde(default)]
    pub paper: Option<f64>,
    /// The experiment whose points judge the claim: `pariag-accept/one-packet`. Empty for a claim
    /// in an experiment's own file.
    #[serde(default)]
    pub experiment: String,
    /// The sweep of that experiment.
    #[serde(default)]
    pub sweep: String,
    /// The quantity measured.
    #[serde(default)]
    pub top: Option<Quantity>,
    /// The divisor of `top`, within rounds; without it `top` itself is judged.
    #[serde(default)]
    pub bottom: Option<Quantity>,
    /// Lower bound: the claim holds above it.
    #[serde(default)]
    pub above: Option<f64>,
    /// Upper bound: the claim holds below it.
    #[serde(default)]
    pub below: Option<f64>,
    /// Reason why the claim cannot be judged here. Excludes `experiment`, `sweep`, `top`, `bottom`,
    /// `above` and `below`.
    #[serde(default)]
    pub not_measurable: Option<String>,
}

/// A metric of a server at a place along a sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quantity {
    /// The metric's name.
    pub metric: String,
    /// The server's id.
    pub server: String,
    /// Place along the sweep. `peak` is the value with the highest median of replies per second.
    pub at: At,
    /// The sweep, if it is not that of the claim.
    #[serde(default)]
    pub sweep: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
title = "T"
authors = "A"
year = 2004
set-up = "S"
[[value]]
figure = "fig-1"
what = "peak"
value = 3
unit = "replies/s"
where = "p. 1"
metric = "reply_rate"
[[claim]]
id = "more"
figure = "fig-1"
text = "More."
where = "p. 2"
experiment = "p/e"
sweep = "up"
top = { metric = "reply_rate", server = "one", at = "peak" }
bottom = { metric = "reply_rate", server = "one", at = 2 }
above = 1.05
[[claim]]
id = "tux"
figure = "fig-2"
text = "In the kernel."
where = "p. 3"
not-measurable = "there is no TUX"
"#;

    const EXPERIMENT: &str = r#"
title = "T"
question = "Q?"
[[server]]
id = "one"
label = "accept 1"
kind = "weir"
[[sweep]]
id = "up"
x = "rate"
values = [1, 2]
"#;

    fn said(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        let parsed = Paper::parse(&GOOD.replacen(from, to, 1));
        parsed.err().unwrap_or_default()
    }

    #[test]
    fn a_good_file_is_taken() {
        let paper = Paper::parse(GOOD).unwrap();
        assert_eq!((paper.value.len(), paper.claim.len()), (1, 2));
        let experiment = Experiment::parse(EXPERIMENT).unwrap();
        paper.fits("p/e", &experiment).unwrap();
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("year = 2004", "year = \"x\"", "line 4: "),
            ("id = \"tux\"", "id = \"more\"", "claim `more`: an id is not empty, and unique"),
            ("text = \"More.\"", "text = \"\"", "claim more: it needs a figure and a text"),
            ("above = 1.05", "above = nan", "claim more: its numbers are not finite"),
            ("above = 1.05", "", "claim more: it needs `above` or `below`"),
            ("above = 1.05", "above = 2\nbelow = 1", "claim more: nothing is above 2 and below 1"),
            ("sweep = \"up\"", "", "claim more: it needs an experiment, a sweep and a top"),
            ("top = {", "bottom = {", "line "),
            ("bottom = { metric = \"reply_rate\"", "bottom = { metric = \"x\"", "no metric x"),
            ("not-measurable", "above = 1\nnot-measurable", "claim tux: it is not measurable, and"),
            ("value = 3", "value = inf", "it needs a figure and a finite number"),
            ("metric = \"reply_rate\"", "metric = \"x\"", "value `peak` of fig-1: there is no"),
        ];
        for (from, to, expected) in cases {
            let error = said(from, to);
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn a_claim_about_what_no_experiment_has_is_found() {
        let cases = [
            ("id = \"up\"", "id = \"down\"", "claim more: there is no sweep up"),
            ("id = \"one\"", "id = \"two\"", "claim more: sweep up has no server one"),
            ("[1, 2]", "[1, 3]", "claim more: 2 is not a value of sweep up"),
        ];
        let paper = Paper::parse(GOOD).unwrap();
        for (from, to, expected) in cases {
            let experiment = Experiment::parse(&EXPERIMENT.replacen(from, to, 1)).unwrap();
            assert_eq!(paper.fits("p/e", &experiment), Err(expected.to_owned()));
            assert_eq!(paper.fits("p/other", &experiment), Ok(()));
        }
    }
}
