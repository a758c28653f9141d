//! A quantity of a claim, found in a study: which points tell it, and what to say where none do.

use super::estimate::{Pick, Side};
use super::figures::info;
use super::labels;
use super::study::{PEAK_OF, PointIndex, Repetition, Rounds, Study, is_valid_for};
use crate::experiment::{At, Position, Quantity};

/// A quantity of a claim, found in a study.
pub(super) struct Term<'a> {
    study: &'a Study<'a>,
    pub(super) sweep: usize,
    server: usize,
    quantity: &'a Quantity,
    /// The metric at each value of the sweep.
    curve: Vec<Rounds>,
}

impl<'a> Term<'a> {
    pub(super) fn new(
        study: &'a Study<'a>,
        of_claim: &str,
        quantity: &'a Quantity,
    ) -> Result<Self, String> {
        let Quantity { metric, server: id, at, sweep } = quantity;
        let named = sweep.as_deref().unwrap_or(of_claim);
        let sweep = study.experiment.sweep.iter().position(|sweep| sweep.id == named);
        let sweep = sweep.ok_or_else(|| format!("{} has no sweep {named}", study.id))?;
        let spec = study.sweep(sweep);
        let server = study.server(id).ok_or_else(|| format!("there is no server {id}"))?;
        if !study.experiment.servers_of(spec, &[]).contains(&server) {
            return Err(format!("sweep {} does not measure server {id}", spec.id));
        }
        if crate::metrics::find(metric).is_none() {
            return Err(format!("there is no metric {metric}"));
        }
        if let At::Value(x) = at
            && spec.index_of(*x).is_none()
        {
            return Err(format!("{x} is not a value of sweep {}", spec.id));
        }
        let curve = study.curve(sweep, server, metric);
        Ok(Self { study, sweep, server, quantity, curve })
    }

    /// Returns the numbers and where they are taken; `None` if no value of the sweep qualifies.
    pub(super) fn side(&self, all: &[&Self]) -> Option<Side> {
        let pick = match self.quantity.at {
            At::Named(Position::Peak) => {
                Pick::Peak(self.study.curve(self.sweep, self.server, PEAK_OF))
            }
            _ => Pick::Fixed(self.fixed(all)?),
        };
        Some(Side { curve: self.curve.clone(), pick })
    }

    /// Returns the index at which a quantity other than a peak is taken. `first` and `last` are the
    /// lowest and highest values with a valid point; of all terms of the claim that are taken
    /// there, the values at which each has one in the same round.
    fn fixed(&self, all: &[&Self]) -> Option<usize> {
        let alike =
            |other: &&&Self| (other.quantity.at, other.sweep) == (self.quantity.at, self.sweep);
        let there = |index: &usize| {
            let Some(mine) = self.curve.get(*index) else { return false };
            let has = |other: &&Self, round| {
                other.curve.get(*index).is_some_and(|rounds| rounds.contains_key(round))
            };
            mine.keys().any(|round| all.iter().filter(alike).all(|other| has(other, round)))
        };
        match self.quantity.at {
            At::Value(x) => self.study.sweep(self.sweep).index_of(x),
            At::Named(Position::First) => (0..self.curve.len()).find(there),
            At::Named(Position::Last) => (0..self.curve.len()).rev().find(there),
            At::Named(Position::Peak) => None,
        }
    }

    /// Returns the end of the sweep that the claim refers to.
    fn end(&self) -> Option<usize> {
        match self.quantity.at {
            At::Value(x) => self.study.sweep(self.sweep).index_of(x),
            At::Named(Position::First) => Some(0),
            At::Named(Position::Last) => self.curve.len().checked_sub(1),
            At::Named(Position::Peak) => None,
        }
    }

    fn spot(&self, value: usize) -> PointIndex {
        PointIndex { sweep: self.sweep, server: self.server, value }
    }

    fn place(&self, value: usize) -> String {
        let x = self.study.x(self.spot(value));
        labels::place(self.study, self.study.sweep(self.sweep), x)
    }

    /// Returns a note if the lowest or highest value used is not the end of the sweep; empty
    /// otherwise.
    pub(super) fn moved(&self, all: &[&Self]) -> String {
        match (self.fixed(all), self.end()) {
            (Some(here), Some(end)) if here != end => {
                format!("judged at {}, as points beyond it are not valid", self.place(here))
            }
            _ => String::new(),
        }
    }

    /// Explains why there is no number; empty if there is one.
    pub(super) fn missing(&self, all: &[&Self]) -> String {
        let label = self.study.label(self.server);
        let Some(value) = self.fixed(all).or_else(|| self.end()) else {
            return match self.curve.iter().all(Rounds::is_empty) {
                true => format!("{label} has no valid point"),
                false => String::new(),
            };
        };
        if self.curve.get(value).is_some_and(|rounds| !rounds.is_empty()) {
            return String::new();
        }
        format!("{label} at {}: {}", self.place(value), self.outcome(value))
    }

    /// Describes the points at a value that yielded no number.
    fn outcome(&self, value: usize) -> String {
        let (mut all, mut invalid) = (0, 0);
        for (_, outcome) in self.study.at(self.spot(value)) {
            match outcome {
                Repetition::Failed(why) => return format!("could not be measured: {why}"),
                Repetition::Measured(point) => {
                    all += 1;
                    invalid += u32::from(!is_valid_for(point, &self.quantity.metric));
                }
            }
        }
        match (all, invalid) {
            (0, _) => "not measured".to_owned(),
            (_, 0) => format!("its points do not tell {}", info(&self.quantity.metric).spoken()),
            _ => format!("{invalid} of {all} INVALID"),
        }
    }
}
