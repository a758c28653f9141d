//! The tables `[[site]]`, `[[site.route]]` and `[[route]]` of a configuration file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::option::option;
use super::placed::{Placed, Source};
use crate::sites::options::{ACTIONS, RouteKeys, Settings, SiteKeys};

/// A table of a site.
#[derive(Debug)]
pub(crate) struct SiteTable {
    pub own: SettingsTable,
    pub routes: Vec<SettingsTable>,
}

/// What a table of a site or a route says, and where.
#[derive(Debug)]
pub(crate) struct SettingsTable {
    matches: ArgMatches,
    /// The keys that it has, each with its place.
    keys: Vec<Placed<String>>,
    place: Placed<()>,
}

impl SiteTable {
    /// Reads a site with its routes.
    ///
    /// # Errors
    /// A sentence with its place: a key is not known, or a value is wrong.
    pub(super) fn read(
        table: &DeTable<'_>,
        span: Range<usize>,
        source: Source<'_>,
    ) -> Result<Self, String> {
        let command = Settings::augment_args(SiteKeys::augment_args(Command::new("site")));
        let own = SettingsTable::read(table, span, source, &command, Some("route"))?;
        let mut routes = Vec::new();
        if let Some(value) = table.get("route") {
            for (route, span) in tables(value, source)? {
                routes.push(SettingsTable::of_route(route, span, source)?);
            }
        }
        Ok(Self { own, routes })
    }
}

/// Returns the tables that a value is a list of.
fn tables<'t, 'a>(
    value: &'t Spanned<DeValue<'a>>,
    source: Source<'_>,
) -> Result<Vec<(&'t DeTable<'a>, Range<usize>)>, String> {
    let is_tables = || source.wrong(value.span(), "'route' is written as tables: [[site.route]]");
    let all = value.get_ref().as_array().ok_or_else(is_tables)?;
    let each = |each: &'t Spanned<DeValue<'a>>| Some((each.get_ref().as_table()?, each.span()));
    all.iter().map(|it| each(it).ok_or_else(is_tables)).collect()
}

impl SettingsTable {
    /// Reads a route.
    ///
    /// # Errors
    /// As [`SiteTable::read`].
    pub(super) fn of_route(
        table: &DeTable<'_>,
        span: Range<usize>,
        source: Source<'_>,
    ) -> Result<Self, String> {
        let command = Settings::augment_args(RouteKeys::augment_args(Command::new("route")));
        Self::read(table, span, source, &command, None)
    }

    /// Reads a table, but for the key `besides`.
    fn read(
        table: &DeTable<'_>,
        span: Range<usize>,
        source: Source<'_>,
        command: &Command,
        besides: Option<&str>,
    ) -> Result<Self, String> {
        let command = command.clone().disable_help_flag(true);
        let (mut args, mut keys) = (Vec::new(), Vec::new());
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if Some(name) != besides {
                args.extend(option(key, value, source, &command)?.args);
                keys.push(source.placed(name.to_owned(), value.span()));
            }
        }
        let matches = command.no_binary_name(true).try_get_matches_from(args);
        let wrong = |error: &clap::Error| source.wrong(span.clone(), &crate::one_sentence(error));
        let matches = matches.map_err(|error| wrong(&error))?;
        Ok(Self { matches, keys, place: source.placed((), span) })
    }

    /// Returns the keys that only a site has, or only a route.
    ///
    /// # Errors
    /// A sentence with its place: they do not fit together.
    pub(crate) fn keys<K: FromArgMatches>(&self) -> Result<K, String> {
        K::from_arg_matches(&self.matches)
            .map_err(|error| self.place.wrong(&crate::one_sentence(&error)))
    }

    /// Returns the settings: its own, and otherwise those of its site, but for the files that this
    /// tries: what is not there in a route is missing.
    ///
    /// # Errors
    /// A sentence with its place: they do not fit together.
    pub(crate) fn settings(&self, of_site: &Settings) -> Result<Settings, String> {
        let mut settings = Settings { try_files: None, ..of_site.clone() };
        if self.keys.iter().any(|key| ACTIONS.contains(&key.value.as_str())) {
            settings = Settings { upstream: None, redirect: None, status: None, ..settings };
        }
        let updated = settings.update_from_arg_matches(&self.matches);
        updated.map_err(|error| self.place.wrong(&crate::one_sentence(&error)))?;
        if !self.has("remove-header") {
            self.keep_own_fields(&mut settings);
        }
        Ok(settings)
    }

    /// Returns whether it has a key itself.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|each| each.value == key)
    }

    /// Takes the fields that this table sets out of those that its site removes.
    fn keep_own_fields(&self, settings: &mut Settings) {
        let Settings { set_header, add_header, remove_header, .. } = settings;
        let set = set_header.iter().flatten().filter(|_| self.has("set-header"));
        let added = add_header.iter().flatten().filter(|_| self.has("add-header"));
        let mut own: Vec<&str> = set.chain(added).map(|(name, _)| name.as_str()).collect();
        own.extend(self.has("cache-control").then_some("cache-control"));
        if let Some(removed) = remove_header {
            removed.retain(|name| !own.iter().any(|own| own.eq_ignore_ascii_case(name)));
        }
    }

    /// Returns its own root.
    pub(super) fn root(&self) -> Option<&Path> {
        self.matches.get_one("root").map(PathBuf::as_path)
    }

    /// Puts a place before a sentence: that of the value of a key, or of the table if it has none
    /// such.
    pub(crate) fn wrong(&self, key: &str, says: &str) -> String {
        match self.keys.iter().find(|each| each.value == key) {
            Some(key) => key.wrong(says),
            None => self.place.wrong(says),
        }
    }
}
