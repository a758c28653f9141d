//! The server when more is asked of it than it can do, or by clients who ask for too much.

mod fairness;
mod far;
mod floods;
mod shares;
mod storm;
