//! Made-up findings for tests: each kind of figure, table, verdict and warning.

use crate::findings::{
    Chapter, Estimate, Findings, Judged, Mark, PaperHead, PaperValue, Picture, Row, Saturation,
    Series, Sheet, Stroke, Tally, Verdict,
};

/// A label that would do harm if it were not escaped.
pub(super) const HOSTILE: &str = "</script><b>bold</b> & \"quoted\" | <!--";

/// The findings of a made-up run.
pub(super) fn findings() -> Findings {
    Findings {
        name: "pariag-accept".to_owned(),
        title: "Comparing accept policies".to_owned(),
        paper: Some(PaperHead {
            key: "pariag-accept".to_owned(),
            title: "accept()able Strategies for Improving Web Server Performance".to_owned(),
            authors: "T. Brecht, D. Pariag, L. Gammo".to_owned(),
            year: 2004,
            set_up: "two 550 MHz Pentium III, Linux 2.4.20, eight clients with httperf, a timeout \
                     of 10 s."
                .to_owned(),
        }),
        set_up: pairs(&[
            ("processor", "AMD EPYC (2 cores: 1 for the server, 1 for the client)"),
            ("kernel", "Linux 6.18.5"),
            ("testbed", "two network namespaces joined by veth, no offloads"),
            ("client", "weir load 0.1.0, open loop, Poisson arrivals"),
            ("scale", "0.5 of the plan's durations"),
        ]),
        warnings: vec![
            "Network namespaces were not permitted: server and client shared the loopback \
             interface, so what the kernel counts is of both."
                .to_owned(),
            "h2o is not installed: its 12 points are missing.".to_owned(),
        ],
        chapters: vec![one_packet(), idle()],
    }
}

fn one_packet() -> Chapter {
    Chapter {
        id: "pariag-accept/one-packet".to_owned(),
        title: "One-packet replies, one request a connection".to_owned(),
        question: "How many connections should be taken in at a time when replies are small?"
            .to_owned(),
        about: vec![
            "The paper varied the accept-limit of the µserver and found that accepting all there \
             is was best past saturation. Here the same loop serves the same replies."
                .to_owned(),
            "It differs in the machine, in the kernel, and in a client on the same host."
                .to_owned(),
        ],
        servers: pairs(&[
            ("accept 1", "weir serve --accept-limit 1 --backlog 4096 ROOT"),
            ("accept 10", "weir serve --accept-limit 10 --backlog 4096 ROOT"),
            ("accept inf", "weir serve --accept-limit inf --backlog 4096 ROOT"),
            (HOSTILE, "nginx -c \"<conf>\" # worker_processes 1;\nmulti_accept on;"),
        ]),
        sweeps: vec![
            "saturation: one-packet, 4,000 to 30,000 sessions/s offered for 3 s after 1 s of \
             warm-up, 5 repetitions, 60 µs of work a request."
                .to_owned(),
        ],
        pictures: vec![throughput(), response()],
        sheets: vec![phases()],
        saturations: vec![
            saturation("accept 1", 19_531.2, Some(0.451)),
            saturation("accept 10", 22_018.7, Some(0.583)),
            saturation(HOSTILE, 21_004.0, None),
        ],
        judged: vec![judged("tux", Verdict::NotMeasurable, None)],
        tally: Tally { planned: 80, measured: 78, invalid: 4, late: 2, flagged: 3, failed: 2 },
        remarks: pairs(&[
            ("accept 10, 30,000/s, round 2", "INVALID: the client started 91 % of its requests"),
            ("accept 1, 20,000/s, round 0", "steal: the host took 3.1 % of the server's core"),
            (HOSTILE, "the server ended before the load did: signal 9 <killed>"),
        ]),
    }
}

