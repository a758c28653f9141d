//! Response times of each second as an HdrHistogram interval log, which HdrHistogram's own tools
//! (HistogramLogProcessor, HistogramLogAnalyzer and others) read and merge.
//!
//! Values are nanoseconds, the usual unit of these tools. The log contains response times only.

use std::io;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriter, IntervalLogWriterBuilder, IntervalLogWriterError,
};

use super::RunDescription;
use crate::audit::Verdict;
use crate::measure::Interval;

/// Column names, which HdrHistogram's own writer puts before the first interval.
const LEGEND: &str = "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
                      \"Interval_Compressed_Histogram\"";

/// A log being written.
pub struct HistogramLog<W: io::Write> {
    out: W,
    serializer: V2DeflateSerializer,
    description: String,
    /// Earliest time at which the first second can have begun.
    earliest: SystemTime,
    has_head: bool,
}

impl<W: io::Write> HistogramLog<W> {
    /// Creates a log of a run, to which nothing is written yet: the time to which its intervals are
    /// relative is known when the first of them has ended.
    pub fn new(out: W, description: &RunDescription) -> Self {
        let RunDescription { arrivals, url, began, .. } = description;
        let warmup = Duration::from_nanos(description.warmup_ns);
        Self {
            out,
            serializer: V2DeflateSerializer::new(),
            description: format!("[{} loop: {arrivals}; {url}]", description.loop_name()),
            earliest: began.checked_add(warmup).unwrap_or(*began),
            has_head: false,
        }
    }

    /// Writes a second that has just ended: it is `now`.
    ///
    /// # Errors
    /// Any error of `out`.
    pub fn second(&mut self, interval: &Interval, now: SystemTime) -> io::Result<()> {
        let start = Duration::from_secs(interval.second);
        let length = Duration::from_nanos(interval.length_ns);
        if !self.has_head {
            // One that is cut short by the end of the run is as long as its plan, and ends before.
            let begun = now.checked_sub(start + length).unwrap_or(self.earliest);
            self.write_head(begun.max(self.earliest))?;
        }
        let written = self.writer()?.write_histogram(&interval.response.0, start, length, None);
        written.map_err(|error| match error {
            IntervalLogWriterError::IoError(error) => error,
            IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
        })
    }

    /// Ends the log with the verdict, as a comment, and returns the underlying writer.
    ///
    /// # Errors
    /// Any error of `out`.
    pub fn finish(mut self, verdict: &Verdict) -> io::Result<W> {
        if !self.has_head {
            self.write_head(self.earliest)?;
        }
        let mut writer = self.writer()?;
        for reason in &verdict.reasons {
            writer.write_comment(&format!("INVALID: {reason}"))?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes the description of the run and the time to which the intervals are relative, in
    /// seconds.
    fn write_head(&mut self, base: SystemTime) -> io::Result<()> {
        IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .add_comment(&self.description)
            .add_comment("[response times in nanoseconds, from the planned start]")
            .with_start_time(base)
            .with_base_time(base)
            .begin_log_with(&mut self.out, &mut self.serializer)?;
        self.has_head = true;
        writeln!(self.out, "{LEGEND}")
    }

    /// Returns a writer that continues the log; without headers it writes nothing itself.
    fn writer(&mut self) -> io::Result<IntervalLogWriter<'_, '_, W, V2DeflateSerializer>> {
        IntervalLogWriterBuilder::new().begin_log_with(&mut self.out, &mut self.serializer)
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use hdrhistogram::serialization::{Deserializer, Serializer};

    use super::super::fixtures;
    use super::*;

    fn log(verdict: &Verdict) -> String {
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        let description = fixtures::description(true);
        let description = RunDescription { began: at(1_699_999_990), ..description };
        let mut log = HistogramLog::new(Vec::new(), &description);
        log.second(&fixtures::interval(0), at(1_700_000_001)).unwrap();
        let half = Interval { second: 1, length_ns: 500_000_000, ..Interval::default() };
        log.second(&half, at(1_700_000_002)).unwrap();
        String::from_utf8(log.finish(verdict).unwrap()).unwrap()
    }

    /// Decodes base64 with the alphabet of RFC 4648 section 4, as used for the log's histograms.
    fn base64(text: &str) -> Vec<u8> {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let (mut out, mut bits, mut count) = (Vec::new(), 0_u32, 0);
        for byte in text.bytes().filter(|byte| *byte != b'=') {
            let digit = alphabet.iter().position(|each| *each == byte).unwrap();
            bits = bits << 6 | digit as u32;
            count += 6;
            if count >= 8 {
                count -= 8;
                out.push((bits >> count) as u8);
            }
        }
        out
    }

    #[test]
    fn a_written_log_is_read_back() {
        let text = log(&Verdict::default());
        let mut intervals = Vec::new();
        let mut times = Vec::new();
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            match entry.unwrap() {
                LogEntry::Interval(interval) => intervals.push(interval),
                LogEntry::StartTime(time) | LogEntry::BaseTime(time) => times.push(time.as_secs()),
            }
        }
        assert_eq!(times, [1_700_000_000, 1_700_000_000]);
        assert_eq!(intervals.len(), 2);
        assert_eq!(intervals[0].tag(), None);
        assert_eq!(intervals[1].start_timestamp(), Duration::from_secs(1));
        assert_eq!(intervals[1].duration(), Duration::from_millis(500));
        let bytes = base64(intervals[0].encoded_histogram());
        let read: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(read, fixtures::interval(0).response.0);
        assert_eq!(read.len(), 98);
    }

    #[test]
    fn the_first_second_begins_after_the_warm_up_at_the_earliest() {
        let description = fixtures::description(false);
        let description = RunDescription { warmup_ns: 5_000_000_000, ..description };
        let began = description.began;
        let base = |second: Option<(u64, u64)>| {
            let mut log = HistogramLog::new(Vec::new(), &description);
            if let Some((length_ns, after_s)) = second {
                let interval = Interval { length_ns, ..Interval::default() };
                log.second(&interval, began + Duration::from_secs(after_s)).unwrap();
            }
            let text = String::from_utf8(log.finish(&Verdict::default()).unwrap()).unwrap();
            assert!(text.contains(&format!("{LEGEND}\n")), "{text}");
            let (_, rest) = text.split_once("#[BaseTime: ").unwrap();
            rest.split_once(".000 ").unwrap().0.parse::<u64>().unwrap()
        };
        assert_eq!(base(Some((1_000_000_000, 8))), 1_767_323_045 + 7);
        assert_eq!(base(Some((1_000_000_000, 5))), 1_767_323_045 + 5);
        assert_eq!(base(None), 1_767_323_045 + 5);
    }

    #[test]
    fn the_base64_of_the_test_is_that_of_the_log() {
        let mut bytes = Vec::new();
        let histogram = fixtures::interval(0).response.0;
        V2DeflateSerializer::new().serialize(&histogram, &mut bytes).unwrap();
        let text = log(&Verdict::default());
        let line = text.lines().find(|line| line.starts_with("0.000,1.000,")).unwrap();
        assert_eq!(base64(line.rsplit(',').next().unwrap()), bytes);
    }

    #[test]
    fn an_invalid_run_and_a_closed_loop_say_so() {
        let text = log(&fixtures::verdict(true, &fixtures::invalid_outcome()));
        assert!(
            text.contains("#[closed loop: 16 connections; http://127.0.0.1:8000/]\n"),
            "{text}"
        );
        assert!(text.lines().last().unwrap().starts_with("#INVALID: No descriptor"), "{text}");
        assert!(!log(&Verdict::default()).contains("INVALID"));
    }
}
