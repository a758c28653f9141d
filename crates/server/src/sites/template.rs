//! Targets with placeholders: where a redirect leads, and the files that are tried. Pure.

/// What stands for a part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<[u8]>),
    /// `{path}`: the path.
    Path,
    /// `{tail}`: the path below the route's.
    Tail,
    /// `{query}`: the query with its question mark; nothing without one.
    Query,
}

/// A target with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// The parts of a request that placeholders stand for, all as they were sent or encoded anew.
#[derive(Clone, Copy, Debug, Default)]
pub struct Values<'a> {
    /// The path, which begins with `/`.
    pub path: &'a [u8],
    /// The path below the route's: empty, or beginning with `/`.
    pub tail: &'a [u8],
    /// The query, without its question mark.
    pub query: Option<&'a [u8]>,
}

/// The placeholders that there are.
const PLACEHOLDERS: [(&str, Part); 3] =
    [("{path}", Part::Path), ("{tail}", Part::Tail), ("{query}", Part::Query)];

impl Template {
    /// Parses the target of a redirect: an absolute URI or a path.
    ///
    /// # Errors
    /// A sentence: it has a byte that no URI has, or leads nowhere.
    pub fn redirect(text: &str) -> Result<Self, String> {
        let is_local = text.starts_with('/') || text.starts_with("{path}");
        if !is_local && !text.contains("://") {
            return Err("a redirect leads to a path, or to a URL such as https://HOST{path}".into());
        }
        Self::parse(text)
    }

    /// Parses a path that is tried.
    ///
    /// # Errors
    /// A sentence: it is no path, or depends on the query.
    pub fn file(text: &str) -> Result<Self, String> {
        let parsed = Self::parse(text)?;
        let is_path = text.starts_with('/') || text.starts_with("{path}");
        if !is_path || parsed.0.iter().any(|part| matches!(part, Part::Query | Part::Tail)) {
            return Err("a file that is tried is a path such as /index.html or {path}.html".into());
        }
        Ok(parsed)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let known = PLACEHOLDERS.iter().find(|(name, _)| rest.starts_with(name));
            if let Some((name, part)) = known {
                parts.push(part.clone());
                rest = rest.get(name.len()..).unwrap_or_default();
                continue;
            }
            let end = rest.char_indices().skip(1).find(|(_, each)| *each == '{');
            let (literal, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
            if literal.starts_with('{') {
                return Err(format!("'{text}': placeholders are {{path}}, {{tail}} and {{query}}"));
            }
            if !literal.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!("'{text}': a target has no space, and nothing but ASCII"));
            }
            parts.push(Part::Text(literal.as_bytes().into()));
            rest = after;
        }
        Ok(Self(parts))
    }

    /// Appends the target. One that begins with a path has one slash in front: a browser takes two,
    /// or a slash and a backslash, for another host.
    pub fn write(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Path => out.extend_from_slice(values.path),
                Part::Tail => out.extend_from_slice(values.tail),
                Part::Query => {
                    if let Some(query) = values.query {
                        out.push(b'?');
                        out.extend_from_slice(query);
                    }
                }
            }
        }
        let written = out.get(start..).unwrap_or_default();
        if written.starts_with(b"/") {
            let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
            let slashes = written.iter().take_while(|byte| is_slash(byte)).count();
            out.drain(start + 1..start + slashes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(template: &str, path: &str, tail: &str, query: Option<&str>) -> String {
        let values = Values {
            path: path.as_bytes(),
            tail: tail.as_bytes(),
            query: query.map(str::as_bytes),
        };
        let mut out = Vec::new();
        Template::redirect(template).unwrap().write(&values, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn placeholders_stand_for_parts_of_the_request() {
        assert_eq!(
            written("https://a.example{path}{query}", "/b", "", None),
            "https://a.example/b"
        );
        assert_eq!(
            written("https://a.example{path}{query}", "/b", "", Some("c=d")),
            "https://a.example/b?c=d"
        );
        assert_eq!(written("/new{tail}?was={path}", "/old/x", "/x", None), "/new/x?was=/old/x");
        assert_eq!(written("/new", "/old", "", Some("q")), "/new");
    }

    #[test]
    fn a_path_never_leads_to_another_host() {
        assert_eq!(written("{path}", "//evil.example", "", None), "/evil.example");
        assert_eq!(written("/{path}", "/\\evil.example", "", None), "/evil.example");
        assert_eq!(written("/{tail}", "", "//evil.example", None), "/evil.example");
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for text in ["", "a", "/a b", "/é", "/{host}", "/{", "mailto:a"] {
            assert!(Template::redirect(text).is_err(), "{text}");
        }
        for text in ["a", "{query}", "/a{query}", "https://a/{path}", "{tail}"] {
            assert!(Template::file(text).is_err(), "{text}");
        }
        assert!(Template::file("{path}.html").is_ok() && Template::file("/index.html").is_ok());
    }
}
