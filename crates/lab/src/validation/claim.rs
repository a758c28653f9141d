//! Validation of claims, in an experiment's own file and in a paper's.

use super::rules::known_metric;
use crate::experiment::{At, Claim, Experiment, Quantity};
use crate::metrics::{self, Base};

impl Claim {
    /// Returns this claim with its experiment set to `id`. A claim in an experiment's own file does
    /// not name its experiment.
    pub fn of_experiment(&self, id: &str) -> Self {
        Self { experiment: id.to_owned(), ..self.clone() }
    }

    /// Returns the quantities of both sides.
    pub fn quantities(&self) -> impl Iterator<Item = &Quantity> {
        self.top.iter().chain(&self.bottom).flat_map(|sum| sum.iter())
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
        if self.than.is_some() {
            return Err("`than` is for claims of a paper".to_owned());
        }
        match (&self.looks_for, &self.condition) {
            (None, None) => {}
            (Some(_), Some(condition)) if !condition.trim().is_empty() => {
                if experiment.paper.is_none() {
                    return Err("it looks for the effect of a paper, and none is named".to_owned());
                }
            }
            _ => return Err("`looks-for` and `condition` go together".to_owned()),
        }
        self.of_experiment("own").check()?;
        self.check_references(experiment)
    }

    /// Checks a claim in a paper's file.
    ///
    /// # Errors
    /// Returns a sentence with the first problem.
    pub(crate) fn check_of_paper(&self) -> Result<(), String> {
        if self.looks_for.is_some() || self.condition.is_some() {
            return Err("what looks for a cause stands in an experiment".to_owned());
        }
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        if self.figure.is_empty() || self.text.trim().is_empty() {
            return Err("it needs a figure and a text".to_owned());
        }
        let bounds = [self.above, self.below];
        if bounds.iter().chain([&self.paper]).flatten().any(|bound| !bound.is_finite()) {
            return Err("its numbers are not finite".to_owned());
        }
        let sides = self.top.is_some() || self.bottom.is_some() || self.than.is_some();
        let judged = sides || bounds != [None, None];
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
        self.quantities().try_for_each(|one| {
            known_metric(&one.metric)?;
            match metrics::relative(&one.metric).map(|relative| relative.base) {
                Some(Base::EachSinceFirst) => Err(format!("{} cannot be claimed", one.metric)),
                _ => Ok(()),
            }
        })
    }

    /// Checks that the experiment has the sweep, servers and values that this claim names.
    pub(crate) fn check_references(&self, experiment: &Experiment) -> Result<(), String> {
        for side in self.quantities() {
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
