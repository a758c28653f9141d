//! Shares of sources, in the kernel and in the policies: random SYNs on a real socket, judged by
//! the filter's program, at the socket or at the link, and by the table that the simulator uses in
//! its place.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_accept::{BURST, Shares, Source};
use weir_sys::syn_filter::tokens::{TokenFilter, Tokens};
use weir_sys::{client, socket};

use crate::at_link::{self, RULES};

/// Time per share: so long that no bucket fills while the test runs, for any weight.
const SHARE_NS: u64 = 1_000_000_000_000;

/// Number of SYNs per run, of which a few sources send many.
const SYNS: u32 = 400;

#[test]
fn the_filter_and_the_table_let_the_same_sources_in() {
    if let Err(error) = TokenFilter::new(RULES) {
        return println!("skipped: no filter can be had: {error}");
    }
    let dropped_unfair: u64 = (0..20).map(play_on_loopback).sum();
    assert!(dropped_unfair > 100, "{dropped_unfair}: hardly anybody asked for more than a share");
}

fn play_on_loopback(seed: u64) -> u64 {
    let filter = TokenFilter::new(RULES).unwrap();
    let listener = socket::bind_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
    socket::listen(listener.as_fd(), SYNS as i32).unwrap();
    filter.attach(listener.as_fd()).unwrap();
    let address = socket::local_address(listener.as_fd()).unwrap().unwrap();
    let mut kept: Vec<OwnedFd> = Vec::new();
    play(seed, &filter, [127, 1], |source| {
        let conn = client::stream(&address).unwrap();
        client::bind_source(conn.as_fd(), source.into()).unwrap();
        client::connect(conn.as_fd(), &address).unwrap();
        kept.push(conn);
    })
}

#[test]
fn at_the_link_the_same_sources_are_let_in() {
    at_link::on_a_link(|link| {
        let played = (0..20).map(|seed| {
            let listener = link.listen(at_link::SERVER_V4);
            play(seed, &listener.filter, [10, 78], |source| {
                let judged = listener.judged();
                link.send_syn((source, 4000).into(), listener.address);
                listener.wait_for(judged + 1);
            })
        });
        let dropped_unfair: u64 = played.sum();
        assert!(dropped_unfair > 100, "{dropped_unfair} were dropped");
    });
}

/// Plays random SYNs from addresses that begin with `network`; returns the number dropped because
/// their source had exceeded its share.
fn play(
    seed: u64,
    filter: &TokenFilter,
    [first, second]: [u8; 2],
    mut send_syn: impl FnMut(Ipv4Addr),
) -> u64 {
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut shares, mut passed) = (Shares::new(BURST), 0);
    for syn in 0..SYNS {
        let limit = passed + dice.random_range(0..20);
        let reserve = dice.random_range(0..20);
        filter.set(Tokens { limit, reserve, share_ns: SHARE_NS, for_first: 0 });
        let source = Ipv4Addr::new(first, second, dice.random_range(0..4), draw_host(&mut dice));
        let claim = shares.claim(1, Source::from(IpAddr::V4(source)), SHARE_NS, 0);
        let kept_back = if claim.is_fair { 0 } else { reserve };
        let passes = passed < limit.saturating_sub(kept_back);
        if passes {
            shares.grant(claim);
            passed += 1;
        }
        send_syn(source);
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
