//! Imports of one file: its modules, `use` declarations and qualified paths, read from the tokens
//! of its code. Inline test modules, and other items compiled for tests only, are left out.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path, by its segments; an import of all names ends in `*`.
pub(super) type Path = Vec<String>;

/// Declarations and paths of a file. A scope is the inline modules around, outermost first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Imports {
    /// Modules in files of their own: their scope and name.
    pub(super) files: Vec<Path>,
    /// Inline modules: their scope and name.
    pub(super) inline: Vec<Path>,
    pub(super) uses: Vec<Use>,
    /// Names and paths in the code, each with its scope.
    pub(super) paths: Vec<(Path, Path)>,
}

/// A name that a `use` declaration binds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) scope: Path,
    pub(super) path: Path,
    pub(super) name: String,
    /// True for a re-export.
    pub(super) is_public: bool,
}

/// A token in a form that patterns can match.
enum Token {
    Word(String),
    Sign(char),
    Group(Delimiter, Vec<Token>),
}

use Token::{Group, Sign, Word};

fn tokens(stream: TokenStream) -> Vec<Token> {
    let token = |tree| match tree {
        TokenTree::Ident(word) => Word(word.to_string()),
        TokenTree::Punct(sign) => Sign(sign.as_char()),
        TokenTree::Literal(_) => Sign('"'),
        TokenTree::Group(group) => Group(group.delimiter(), tokens(group.stream())),
    };
    stream.into_iter().map(token).collect()
}

impl Imports {
    /// Reads the imports of a file; one that is no sequence of tokens has none.
    pub(super) fn read(source: &str) -> Self {
        let mut imports = Self::default();
        imports.code(&source.parse().map(tokens).unwrap_or_default(), &Path::new());
        imports
    }

    fn code(&mut self, mut rest: &[Token], scope: &Path) {
        let mut is_public = false;
        while let [token, after @ ..] = rest {
            let was_public = std::mem::take(&mut is_public);
            rest = match (token, after) {
                (Sign('#'), [Group(_, attribute), after @ ..]) => {
                    if is_for_tests(attribute) {
                        left_out(after)
                    } else {
                        after
                    }
                }
                // A field or a method, but not the end of a range; the rest of a path.
                (Sign('.'), [Sign('.') | Word(_), after @ ..])
                | (Sign(':'), [Sign(':'), Word(_), after @ ..]) => after,
                (Sign(_), _) => after,
                (Group(_, inside), _) => {
                    self.code(inside, scope);
                    after
                }
                (Word(word), _) => match (word.as_str(), after) {
                    ("pub", _) => {
                        is_public = true;
                        without_visibility(after)
                    }
                    // The bound of an opaque type.
                    ("use", [Sign('<'), ..]) => after,
                    ("use", _) => self.use_tree(after, &[], scope, was_public),
                    ("mod", [Word(name), after @ ..]) => self.module(name, after, scope),
                    _ => self.path(word, after, scope),
                },
            };
        }
    }

    fn module<'a>(&mut self, name: &String, rest: &'a [Token], scope: &Path) -> &'a [Token] {
        let path = [scope.as_slice(), std::slice::from_ref(name)].concat();
        let [Group(Delimiter::Brace, inside), after @ ..] = rest else {
            self.files.push(path);
            return rest;
        };
        self.code(inside, &path);
        self.inline.push(path);
        after
    }

    /// Reads a use declaration, or one part between its braces; returns what follows it.
    fn use_tree<'a>(
        &mut self,
        mut rest: &'a [Token],
        prefix: &[String],
        scope: &Path,
        is_public: bool,
    ) -> &'a [Token] {
        let (mut path, mut name) = (prefix.to_vec(), None);
        while let [token, after @ ..] = rest {
            rest = after;
            match token {
                Sign(';' | ',') => break,
                Group(_, inside) => {
                    let mut inside = inside.as_slice();
                    while !inside.is_empty() {
                        inside = self.use_tree(inside, &path, scope, is_public);
                    }
                    path.truncate(prefix.len());
                }
                Word(word) if word == "as" => {
                    if let [Word(other), after @ ..] = after {
                        (name, rest) = (Some(other.clone()), after);
                    }
                }
                Word(word) => path.push(word.clone()),
                Sign('*') => path.push("*".to_owned()),
                Sign(_) => {}
            }
        }
        if path.len() == prefix.len() {
            return rest;
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(name) = name.or_else(|| path.last().cloned()) {
            self.uses.push(Use { scope: scope.clone(), path, name, is_public });
        }
        rest
    }

    fn path<'a>(&mut self, first: &str, mut rest: &'a [Token], scope: &Path) -> &'a [Token] {
        let mut path = vec![first.to_owned()];
        while let [Sign(':'), Sign(':'), Word(next), after @ ..] = rest {
            path.push(next.clone());
            rest = after;
        }
        self.paths.push((scope.clone(), path));
        rest
    }
}

