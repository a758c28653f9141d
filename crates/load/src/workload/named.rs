//! The named workloads, as a table.

use std::str::FromStr;

use super::built::BuiltWorkload;
use super::simple::{SessionShape, Targets};
use super::small::{self, SmallFile};
use super::specweb99::FileSet;
use super::target::below;
use crate::session::RequestTemplate;

/// A named workload, whose files `weir load files` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedWorkload {
    /// A single small file.
    Small(&'static SmallFile),
    /// The static part of SPECweb99.
    Specweb99,
}

impl NamedWorkload {
    /// Returns all named workloads, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = NamedWorkload> {
        small::ALL.iter().map(NamedWorkload::Small).chain([NamedWorkload::Specweb99])
    }

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            NamedWorkload::Small(small) => small.name,
            NamedWorkload::Specweb99 => "specweb99",
        }
    }

    /// Returns a one-line description.
    pub fn help(self) -> &'static str {
        match self {
            NamedWorkload::Small(small) => small.help,
            NamedWorkload::Specweb99 => {
                "the static part of SPECweb99: 36 files per directory, 102 to 921600 B"
            }
        }
    }

    /// Builds the workload that requests its files below the path `base`. `mb` is the size of the
    /// SPECweb99 set, MiB. `shape` applies to a small file; SPECweb99 has its own shape, and takes
    /// only [`SessionShape::close`] from it.
    ///
    /// # Errors
    /// For SPECweb99, the errors of [`FileSet::new`].
    pub fn build(
        self,
        template: &RequestTemplate,
        base: &str,
        mb: u64,
        shape: SessionShape,
    ) -> Result<BuiltWorkload, String> {
        match self {
            NamedWorkload::Small(small) => {
                Ok(Targets::get(vec![below(base, &small.file())]).build(template, shape))
            }
            NamedWorkload::Specweb99 => Ok(FileSet::new(mb)?.build(template, base, shape.close)),
        }
    }
}

impl FromStr for NamedWorkload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        NamedWorkload::all().find(|named| named.name() == name).ok_or_else(|| {
            let names: Vec<_> = NamedWorkload::all().map(NamedWorkload::name).collect();
            format!("no workload is called {name}; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{filled, targets};
    use super::*;

    #[test]
    fn every_name_is_its_workload_s() {
        for named in NamedWorkload::all() {
            assert_eq!(named.name().parse(), Ok(named));
            let built =
                named.build(&RequestTemplate::default(), "/base/", 1, SessionShape::default());
            let BuiltWorkload { workload, requests } = built.unwrap();
            let session = &filled(&*workload, 0..1)[0];
            assert!(targets(&requests, session).iter().all(|target| target.contains("/base/")));
        }
        let error = "specweb".parse::<NamedWorkload>().unwrap_err();
        assert!(error.contains("one-byte, 2k, 6k, one-packet, 1259, 8192, specweb99"), "{error}");
    }
}