fn idle() -> Chapter {
    let limits = ["select", "poll", "epoll-lt", "epoll-et", "epoll2", "epoll-ctlv", "uring-poll"];
    let mut labels: Vec<String> = limits.iter().map(|name| (*name).to_owned()).collect();
    labels.push("rtsig, on overflow a sweep of the interest set".to_owned());
    labels.push("scalable-select".to_owned());
    let series = labels.iter().enumerate();
    let series = series.map(|(nth, label)| {
        line(label, &[1.0, 10.0, 100.0, 1e3, 1e4], move |x| {
            20.0 + nth as f64 * 4.0 + x.powf(0.2 + 0.06 * nth as f64)
        })
    });
    Chapter {
        id: "pariag-accept/idle".to_owned(),
        title: "Idle connections beside the load".to_owned(),
        question: "What does an idle connection cost, mechanism by mechanism?".to_owned(),
        servers: labels.iter().map(|label| (label.clone(), "weir serve ROOT".to_owned())).collect(),
        sweeps: vec![
            "idle: 1 to 10,000 idle connections, 500 requests/s, 3 repetitions.".to_owned(),
        ],
        pictures: vec![
            Picture {
                id: "fig-5".to_owned(),
                title: "Processor time of a reply by the number of idle connections, nine \
                        mechanisms side by side"
                    .to_owned(),
                x_log: true,
                y_log: true,
                series: series.collect(),
                judged: vec![judged("loses", Verdict::Undecided, Some(0.97)), trial()],
                ..picture("idle connections", "processor time a reply, µs")
            },
            Picture {
                id: "fig-empty".to_owned(),
                title: "Queue drops".to_owned(),
                ..picture("sessions offered, 1/s", "drops, 1/s")
            },
            spike(),
        ],
        tally: Tally { planned: 135, measured: 135, ..Tally::default() },
        ..Chapter::default()
    }
}

/// A figure along time, in which the offered rate exceeds the axis.
fn spike() -> Picture {
    let times: Vec<f64> = (0..170).map(|bin| f64::from(bin) / 10.0).collect();
    let during =
        |high: f64, low: f64| move |x: f64| if (2.0..12.0).contains(&x) { high } else { low };
    let plain = |label, colour, height: f64| Series {
        stroke: Stroke::Line { colour, dash: colour },
        ..line(label, &times, during(height, 0.5))
    };
    Picture {
        id: "spike-replies".to_owned(),
        title: "Five times the capacity for ten seconds: replies".to_owned(),
        series: vec![
            Series { stroke: Stroke::Offered, ..line("offered", &times, during(5.0, 0.5)) },
            plain("accept 1", 0, 0.15),
            plain(HOSTILE, 1, 0.98),
        ],
        ..picture("time, s", "replies, multiples of the server's own capacity")
    }
}

fn throughput() -> Picture {
    let rates: Vec<f64> = (1..=8).map(|n| f64::from(n) * 4000.0).collect();
    let past = |peak: f64, loss: f64| move |x: f64| x.min(peak) - (x - peak).max(0.0) * loss;
    let mut series = vec![
        line("accept 1", &rates, past(19_500.0, 0.6)),
        line("accept 10", &rates, past(22_000.0, 0.55)),
        line("accept inf", &rates, past(21_000.0, 0.3)),
        line(HOSTILE, &rates, past(17_000.0, 0.9)),
    ];
    for mark in series[1].marks.iter_mut().skip(6) {
        (mark.invalid, mark.invalid_value) = (3, mark.estimate.take().map(|e| e.value));
    }
    series[0].marks[3].flagged = 1;
    Picture {
        id: "fig-4.12".to_owned(),
        title: "Replies by rate offered".to_owned(),
        series,
        values: vec![
            value("peak with accept-limit 1", 19_500.0, "replies/s"),
            value("peak with accept-limit 10", 22_000.0, "replies/s"),
        ],
        judged: vec![
            judged("peak", Verdict::Holds, Some(1.128)),
            judged("inf-past", Verdict::DoesNotHold, Some(1.02)),
        ],
        ..picture("sessions offered, 1/s", "replies, 1/s")
    }
}

fn response() -> Picture {
    let rates: Vec<f64> = (1..=8).map(|n| f64::from(n) * 4000.0).collect();
    Picture {
        id: "fig-4.13".to_owned(),
        title: "Response time, 99th percentile".to_owned(),
        y_log: true,
        series: vec![line("accept 1", &rates, |x| 180.0 * (x / 6000.0).exp())],
        ..picture("sessions offered, 1/s", "response time p99, µs")
    }
}

