//! Readiness: the one table of mechanisms. A mechanism is a file beside this one and two lines
//! here; help, docs, tests, measurements and the server take it from the table. What a mechanism
//! promises stands in `contract.rs`; nothing here knows how one works.

mod contract;
mod edges;
pub mod kernel;
pub mod settings;

mod epoll2;
mod epoll_et;
mod epoll_lt;
mod poll;
mod select;

use contract::PerSlot;
pub use contract::{Counts, Interest, Mechanism, Token};
use kernel::{Kernel, Linux};
use settings::Knob;

/// A row of the table of mechanisms.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which one.
    pub name: Name,
    /// As the option spells it.
    pub spelling: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Where it was measured first.
    pub source: &'static str,
    /// What can be set about it.
    pub knobs: &'static [Knob],
}

/// Something to do with one mechanism as a type: the loop, so that it is compiled for each.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does it with `M`.
    fn visit<M: Mechanism>(self) -> Self::Output;
}

macro_rules! table {
    ($($module:ident $name:ident $spelling:literal $summary:literal $source:literal),+ $(,)?) => {
        $(pub use $module::$name;)+

        /// A mechanism's name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Name { $($name),+ }

        /// Every mechanism there is.
        pub const TABLE: &[Row] = &[$(Row {
            name: Name::$name,
            spelling: $spelling,
            summary: $summary,
            source: $source,
            knobs: <$name as Mechanism>::KNOBS,
        }),+];

        impl Name {
            /// Does something with the mechanism of this name, on a kernel.
            pub fn visit<K: Kernel, V: Visitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Self::$name => visitor.visit::<$name<K>>()),+
                }
            }
        }
    };
}

table! {
    select Select "select"
        "bitmaps copied in and out at every call, of any size" "brecht-select",
    poll Poll "poll"
        "an array of descriptors at every call" "gammo-epoll",
    epoll_lt EpollLt "epoll-lt"
        "level-triggered; an epoll_ctl at every change of interest" "gammo-epoll",
    epoll_et EpollEt "epoll-et"
        "edge-triggered; the server keeps the state of each socket" "gammo-epoll",
    epoll2 Epoll2 "epoll2"
        "level-triggered, asked once for both; two epoll_ctl calls a connection" "gammo-epoll",
}

impl Name {
    /// The row of this mechanism.
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.name == self).unwrap_or(&TABLE[0])
    }

    /// Does something with this mechanism, on the kernel that runs this process.
    pub fn with<V: Visitor>(self, visitor: V) -> V::Output {
        self.visit::<Linux, V>(visitor)
    }
}

#[cfg(test)]
mod tests;
