//! Vary (RFC 9111 section 4.1): the fields of a request that select among replies.

use crate::Fields;

/// A field that selects, and the value that a reply was selected by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Name, in lower case.
    pub name: Box<[u8]>,
    /// Value, its elements separated by `, `; `None` if the request did not have the field.
    pub value: Option<Box<[u8]>>,
}

impl Selector {
    /// Returns the memory that it takes, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, |value| value.len());
        size_of::<Self>() + self.name.len() + value
    }
}

/// Returns the selectors of a reply to a request; `None` if it has `Vary: *`, which no other
/// request matches.
pub(crate) fn of(
    request: &(impl Fields + ?Sized),
    reply: &(impl Fields + ?Sized),
) -> Option<Box<[Selector]>> {
    let mut selectors: Vec<Selector> = Vec::new();
    for name in reply.values(b"vary").flat_map(elements) {
        if name == b"*" {
            return None;
        }
        let name: Box<[u8]> = name.to_ascii_lowercase().into();
        if selectors.iter().all(|known| known.name != name) {
            let value = combined(request, &name);
            selectors.push(Selector { name, value });
        }
    }
    Some(selectors.into())
}

/// Returns whether a request has the values that a reply was selected by.
pub(crate) fn match_request(selectors: &[Selector], request: &(impl Fields + ?Sized)) -> bool {
    selectors.iter().all(|selector| {
        let mut values = request.values(&selector.name);
        match (values.next(), values.next()) {
            // Most often it is the same to the byte.
            (Some(only), None) if selector.value.as_deref() == Some(only) => true,
            (first, _) => {
                first.is_some() == selector.value.is_some()
                    && combined(request, &selector.name) == selector.value
            }
        }
    })
}

/// Appends the values that a request has for these selectors.
pub(crate) fn write_values(
    out: &mut Vec<u8>,
    selectors: &[Selector],
    request: &(impl Fields + ?Sized),
) {
    for selector in selectors {
        let value = combined(request, &selector.name);
        out.push(value.is_some().into());
        out.extend_from_slice(&value.unwrap_or_default());
        // No value has one.
        out.push(b'\n');
    }
}

/// Returns the elements of all lines of a field, separated by `, `; `None` without a line.
fn combined(request: &(impl Fields + ?Sized), name: &[u8]) -> Option<Box<[u8]>> {
    let mut lines = request.values(name).peekable();
    lines.peek()?;
    let mut out = Vec::new();
    for element in lines.flat_map(elements) {
        if !out.is_empty() {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(element);
    }
    Some(out.into())
}

fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Line = (&'static [u8], &'static [u8]);

    fn selectors(request: &[Line], vary: &'static [u8]) -> Option<Box<[Selector]>> {
        of(request, &[(&b"Vary"[..], vary)][..])
    }

    #[test]
    fn white_space_and_lines_do_not_count() {
        let chosen = selectors(&[(b"A", b"x, y")], b"a").unwrap();
        assert!(match_request(&chosen, &[(&b"a"[..], &b"x, y"[..])][..]));
        assert!(match_request(&chosen, &[(&b"A"[..], &b"x ,y"[..])][..]));
        assert!(match_request(&chosen, &[(&b"A"[..], &b"x"[..]), (b"A", b"y")][..]));
        assert!(!match_request(&chosen, &[(&b"A"[..], &b"y, x"[..])][..]));
        assert!(!match_request(&chosen, &[(&b"A"[..], &b"X, y"[..])][..]));
        assert!(!match_request(&chosen, [].as_slice()));
    }

    #[test]
    fn an_absent_field_selects_too() {
        let chosen = selectors(&[], b"A, B, a").unwrap();
        assert_eq!(chosen.len(), 2);
        assert!(match_request(&chosen, [].as_slice()));
        assert!(match_request(&chosen, &[(&b"C"[..], &b"x"[..])][..]));
        assert!(!match_request(&chosen, &[(&b"B"[..], &b""[..])][..]));
    }

    #[test]
    fn a_star_is_matched_by_nothing() {
        assert_eq!(selectors(&[], b"A, *"), None);
    }
}