fn picture(x_label: &str, y_label: &str) -> Picture {
    Picture {
        note: "The paper's figure has the mean of three runs; here it is the median.".to_owned(),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        ..Picture::default()
    }
}

fn phases() -> Sheet {
    let columns = [("accept-phases", ""), ("C_avg", "connections"), ("response p99", "ms")];
    let row = |label: &str, cells: [(f64, Option<f64>); 3]| Row {
        label: label.to_owned(),
        cells: cells.map(|(here, paper)| (estimate(here, 5), paper)).to_vec(),
    };
    Sheet {
        id: "table-4.6".to_owned(),
        title: "Accept-phases at the highest rate".to_owned(),
        note: "C_avg counts only accepts that took a connection.".to_owned(),
        columns: columns.map(|(name, unit)| (name.to_owned(), unit.to_owned())).to_vec(),
        rows: vec![
            row(
                "accept 1, at 30,000/s",
                [(183_122.0, Some(184_323.0)), (0.973, Some(0.97)), (495.2, None)],
            ),
            row(
                "accept inf, at 30,000/s",
                [(5_310.0, Some(5_202.0)), (46.1, Some(47.3)), (12.625, None)],
            ),
            Row { label: HOSTILE.to_owned(), cells: vec![(None, None), (None, Some(8.81))] },
        ],
        values: vec![value("work items a phase", 11_083.0, "")],
        judged: vec![judged("c-avg", Verdict::Holds, Some(0.97))],
    }
}

fn value(what: &str, value: f64, unit: &str) -> PaperValue {
    PaperValue { what: what.to_owned(), value, unit: unit.to_owned(), place: "§4.2.1".to_owned() }
}

fn judged(id: &str, verdict: Verdict, here: Option<f64>) -> Judged {
    let why = match verdict {
        Verdict::Undecided => "the interval has values on both sides of 1",
        Verdict::NotMeasurable => "there is no in-kernel server on this machine",
        _ => "",
    };
    Judged {
        id: id.to_owned(),
        text: format!("An accept-limit of 10 has a higher peak than one of 1 ({id})."),
        place: "§4.2.2, p. 11".to_owned(),
        paper: Some(1.128),
        measure: "replies/s of accept 10 at its peak ÷ that of accept 1".to_owned(),
        holds_if: "above 1.05".to_owned(),
        here: here.and_then(|here| estimate(here, 5)),
        verdict,
        why: why.to_owned(),
        rounds_more: (verdict == Verdict::Undecided).then_some(14),
        apart: (verdict == Verdict::DoesNotHold).then_some(1.11),
        trials: (verdict == Verdict::DoesNotHold).then(Vec::new),
        trial_of: None,
    }
}

/// A trial of the cause of a disagreement, the ratio of which is infinite.
fn trial() -> Judged {
    let infinite = Estimate { value: f64::INFINITY, low: 2.0, high: f64::INFINITY, n: 5 };
    Judged {
        text: "Accept-inf loses past the peak: with 2000 idle connections.".to_owned(),
        paper: None,
        here: Some(infinite),
        trial_of: Some("inf-past".to_owned()),
        ..judged("inf-idle", Verdict::Holds, None)
    }
}

fn saturation(server: &str, peak: f64, kept: Option<f64>) -> Saturation {
    Saturation {
        sweep: "saturation".to_owned(),
        server: server.to_owned(),
        peak: Estimate { value: peak, low: peak * 0.98, high: peak * 1.015, n: 5 },
        at: 20_000.0,
        offered: 1.5,
        kept: kept.and_then(|kept| estimate(kept, 5)),
    }
}

fn line(label: &str, places: &[f64], height: impl Fn(f64) -> f64) -> Series {
    let mark = |(nth, x): (usize, &f64)| Mark {
        at: *x,
        x: *x,
        estimate: estimate(height(*x), if nth == 0 { 1 } else { 5 }),
        ..Mark::default()
    };
    let marks = places.iter().enumerate().map(mark).collect();
    Series { label: label.to_owned(), marks, stroke: Stroke::Marks }
}

fn estimate(value: f64, n: u32) -> Option<Estimate> {
    let around = if n > 1 { 0.03 } else { 0.0 };
    Some(Estimate { value, low: value * (1.0 - around), high: value * (1.0 + around), n })
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect()
}