/// Returns whether an attribute leaves its item to tests.
fn is_for_tests(attribute: &[Token]) -> bool {
    let is = |token: &Token, wanted: &str| matches!(token, Word(word) if word == wanted);
    matches!(attribute, [cfg, Group(_, tests)] if is(cfg, "cfg")
        && matches!(&tests[..], [test] if is(test, "test")))
}

/// Returns what follows an item, or the item itself if it is a module in a file of its own.
fn left_out(mut rest: &[Token]) -> &[Token] {
    while let [Sign('#'), Group(..), after @ ..] = rest {
        rest = after;
    }
    if let [Word(first), after @ ..] = rest
        && first == "pub"
    {
        rest = without_visibility(after);
    }
    if matches!(rest, [Word(first), _, Sign(';'), ..] if first == "mod") {
        return rest;
    }
    let ends = |token: &Token| matches!(token, Sign(';') | Group(Delimiter::Brace, _));
    let end = rest.iter().position(ends).map_or(rest.len(), |end| end + 1);
    &rest[end..]
}

fn without_visibility(rest: &[Token]) -> &[Token] {
    match rest {
        [Group(Delimiter::Parenthesis, _), after @ ..] => after,
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(source: &str) -> Vec<String> {
        let uses = Imports::read(source).uses.into_iter();
        uses.map(|each| {
            let public = if each.is_public { "pub " } else { "" };
            format!("{public}{} = {}", each.name, each.path.join("::"))
        })
        .collect()
    }

    fn paths(source: &str) -> Vec<String> {
        let paths = Imports::read(source).paths.into_iter();
        paths.map(|(_, path)| path.join("::")).filter(|path| path.contains("::")).collect()
    }

    #[test]
    fn every_name_of_a_nested_use_is_bound() {
        let found =
            uses("use a::{b, c::{self, d as e}, f::*};\npub(crate) use super::g;\nuse h;\n");
        let expected =
            ["b = a::b", "c = a::c", "e = a::c::d", "* = a::f::*", "pub g = super::g", "h = h"];
        assert_eq!(found, expected);
        assert_eq!(
            uses("fn f() -> impl A + use<'a> {}\nuse a::{\n    b, // c\n    d,\n};"),
            ["b = a::b", "d = a::d"]
        );
    }

    #[test]
    fn qualified_paths_are_found_in_code_but_not_in_text() {
        let source = "fn f() -> super::A { crate::b::c(\"crate::d::e\"); x.g::<h::I>() } // j::k";
        assert_eq!(paths(source), ["super::A", "crate::b::c", "h::I"]);
        assert_eq!(paths("let _ = 0..a::B; <C as d::E>::f();"), ["a::B", "d::E"]);
    }

    #[test]
    fn modules_in_files_are_told_from_inline_ones() {
        let imports = Imports::read("mod a;\npub mod b { mod c; use d::e; }\nuse f::g;");
        assert_eq!(imports.files, [vec!["a"], vec!["b", "c"]]);
        assert_eq!(imports.inline, [vec!["b"]]);
        let scopes: Vec<_> = imports.uses.iter().map(|each| each.scope.join("::")).collect();
        assert_eq!(scopes, ["b", ""]);
    }

    #[test]
    fn items_for_tests_are_left_out_but_not_their_files() {
        let source = "#[cfg(test)] use a::b;\n\
             #[cfg(test)] #[rustfmt::skip] mod tests { use c::d; }\n\
             #[cfg(test)] pub(crate) mod fixtures;\n#[cfg(test)] fn f(a: [u8; 2]) { e::f() }\n\
             #[test] use g::h;";
        let imports = Imports::read(source);
        assert_eq!(imports.files, [["fixtures"]]);
        assert_eq!(uses(source), ["h = g::h"]);
        assert_eq!(paths(source), [""; 0]);
    }
}
