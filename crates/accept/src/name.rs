//! Names of the accept policies.

/// An accept policy, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// A fixed accept-limit: [`crate::FixedLimit`], [`crate::Ramp`].
    Limit,
    /// [`crate::MatchClose`].
    MatchClose,
    /// [`crate::Timed`].
    Timed,
    /// [`crate::Codel`].
    Codel,
    /// [`crate::Adaptive`].
    Adaptive,
}
