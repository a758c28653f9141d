//! Files of a configuration, which a server that has become another user still reads at a reload if
//! it has read them before.

pub use weir_sys::privileged::{open, read, read_to_string};
