//! The tables `[[upstream]]`, `[[site]]` and `[[route]]` of a configuration file.

use std::iter;
use std::ops::Range;
use std::path::Path;

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::option::option;
use super::placed::{Placed, Source};
use super::places::first_option;
use super::site_tables::{SettingsTable, SiteTable};
use crate::forwarding::options::UpstreamOptions;
use crate::values::OnOff;

/// The tables of a file.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub upstreams: Vec<UpstreamTable>,
    pub sites: Vec<SiteTable>,
    /// Routes outside of a site.
    pub routes: Vec<SettingsTable>,
}

/// A table `[[upstream]]`: its name, its servers, and options that it has for itself.
#[derive(Debug)]
pub(crate) struct UpstreamTable {
    pub name: Placed<String>,
    pub servers: Vec<Placed<String>>,
    own: ArgMatches,
    /// Names of the options that it has, each with its place.
    keys: Vec<Placed<String>>,
}

impl Tables {
    /// Takes the value of a key, if it is a list of tables of upstreams, sites or routes. Returns
    /// whether it was.
    ///
    /// # Errors
    /// A sentence with its place: one of the tables has a key that is not known, a value that is
    /// wrong, or lacks one; or it is no list.
    pub(super) fn take(
        &mut self,
        key: &Spanned<impl AsRef<str>>,
        value: &Spanned<DeValue<'_>>,
        source: Source<'_>,
    ) -> Result<bool, String> {
        let name = key.get_ref().as_ref();
        let all = value.get_ref().as_array();
        let Some(all) = all.filter(|all| all.iter().any(|each| each.get_ref().is_table())) else {
            let is_of_tables = matches!(name, "upstream" | "site" | "route");
            // A site is no option, as the others may be.
            if is_of_tables && (value.get_ref().is_table() || name == "site") {
                let says = format!("'{name}' is written as tables: [[{name}]]");
                return Err(source.wrong(value.span(), &says));
            }
            return Ok(false);
        };
        for each in all {
            let is_mixed = || {
                source.wrong(each.span(), &format!("'{name}' is tables, or texts, and not both"))
            };
            let table = each.get_ref().as_table().ok_or_else(is_mixed)?;
            match name {
                "upstream" => {
                    self.upstreams.push(upstream(&Fields { table, span: each.span(), source })?);
                }
                "site" => self.sites.push(SiteTable::read(table, each.span(), source)?),
                "route" => self.routes.push(SettingsTable::of_route(table, each.span(), source)?),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Puts a place before a sentence about a root: that of the first table that has it.
    pub(crate) fn locate_root(&self, root: &Path, says: &str) -> String {
        let of_sites = self.sites.iter().flat_map(|site| iter::once(&site.own).chain(&site.routes));
        let mut all = of_sites.chain(&self.routes);
        let table = all.find(|table| table.root() == Some(root));
        table.map_or_else(|| says.into(), |table| table.wrong("root", says))
    }
}

impl UpstreamTable {
    /// Returns the options of this upstream: its own, and otherwise the common ones.
    ///
    /// # Errors
    /// A sentence: its own do not fit together.
    pub(crate) fn options(&self, common: &UpstreamOptions) -> Result<UpstreamOptions, String> {
        let mut options = common.clone();
        let updated = options.update_from_arg_matches(&self.own);
        updated.map_err(|error| self.name.wrong(&crate::one_sentence(&error)))?;
        // Of these two its own counts, as it does of each: one that says whom it trusts trusts
        // nobody else.
        let says = |id| self.own.value_source(id) == Some(ValueSource::CommandLine);
        match (says("upstream_ca"), says("upstream_insecure")) {
            (true, false) => options.upstream_insecure = OnOff::Off,
            (false, true) if options.upstream_insecure == OnOff::On => options.upstream_ca = None,
            _ => {}
        }
        Ok(options)
    }

    /// Returns whether it has an option for itself.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.key(option).is_some()
    }

    /// Puts a place before a sentence: that of its option with which the sentence begins; none if
    /// that is a common one; that of `otherwise` if it begins with no option.
    pub(crate) fn wrong(&self, otherwise: &Placed<String>, says: &str) -> String {
        if !says.starts_with("--") {
            return otherwise.wrong(says);
        }
        self.key(first_option(says)).map_or_else(|| says.to_owned(), |key| key.wrong(says))
    }

    fn key(&self, option: &str) -> Option<&Placed<String>> {
        self.keys.iter().find(|key| key.value == option)
    }
}

/// A table, with where it begins.
struct Fields<'a> {
    table: &'a DeTable<'a>,
    span: Range<usize>,
    source: Source<'a>,
}

impl Fields<'_> {
    fn as_text(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<Placed<String>, String> {
        let text = value.get_ref().as_str();
        let text =
            text.ok_or_else(|| self.source.wrong(value.span(), &format!("'{name}' is a text")))?;
        Ok(self.source.placed(text.to_owned(), value.span()))
    }

    fn required(&self, name: &str) -> Result<Placed<String>, String> {
        let value = self.table.get(name).ok_or_else(|| self.lacks(name))?;
        self.as_text(name, value)
    }

    fn lacks(&self, name: &str) -> String {
        self.source.wrong(self.span.clone(), &format!("'{name}' is missing"))
    }
}

fn upstream(fields: &Fields<'_>) -> Result<UpstreamTable, String> {
    let command = own_options();
    let (mut args, mut keys) = (Vec::new(), Vec::new());
    for (key, value) in fields.table {
        let name: &str = key.get_ref().as_ref();
        if !matches!(name, "name" | "servers") {
            args.extend(option(key, value, fields.source, &command)?.args);
            keys.push(fields.source.placed(name.to_owned(), value.span()));
        }
    }
    let matches = command.no_binary_name(true).try_get_matches_from(args);
    let wrong =
        |error: &clap::Error| fields.source.wrong(fields.span.clone(), &crate::one_sentence(error));
    let servers = fields.table.get("servers").ok_or_else(|| fields.lacks("servers"))?;
    let servers = match servers.get_ref() {
        DeValue::Array(all) => all.iter().map(|each| fields.as_text("servers", each)).collect(),
        _ => fields.as_text("servers", servers).map(|one| vec![one]),
    }?;
    if servers.is_empty() {
        return Err(fields.lacks("servers"));
    }
    let name = fields.required("name")?;
    Ok(UpstreamTable { name, servers, own: matches.map_err(|error| wrong(&error))?, keys })
}

/// Returns the options that an upstream may have for itself, without defaults.
fn own_options() -> Command {
    let command = UpstreamOptions::augment_args(Command::new("upstream"));
    let names = ["name", "servers"].map(|name| clap::Arg::new(name).long(name));
    let command = command.mut_args(|arg| arg.default_value(Resettable::<_>::Reset));
    command.args(names).disable_help_flag(true)
}
