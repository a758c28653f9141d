//! The laboratory as its users see it.

mod experiments;
mod untrusted;
