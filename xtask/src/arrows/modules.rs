//! Dependencies between the files of a crate. A file depends on another if it names an item that
//! the other defines, through however many re-exports: a re-export is no dependency of the file
//! that has it, and neither is a declaration of a child module. A parent that uses what its
//! children define, while they use what it defines, is a circle like any other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::imports::{Imports, Path};

/// Maximum number of re-exports followed for one name.
const HOPS_MAX: usize = 16;

/// The modules of a crate, and the dependencies between their files.
pub(super) struct Modules {
    modules: BTreeMap<Path, Module>,
    /// Dependencies of each file.
    arrows: BTreeMap<String, BTreeSet<String>>,
    root: String,
}

struct Module {
    file: String,
    /// Paths of imported names.
    names: BTreeMap<String, Path>,
}

impl Modules {
    /// Reads a crate from its root file on. `read` returns a file's text, or `None` if there is no
    /// such file.
    pub(super) fn read(root: &str, read: impl Fn(&str) -> Option<String>) -> Self {
        let mut modules = BTreeMap::new();
        let mut files = Vec::new();
        let mut waiting = vec![(Path::new(), root.to_owned())];
        while let Some((at, file)) = waiting.pop() {
            let Some(text) = read(&file) else { continue };
            let imports = Imports::read(&text);
            let folder = children_folder(&file, at.is_empty());
            for child in &imports.files {
                let path = format!("{folder}{}", child.join("/"));
                let found = [format!("{path}.rs"), format!("{path}/mod.rs")].into_iter();
                let found = found.filter(|file| read(file).is_some());
                waiting.extend(found.map(|file| (joined(&at, child), file)));
            }
            for inline in std::iter::once(&Path::new()).chain(&imports.inline) {
                let module = Module { file: file.clone(), names: BTreeMap::new() };
                modules.insert(joined(&at, inline), module);
            }
            for each in imports.uses.iter().filter(|each| each.name != "*") {
                if let Some(module) = modules.get_mut(&joined(&at, &each.scope)) {
                    module.names.insert(each.name.clone(), each.path.clone());
                }
            }
            files.push((at, file, imports));
        }
        let mut this = Self { modules, arrows: BTreeMap::new(), root: root.to_owned() };
        for (at, file, imports) in &files {
            let to = this.dependencies(at, file, imports);
            this.arrows.insert(file.clone(), to);
        }
        this
    }

    /// Returns the dependencies between files, each as from and to.
    pub(super) fn arrows(&self) -> impl Iterator<Item = (&str, &str)> {
        let arrows = self.arrows.iter();
        arrows.flat_map(|(from, to)| to.iter().map(move |to| (from.as_str(), to.as_str())))
    }

    /// Returns the top-level module that a file belongs to; `None` for the root.
    pub(super) fn top_level<'a>(&self, file: &'a str) -> Option<&'a str> {
        let folder = children_folder(&self.root, true);
        let first = file.strip_prefix(folder.as_str())?.split('/').next()?;
        (file != self.root).then(|| first.strip_suffix(".rs").unwrap_or(first))
    }

    /// Returns a sentence per circle of files.
    pub(super) fn circles(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for file in self.arrows.keys() {
            if let Some(circle) = self.circle_through(file)
                && circle.iter().all(|file| seen.insert(file.clone()))
            {
                circles.push(format!("{} -> {file}: a circle", circle.join(" -> ")));
            }
        }
        circles
    }

    /// Returns the shortest circle that a file is in, beginning with it.
    fn circle_through(&self, start: &str) -> Option<Vec<String>> {
        let mut waiting = VecDeque::from([vec![start.to_owned()]]);
        let mut reached = BTreeSet::new();
        while let Some(way) = waiting.pop_front() {
            for next in way.last().and_then(|last| self.arrows.get(last)).into_iter().flatten() {
                if next == start {
                    return Some(way);
                }
                if reached.insert(next) {
                    waiting.push_back([way.as_slice(), std::slice::from_ref(next)].concat());
                }
            }
        }
        None
    }

    fn dependencies(&self, at: &Path, file: &str, imports: &Imports) -> BTreeSet<String> {
        let used = |name: &String| imports.paths.iter().any(|(_, path)| path.first() == Some(name));
        let uses = imports.uses.iter().filter(|each| !each.is_public || used(&each.name));
        let uses = uses.map(|each| (&each.scope, &each.path));
        let paths = imports.paths.iter().filter(|(_, path)| path.len() > 1);
        let all = uses.chain(paths.map(|(scope, path)| (scope, path)));
        let found = all.filter_map(|(scope, path)| self.defining(&joined(at, scope), path, 0));
        found.filter(|found| *found != file).map(str::to_owned).collect()
    }

    /// Returns the file that defines the item at a path; `None` if it is no item of this crate, but
    /// a module or another crate's item.
    fn defining(&self, from: &Path, path: &[String], hops: usize) -> Option<&str> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Path::new(),
            "self" => from.clone(),
            "super" => from.split_last()?.1.to_vec(),
            _ => {
                // Another crate, unless a child or an import has this name.
                let is_child =
                    self.modules.contains_key(&joined(from, std::slice::from_ref(first)));
                let is_bound = self.modules.get(from)?.names.contains_key(first);
                return if is_child || is_bound { self.item(from, path, hops) } else { None };
            }
        };
        while rest.first().is_some_and(|next| next == "super") {
            at.pop()?;
            rest = &rest[1..];
        }
        self.item(&at, rest, hops)
    }

    /// Follows a path from a module down.
    fn item(&self, from: &Path, path: &[String], hops: usize) -> Option<&str> {
        let (first, rest) = path.split_first()?;
        let child = joined(from, std::slice::from_ref(first));
        if self.modules.contains_key(&child) {
            return self.item(&child, rest, hops);
        }
        let module = self.modules.get(from)?;
        match module.names.get(first) {
            Some(_) if hops == HOPS_MAX => None,
            Some(target) if target.first() != Some(first) => {
                self.defining(from, &joined(target, rest), hops + 1)
            }
            Some(_) => None,
            None => Some(&module.file),
        }
    }
}

