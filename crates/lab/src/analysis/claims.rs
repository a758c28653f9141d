//! Judges the claims of a paper from measured points: a quantity, or its ratio to another within
//! rounds, is compared with a bound. The verdict is computed from the interval alone.

use super::estimate::{Pick, Side, of_sides};
use super::figures::info;
use super::labels;
use super::study::{PointIndex, Repetition, Rounds, Study, is_valid_for};
use crate::experiment::{At, Position};
use crate::experiment::{Claim, Quantity};
use crate::findings::{Estimate, Judged, Verdict};

/// Judges a claim from the studies of a run.
pub(super) fn judge(claim: &Claim, studies: &[Study<'_>]) -> Judged {
    let study = studies.iter().find(|study| study.id == claim.experiment);
    let found = measured(claim, study);
    let (here, verdict, why) = match found {
        Ok((here, note)) => {
            let (verdict, why) = verdict(claim, here);
            let all: Vec<String> = [why, note].into_iter().filter(|one| !one.is_empty()).collect();
            (Some(here), verdict, all.join("; "))
        }
        Err(why) => (None, Verdict::NotMeasurable, why),
    };
    Judged {
        id: claim.id.clone(),
        text: claim.text.clone(),
        place: claim.place.clone(),
        paper: claim.paper,
        measure: measure(claim, study),
        holds_if: holds_if(claim),
        here,
        verdict,
        why,
    }
}

/// Returns the verdict and its reason: the claim is decided only if the whole interval lies on one
/// side of the bounds.
fn verdict(claim: &Claim, here: Estimate) -> (Verdict, String) {
    let above = |value: f64| claim.above.is_none_or(|bound| value > bound);
    let below = |value: f64| claim.below.is_none_or(|bound| value < bound);
    if here.n < 2 {
        return (Verdict::Undecided, "one round only, which has no interval".to_owned());
    }
    if above(here.low) && below(here.high) {
        return (Verdict::Holds, String::new());
    }
    if !above(here.high) || !below(here.low) {
        return (Verdict::DoesNotHold, String::new());
    }
    let (low, high) = (number(here.low), number(here.high));
    (Verdict::Undecided, format!("the interval {low}\u{2013}{high} has both answers"))
}

/// Formats a number with about four digits, enough to tell the ends of an interval apart.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

fn holds_if(claim: &Claim) -> String {
    let above = claim.above.map(|bound| format!("above {bound}"));
    let below = claim.below.map(|bound| format!("below {bound}"));
    above.into_iter().chain(below).collect::<Vec<_>>().join(" and ")
}

/// Describes the measured quantity:
/// `replies/s of accept 10 at its peak ÷ that of accept 10 at 2 × its capacity`, or for two servers
/// at one place `replies/s of accept 10 ÷ that of accept 1, each at the highest value`.
fn measure(claim: &Claim, study: Option<&Study<'_>>) -> String {
    let Some(top) = &claim.top else { return String::new() };
    let name = |side: &Quantity| info(&side.metric).spoken().to_owned();
    let of = |side: &Quantity| {
        let sweep = side.sweep.as_ref().map_or_else(String::new, |id| format!(" in {id}"));
        format!("{}{sweep} {}", label(side, study), at_words(claim, side, study))
    };
    let first = format!("{} of {}", name(top), of(top));
    let Some(bottom) = &claim.bottom else { return first };
    let same = bottom.metric == top.metric;
    let second = if same { "that".to_owned() } else { name(bottom) };
    let one_sweep = bottom.sweep == top.sweep;
    if one_sweep && bottom.at == top.at && bottom.server != top.server {
        let at = at_words(claim, top, study);
        let (one, other) = (label(top, study), label(bottom, study));
        return format!("{} of {one} ÷ {second} of {other}, each {at}", name(top));
    }
    format!("{first} ÷ {second} of {}", of(bottom))
}

fn label<'a>(side: &'a Quantity, study: Option<&Study<'a>>) -> &'a str {
    let found = study.and_then(|study| Some(study.label(study.server(&side.server)?)));
    found.unwrap_or(&side.server)
}

fn at_words(claim: &Claim, side: &Quantity, study: Option<&Study<'_>>) -> String {
    match side.at {
        At::Named(Position::Peak) => "at its own peak".to_owned(),
        At::Named(Position::First) => "at the lowest value".to_owned(),
        At::Named(Position::Last) => "at the highest value".to_owned(),
        At::Value(x) => {
            let sweep = study.and_then(|study| {
                let sweeps = &study.experiment.sweep;
                let id = side.sweep.as_ref().unwrap_or(&claim.sweep);
                Some((study, sweeps.iter().find(|sweep| sweep.id == *id)?))
            });
            let place = sweep.map(|(study, sweep)| labels::place(study, sweep, x));
            format!("at {}", place.unwrap_or_else(|| x.to_string()))
        }
    }
}

/// Returns the measured estimate and a note about where it was taken, or the reason why there is
/// none.
fn measured(claim: &Claim, study: Option<&Study<'_>>) -> Result<(Estimate, String), String> {
    if let Some(why) = &claim.not_measurable {
        return Err(why.clone());
    }
    let study = study
        .ok_or_else(|| format!("the experiment {} is not part of this run", claim.experiment))?;
    let term = |quantity| Term::new(study, &claim.sweep, quantity);
    let top = term(claim.top.as_ref().ok_or("the claim does not say what is measured")?)?;
    let Some(bottom) = &claim.bottom else {
        let here = top.side(None).and_then(|side| of_sides(&side, None));
        return Ok((here.ok_or_else(|| top.missing(None))?, top.moved(None)));
    };
    let bottom = term(bottom)?;
    let sides = top.side(Some(&bottom)).zip(bottom.side(Some(&top)));
    let here = sides.as_ref().and_then(|(above, below)| of_sides(above, Some(below)));
    let here = here.ok_or_else(|| missing(&top, &bottom))?;
    let mut notes = vec![top.moved(Some(&bottom)), bottom.moved(Some(&top))];
    notes.retain(|note| !note.is_empty());
    notes.dedup();
    Ok((here, notes.join("; ")))
}

/// Explains why a ratio could not be computed.
fn missing(top: &Term<'_>, bottom: &Term<'_>) -> String {
    let mut whys = vec![top.missing(Some(bottom)), bottom.missing(Some(top))];
    whys.retain(|why| !why.is_empty());
    whys.dedup();
    if whys.is_empty() {
        return "no round has valid points of both, or what is divided by is 0".to_owned();
    }
    whys.join("; ")
}

/// A quantity of a claim, found in a study.
struct Term<'a> {
    study: &'a Study<'a>,
    sweep: usize,
    server: usize,
    quantity: &'a Quantity,
    /// The metric at each value of the sweep.
    curve: Vec<Rounds>,
}

