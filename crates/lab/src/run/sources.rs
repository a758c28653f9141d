//! Source addresses of a load, and of the background load beside it.

use std::net::IpAddr;

use crate::environment::Environment;
use crate::experiment::Sweep;

/// Returns the addresses of a sweep's load, and those of the clients beside it.
pub(super) fn sources(environment: &dyn Environment, sweep: &Sweep) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let theirs = sweep.background_load.as_ref().map_or(0, |spec| spec.addresses as usize);
    shared_out(environment.client_sources(), theirs)
}

/// Splits the addresses: if there are several, the last ones go to the clients beside the load, as
/// many as wanted but at most half.
fn shared_out(mut all: Vec<IpAddr>, wanted: usize) -> (Vec<IpAddr>, Vec<IpAddr>) {
    match wanted.min(all.len() / 2) {
        0 => (all.clone(), all),
        some => {
            let theirs = all.split_off(all.len() - some);
            (all, theirs)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_is_shared_and_of_several_the_last_are_theirs() {
        let all: Vec<IpAddr> = (2..5).map(|last| IpAddr::from([127, 0, 0, last])).collect();
        let one = all[..1].to_vec();
        assert_eq!(shared_out(one.clone(), 1), (one.clone(), one));
        assert_eq!(shared_out(all.clone(), 0).0, all);
        assert_eq!(shared_out(all.clone(), 1), (all[..2].to_vec(), all[2..].to_vec()));
        assert_eq!(shared_out(all.clone(), 9), (all[..2].to_vec(), all[2..].to_vec()));
        assert_eq!(shared_out(Vec::new(), 1), (Vec::new(), Vec::new()));
    }
}
