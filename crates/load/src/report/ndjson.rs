//! Live output of a run as NDJSON: one line per second, one per request. Keys carry their unit, as
//! in [`super::json`]. No state is kept between lines.

use std::io;

use serde::Serialize;

use super::loop_name;
use super::second::SecondFields;
use crate::audit::RunningAudit;
use crate::config::RequestSample;
use crate::measure::{ErrorKind, Interval, SecondSummary};

/// Writes the line of a second. `running_audit` includes this second.
///
/// # Errors
/// Any error of `out`.
pub fn second(
    out: &mut impl io::Write,
    interval: &Interval,
    running_audit: &RunningAudit,
) -> io::Result<()> {
    let input = &running_audit.input;
    let reasons = running_audit.reasons();
    let line = SecondLine {
        line: SecondFields::new(&SecondSummary::from(interval), input.threads),
        r#loop: loop_name(input.closed),
        valid_so_far: reasons.is_empty(),
        verdict_so_far: if reasons.is_empty() { "valid" } else { "INVALID" },
        reasons,
    };
    write(out, &line)
}

/// Writes the line of a request: its target, its timestamps in nanoseconds since the run began
/// (null for an event that did not happen; `secured_ns` only with TLS), and the status of its reply
/// or the kind of its error.
///
/// # Errors
/// Any error of `out`.
pub fn request(out: &mut impl io::Write, sample: &RequestSample, target: &str) -> io::Result<()> {
    let timestamps = &sample.timestamps;
    let line = RequestLine {
        request: sample.request.0,
        target,
        planned_ns: timestamps.planned_ns,
        started_ns: happened(timestamps.started_ns),
        connected_ns: happened(timestamps.connected_ns),
        secured_ns: happened(timestamps.secured_ns),
        sent_ns: happened(timestamps.sent_ns),
        first_byte_ns: happened(timestamps.first_byte_ns),
        last_byte_ns: happened(timestamps.last_byte_ns),
        status: sample.end.ok(),
        error: sample.end.err().map(ErrorKind::name),
    };
    write(out, &line)
}

#[derive(Serialize)]
struct SecondLine {
    #[serde(flatten)]
    line: SecondFields,
    r#loop: &'static str,
    valid_so_far: bool,
    verdict_so_far: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

#[derive(Serialize)]
struct RequestLine<'a> {
    request: u32,
    target: &'a str,
    planned_ns: u64,
    started_ns: Option<u64>,
    connected_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secured_ns: Option<u64>,
    sent_ns: Option<u64>,
    first_byte_ns: Option<u64>,
    last_byte_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

/// Maps 0 to `None`: only the first planned start is at 0, every other event comes later.
fn happened(time_ns: u64) -> Option<u64> {
    (time_ns > 0).then_some(time_ns)
}

fn write(out: &mut impl io::Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::fixtures;
    use super::*;
    use crate::measure::Timestamps;
    use crate::session::RequestId;

    fn lines(out: &[u8]) -> Vec<Value> {
        out.split_inclusive(|byte| *byte == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[test]
    fn each_second_is_a_line_and_remembers_what_made_the_run_invalid() {
        let mut out = Vec::new();
        let mut running_audit = RunningAudit::new(&fixtures::input(false));
        for interval in
            [fixtures::interval(0), fixtures::invalid_interval(1), fixtures::interval(2)]
        {
            running_audit.add(&interval);
            second(&mut out, &interval, &running_audit).unwrap();
        }
        let lines = lines(&out);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["second"], 0);
        assert_eq!(lines[0]["planned"], 100);
        assert_eq!(lines[0]["errors"].as_object().unwrap().len(), 1);
        assert_eq!(lines[0]["errors"]["reply-timeout"], 1);
        assert_eq!(lines[0]["cpu_share"], 0.25);
        assert_eq!(lines[0]["valid_so_far"], true);
        assert_eq!(lines[0]["loop"], "open");
        assert!(lines[0].get("reasons").is_none());
        assert_eq!(lines[2]["verdict_so_far"], "INVALID");
        assert!(lines[2]["reasons"][0].as_str().unwrap().contains("fd-unavail"));
    }

    #[test]
    fn a_second_without_replies_has_no_response_time() {
        let mut interval = Interval { length_ns: 1_000_000_000, ..Interval::default() };
        interval.counts.started = 1;
        interval.lag.record(20_000);
        let mut out = Vec::new();
        second(&mut out, &interval, &RunningAudit::new(&fixtures::input(false))).unwrap();
        let line = &lines(&out)[0];
        for key in ["response_p50_us", "response_p99_us", "response_max_us"] {
            assert_eq!(line.get(key), Some(&Value::Null), "{line}");
        }
        assert!(line["lag_p99_us"].as_f64() > Some(0.0), "{line}");
    }

    #[test]
    fn with_tls_a_request_has_a_clock_more() {
        let timestamps = Timestamps { secured_ns: 12, ..Timestamps::default() };
        let sample = RequestSample { timestamps, request: RequestId(3), end: Ok(200) };
        let mut out = Vec::new();
        request(&mut out, &sample, "/a").unwrap();
        assert_eq!(lines(&out)[0]["secured_ns"], 12);
    }

    #[test]
    fn each_request_is_a_line_of_its_clocks_and_its_end() {
        let timestamps = Timestamps { started_ns: 5, connected_ns: 9, ..Timestamps::default() };
        let sample =
            RequestSample { timestamps, request: RequestId(3), end: Err(ErrorKind::SendTimeout) };
        let mut out = Vec::new();
        request(&mut out, &sample, "/a").unwrap();
        request(&mut out, &RequestSample { end: Ok(404), ..sample }, "/a").unwrap();
        let expected = r#"{"request":3,"target":"/a","planned_ns":0,"started_ns":5,"#.to_owned()
            + r#""connected_ns":9,"sent_ns":null,"first_byte_ns":null,"last_byte_ns":null,"#
            + r#""error":"send-timeout"}"#;
        let text = String::from_utf8(out.clone()).unwrap();
        assert_eq!(text.lines().next(), Some(expected.as_str()));
        assert_eq!(lines(&out)[1]["status"], 404);
        assert!(lines(&out)[1].get("error").is_none());
    }
}
