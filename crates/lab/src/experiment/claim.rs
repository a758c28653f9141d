//! Claims about the points of an experiment, and the criteria to judge them.

use serde::Deserialize;

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
    /// The paper's number for `top / bottom` (or for `top`), where its text gives one.
    pub paper: Option<f64>,
    /// The experiment whose points judge the claim: `pariag-accept/one-packet`. Empty for a claim
    /// in an experiment's own file.
    #[serde(default)]
    pub experiment: String,
    /// The sweep of that experiment.
    #[serde(default)]
    pub sweep: String,
    /// The quantity measured.
    pub top: Option<Quantity>,
    /// The divisor of `top`, within rounds; without it `top` itself is judged.
    pub bottom: Option<Quantity>,
    /// Lower bound: the claim holds above it.
    pub above: Option<f64>,
    /// Upper bound: the claim holds below it.
    pub below: Option<f64>,
    /// Reason why the claim cannot be judged here. Excludes `experiment`, `sweep`, `top`, `bottom`,
    /// `above` and `below`.
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
    pub sweep: Option<String>,
}
