//! The experiment file: TOML, in which the settings of a server's program stand beside those that
//! every server has.

use std::marker::PhantomData;
use std::ops::Range;

use serde::de::{Deserializer, Error as _, Visitor, value::Error};
use serde::{Deserialize, forward_to_deserialize_any};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::server::{
    BareSettings, EnvoySettings, FileServerSettings, H2oSettings, HaproxySettings, Kind,
    ProxySettings, ServerSpec, SinkSettings, WeirSettings,
};
use crate::document;

/// Reads a value from an experiment file, with its servers tagged by their kind.
///
/// # Errors
/// Returns one sentence with its line and column: invalid TOML, an unknown field, a number out of
/// range.
pub(crate) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut document = document::parse(text)?;
    if let Some(DeValue::Array(servers)) =
        document.get_mut().get_mut("server").map(Spanned::get_mut)
    {
        for server in servers.iter_mut() {
            tag(server).map_err(|(span, says)| document::located(text, Some(span), &says))?;
        }
    }
    document::decode(text, document)
}

/// Moves the settings of a server's program below its kind: `kind = "nginx"`, `gzip = true` becomes
/// `kind = { nginx = { gzip = true } }`.
///
/// # Errors
/// Returns what is wrong with its kind, or the first key that a server of this kind does not have,
/// and its place.
fn tag(server: &mut Spanned<DeValue<'_>>) -> Result<(), (Range<usize>, String)> {
    let span = server.span();
    let DeValue::Table(server) = server.get_mut() else { return Ok(()) };
    let Some((key, value)) = server.get_key_value("kind") else {
        return Err((span, "missing field `kind`".to_owned()));
    };
    let (key, place) = (key.clone(), value.span());
    let named = |kind: &Kind| value.get_ref().as_str() == Some(kind.name());
    let Some(kind) = Kind::ALL.into_iter().find(named) else {
        return Err((place, format!("kind is one of {}", list(Kind::ALL.map(Kind::name)))));
    };
    let (common, own) = (keys::<ServerSpec>(), settings(kind));
    let known = |name: &str| common.contains(&name) || own.contains(&name);
    if let Some((unknown, _)) = server.iter().find(|(name, _)| !known(name.get_ref())) {
        let says = format!(
            "unknown field `{}` for a server of kind {}, expected one of {}",
            unknown.get_ref(),
            kind.name(),
            list(common.iter().chain(own).copied())
        );
        return Err((unknown.span(), says));
    }
    let mut settings = DeTable::new();
    for name in own {
        if let Some((name, value)) = server.remove_entry(*name) {
            settings.insert(name, value);
        }
    }
    let mut tagged = DeTable::new();
    let name = Spanned::new(place.clone(), kind.name().into());
    tagged.insert(name, Spanned::new(place.clone(), DeValue::Table(settings)));
    server.insert(key, Spanned::new(place, DeValue::Table(tagged)));
    Ok(())
}

fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Returns the names of the settings that a kind of server has of its own.
fn settings(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Weir => keys::<WeirSettings>(),
        Kind::Nginx => keys::<ProxySettings>(),
        Kind::Haproxy => keys::<HaproxySettings>(),
        Kind::H2o => keys::<H2oSettings>(),
        Kind::Lighttpd | Kind::Apache => keys::<FileServerSettings>(),
        Kind::Envoy => keys::<EnvoySettings>(),
        Kind::Bare => keys::<BareSettings>(),
        Kind::Sink => keys::<SinkSettings>(),
    }
}

/// Returns the names of the fields that a struct is read from, as its reader asks for them.
fn keys<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // The reader is told that there is nothing to read, once it has asked.
    let _ = T::deserialize(Keys(&mut keys, PhantomData));
    keys
}

struct Keys<'a, 'de>(&'a mut &'static [&'static str], PhantomData<&'de ()>);

impl<'de> Deserializer<'de> for Keys<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is nothing to read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
