//! `--wset N,X`: a walk through a working set of files.

use std::str::FromStr;

use super::usage;
use crate::session::RequestTemplate;
use crate::workload::built::BuiltWorkload;
use crate::workload::simple::{SessionShape, TargetOrder, Targets};
use crate::workload::target::below;

/// The largest working set: its requests are all kept in memory.
const FILES_MAX: u32 = 1_000_000;

/// N files, and X new ones per request, 0 to 1 (httperf(1)). httperf begins at a random point of
/// the first file's turn; here that turn is complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wset {
    /// Number of files.
    pub files: u32,
    /// Share of the requests that advance to the next file, 0 to 1.
    pub rate: f64,
}

impl Wset {
    /// Builds the workload that walks through `prefix/0/0/0.html`, `prefix/0/0/1.html` and so on,
    /// with as many digits as the last file needs.
    pub fn build(
        &self,
        template: &RequestTemplate,
        prefix: &str,
        shape: SessionShape,
    ) -> BuiltWorkload {
        let list = (0..self.files).map(|number| below(prefix, &self.path(number))).collect();
        Targets { order: TargetOrder::Stepped(self.rate), ..Targets::get(list) }
            .build(template, shape)
    }

    fn path(&self, number: u32) -> String {
        let width = self.files.saturating_sub(1).to_string().len();
        let digits: Vec<_> = format!("{number:0width$}").chars().map(String::from).collect();
        digits.join("/") + ".html"
    }
}

impl FromStr for Wset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (files, rate) = text.split_once(',')?;
            let files = files.parse().ok().filter(|files| (1..=FILES_MAX).contains(files))?;
            let rate = rate.parse().ok().filter(|rate| (0.0..=1.0).contains(rate))?;
            Some(Self { files, rate })
        };
        parse().ok_or_else(|| {
            usage(text, "N,X: files (1 to a million), how many of them a request (0 to 1)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::{filled, targets};

    #[test]
    fn the_digits_of_a_file_are_its_path() {
        let path = |files, number| Wset { files, rate: 1.0 }.path(number);
        assert_eq!(path(1024, 103), "0/1/0/3.html");
        assert_eq!(path(1000, 103), "1/0/3.html");
        assert_eq!(path(1001, 103), "0/1/0/3.html");
        assert_eq!(path(1, 0), "0.html");
    }

    #[test]
    fn a_rate_of_a_half_asks_twice_for_each() {
        let wset: Wset = "11,0.5".parse().unwrap();
        let shape = SessionShape { requests: 4, ..SessionShape::default() };
        let BuiltWorkload { workload, requests } =
            wset.build(&RequestTemplate::default(), "/w/", shape);
        let first = targets(&requests, &filled(&*workload, 0..1)[0]);
        assert_eq!(first, ["/w/0/0.html", "/w/0/0.html", "/w/0/1.html", "/w/0/1.html"]);
    }

    #[test]
    fn an_option_that_is_none_is_refused() {
        for text in ["", "1", "0,1", "1000001,1", "5,1.5", "5,-1", "5,nan", "x,1"] {
            assert!(text.parse::<Wset>().is_err(), "{text}");
        }
    }
}
