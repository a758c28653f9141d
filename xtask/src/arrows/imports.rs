//! Imports of one file: its modules, `use` declarations and qualified paths, read from the tokens
//! of its code. Inline test modules, and other items compiled for tests only, are left out.

use crate::scan;

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

impl Imports {
    /// Reads the imports of a file.
    pub(super) fn read(source: &str) -> Self {
        let code: Vec<_> = scan::lines(source).into_iter().map(|line| line.code).collect();
        let mut parser = Parser { tokens: tokens(&code.join("\n")), ..Parser::default() };
        while let Some(token) = parser.next() {
            parser.step(token);
        }
        parser.imports
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `::`
    Colons,
    Sign(char),
}

use Token::{Colons, Sign, Word};

fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let word = rest.split(|c| !is_part(c)).next().unwrap_or_default();
        let len = if !word.is_empty() {
            tokens.push(Word(word.to_owned()));
            word.len()
        } else if rest.starts_with("::") {
            tokens.push(Colons);
            2
        } else {
            tokens.extend((!first.is_whitespace()).then_some(Sign(first)));
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    tokens
}

#[derive(Default)]
struct Parser {
    tokens: Vec<Token>,
    at: usize,
    scope: Path,
    /// Open braces; true for those of a module.
    braces: Vec<bool>,
    /// True after `pub`.
    is_public: bool,
    imports: Imports,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += 1;
        token
    }

    /// Consumes the next token if it is this one.
    fn take(&mut self, token: &Token) -> bool {
        let is_it = self.peek() == Some(token);
        self.at += usize::from(is_it);
        is_it
    }

    fn word(&mut self) -> Option<String> {
        let Some(Word(word)) = self.peek().cloned() else { return None };
        self.at += 1;
        Some(word)
    }

    fn step(&mut self, token: Token) {
        let is_public = std::mem::take(&mut self.is_public);
        match token {
            Sign('#') if self.attribute() => self.leave_out(),
            Sign('{') => self.braces.push(false),
            Sign('}') => {
                if self.braces.pop() == Some(true) {
                    self.scope.pop();
                }
            }
            // A field or a method, but not the end of a range.
            Sign('.') if !self.take(&Sign('.')) => drop(self.word()),
            Colons => drop(self.word()),
            Word(word) => match word.as_str() {
                "pub" => {
                    self.visibility();
                    self.is_public = true;
                }
                // Not the bound of an opaque type.
                "use" if self.peek() != Some(&Sign('<')) => self.use_tree(&[], is_public),
                "mod" => self.module(),
                _ => self.path(word),
            },
            Sign(_) => {}
        }
    }

    /// Consumes an attribute; returns whether it leaves its item to tests.
    fn attribute(&mut self) -> bool {
        self.take(&Sign('!'));
        let start = self.at;
        if self.peek() == Some(&Sign('[')) {
            self.skip_group();
        }
        let test = [Sign('['), word("cfg"), Sign('('), word("test"), Sign(')'), Sign(']')];
        self.tokens.get(start..self.at) == Some(&test)
    }

    /// Consumes brackets or braces, and all between them.
    fn skip_group(&mut self) {
        let mut depth = 0;
        while let Some(token) = self.next() {
            match token {
                Sign('(' | '[' | '{') => depth += 1,
                Sign(')' | ']' | '}') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn visibility(&mut self) {
        if self.peek() == Some(&Sign('(')) {
            self.skip_group();
        }
    }

    /// Consumes an item, unless it is a module in a file of its own.
    fn leave_out(&mut self) {
        while self.take(&Sign('#')) {
            self.attribute();
        }
        if self.take(&word("pub")) {
            self.visibility();
        }
        let is_file = self.tokens.get(self.at) == Some(&word("mod"))
            && self.tokens.get(self.at + 2) == Some(&Sign(';'));
        if !is_file {
            self.skip_item();
        }
    }

    fn skip_item(&mut self) {
        loop {
            match self.peek() {
                None | Some(Sign(';' | '}')) => return,
                Some(Sign('{')) => return self.skip_group(),
                Some(Sign('(' | '[')) => self.skip_group(),
                Some(_) => self.at += 1,
            }
        }
    }

    fn module(&mut self) {
        let Some(name) = self.word() else { return };
        let path = [self.scope.as_slice(), std::slice::from_ref(&name)].concat();
        if self.take(&Sign('{')) {
            self.braces.push(true);
            self.scope.push(name);
            self.imports.inline.push(path);
        } else {
            self.imports.files.push(path);
        }
    }

    /// Reads the rest of a use declaration, or of one part between its braces.
    fn use_tree(&mut self, prefix: &[String], is_public: bool) {
        let mut path = prefix.to_vec();
        let mut name = None;
        while let Some(token) = self.peek().cloned() {
            match token {
                Sign(';' | ',' | '}') => break,
                Sign('{') => {
                    self.at += 1;
                    loop {
                        self.use_tree(&path, is_public);
                        if !self.take(&Sign(',')) {
                            self.take(&Sign('}'));
                            return;
                        }
                    }
                }
                Word(word) if word == "as" => {
                    self.at += 1;
                    name = self.word();
                    continue;
                }
                Word(word) => path.push(word),
                Sign('*') => path.push("*".to_owned()),
                Colons | Sign(_) => {}
            }
            self.at += 1;
        }
        if path.len() == prefix.len() {
            return;
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let Some(name) = name.or_else(|| path.last().cloned()) else { return };
        self.imports.uses.push(Use { scope: self.scope.clone(), path, name, is_public });
    }

    fn path(&mut self, first: String) {
        let mut path = vec![first];
        while self.peek() == Some(&Colons) {
            let Some(Word(next)) = self.tokens.get(self.at + 1).cloned() else { break };
            path.push(next);
            self.at += 2;
        }
        self.imports.paths.push((self.scope.clone(), path));
    }
}

fn word(text: &str) -> Token {
    Word(text.to_owned())
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
