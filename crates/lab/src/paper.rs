//! A paper's file: the numbers given in the paper's text and its claims, as data. It contains only
//! what the text says; results measured here are kept elsewhere.

use serde::Deserialize;

use crate::document;
use crate::experiment::{Claim, Experiment};
use crate::validation::known_metric;

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
    /// Id of the experiment that stands for the paper in a quick run of all papers. Files of older
    /// runs have none.
    #[serde(default)]
    pub quick: String,
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
        let paper: Self = document::read(text)?;
        for (index, claim) in paper.claim.iter().enumerate() {
            if claim.id.is_empty() || paper.claim[..index].iter().any(|one| one.id == claim.id) {
                return Err(format!("claim `{}`: an id is not empty, and unique", claim.id));
            }
            let checked = claim.check_of_paper().and_then(|()| paper.has_than(claim));
            checked.map_err(|why| format!("claim {}: {why}", claim.id))?;
        }
        for value in &paper.value {
            let at = || format!("value `{}` of {}", value.what, value.figure);
            if value.figure.is_empty() || !value.value.is_finite() {
                return Err(format!("{}: it needs a figure and a finite number", at()));
            }
            if let Some(name) = &value.metric {
                known_metric(name).map_err(|why| format!("{}: {why}", at()))?;
            }
        }
        Ok(paper)
    }

    /// Returns the claim by whose quantity that of another claim is divided; `None` if by none.
    pub fn than(&self, claim: &Claim) -> Option<&Claim> {
        self.claim.iter().find(|other| Some(&other.id) == claim.than.as_ref())
    }

    /// Checks that a claim is divided by one that is measured by itself.
    fn has_than(&self, claim: &Claim) -> Result<(), String> {
        match (&claim.than, self.than(claim)) {
            (None, _) => Ok(()),
            (Some(id), None) => Err(format!("the paper has no claim {id}")),
            (_, Some(other)) if other.top.is_some() && other.than.is_none() => Ok(()),
            (Some(id), _) => Err(format!("claim {id} is not measured by itself")),
        }
    }

    /// Checks that experiment `id` has the sweeps, servers and values that the paper's claims about
    /// it name.
    ///
    /// # Errors
    /// Returns a sentence with the first claim that does not fit, and what is missing.
    pub fn fits(&self, id: &str, experiment: &Experiment) -> Result<(), String> {
        self.claim.iter().filter(|claim| claim.experiment == id).try_for_each(|claim| {
            claim.check_references(experiment).map_err(|why| format!("claim {}: {why}", claim.id))
        })
    }

    /// Returns the metrics that claims about experiment `id` are about.
    pub fn metrics_of(&self, id: &str) -> Vec<String> {
        let claims = self.claim.iter().filter(|claim| claim.experiment == id);
        claims.flat_map(Claim::quantities).map(|one| one.metric.clone()).collect()
    }

    /// Checks that the paper has the claims whose effects one of its experiments looks for.
    ///
    /// # Errors
    /// Returns a sentence with the first claim that it does not have.
    pub fn has_looked_for(&self, experiment: &Experiment) -> Result<(), String> {
        experiment.claim.iter().try_for_each(|claim| match &claim.looks_for {
            Some(other) if !self.claim.iter().any(|claim| claim.id == *other) => {
                Err(format!("claim {}: the paper has no claim {other}", claim.id))
            }
            _ => Ok(()),
        })
    }
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
    pub server: Option<String>,
    /// Metric that the number is shown beside.
    pub metric: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::one_weir;

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

    const EXPERIMENT: &str = one_weir!(
        r#"
[[sweep]]
id = "up"
x = "rate"
values = [1, 2]
"#
    );

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
    fn errors_in_a_paper_are_reported() {
        let cases = [
            ("year = 2004", "year = \"x\"", "line 4, column 8: year: invalid type"),
            ("id = \"tux\"", "id = \"more\"", "claim `more`: an id is not empty, and unique"),
            ("text = \"More.\"", "text = \"\"", "claim more: it needs a figure and a text"),
            ("above = 1.05", "above = nan", "claim more: its numbers are not finite"),
            ("above = 1.05", "", "claim more: it needs `above` or `below`"),
            ("above = 1.05", "above = 2\nbelow = 1", "claim more: nothing is above 2 and below 1"),
            ("sweep = \"up\"", "", "claim more: it needs an experiment, a sweep and a top"),
            ("top = {", "bottom = {", "line "),
            ("bottom = { metric = \"reply_rate\"", "bottom = { metric = \"x\"", "no metric x"),
            ("not-measurable", "above = 1\nnot-measurable", "claim tux: it is not measurable, and"),
            (
                "where = \"p. 3\"",
                "where = \"\"\ncondition = \"x\"",
                "claim tux: what looks for a cause",
            ),
            (
                "above = 1.05",
                "than = \"less\"\nabove = 1",
                "claim more: the paper has no claim less",
            ),
            ("above = 1.05", "than = \"tux\"\nabove = 1", "claim tux is not measured by itself"),
            ("above = 1.05", "than = \"more\"\nabove = 1", "claim more is not measured by itself"),
            ("value = 3", "value = inf", "it needs a figure and a finite number"),
            ("metric = \"reply_rate\"", "metric = \"x\"", "value `peak` of fig-1: there is no"),
        ];
        for (from, to, expected) in cases {
            let error = said(from, to);
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn an_experiment_looks_for_the_effect_of_a_claim_that_the_paper_has() {
        let trial = |of: &str, condition: &str| {
            format!(
                "{}[[claim]]\nid = \"c\"\nfigure = \"f\"\ntext = \"t\"\n\
                 where = \"w\"\nsweep = \"up\"\n\
                 top = {{ metric = \"reply_rate\", server = \"one\", at = 1 }}\nabove = 1\n\
                 looks-for = \"{of}\"\n{condition}",
                EXPERIMENT.replacen("title", "paper = \"p\"\ntitle", 1)
            )
        };
        let paper = Paper::parse(GOOD).unwrap();
        let fits = |of: &str| {
            let text = trial(of, "condition = \"a longer queue\"\n");
            paper.has_looked_for(&Experiment::parse(&text).unwrap())
        };
        assert_eq!(fits("more"), Ok(()));
        assert_eq!(fits("less"), Err("claim c: the paper has no claim less".to_owned()));
        let error = Experiment::parse(&trial("more", "")).unwrap_err();
        assert!(error.contains("`looks-for` and `condition` go together"), "{error}");
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
