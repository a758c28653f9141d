//! The content that a worker serves: a store for the server's root, if it has one, and one for each
//! root of sites.

use std::path::Path;
use std::sync::Arc;

use weir_content::{
    CacheCounts, ColdCounts, Compressor, FormCounts, Forms, ListingCounts, Options, Store,
};
use weir_stats::Counters;

use crate::config::{Config, Error, SiteRoot};

/// Stores by the number of their root.
#[derive(Debug)]
pub(crate) struct Stores {
    main: Option<Store>,
    of_sites: Vec<Store>,
    /// Number of the root whose store has the compressed forms of all of them; `None` if nothing is
    /// compressed on the fly.
    forms_at: Option<usize>,
}

impl Stores {
    /// Opens the content to serve. `compressor`: what compresses files on the fly, if any are.
    ///
    /// # Errors
    /// A message: a root cannot be opened.
    pub(crate) fn open(
        config: &Config,
        compressor: Option<&Arc<Compressor>>,
    ) -> Result<Self, Error> {
        let open = |path: &Path, options| {
            Store::open(path, options)
                .map_err(|error| Error(format!("cannot serve {}: {error}", path.display())))
        };
        let of_site = |root: &SiteRoot| {
            let (index, listing) = (root.index.clone(), root.listing);
            open(&root.path, Options { index, listing, ..config.content.clone() })
        };
        let of_sites = config.site_roots.iter().map(of_site).collect::<Result<_, _>>()?;
        let main = config.root.as_ref().map(|root| open(root, config.content.clone()));
        let mut stores = Self { main: main.transpose()?, of_sites, forms_at: None };
        let compression = config.content.compression.filter(|_| config.content.caching);
        if let Some((compressor, options)) = compressor.zip(compression) {
            let forms = Forms::new(Arc::clone(compressor), options.cache_bytes_max);
            let first = usize::from(stores.main.is_none());
            stores.give_forms(Box::new(forms), first);
        }
        Ok(stores)
    }

    /// Returns the store of a root: 0 is that of the server; `None` if there is no such root.
    #[inline]
    pub(crate) fn of(&mut self, root: usize) -> Option<&mut Store> {
        if self.forms_at.is_some_and(|at| at != root) {
            self.move_forms(root);
        }
        self.at(root)
    }

    /// Has the compressed forms go to the store that is used: all share the memory for them.
    fn move_forms(&mut self, root: usize) {
        if self.at(root).is_some()
            && let Some(at) = self.forms_at
            && let Some(forms) = self.at(at).and_then(Store::take_forms)
        {
            self.give_forms(forms, root);
        }
    }

    fn give_forms(&mut self, forms: Box<Forms>, root: usize) {
        if let Some(store) = self.at(root) {
            store.give_forms(forms, root);
            self.forms_at = Some(root);
        }
    }

    fn at(&mut self, root: usize) -> Option<&mut Store> {
        match root.checked_sub(1) {
            Some(index) => self.of_sites.get_mut(index),
            None => self.main.as_mut(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Store> {
        self.main.iter().chain(&self.of_sites)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Store> {
        self.main.iter_mut().chain(&mut self.of_sites)
    }

    /// Closes the cached open files, except those still being sent.
    pub(crate) fn release_descriptors(&mut self) {
        self.all_mut().for_each(Store::release_descriptors);
    }

    /// Returns the memory that caches hold, bytes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let of = |store: &Store| store.memory_bytes() + store.form_counts().held_bytes;
        self.all().map(of).sum()
    }

    /// Has caches give back at least `bytes` together, or all that they hold.
    pub(crate) fn give_back(&mut self, mut bytes: u64) {
        for store in self.all_mut() {
            let before = store.memory_bytes() + store.form_counts().held_bytes;
            if bytes > 0 && before > 0 {
                store.give_back(bytes);
                let after = store.memory_bytes() + store.form_counts().held_bytes;
                bytes = bytes.saturating_sub(before - after);
            }
        }
    }

    /// Lets caches keep more from now on, or not.
    pub(crate) fn set_keeping(&mut self, keeps: bool) {
        self.all_mut().for_each(|store| store.set_keeping(keeps));
    }

    /// Sets the counters of the content.
    #[inline]
    pub(crate) fn note(&self, counters: &mut Counters) {
        let (mut cache, mut cold) = (CacheCounts::default(), ColdCounts::default());
        let (mut listings, mut forms) = (ListingCounts::default(), FormCounts::default());
        for store in self.all() {
            add_cache(&mut cache, store.counts());
            let ColdCounts { lookups, reads } = store.cold_counts();
            cold.lookups += lookups;
            cold.reads += reads;
            add_forms(&mut forms, store.form_counts());
            let more = store.listing_counts();
            listings.made += more.made;
            listings.parts += more.parts;
            listings.part_rows_max = listings.part_rows_max.max(more.part_rows_max);
        }
        let CacheCounts { hits, misses, revalidations, reloads, evictions } = cache;
        counters.set_cache([hits, misses, revalidations, reloads, evictions]);
        counters.set_cold([cold.lookups, cold.reads]);
        let ListingCounts { made, parts, part_rows_max } = listings;
        counters.set_listings([made, parts, part_rows_max]);
        let FormCounts { made, useless, spent_ns, missed, held_bytes } = forms;
        counters.set_compression([made, useless, spent_ns, missed, held_bytes]);
    }
}

fn add_forms(sum: &mut FormCounts, more: FormCounts) {
    sum.made += more.made;
    sum.useless += more.useless;
    sum.spent_ns += more.spent_ns;
    sum.missed += more.missed;
    sum.held_bytes += more.held_bytes;
}

fn add_cache(sum: &mut CacheCounts, more: CacheCounts) {
    sum.hits += more.hits;
    sum.misses += more.misses;
    sum.revalidations += more.revalidations;
    sum.reloads += more.reloads;
    sum.evictions += more.evictions;
}
