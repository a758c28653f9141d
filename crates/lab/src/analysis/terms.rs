//! A quantity of a claim, found in a study: which points tell it, and what to say where none do.

use super::estimate::{Pick, Side};
use super::figures::info;
use super::labels;
use super::study::{PEAK_OF, PointIndex, Repetition, Rounds, Study, is_valid_for};
use super::values;
use crate::experiment::{At, Position, Quantity};
use crate::metrics;

/// A quantity of a claim, found in a study.
pub(super) struct Term<'a> {
    study: &'a Study<'a>,
    pub(super) sweep: usize,
    server: usize,
    quantity: &'a Quantity,
    /// The metric that points have: that of the quantity, or the one it is derived from.
    metric: &'a str,
    /// That metric at each value of the sweep.
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
        if metrics::find(metric).is_none() {
            return Err(format!("there is no metric {metric}"));
        }
        if let At::Value(x) = at
            && spec.index_of(*x).is_none()
        {
            return Err(format!("{x} is not a value of sweep {}", spec.id));
        }
        let metric = metrics::of_points(metric);
        let curve = study.curve(sweep, server, metric);
        Ok(Self { study, sweep, server, quantity, metric, curve })
    }

    /// Returns the numbers and where they are taken; `None` if no value of the sweep qualifies.
    pub(super) fn side(&self, all: &[&Self]) -> Option<Side> {
        let pick = match self.quantity.at {
            At::Named(Position::Peak) => {
                Pick::Peak(self.study.curve(self.sweep, self.server, PEAK_OF))
            }
            _ => Pick::Fixed(self.fixed(all)?),
        };
        let relative = metrics::relative(&self.quantity.metric);
        let base = relative.map(|one| values::base(one, &self.curve));
        Some(Side { curve: self.curve.clone(), pick, base })
    }

    /// Returns the index at which a quantity other than a peak is taken. `first` and `last` are the
    /// lowest and highest values with a valid point; of all terms of the claim that are taken
    /// there, the values at which each has one in the same round.
    fn fixed(&self, all: &[&Self]) -> Option<usize> {
        let there = |index: &usize| {
            let Some(mine) = self.curve.get(*index) else { return false };
            let has = |other: &&Self, round| {
                other.curve.get(*index).is_some_and(|rounds| rounds.contains_key(round))
            };
            let alike = |other: &&&Self| self.is_like(other);
            mine.keys().any(|round| all.iter().filter(alike).all(|other| has(other, round)))
        };
        match self.quantity.at {
            At::Value(x) => self.study.sweep(self.sweep).index_of(x),
            At::Named(Position::First) => (0..self.curve.len()).find(there),
            At::Named(Position::Last) => (0..self.curve.len()).rev().find(there),
            At::Named(Position::Peak) => None,
        }
    }

    /// Returns whether another term is taken at the same place of the same sweep.
    fn is_like(&self, other: &Self) -> bool {
        (other.quantity.at, other.sweep) == (self.quantity.at, self.sweep)
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
        self.moved_to(all).map_or_else(String::new, |here| {
            format!("judged at {}, as points beyond it {}", self.place(here), self.lack(here, all))
        })
    }

    /// Returns the index that is taken in the place of the end of the sweep; `None` if that is.
    fn moved_to(&self, all: &[&Self]) -> Option<usize> {
        self.fixed(all).filter(|here| Some(*here) != self.end())
    }

    /// Explains why a ratio to another term that is taken at the same value tells nothing: they are
    /// the same points, because those that the claim is about have no number. `None` if they are
    /// not, or if the claim itself takes both at one place, as a part of a sum and the sum.
    pub(super) fn same_as(&self, other: &Self, all: &[&Self]) -> Option<String> {
        let is_same = (self.sweep, self.server) == (other.sweep, other.server)
            && self.quantity.metric == other.quantity.metric
            && self.quantity.at != other.quantity.at;
        let term = [self, other].into_iter().find(|term| term.moved_to(all).is_some());
        let (term, here) = term.filter(|_| is_same).and_then(|it| Some((it, it.moved_to(all)?)))?;
        Some(term.divided_by_itself(&term.quantity.metric, here, all))
    }

    /// Explains why a relative metric that is taken where its base is tells nothing; `None` if the
    /// claim itself takes it there.
    pub(super) fn same_as_base(&self, all: &[&Self]) -> Option<String> {
        let here = self.moved_to(all)?;
        Some(self.divided_by_itself(self.metric, here, all))
    }

    fn divided_by_itself(&self, metric: &str, here: usize, all: &[&Self]) -> String {
        format!(
            "{} of {} at {} would be divided by itself, as points beyond it {}",
            info(metric).spoken(),
            self.study.label(self.server),
            self.place(here),
            self.lack(here, all)
        )
    }

    /// Says what the points between a value and the end of the sweep lack, those of every term that
    /// is taken there.
    fn lack(&self, here: usize, all: &[&Self]) -> String {
        let end = self.end().unwrap_or(here);
        let beyond = if here < end { here + 1..end + 1 } else { end..here };
        let mut lacks: Vec<String> = Vec::new();
        for value in beyond {
            let is_empty = |term: &Self| term.curve.get(value).is_none_or(Rounds::is_empty);
            let empty = all.iter().filter(|term| self.is_like(term) && is_empty(term));
            let mut of_value: Vec<String> = empty.map(|term| term.lack_at(value)).collect();
            if of_value.is_empty() {
                of_value.push("are of no common round".to_owned());
            }
            for lack in of_value {
                if !lacks.contains(&lack) {
                    lacks.push(lack);
                }
            }
        }
        lacks.join(" or ")
    }

    /// Says what the points at a value without a number lack.
    fn lack_at(&self, value: usize) -> String {
        let (mut is_measured, mut is_valid) = (false, false);
        for (_, point) in self.study.points(self.spot(value)) {
            is_measured = true;
            is_valid |= is_valid_for(point, self.metric);
        }
        match (is_measured, is_valid) {
            (false, _) => "were not measured".to_owned(),
            (true, false) => "are not valid".to_owned(),
            (true, true) => format!("do not tell {}", info(&self.quantity.metric).spoken()),
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
                    invalid += u32::from(!is_valid_for(point, self.metric));
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
