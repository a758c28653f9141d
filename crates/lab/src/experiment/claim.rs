//! Claims about the points of an experiment, and the criteria to judge them.

use std::fmt::{self, Formatter};
use std::ops::Deref;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use super::figure::At;

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
    /// The paper's number for `top / bottom` (or for `top`), divided by that of `than`, where its
    /// text gives one.
    pub paper: Option<f64>,
    /// The experiment whose points judge the claim: `pariag-accept/one-packet`. Empty for a claim
    /// in an experiment's own file.
    #[serde(default)]
    pub experiment: String,
    /// The sweep of that experiment.
    #[serde(default)]
    pub sweep: String,
    /// The quantity measured, or several, whose sum is.
    pub top: Option<Sum>,
    /// The divisor of `top`, within rounds; without it `top` itself is judged.
    pub bottom: Option<Sum>,
    /// Id of another claim of the paper, most often about another experiment: what this one
    /// measures is divided by what that one does. Only in a paper's file.
    pub than: Option<String>,
    /// Lower bound: the claim holds above it.
    pub above: Option<f64>,
    /// Upper bound: the claim holds below it.
    pub below: Option<f64>,
    /// Reason why the claim cannot be judged here. Excludes `experiment`, `sweep`, `top`, `bottom`,
    /// `than`, `above` and `below`.
    pub not_measurable: Option<String>,
    /// Id of the paper's claim whose effect is looked for under a changed condition. Only in an
    /// experiment's own file: a paper's file has no results.
    pub looks_for: Option<String>,
    /// The changed condition, in words that follow "with": `a backlog of 1024`.
    pub condition: Option<String>,
}

/// A metric of a server at a place along a sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quantity {
    /// The metric's name.
    pub metric: String,
    /// The server's id.
    pub server: String,
    /// Place along the sweep. `peak` is the value with the highest median of goodput.
    pub at: At,
    /// The sweep, if it is not that of the claim.
    pub sweep: Option<String>,
}

/// A quantity, or the sum of several within rounds: `{ … }` or `[{ … }, { … }]`.
#[derive(Clone, Debug)]
pub struct Sum(Vec<Quantity>);

impl Deref for Sum {
    type Target = [Quantity];

    fn deref(&self) -> &[Quantity] {
        &self.0
    }
}

#[cfg(test)]
impl Sum {
    /// Returns the first quantity, to be changed.
    pub(crate) fn first_mut(&mut self) -> &mut Quantity {
        &mut self.0[0]
    }
}

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SumVisitor)
    }
}

struct SumVisitor;

impl<'de> Visitor<'de> for SumVisitor {
    type Value = Sum;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity or a list of quantities")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Sum, A::Error> {
        Ok(Sum(vec![Quantity::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Sum, A::Error> {
        let quantities = Vec::<Quantity>::deserialize(SeqAccessDeserializer::new(seq))?;
        match quantities.is_empty() {
            true => Err(de::Error::custom("a sum has at least one quantity")),
            false => Ok(Sum(quantities)),
        }
    }
}