impl<'a> Term<'a> {
    fn new(study: &'a Study<'a>, of_claim: &str, quantity: &'a Quantity) -> Result<Self, String> {
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
    fn side(&self, other: Option<&Self>) -> Option<Side> {
        let pick = match self.quantity.at {
            At::Named(Position::Peak) => {
                Pick::Peak(self.study.curve(self.sweep, self.server, "reply_rate"))
            }
            _ => Pick::Fixed(self.fixed(other)?),
        };
        Some(Side { curve: self.curve.clone(), pick })
    }

    /// Returns the index at which a quantity other than a peak is taken. `first` and `last` are the
    /// lowest and highest values with a valid point; if both sides are taken there, the values at
    /// which both have one in the same round.
    fn fixed(&self, other: Option<&Self>) -> Option<usize> {
        let alike =
            |other: &&Self| (other.quantity.at, other.sweep) == (self.quantity.at, self.sweep);
        let paired = other.filter(alike);
        let there = |index: &usize| {
            let Some(mine) = self.curve.get(*index) else { return false };
            let theirs = paired.and_then(|other| other.curve.get(*index));
            mine.keys().any(|round| theirs.is_none_or(|theirs| theirs.contains_key(round)))
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
    fn moved(&self, other: Option<&Self>) -> String {
        match (self.fixed(other), self.end()) {
            (Some(here), Some(end)) if here != end => {
                format!("judged at {}, as points beyond it are not valid", self.place(here))
            }
            _ => String::new(),
        }
    }

    /// Explains why there is no number; empty if there is one.
    fn missing(&self, other: Option<&Self>) -> String {
        let label = self.study.label(self.server);
        let Some(value) = self.fixed(other).or_else(|| self.end()) else {
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

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::record::{Failed, Line};

    /// A claim about replies per second.
    fn claim(top: (&str, &str), bottom: Option<(&str, &str)>, bound: &str) -> Claim {
        let side = |name: &str, (server, at): (&str, &str)| {
            format!("{name} = {{ metric = \"reply_rate\", server = \"{server}\", at = {at} }}\n")
        };
        let sides = side("top", top) + &bottom.map_or_else(String::new, |one| side("bottom", one));
        let rest = "[[claim]]\nid = \"c\"\nfigure = \"fig-1\"\ntext = \"t\"\nwhere = \"p\"\n";
        let rest = format!("{rest}experiment = \"p/e\"\nsweep = \"up\"\n{sides}{bound}\n");
        fixtures::paper(&rest).claim.remove(0)
    }

    fn judged(claim: &Claim, lines: &[Line]) -> Judged {
        let experiment = fixtures::experiment();
        judge(claim, &[Study::new("p/e", &experiment, lines)])
    }

    fn said(claim: &Claim, lines: &[Line]) -> (Verdict, String) {
        let judged = judged(claim, lines);
        (judged.verdict, judged.why)
    }

    const PEAK: &str = "\"peak\"";
    const LAST: &str = "\"last\"";

    #[test]
    fn a_claim_holds_or_does_not_by_the_whole_interval() {
        let lines = fixtures::both();
        let pair = |bound| claim(("two", PEAK), Some(("one", PEAK)), bound);
        let held = judged(&pair("above = 1.2"), &lines);
        assert_eq!((held.verdict, held.why.as_str()), (Verdict::Holds, ""));
        assert_eq!(held.measure, "replies/s of nginx ÷ that of accept 1, each at its own peak");
        assert_eq!((held.holds_if.as_str(), held.here.unwrap().value), ("above 1.2", 1.25));
        assert_eq!(said(&pair("above = 1.4"), &lines).0, Verdict::DoesNotHold);
        assert_eq!(said(&pair("below = 1.2"), &lines).0, Verdict::DoesNotHold);
        assert_eq!(said(&pair("above = 1.2\nbelow = 1.4"), &lines).0, Verdict::Holds);
        let (verdict, why) = said(&pair("above = 1.3"), &lines);
        assert_eq!(verdict, Verdict::Undecided);
        assert_eq!(why, "the interval 1.25–1.33 has both answers");
    }

    #[test]
    fn noise_that_rounds_share_decides_nothing() {
        let claim = claim(("two", "1"), Some(("one", "1")), "above = 1.05");
        let judged = judged(&claim, &fixtures::both());
        let here = judged.here.unwrap();
        assert!((here.low - 1.1).abs() < 1e-9 && (here.high - 1.1).abs() < 1e-9, "{here:?}");
        assert_eq!(judged.verdict, Verdict::Holds);
    }

    #[test]
    fn a_quantity_alone_is_judged_as_it_is() {
        let judged = judged(&claim(("one", "4"), None, "below = 601"), &fixtures::both());
        assert_eq!((judged.verdict, judged.here.unwrap().value), (Verdict::Holds, 550.0));
        assert_eq!(judged.measure, "replies/s of accept 1 at 4 × the capacity of accept 1");
    }

    #[test]
    fn one_round_decides_nothing() {
        let lines = [fixtures::line("one", 1.0, 0, 10.0), fixtures::line("two", 1.0, 0, 90.0)];
        let (verdict, why) = said(&claim(("two", PEAK), Some(("one", PEAK)), "above = 2"), &lines);
        assert_eq!(verdict, Verdict::Undecided);
        assert!(why.starts_with("one round only"), "{why}");
    }

    #[test]
    fn the_highest_value_is_one_where_both_are_valid() {
        let mut lines = fixtures::lines("one", &[(1.0, [1.0; 3]), (2.0, [2.0; 3])]);
        lines.extend(fixtures::lines("two", &[(2.0, [4.0; 3]), (4.0, [1.0; 3])]));
        lines.push(fixtures::invalid("one", 4.0, 0, "late"));
        let judged = judged(&claim(("two", LAST), Some(("one", LAST)), "above = 1.5"), &lines);
        assert_eq!((judged.verdict, judged.here.unwrap().value), (Verdict::Holds, 2.0));
        assert!(judged.why.starts_with("judged at 2 × the capacity"), "{}", judged.why);
    }

    #[test]
    fn points_that_are_not_there_or_not_valid_are_named() {
        let pair = |at| claim(("two", at), Some(("one", at)), "above = 1");
        let mut lines = fixtures::lines("two", &[(4.0, [1.0; 3])]);
        let at = "accept 1 at 4 × the capacity of accept 1";
        let not = |why: &str| (Verdict::NotMeasurable, why.to_owned());
        assert_eq!(said(&pair("4"), &lines), not(&format!("{at}: not measured")));
        assert_eq!(said(&pair(PEAK), &lines), not("accept 1 has no valid point"));
        let failed = Failed { key: fixtures::key("one", 4.0, 0), why: "no h2o".to_owned() };
        lines.push(Line::Failed(failed));
        assert_eq!(said(&pair("4"), &lines), not(&format!("{at}: could not be measured: no h2o")));
        lines.push(fixtures::invalid("one", 4.0, 0, "late"));
        assert_eq!(said(&pair("4"), &lines), not(&format!("{at}: 1 of 1 INVALID")));
        lines.push(fixtures::line("one", 4.0, 7, 1.0));
        assert!(said(&pair("4"), &lines).1.starts_with("no round has valid points of both"));
    }

    #[test]
    fn a_claim_about_a_missing_quantity_cannot_be_measured() {
        let lines = fixtures::both();
        let not = |claim: &Claim, why: &str| {
            let judged = judged(claim, &lines);
            assert_eq!((judged.verdict, judged.here), (Verdict::NotMeasurable, None));
            assert!(judged.why.contains(why), "{}", judged.why);
        };
        not(&claim(("two", "3"), None, "above = 1"), "3 is not a value of sweep up");
        let mut other = claim(("two", "4"), None, "above = 1");
        other.top.as_mut().unwrap().metric = "c_avg".to_owned();
        not(&other, "its points do not tell ");
        other.top.as_mut().unwrap().metric = "c_med".to_owned();
        not(&other, "there is no metric c_med");
        other.top.as_mut().unwrap().server = "six".to_owned();
        not(&other, "there is no server six");
        other.sweep = "down".to_owned();
        not(&other, "p/e has no sweep down");
        other.experiment = "p/x".to_owned();
        not(&other, "the experiment p/x is not part of this run");
        other.not_measurable = Some("there is no TUX".to_owned());
        not(&other, "there is no TUX");
    }
}
