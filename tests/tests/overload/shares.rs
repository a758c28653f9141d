//! Shares of sources, in the kernel and in the policies: random SYNs on a real socket, judged by
//! the filter's program and by the table that the simulator uses in its place.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_accept::{ADDRESSES_COUNTED_MAX, BURST, Shares, Source};
use weir_sys::syn_filter::tokens::{Rules, TokenFilter, Tokens};
use weir_sys::{client, socket};

/// Time per share: so long that no bucket fills while the test runs, for any weight.
const SHARE_NS: u64 = 1_000_000_000_000;

/// Number of SYNs per run, of which a few sources send many.
const SYNS: u32 = 400;

/// Length of an epoch, 2^40 ns, far longer than the test: across a boundary the weights would be
/// those of two epochs.
const EPOCH_BITS: u32 = 40;

#[test]
fn the_filter_and_the_table_let_the_same_sources_in() {
    let rules = Rules {
        burst: BURST as u32,
        addresses_counted_max: ADDRESSES_COUNTED_MAX,
        epoch_bits: EPOCH_BITS,
    };
    if let Err(error) = TokenFilter::new(rules) {
        return println!("skipped: no filter can be had: {error}");
    }
    let dropped_unfair =
        (0..20).map(|seed| play(seed, &TokenFilter::new(rules).unwrap())).sum::<u64>();
    assert!(dropped_unfair > 100, "{dropped_unfair}: hardly anybody asked for more than a share");
}

/// Plays random SYNs; returns the number dropped because their source had exceeded its share.
fn play(seed: u64, filter: &TokenFilter) -> u64 {
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
    let listener = socket::bind_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
    socket::listen(listener.as_fd(), SYNS as i32).unwrap();
    filter.attach(listener.as_fd()).unwrap();
    let address = socket::local_address(listener.as_fd()).unwrap().unwrap();
    let (mut shares, mut passed) = (Shares::new(BURST), 0);
    let mut kept: Vec<OwnedFd> = Vec::new();
    for syn in 0..SYNS {
        let limit = passed + dice.random_range(0..20);
        let reserve = dice.random_range(0..20);
        filter.set(Tokens { limit, reserve, share_ns: SHARE_NS });
        let source = Ipv4Addr::new(127, 1, dice.random_range(0..4), draw_host(&mut dice));
        let claim = shares.claim(1, Source::from(IpAddr::V4(source)), SHARE_NS, 0);
        let kept_back = if claim.is_fair { 0 } else { reserve };
        let passes = passed < limit.saturating_sub(kept_back);
        if passes {
            shares.grant(claim);
            passed += 1;
        }
        let conn = client::stream(&address).unwrap();
        client::bind_source(conn.as_fd(), source.into()).unwrap();
        client::connect(conn.as_fd(), &address).unwrap();
        kept.push(conn);
        let counts = filter.counts();
        let judged = (counts.passed, counts.dropped, counts.weight);
        let expected = (passed, u64::from(syn) + 1 - passed, u64::from(shares.weight()));
        assert_eq!(judged, expected, "seed {seed}, SYN {syn} of {source}");
    }
    assert!(passed > 40, "{passed} passed");
    filter.counts().dropped_unfair
}

/// Draws from a few hosts that are frequent, and many that are not.
fn draw_host(dice: &mut Xoshiro256PlusPlus) -> u8 {
    if dice.random_range(0..2) == 0 { dice.random_range(1..4) } else { dice.random_range(1..100) }
}
