//! Kinds of access that have a name. Round trips are to a server in the same country; no standard
//! says what is typical, so each says what it assumes.

/// The presets: name, what it stands for, and the law: that of one kind, or the weights of several.
pub const PRESETS: &[(&str, &str, &str)] = &[
    ("lan", "a switch between", "rtt=200us,jitter=20us"),
    (
        "cable",
        "cable television or fibre at home",
        "rtt=12ms..40ms,jitter=2ms,loss=0.05%,down=100m,up=20m,queue=100ms",
    ),
    ("dsl", "a telephone line", "rtt=25ms..60ms,jitter=3ms,loss=0.1%,down=16m,up=2m,queue=200ms"),
    (
        "4g",
        "a telephone in the hand",
        "rtt=40ms..120ms,jitter=12ms,loss=0.5%,burst=3,down=20m,up=8m,queue=300ms",
    ),
    (
        "satellite",
        "a geostationary satellite",
        "rtt=560ms..640ms,jitter=10ms,loss=0.4%,burst=4,down=25m,up=3m,queue=500ms",
    ),
    ("mix", "clients of a public server", "45 cable, 15 dsl, 38 4g, 2 satellite"),
];
