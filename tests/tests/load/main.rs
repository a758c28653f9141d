//! The load generator and the probe as their users see them: reports, errors and exit codes.

mod counts;
mod errors;
mod probe;
mod runs;
mod times;
