//! The live page: one file with its style and its script, which asks for nothing but the status.

use std::hash::{BuildHasher, RandomState};

/// The page, in which the style and the script are put, with a nonce for each reply.
const PAGE: &str = include_str!("live_page/page.html");
const STYLE: &str = include_str!("live_page/page.css");
const SCRIPT: &str = include_str!("live_page/page.js");

/// Source of nonces: numbers that nobody can guess who has not the keys of this process.
#[derive(Debug, Default)]
pub(crate) struct Nonces {
    keys: RandomState,
    count: u64,
}

impl Nonces {
    /// Returns a nonce that was not returned before.
    pub(crate) fn next(&mut self) -> String {
        self.count += 1;
        let half = |salt: u8| self.keys.hash_one((self.count, salt));
        format!("{:016x}{:016x}", half(0), half(1))
    }
}

/// Returns the page.
pub(crate) fn html(nonce: &str) -> String {
    PAGE.replace("{nonce}", nonce).replace("{style}", STYLE).replace("{script}", SCRIPT)
}

/// Returns what a browser may do with the page: run its own script, use its own style, and ask this
/// server. No other page may show it in a frame.
pub(crate) fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src \
         'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_its_parts_and_loads_nothing() {
        let html = html("NONCE");
        assert_eq!(html.matches("nonce=\"NONCE\"").count(), 2);
        for word in ["{nonce}", "{style}", "{script}", "http://", "https://", "@import", "url("] {
            assert!(!html.contains(word), "{word}");
        }
        // The policy forbids them.
        for word in [" style=\"", " onclick=", "innerHTML", "eval("] {
            assert!(!html.contains(word), "{word}");
        }
        assert_eq!(html.matches("</script>").count(), 1);
    }

    #[test]
    fn each_reason_for_a_refusal_has_a_colour_in_both_schemes() {
        let count = weir_stats::live::REFUSALS.len();
        assert!(SCRIPT.contains(&format!("const REASONS_MAX = {count};")));
        for index in 0..count {
            assert_eq!(STYLE.matches(&format!("--r{index}: #")).count(), 2, "{index}");
            assert_eq!(STYLE.matches(&format!(".c-r{index} {{")).count(), 1, "{index}");
        }
    }

    #[test]
    fn no_nonce_comes_twice() {
        let mut nonces = Nonces::default();
        let (one, other) = (nonces.next(), nonces.next());
        assert!(one != other && one.len() == 32 && policy(&one).contains(&one));
    }
}
