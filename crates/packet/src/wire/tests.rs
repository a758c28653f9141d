//! What is built is parsed again, and whatever else comes is refused without harm.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::segment::{Flags, Options, Segment, Timestamps};
use crate::seq::Seq;

const MACS: Macs = Macs { source: [2, 0, 0, 0, 0, 1], destination: [2, 0, 0, 0, 0, 2] };

fn ends(is_v6: bool) -> Ends {
    let [source, destination] =
        if is_v6 { ["[fd00::1]:4000", "[fd00::2]:80"] } else { ["10.0.0.1:4000", "10.0.0.2:80"] };
    Ends { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn options() -> impl Strategy<Value = Options> {
    let block = prop::option::of((any::<u32>(), any::<u32>()));
    let timestamps = prop::option::of((any::<u32>(), any::<u32>()));
    (any::<bool>(), any::<u16>(), 0_u8..15, any::<bool>(), timestamps, block).prop_map(
        |(is_syn, mss, shift, may_sack, timestamps, block)| Options {
            mss: is_syn.then_some(mss),
            window_shift: is_syn.then_some(shift),
            may_sack: is_syn && may_sack,
            timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
            sack: [block.filter(|_| !is_syn).map(|(from, to)| (Seq(from), Seq(to))), None, None],
        },
    )
}

proptest! {
    #[test]
    fn a_segment_survives_its_packet(
        (seq, ack, window) in (any::<u32>(), prop::option::of(any::<u32>()), any::<u16>()),
        flags in any::<[bool; 4]>(),
        options in options(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        is_v6 in any::<bool>(),
    ) {
        let [syn, fin, rst, psh] = flags;
        let segment = Segment {
            seq: Seq(seq),
            ack: ack.map(Seq),
            window,
            flags: Flags { syn, fin, rst, psh },
            options,
            payload: &payload,
        };
        let packet = TcpPacket { ends: ends(is_v6), segment };
        let mut frames = vec![7];
        build(&mut frames, MACS, &packet);
        prop_assert!(frames.len() - 1 <= HEADERS_MAX + payload.len());
        for checksum in [Checksum::Unknown, Checksum::Trusted] {
            prop_assert_eq!(parse(&frames[1..], checksum), Ok(Packet::Tcp(packet)));
        }
    }

    #[test]
    fn a_damaged_segment_is_refused(at in 34_usize..66, bit in 0_u8..8) {
        let segment = Segment { payload: b"0123456789ab", ..Segment::default() };
        let mut frame = Vec::new();
        build(&mut frame, MACS, &TcpPacket { ends: ends(false), segment });
        frame[at] ^= 1 << bit;
        prop_assert_eq!(parse(&frame, Checksum::Unknown), Err(Malformed));
    }

    #[test]
    fn no_frame_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0_usize..4) {
        let mut frame = vec![0; 14];
        frame.extend(&bytes);
        frame[12..14].copy_from_slice(&[[8, 6], [8, 0], [0x86, 0xdd], [1, 2]][kind]);
        if let Some(first) = frame.get_mut(14) {
            *first = if kind == 2 { 0x60 } else { 0x45 };
        }
        let _ = parse(&frame, Checksum::Trusted);
        let _ = parse(&bytes, Checksum::Unknown);
    }

    #[test]
    fn a_segment_cut_short_is_refused(keep in 0_usize..66) {
        let segment = Segment { payload: b"0123456789ab", ..Segment::default() };
        let mut frame = Vec::new();
        build(&mut frame, MACS, &TcpPacket { ends: ends(false), segment });
        prop_assert_eq!(parse(&frame[..keep], Checksum::Trusted), Err(Malformed));
    }
}

#[test]
fn the_options_of_a_syn_stand_in_linux_s_order() {
    let options = Options {
        mss: Some(1460),
        window_shift: Some(7),
        may_sack: true,
        timestamps: Some(Timestamps { value: 1, echo: 0 }),
        ..Options::default()
    };
    let flags = Flags { syn: true, ..Flags::default() };
    let segment = Segment { flags, options, ..Segment::default() };
    let mut frame = Vec::new();
    build(&mut frame, MACS, &TcpPacket { ends: ends(false), segment });
    let expected = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    assert_eq!(frame[54..], expected);
}

#[test]
fn neighbours_are_asked_and_answered() {
    for (ours, theirs) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let [ours, theirs]: [IpAddr; 2] = [ours, theirs].map(|text| text.parse().unwrap());
        let mut question = Vec::new();
        ask(&mut question, MACS.source, ours, theirs);
        let Ok(Packet::Neighbour(asked)) = parse(&question, Checksum::Unknown) else {
            panic!("{ours}: no question")
        };
        assert_eq!(asked, Neighbour::Asks { target: theirs, from: ours, mac: MACS.source });
        let mut reply = Vec::new();
        answer(&mut reply, MACS.destination, &asked);
        assert_eq!(reply[..6], MACS.source);
        let has = Neighbour::Has { address: theirs, mac: MACS.destination };
        assert_eq!(parse(&reply, Checksum::Unknown), Ok(Packet::Neighbour(has)));
        let mut nothing = Vec::new();
        answer(&mut nothing, MACS.destination, &has);
        assert!(nothing.is_empty());
    }
}
