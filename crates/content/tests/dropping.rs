//! A store that must not block, after the kernel has dropped names from its cache. A single test,
//! because dropping them affects the whole machine.

mod site;

use site::{Site, at, body, find};
use weir_content::{FetchOp, Found, Options};

#[test]
fn a_name_the_kernel_dropped_is_cold_until_it_was_fetched() {
    let site = Site::new("dropping");
    site.write("directory/a", "one");
    let options = || Options { codings: Vec::new(), waits: false, ..Options::default() };
    let mut was_cold = false;
    // What was used since the last time is spared once.
    for _ in 0..10 {
        if std::fs::write("/proc/sys/vm/drop_caches", "2").is_err() {
            break;
        }
        let mut store = site.store(options());
        if let Found::Cold(fetch) = find(&mut store, "/directory/a", at(0)) {
            let kind = fetch.ops().next();
            assert!(matches!(kind, Some(FetchOp::Open { path: b"directory/a", .. })));
            assert_eq!((store.cold_counts().lookups, store.cold_counts().reads), (1, 0));
            fetch.run();
            was_cold = true;
            // Others may have the kernel drop it too, at any moment.
            if let Found::Entry(entry) = find(&mut store, "/directory/a", at(0)) {
                return assert_eq!(body(&entry), "one");
            }
        }
    }
    assert!(!was_cold, "cold though it was fetched");
    eprintln!("SKIPPED: may not have the kernel drop names, or they are in memory");
}