fn joined(path: &[String], rest: &[String]) -> Path {
    [path, rest].concat()
}

/// Returns the folder of a file's child modules, with a slash at its end.
fn children_folder(file: &str, is_root: bool) -> String {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    match name.strip_suffix(".rs") {
        Some(stem) if !is_root && stem != "mod" => format!("{folder}/{stem}/"),
        _ => format!("{folder}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let text = |file: &str| files.iter().find(|(name, _)| *name == file).map(|(_, text)| *text);
        Modules::read("c/lib.rs", |file| text(file).map(str::to_owned))
    }

    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        modules(files).arrows().map(|(from, to)| format!("{from} -> {to}")).collect()
    }

    const LIB: (&str, &str) = ("c/lib.rs", "mod a;\nmod b;\npub use b::B;");

    #[test]
    fn files_that_import_each_other_are_a_circle() {
        let a = ("c/a.rs", "use crate::b::B;\nstruct A;");
        let back = modules(&[LIB, a, ("c/b.rs", "pub struct B(super::a::A);")]);
        assert_eq!(back.circles(), ["c/a.rs -> c/b.rs -> c/a.rs: a circle"]);
        let straight = modules(&[LIB, a, ("c/b.rs", "pub struct B;")]);
        assert_eq!(straight.circles(), Vec::<String>::new());
    }

    #[test]
    fn a_re_export_is_followed_to_the_definition() {
        let b = ("c/b.rs", "pub struct B;");
        assert_eq!(arrows(&[LIB, ("c/a.rs", "use crate::B;"), b]), ["c/a.rs -> c/b.rs"]);
        assert_eq!(arrows(&[LIB, ("c/a.rs", "fn f() -> crate::B {}"), b]), ["c/a.rs -> c/b.rs"]);
        let used = ("c/lib.rs", "mod a;\nmod b;\npub use b::B;\nfn f() -> B {}");
        assert_eq!(arrows(&[used, ("c/a.rs", ""), b]), ["c/lib.rs -> c/b.rs"]);
        let own = ("c/lib.rs", "mod a;\nmod b;\npub struct B;");
        assert_eq!(arrows(&[own, ("c/a.rs", "use crate::B;"), b]), ["c/a.rs -> c/lib.rs"]);
    }

    #[test]
    fn a_module_that_is_imported_is_an_arrow_where_it_is_used() {
        let b = ("c/b.rs", "pub fn f() {}");
        assert_eq!(arrows(&[LIB, ("c/a.rs", "use crate::b;"), b]), [""; 0]);
        assert_eq!(arrows(&[LIB, ("c/a.rs", "use super::b; fn g() { b::f() }"), b]).len(), 1);
        let renamed = ("c/a.rs", "use super::{b as d}; fn g() { d::f() }");
        assert_eq!(arrows(&[LIB, renamed, b]), ["c/a.rs -> c/b.rs"]);
    }

    #[test]
    fn nested_modules_reach_their_parents_and_siblings() {
        let files = [
            ("c/lib.rs", "mod a;"),
            ("c/a/mod.rs", "mod b;\nmod d;\nstruct A;\nuse std::io;\nuse b::B;"),
            ("c/a/b.rs", "mod e;\nuse super::d::D;\nuse super::io;\npub struct B;"),
            ("c/a/b/e.rs", "use super::super::{A, B as C};"),
            ("c/a/d.rs", "pub struct D;\nmod inline { use super::super::A; }"),
        ];
        let expected = [
            "c/a/b.rs -> c/a/d.rs",
            "c/a/b/e.rs -> c/a/b.rs",
            "c/a/b/e.rs -> c/a/mod.rs",
            "c/a/d.rs -> c/a/mod.rs",
            "c/a/mod.rs -> c/a/b.rs",
        ];
        assert_eq!(arrows(&files), expected);
        let files = modules(&files);
        assert_eq!(files.top_level("c/a/b/e.rs"), Some("a"));
        assert_eq!(files.top_level("c/lib.rs"), None);
        assert_eq!(files.circles(), ["c/a/b.rs -> c/a/d.rs -> c/a/mod.rs -> c/a/b.rs: a circle"]);
    }
}
