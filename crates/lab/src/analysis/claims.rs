//! Judges the claims of a paper from measured points: a quantity, or its ratio to another within
//! rounds, is compared with a bound. The verdict is computed from the interval alone.

use std::iter;

use super::estimate::{Compared, Side, common_rounds, of_sums, of_two};
use super::figures::info;
use super::labels;
use super::study::Study;
use super::terms::Term;
use crate::experiment::{At, Claim, Position, Quantity, Sum};
use crate::findings::{Estimate, INTERVAL_N_MIN, Judged, Trial, Verdict};

/// Number of further rounds above which none is told: the median is as good as at the bound.
const ROUNDS_MORE_MAX: u32 = 10_000;

/// Maximum number of decimals by which the ends of an interval are told apart.
const DECIMALS_MAX: usize = 12;

/// Judges a claim from the studies of a run; `than` is the claim by whose quantity its own is
/// divided.
pub(super) fn judge(claim: &Claim, than: Option<&Claim>, studies: &[Study<'_>]) -> Judged {
    let study_of = |claim: &Claim| studies.iter().find(|study| study.id == claim.experiment);
    let study = study_of(claim);
    let than = than.map(|other| (other, study_of(other)));
    let found = measured(claim, study, than);
    let (here, (verdict, why, rounds_more)) = match found {
        Ok((here, note)) => {
            let (verdict, why, rounds_more) = verdict(claim, here);
            (Some(here), (verdict, listed([why, note].into_iter()), rounds_more))
        }
        Err(why) => (None, (Verdict::NotMeasurable, why, None)),
    };
    Judged {
        id: claim.id.clone(),
        text: claim.text.clone(),
        place: claim.place.clone(),
        paper: claim.paper,
        measure: match than {
            Some((other, of_other)) => {
                let (one, two) = (measure(claim, study), measure(other, of_other));
                format!("({one}) ÷ ({two}, in {})", other.experiment)
            }
            None => measure(claim, study),
        },
        holds_if: holds_if(claim),
        here,
        verdict,
        why,
        rounds_more,
        apart: here.filter(|_| verdict == Verdict::DoesNotHold).and_then(|here| apart(claim, here)),
        trials: None,
        trial_of: claim.looks_for.clone(),
    }
}

/// Adds to a paper's claim that does not hold what came of the conditions that the experiments of
/// the run changed to find out why.
pub(super) fn add_trials(judged: &mut Judged, studies: &[Study<'_>]) {
    if judged.verdict != Verdict::DoesNotHold {
        return;
    }
    let mut trials = Vec::new();
    for study in studies {
        for claim in &study.experiment.claim {
            let Some(condition) = &claim.condition else { continue };
            if claim.looks_for.as_ref() == Some(&judged.id) {
                trials.push(Trial {
                    condition: condition.clone(),
                    verdict: judge(&claim.of_experiment(study.id), None, studies).verdict,
                    experiment: study.id.to_owned(),
                });
            }
        }
    }
    judged.trials = Some(trials);
}

/// Returns how many times the median is away from the paper's number, or from the bound that it
/// fails; `None` if there is no such multiple, or if it is infinite.
fn apart(claim: &Claim, here: Estimate) -> Option<f64> {
    let above = claim.above.filter(|bound| here.value <= *bound);
    let stated = claim.paper.or(above).or(claim.below)?;
    let times = here.value / stated;
    (times > 0.0 && times.is_finite()).then(|| times.max(1.0 / times))
}

/// Returns the verdict, its reason, and the further rounds that would decide it: a claim is decided
/// only if the whole interval lies on one side of the bounds.
fn verdict(claim: &Claim, here: Estimate) -> (Verdict, String, Option<u32>) {
    let above = |value: f64| claim.above.is_none_or(|bound| value > bound);
    let below = |value: f64| claim.below.is_none_or(|bound| value < bound);
    if !here.has_interval() {
        let why = match here.n {
            2 => "two rounds make a range and no interval",
            _ => "one round only, which has no interval",
        };
        return (Verdict::Undecided, why.to_owned(), Some(INTERVAL_N_MIN - here.n));
    }
    if above(here.low) && below(here.high) {
        return (Verdict::Holds, String::new(), None);
    }
    if !above(here.high) || !below(here.low) {
        return (Verdict::DoesNotHold, String::new(), None);
    }
    let [low, high] = ends(here);
    let rounds_more = rounds_more(claim, here);
    let is_finite = [here.value, here.low, here.high].iter().all(|number| number.is_finite());
    let more = match rounds_more {
        None if !is_finite => {
            "from infinite numbers it is not known how many rounds would tell".to_owned()
        }
        None => "its median is at the bound, where no number of rounds decides".to_owned(),
        Some(1) => "about 1 more round would tell".to_owned(),
        Some(rounds) => format!("about {rounds} more rounds would tell"),
    };
    let why = format!("the interval {low}\u{2013}{high} has both answers; {more}");
    (Verdict::Undecided, why, rounds_more)
}

/// Returns the further rounds after which the interval would be clear of the bounds, if the median
/// stays and each half of the interval narrows with the root of the number of rounds; `None` if
/// the median is at a bound, or as good as, and if a half is infinite, which does not narrow.
fn rounds_more(claim: &Claim, here: Estimate) -> Option<u32> {
    let Estimate { value, low, high, n } = here;
    let (under, over) = (value - low, high - value);
    // The half of the interval that reaches across a bound, and the room it would have. A median
    // beyond one bound need not be clear of the other.
    let beyond_above = claim.above.filter(|bound| value <= *bound);
    let beyond_below = claim.below.filter(|bound| value >= *bound);
    let halves: Vec<(f64, f64)> = match (beyond_above, beyond_below) {
        (Some(bound), _) => vec![(over, bound - value)],
        (None, Some(bound)) => vec![(under, value - bound)],
        (None, None) => {
            let above = claim.above.map(|bound| (under, value - bound));
            let below = claim.below.map(|bound| (over, bound - value));
            above.into_iter().chain(below).collect()
        }
    };
    if halves.iter().any(|(half, room)| !half.is_finite() || !room.is_finite()) {
        return None;
    }
    let of_one = |(half, room): (f64, f64)| f64::from(n) * (half / room).powi(2);
    let rounds = halves.into_iter().map(of_one).fold(0.0, f64::max);
    // A little less, so that an exact number is not taken for more than it is.
    let more = ((rounds - 1e-6).ceil() - f64::from(n)).max(1.0);
    (more <= f64::from(ROUNDS_MORE_MAX)).then_some(more as u32)
}

/// Formats the ends of an interval, with as many digits as it takes to tell them apart.
fn ends(here: Estimate) -> [String; 2] {
    let both = [here.low, here.high];
    let [low, high] = both.map(number);
    if low != high || here.low == here.high {
        return [low, high];
    }
    let with = |decimals: usize| both.map(|end| format!("{end:.decimals$}"));
    (0..=DECIMALS_MAX).map(with).find(|[low, high]| low != high).unwrap_or([low, high])
}

/// Formats a number with about four digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        f64::INFINITY if value < 0.0 => "-∞".to_owned(),
        f64::INFINITY => "∞".to_owned(),
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
/// at one place `replies/s of accept 10 ÷ that of accept 1, each at the highest value`. Sums are in
/// parentheses where they are divided.
fn measure(claim: &Claim, study: Option<&Study<'_>>) -> String {
    let Some(tops) = &claim.top else { return String::new() };
    let one = |sum: &Sum| (sum.len() == 1).then(|| sum[0].clone());
    match (one(tops), &claim.bottom) {
        (Some(top), None) => spoken(claim, &top, study),
        (Some(top), Some(sum)) if sum.len() == 1 => ratio_words(claim, (&top, &sum[0]), study),
        (_, bottoms) => {
            let added = |sum: &Sum| {
                let parts: Vec<String> = sum.iter().map(|one| spoken(claim, one, study)).collect();
                parts.join(" + ")
            };
            let top = added(tops);
            bottoms.as_ref().map_or(top.clone(), |sum| format!("({top}) ÷ ({})", added(sum)))
        }
    }
}

/// Describes a quantity: its metric, its server and its place.
fn spoken(claim: &Claim, side: &Quantity, study: Option<&Study<'_>>) -> String {
    format!("{} of {}", info(&side.metric).spoken(), whereabouts(claim, side, study))
}

fn whereabouts(claim: &Claim, side: &Quantity, study: Option<&Study<'_>>) -> String {
    let sweep = side.sweep.as_ref().map_or_else(String::new, |id| format!(" in {id}"));
    format!("{}{sweep} {}", label(side, study), at_words(claim, side, study))
}

fn ratio_words(
    claim: &Claim,
    (top, bottom): (&Quantity, &Quantity),
    study: Option<&Study<'_>>,
) -> String {
    let same = bottom.metric == top.metric;
    let name = info(&bottom.metric);
    let second = if same { "that" } else { name.spoken() };
    let one_sweep = bottom.sweep == top.sweep;
    if one_sweep && bottom.at == top.at && bottom.server != top.server {
        let (one, other) = (label(top, study), label(bottom, study));
        let (name, at) = (info(&top.metric), at_words(claim, top, study));
        return format!("{} of {one} ÷ {second} of {other}, each {at}", name.spoken());
    }
    let (first, rest) = (spoken(claim, top, study), whereabouts(claim, bottom, study));
    format!("{first} ÷ {second} of {rest}")
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

/// Returns the measured estimate and a note about where it was taken and what was left out of it,
/// or the reason why there is none. The ratio to another claim's quantity is that of two medians,
/// because rounds of two experiments have nothing in common.
fn measured(
    claim: &Claim,
    study: Option<&Study<'_>>,
    than: Option<(&Claim, Option<&Study<'_>>)>,
) -> Result<(Estimate, String), String> {
    if let Some(why) = &claim.not_measurable {
        return Err(why.clone());
    }
    let own = Found::new(claim, study)?;
    let other = than.map(|(other, study)| Found::new(other, study)).transpose()?;
    let compared = match &other {
        Some(other) => of_two((&own.tops, &own.bottoms), (&other.tops, &other.bottoms)),
        None => own.compared(),
    };
    let both = || iter::once(&own).chain(&other);
    let Compared { estimate, undefined } = compared.ok_or_else(|| {
        let without = both().find(|found| found.compared().is_none());
        missing(&without.unwrap_or(&own).terms())
    })?;
    if let Some(why) = both().find_map(Found::same_points) {
        return Err(why);
    }
    let notes = both().flat_map(Found::notes).chain([left_out(undefined)]);
    Ok((estimate, listed(notes)))
}

/// The quantities of a claim, found in a study.
struct Found<'a> {
    top: Vec<Term<'a>>,
    bottom: Vec<Term<'a>>,
    tops: Vec<Side>,
    bottoms: Vec<Side>,
}

impl<'a> Found<'a> {
    fn new(claim: &'a Claim, study: Option<&'a Study<'a>>) -> Result<Self, String> {
        let study = study.ok_or_else(|| {
            format!("the experiment {} is not part of this run", claim.experiment)
        })?;
        let top = claim.top.as_ref().ok_or("the claim does not say what is measured")?;
        let top = terms(study, claim, top)?;
        let bottom =
            claim.bottom.as_ref().map_or(Ok(Vec::new()), |sum| terms(study, claim, sum))?;
        let all: Vec<&Term<'_>> = top.iter().chain(&bottom).collect();
        let sides = |of: &[Term<'_>]| of.iter().map(|term| term.side(&all)).collect::<Option<_>>();
        let found: Option<(Vec<Side>, Vec<Side>)> = sides(&top).zip(sides(&bottom));
        let (tops, bottoms) = found.ok_or_else(|| missing(&all))?;
        Ok(Self { top, bottom, tops, bottoms })
    }

    fn terms(&self) -> Vec<&Term<'a>> {
        self.top.iter().chain(&self.bottom).collect()
    }

    fn compared(&self) -> Option<Compared> {
        of_sums(&self.tops, &self.bottoms)
    }

    /// Explains why the ratio is 1 by construction, or a relative metric is: `None` if no quantity
    /// is divided by itself.
    fn same_points(&self) -> Option<String> {
        let rounds = common_rounds(&self.tops, &self.bottoms);
        let terms = self.terms();
        for (term, side) in terms.iter().zip(self.tops.iter().chain(&self.bottoms)) {
            let base = side.base.as_ref().and_then(|base| base.pick.index(&rounds));
            if base.is_some()
                && base == side.index(&rounds)
                && let Some(why) = term.same_as_base(&terms)
            {
                return Some(why);
            }
        }
        for (one, side) in self.top.iter().zip(&self.tops) {
            for (other, other_side) in self.bottom.iter().zip(&self.bottoms) {
                if side.index(&rounds) == other_side.index(&rounds)
                    && let Some(why) = one.same_as(other, &terms)
                {
                    return Some(why);
                }
            }
        }
        None
    }

    /// Notes where the quantities are taken, if it is not where the claim says.
    fn notes(&self) -> Vec<String> {
        let terms = self.terms();
        terms.iter().map(|term| term.moved(&terms)).collect()
    }
}

/// Notes how many rounds have no ratio; empty if each has one.
fn left_out(undefined: u32) -> String {
    match undefined {
        0 => String::new(),
        1 => "1 round is left out, as both sides are 0 in it".to_owned(),
        rounds => format!("{rounds} rounds are left out, as both sides are 0 in them"),
    }
}

fn terms<'a>(
    study: &'a Study<'a>,
    claim: &Claim,
    sum: &'a [Quantity],
) -> Result<Vec<Term<'a>>, String> {
    sum.iter().map(|quantity| Term::new(study, &claim.sweep, quantity)).collect()
}

/// Explains why a number could not be computed.
fn missing(all: &[&Term<'_>]) -> String {
    let whys = listed(all.iter().map(|term| term.missing(all)));
    match whys.is_empty() {
        true => "no round has valid points of both, or both are 0 in each".to_owned(),
        false => whys,
    }
}

/// Joins the texts that are not empty, each once.
fn listed(texts: impl Iterator<Item = String>) -> String {
    let mut texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    texts.dedup();
    texts.join("; ")
}

/// Returns what a claim compares: its estimate, if there is one, and the indices of the sweeps that
/// it is taken from. `None` for a claim that is not measured in this study. Of one that is divided
/// by another claim's quantity it is what this study has of it.
pub(super) fn compared(claim: &Claim, study: &Study<'_>) -> Option<(Option<Estimate>, Vec<usize>)> {
    if claim.not_measurable.is_some() || claim.experiment != study.id {
        return None;
    }
    let of = |quantity| Term::new(study, &claim.sweep, quantity).ok().map(|term| term.sweep);
    let sweeps = claim.quantities().map(of).collect::<Option<Vec<usize>>>()?;
    Some((measured(claim, Some(study), None).ok().map(|(here, _)| here), sweeps))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::record::{Failed, Line, Task};

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
        judge(claim, None, &[Study::new("p/e", &experiment, lines)])
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
        let says = "the interval 1.25–1.33 has both answers; about 6 more rounds would tell";
        assert_eq!(why, says);
    }

    #[test]
    fn a_claim_is_divided_by_what_another_claim_measures_in_its_own_experiment() {
        let one = claim(("two", "1"), Some(("one", "1")), "above = 1.1");
        let mut other = claim(("one", "2"), Some(("one", "1")), "above = 1");
        other.experiment = "p/f".to_owned();
        let experiment = fixtures::experiment();
        let mut lines = pairs(&[50.0, 60.0, 72.0], &[20.0, 25.0, 30.0]);
        for (round, rate) in (4..).zip([4.0, 4.0, 4.0]) {
            for (x, of) in [(1.0, 2.0), (2.0, rate)] {
                let Line::Point(mut point) = fixtures::line("one", x, round, of) else { panic!() };
                point.key.experiment = "p/f".to_owned();
                lines.push(Line::Point(point));
            }
        }
        let studies = ["p/e", "p/f"].map(|id| Study::new(id, &experiment, &lines));
        let held = judge(&one, Some(&other), &studies);
        let here = held.here.unwrap();
        assert_eq!((held.verdict, here.value, here.low, here.n), (Verdict::Holds, 1.2, 1.2, 3));
        assert!(held.measure.starts_with("(replies/s of nginx ÷ that of accept 1, each at 1 ×"));
        assert!(held.measure.ends_with(", in p/f)"), "{}", held.measure);
        let alone = judge(&one, Some(&other), &studies[..1]);
        assert_eq!(alone.why, "the experiment p/f is not part of this run");
    }

    #[test]
    fn a_metric_held_against_the_servers_own_peak_is_judged_within_rounds() {
        let lines = fixtures::both();
        let kept = |server, at, bound: &str| {
            let mut claim = claim((server, at), None, bound);
            claim.top.as_mut().unwrap().first_mut().metric = "goodput_kept".to_owned();
            judged(&claim, &lines)
        };
        let last = kept("one", LAST, "below = 50.5");
        let here = last.here.unwrap();
        assert_eq!((last.verdict, here.n, here.high), (Verdict::Holds, 3, 50.0), "{last:?}");
        assert!((here.value - 55_000.0 / 1200.0).abs() < 1e-9, "{here:?}");
        assert_eq!(kept("two", PEAK, "above = 99.0").here.unwrap().low, 100.0);
        assert_eq!(kept("two", LAST, "above = 100.0").verdict, Verdict::DoesNotHold);
    }

    #[test]
    fn the_rounds_that_an_undecided_claim_needs_grow_with_the_square_of_the_width() {
        let of = |bounds: &str, value, low, high| {
            let claim = claim(("one", "1"), None, bounds);
            verdict(&claim, Estimate { value, low, high, n: 6 }).2
        };
        assert_eq!(of("above = 1.0", 1.1, 0.9, 1.3), Some(18));
        assert_eq!(of("above = 1.0", 0.9, 0.7, 1.1), Some(18));
        assert_eq!(of("below = 1.2", 1.1, 0.9, 1.3), Some(18));
        assert_eq!(of("below = 1.0", 1.1, 0.9, 1.3), Some(18));
        assert_eq!(of("above = 1.0\nbelow = 1.5", 1.1, 0.9, 1.3), Some(18));
        assert_eq!(of("above = 1.0\nbelow = 1.5", 1.6, 1.4, 1.9), Some(18));
        assert_eq!(of("above = 1.0", 1.1, 0.999, 1.3), Some(1));
        assert_eq!(of("above = 1.0", 1.0, 0.9, 1.3), None);
        assert_eq!(of("above = 1.0", 1.1, 1.05, 1.3), None);
    }

    #[test]
    fn two_rounds_make_a_range_that_decides_nothing() {
        let lines: Vec<Line> = fixtures::both()
            .into_iter()
            .filter(|line| matches!(line, Line::Point(point) if point.key.round < 2))
            .collect();
        let claim = claim(("two", "1"), Some(("one", "1")), "above = 1.05");
        let judged = judged(&claim, &lines);
        assert_eq!((judged.verdict, judged.rounds_more), (Verdict::Undecided, Some(1)));
        assert_eq!(judged.why, "two rounds make a range and no interval");
        assert_eq!(judged.here.unwrap().half_width(), None);
    }

    #[test]
    fn sums_are_judged_and_said() {
        let side =
            |server: &str| format!("{{ metric = \"reply_rate\", server = \"{server}\", at = 1 }}");
        let text = format!(
            "[[claim]]\nid = \"c\"\nfigure = \"fig-1\"\ntext = \"t\"\nwhere = \"p\"\n\
             experiment = \"p/e\"\nsweep = \"up\"\ntop = [{}, {}]\nbottom = {}\nabove = 2\n",
            side("one"),
            side("two"),
            side("one"),
        );
        let claim = fixtures::paper(&text).claim.remove(0);
        let judged = judged(&claim, &fixtures::both());
        let here = judged.here.unwrap();
        assert_eq!(judged.verdict, Verdict::Holds);
        assert!((here.value - 2.1).abs() < 1e-9 && (here.high - here.low) < 1e-9, "{here:?}");
        assert_eq!(
            judged.measure,
            "(replies/s of accept 1 at 1 × the capacity of accept 1 + replies/s of nginx at 1 × \
             the capacity of accept 1) ÷ (replies/s of accept 1 at 1 × the capacity of accept 1)"
        );
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
    fn points_that_do_not_tell_a_metric_are_not_called_invalid() {
        let mut lines = fixtures::both();
        for line in &mut lines {
            let Line::Point(point) = line else { continue };
            if point.key.x > 2.0 {
                point.load.response = None;
            }
        }
        let mut claim = claim(("one", LAST), None, "below = 5");
        claim.top.as_mut().unwrap().first_mut().metric = "response_p99".to_owned();
        let judged = |lines: &[Line]| {
            let judged = judged(&claim, lines);
            (judged.verdict, judged.why)
        };
        let at = "judged at 2 × the capacity of accept 1, as points beyond it";
        let why = format!("{at} do not tell response time, 99th percentile");
        assert_eq!(judged(&lines), (Verdict::Holds, why));
        lines.retain(|line| matches!(line, Line::Point(point) if point.key.x < 4.0));
        assert_eq!(judged(&lines), (Verdict::Holds, format!("{at} were not measured")));
        lines.push(fixtures::invalid("one", 4.0, 0, "late"));
        assert_eq!(judged(&lines), (Verdict::Holds, format!("{at} are not valid")));
    }

    #[test]
    fn a_quantity_that_would_be_divided_by_itself_decides_nothing() {
        let kept = |at| claim(("one", LAST), Some(("one", at)), "below = 0.5");
        let mut lines = fixtures::lines("one", &[(1.0, [900.0; 3]), (2.0, [1200.0; 3])]);
        lines.push(fixtures::invalid("one", 4.0, 0, "late"));
        let why = "replies/s of accept 1 at 2 × the capacity of accept 1 would be divided by \
                   itself, as points beyond it are not valid";
        for at in [PEAK, "2"] {
            let judged = judged(&kept(at), &lines);
            assert_eq!((judged.verdict, judged.why.as_str()), (Verdict::NotMeasurable, why));
            assert_eq!(judged.here, None);
        }
        // The other way round, and at the first.
        let rise = claim(("one", PEAK), Some(("one", "\"first\"")), "above = 2");
        let only = |x, rate| fixtures::lines("one", &[(x, [rate; 3]), (4.0, [100.0; 3])]);
        assert_eq!(said(&rise, &only(2.0, 900.0)).0, Verdict::NotMeasurable);
        assert_eq!(said(&rise, &only(1.0, 900.0)).0, Verdict::DoesNotHold);
    }

    #[test]
    fn a_metric_that_would_be_held_against_its_own_points_decides_nothing() {
        let kept = |at| {
            let mut claim = claim(("one", at), None, "above = 90.0");
            claim.top.as_mut().unwrap().first_mut().metric = "goodput_kept".to_owned();
            claim
        };
        let mut lines = fixtures::lines("one", &[(1.0, [900.0; 3]), (2.0, [1200.0; 3])]);
        lines.push(fixtures::invalid("one", 4.0, 0, "late"));
        let why = "goodput of accept 1 at 2 × the capacity of accept 1 would be divided by itself, \
                   as points beyond it are not valid";
        assert_eq!(said(&kept(LAST), &lines), (Verdict::NotMeasurable, why.to_owned()));
        // At the peak or at a value the claim itself takes it there.
        for at in [PEAK, "2"] {
            assert_eq!(said(&kept(at), &lines).0, Verdict::Holds, "{at}");
        }
        // Where the peak is elsewhere it tells something.
        let mut lines = fixtures::lines("one", &[(1.0, [1200.0; 3]), (2.0, [900.0; 3])]);
        lines.push(fixtures::invalid("one", 4.0, 0, "late"));
        assert_eq!(said(&kept(LAST), &lines).0, Verdict::DoesNotHold);
    }

    #[test]
    fn a_peak_elsewhere_or_at_the_end_itself_decides() {
        let kept = claim(("one", LAST), Some(("one", PEAK)), "below = 0.5");
        let mut lines = fixtures::lines("one", &[(1.0, [1000.0; 3]), (2.0, [400.0; 3])]);
        lines.push(fixtures::invalid("one", 4.0, 0, "late"));
        let (verdict, why) = said(&kept, &lines);
        assert_eq!(verdict, Verdict::Holds);
        assert!(why.starts_with("judged at 2 × the capacity"), "{why}");
        let lines = fixtures::lines("one", &[(1.0, [900.0; 3]), (4.0, [1200.0; 3])]);
        assert_eq!(said(&kept, &lines), (Verdict::DoesNotHold, String::new()));
        // Of another server it is another quantity.
        let pair = claim(("two", LAST), Some(("one", PEAK)), "below = 0.5");
        let mut lines = fixtures::lines("one", &[(1.0, [900.0; 3]), (2.0, [1200.0; 3])]);
        lines.extend(fixtures::lines("two", &[(1.0, [900.0; 3]), (2.0, [300.0; 3])]));
        assert_eq!(said(&pair, &lines).0, Verdict::Holds);
    }

    #[test]
    fn a_part_of_a_sum_at_one_place_is_a_share_wherever_that_is() {
        let side = |server: &str| {
            format!("{{ metric = \"reply_rate\", server = \"{server}\", at = {LAST} }}")
        };
        let text = format!(
            "[[claim]]\nid = \"c\"\nfigure = \"fig-1\"\ntext = \"t\"\nwhere = \"p\"\n\
             experiment = \"p/e\"\nsweep = \"up\"\ntop = {}\nbottom = [{}, {}]\nabove = 0.3\n",
            side("one"),
            side("one"),
            side("two"),
        );
        let mut lines = fixtures::lines("one", &[(2.0, [1200.0; 3])]);
        lines.extend(fixtures::lines("two", &[(2.0, [1200.0; 3]), (4.0, [1200.0; 3])]));
        let judged = judged(&fixtures::paper(&text).claim.remove(0), &lines);
        assert_eq!((judged.verdict, judged.here.unwrap().value), (Verdict::Holds, 0.5));
        let why = "judged at 2 × the capacity of accept 1, as points beyond it were not measured";
        assert_eq!(judged.why, why);
    }

    /// Returns points of both servers at the lowest value: replies per second of each round.
    fn pairs(two: &[f64], one: &[f64]) -> Vec<Line> {
        let line = |server: &'static str| {
            move |(round, rate): (u32, &f64)| fixtures::line(server, 1.0, round, *rate)
        };
        let twos = (0..).zip(two).map(line("two"));
        twos.chain((0..).zip(one).map(line("one"))).collect()
    }

    #[test]
    fn a_ratio_to_0_is_beyond_every_bound() {
        let ratio = |bound| claim(("two", "1"), Some(("one", "1")), bound);
        let lines = pairs(&[50.0, 60.0, 70.0], &[0.0; 3]);
        let held = judged(&ratio("above = 1.2"), &lines);
        let here = held.here.unwrap();
        assert_eq!((held.verdict, held.why.as_str()), (Verdict::Holds, ""));
        assert_eq!((here.value, here.low, here.n), (f64::INFINITY, f64::INFINITY, 3));
        let failed = judged(&ratio("below = 1.2"), &lines);
        assert_eq!((failed.verdict, failed.apart), (Verdict::DoesNotHold, None));
        let failed = judged(&ratio("above = 1.2\nbelow = 9"), &lines);
        assert_eq!(failed.verdict, Verdict::DoesNotHold);
        let lines = pairs(&[50.0, 60.0, 10.0], &[0.0, 0.0, 10.0]);
        let open = judged(&ratio("above = 1.2"), &lines);
        assert_eq!((open.verdict, open.rounds_more), (Verdict::Undecided, None));
        let why = "the interval 1.00–∞ has both answers; from infinite numbers it is not known \
                   how many rounds would tell";
        assert_eq!(open.why, why);
    }

    #[test]
    fn rounds_in_which_both_sides_are_0_are_left_out_and_counted() {
        let ratio = |bound| claim(("two", "1"), Some(("one", "1")), bound);
        let lines = pairs(&[0.0, 20.0, 30.0, 40.0], &[0.0, 10.0, 15.0, 20.0]);
        let held = judged(&ratio("above = 1.2"), &lines);
        assert_eq!((held.verdict, held.here.unwrap().n), (Verdict::Holds, 3));
        assert_eq!(held.why, "1 round is left out, as both sides are 0 in it");
        let lines = pairs(&[0.0, 0.0, 30.0], &[0.0, 0.0, 15.0]);
        let why = "one round only, which has no interval; 2 rounds are left out, as both sides \
                   are 0 in them";
        assert_eq!(said(&ratio("above = 1.2"), &lines), (Verdict::Undecided, why.to_owned()));
        let (verdict, why) = said(&ratio("above = 1.2"), &pairs(&[0.0; 3], &[0.0; 3]));
        assert_eq!(verdict, Verdict::NotMeasurable);
        assert!(why.ends_with("or both are 0 in each"), "{why}");
    }

    #[test]
    fn numbers_have_four_digits_or_are_infinite() {
        let values = [12_345.6, 12.34, 1.0, 0.0123, 0.0, f64::INFINITY, f64::NEG_INFINITY];
        let said = ["12346", "12.3", "1.00", "0.012", "0.00", "∞", "-∞"];
        assert_eq!(values.map(number), said);
    }

    #[test]
    fn the_ends_of_an_interval_are_told_apart() {
        let said = |value, low, high| {
            let claim = claim(("one", "1"), None, "above = 1990");
            verdict(&claim, Estimate { value, low, high, n: 6 }).1
        };
        let narrow = said(1990.2, 1989.6, 1990.4);
        assert!(narrow.starts_with("the interval 1989.6–1990.4 has both answers"), "{narrow}");
        let wide = said(2000.0, 1980.0, 2020.0);
        assert!(wide.starts_with("the interval 1980–2020 has both answers"), "{wide}");
        let of = |low, high| ends(Estimate { value: low, low, high, n: 6 });
        assert_eq!(of(1.0041, 1.0042), ["1.0041", "1.0042"]);
        assert_eq!(of(7.0, 7.0), ["7.00", "7.00"]);
    }

    #[test]
    fn points_that_are_not_there_or_not_valid_are_named() {
        let pair = |at| claim(("two", at), Some(("one", at)), "above = 1");
        let mut lines = fixtures::lines("two", &[(4.0, [1.0; 3])]);
        let at = "accept 1 at 4 × the capacity of accept 1";
        let not = |why: &str| (Verdict::NotMeasurable, why.to_owned());
        assert_eq!(said(&pair("4"), &lines), not(&format!("{at}: not measured")));
        assert_eq!(said(&pair(PEAK), &lines), not("accept 1 has no valid point"));
        let failed = Failed::of(Task::Point, &fixtures::key("one", 4.0, 0), "no h2o".to_owned());
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
        other.top.as_mut().unwrap().first_mut().metric = "c_avg".to_owned();
        not(&other, "its points do not tell ");
        other.top.as_mut().unwrap().first_mut().metric = "c_med".to_owned();
        not(&other, "there is no metric c_med");
        other.top.as_mut().unwrap().first_mut().server = "six".to_owned();
        not(&other, "there is no server six");
        other.sweep = "down".to_owned();
        not(&other, "p/e has no sweep down");
        other.experiment = "p/x".to_owned();
        not(&other, "the experiment p/x is not part of this run");
        other.not_measurable = Some("there is no TUX".to_owned());
        not(&other, "there is no TUX");
    }
}
