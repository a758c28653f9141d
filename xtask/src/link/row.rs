//! What was measured of a path: its quantities, and what the link said of itself.

use serde::{Deserialize, Serialize};

use super::estimate::{Estimate, Verdict};
use super::spaces::LinkReport;

/// A quantity of a path: as asked for, and as measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Row {
    pub(super) path: String,
    pub(super) quantity: String,
    pub(super) unit: String,
    pub(super) asked: f64,
    #[serde(flatten)]
    pub(super) measured: Estimate,
    pub(super) verdict: Verdict,
}

/// Rows of a path, and what the link said of itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Measured {
    pub(super) path: String,
    pub(super) rows: Vec<Row>,
    pub(super) link: LinkReport,
}

impl Measured {
    /// Returns whether the link kept its times, by its own account.
    pub(super) fn is_valid(&self) -> bool {
        self.link.reasons.is_empty()
    }
}
