//! The picture of `weir top`: a function of the history and the size of the terminal.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Paragraph, Row, Table, Wrap};
use weir_stats::live::{Condition, History, REFUSALS, Sample, count, rate};
use weir_stats::page::UpstreamState;

/// Style of what explains.
const PALE: Style = Style::new().add_modifier(Modifier::DIM);

/// Style of what heads something.
const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Rows of the reasons for refusals, with their heading.
const REASON_ROWS: u16 = REFUSALS.len() as u16 + 2;

/// Rows below which a chart shows nothing.
const CHART_ROWS_MIN: u16 = 5;

/// Time that the charts show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Range {
    /// As much as there is.
    #[default]
    Whole,
    /// Number of minutes.
    Minutes(u8),
}

/// Minutes that a range may have.
const MINUTES: [u8; 3] = [1, 5, 15];

impl Range {
    /// Returns the range after this one.
    pub(super) fn next(self) -> Self {
        let place = MINUTES.iter().position(|each| Self::Minutes(*each) == self);
        let next = place.map_or(0, |place| (place + 1) % MINUTES.len());
        Self::Minutes(MINUTES[next])
    }

    fn minutes(self, history: &History) -> u8 {
        let Self::Minutes(minutes) = self else {
            let fits = |each: &&u8| history.samples().len() <= usize::from(**each) * 60;
            return *MINUTES.iter().find(fits).unwrap_or(&MINUTES[MINUTES.len() - 1]);
        };
        minutes
    }
}

/// Content of the screen.
pub(super) struct View<'a> {
    pub(super) history: &'a History,
    /// The server in a line.
    pub(super) about: &'a str,
    pub(super) range: Range,
}

/// A line of a chart: its name, its colour, and its value in a sample.
type Series = (&'static str, Color, fn(&Sample) -> Option<f64>);

const ANSWERED: [Series; 2] = [
    ("offered", Color::Gray, |sample| Some(sample.offered())),
    ("answered", Color::Cyan, |sample| Some(sample.answered)),
];
const REFUSED: [Series; 1] = [("refused", Color::Yellow, |sample| Some(sample.refused_in_all()))];
const QUEUE: [Series; 1] = [("queue", Color::Cyan, |sample| Some(sample.queue as f64))];

impl View<'_> {
    /// Draws it on the whole terminal.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let (loops, upstreams) = (self.history.workers(), self.history.upstreams());
        let rows_max = (frame.area().height / 4).max(2);
        let rows = |count: usize| match u16::try_from(count) {
            Ok(0) => 0,
            Ok(count) => (count + 1).min(rows_max),
            Err(_) => rows_max,
        };
        let heights = [1, 3, 2, 0, rows(loops.len()), rows(upstreams.len()), 1];
        let mut constraints = heights.map(Constraint::Length);
        constraints[3] = Constraint::Min(0);
        let areas: [Rect; 7] = Layout::vertical(constraints).areas(frame.area());
        frame.render_widget(Line::from(self.about).style(PALE), areas[0]);
        self.sentence(frame, areas[1]);
        self.figures(frame, areas[2]);
        self.charts(frame, areas[3]);
        frame.render_widget(loops_table(&loops, areas[4].height), areas[4]);
        frame.render_widget(upstreams_table(upstreams, areas[5].height), areas[5]);
        let help = format!(" q quit   r time shown ({} min)", self.minutes());
        frame.render_widget(Line::from(help).style(PALE), areas[6]);
    }

    fn minutes(&self) -> u8 {
        self.range.minutes(self.history)
    }

    fn sentence(&self, frame: &mut Frame<'_>, area: Rect) {
        let sentence = self.history.sentence();
        let style = Style::new().fg(color(sentence.condition)).add_modifier(Modifier::BOLD);
        let text = Paragraph::new(sentence.text).style(style).wrap(Wrap { trim: true });
        frame.render_widget(text, area);
    }

    fn figures(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(sample) = self.history.last() else { return };
        let (offered, refused) = (sample.offered(), sample.refused_in_all());
        let percent = if offered > 0.0 { 100.0 * refused / offered } else { 0.0 };
        let bound = if sample.backlog > 0 {
            format!(" of {}", count(sample.backlog as f64))
        } else {
            "".into()
        };
        let queued = sample.queued_s.map_or("–".into(), |s| format!("{:.1} ms", s * 1e3));
        let cpus = sample.cpus.map_or("–".into(), |cpus| format!("{cpus:.2}"));
        let first = [
            ("answered", format!("{}/s", rate(sample.answered))),
            ("offered", format!("{}/s", rate(offered))),
            ("refused", format!("{}/s ({percent:.0} %)", rate(refused))),
            ("failed", format!("{}/s", rate(sample.failed))),
        ];
        let second = [
            ("queue", format!("{}{bound}", count(sample.queue as f64))),
            ("wait in it", queued),
            ("open", count(sample.open as f64)),
            ("CPUs", cpus),
        ];
        let line = |pairs: &[(&'static str, String)]| {
            let spans = pairs.iter().flat_map(|(name, value)| {
                let pad = " ".repeat(18_usize.saturating_sub(name.len() + value.chars().count()));
                let name = Span::styled(format!("{name} "), PALE);
                [name, Span::styled(value.clone(), HEAD), Span::raw(pad + " ")]
            });
            Line::from(spans.collect::<Vec<_>>())
        };
        frame.render_widget(Paragraph::new(vec![line(&first), line(&second)]), area);
    }

    /// Draws what was answered and offered, and beside it the reasons for refusals, with charts of
    /// these and of the queue where there is room.
    fn charts(&self, frame: &mut Frame<'_>, area: Rect) {
        let halves = [Constraint::Percentage(60), Constraint::Percentage(40)];
        let [left, right] = Layout::horizontal(halves).spacing(2).areas(area);
        let parts = [Constraint::Length(REASON_ROWS + 1), Constraint::Fill(1), Constraint::Fill(1)];
        let [reasons, upper, lower] = Layout::vertical(parts).areas(right);
        self.chart(frame, left, "per second", &ANSWERED);
        frame.render_widget(self.reasons(reasons.width), reasons);
        if lower.height >= CHART_ROWS_MIN {
            self.chart(frame, upper, "per second", &REFUSED);
            self.chart(frame, lower, "connections", &QUEUE);
        }
    }

    fn reasons(&self, width: u16) -> Paragraph<'static> {
        let sample = self.history.last().copied().unwrap_or_default();
        let heading = Line::styled("refused per second", HEAD);
        let of_load = REFUSALS.iter().map(|row| row.words).zip(sample.refused);
        let of_limits = ("limit of its client", sample.limited());
        let rows = of_load.chain([of_limits]).map(|(words, per_s)| {
            let number = rate(per_s);
            // Words that do not fit beside their number are cut, and not the number.
            let room = usize::from(width).saturating_sub(number.len() + 1);
            let style = if per_s > 0.0 { Style::new().fg(Color::Yellow) } else { PALE };
            Line::styled(format!("{words:<room$.room$} {number}"), style)
        });
        Paragraph::new(std::iter::once(heading).chain(rows).collect::<Vec<_>>())
    }

    fn chart(&self, frame: &mut Frame<'_>, area: Rect, unit: &str, series: &[Series]) {
        if area.height < CHART_ROWS_MIN {
            return;
        }
        let [title, plot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        let names = series.iter().rev().flat_map(|(name, color, _)| {
            [Span::styled("━ ", Style::new().fg(*color)), Span::styled(format!("{name}  "), HEAD)]
        });
        let spans = names.chain([Span::styled(unit.to_owned(), PALE)]);
        frame.render_widget(Line::from(spans.collect::<Vec<_>>()), title);
        let points: Vec<_> = series.iter().map(|(_, _, value)| self.points(*value)).collect();
        let max = nice(points.iter().flatten().map(|(_, value)| *value).fold(0.0, f64::max));
        let datasets = series.iter().zip(&points).map(|((_, color, _), points)| {
            let style = Style::new().fg(*color);
            let dataset = Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line);
            dataset.style(style).data(points)
        });
        let seconds = f64::from(self.minutes()) * 60.0;
        let from = format!("-{} min", self.minutes());
        let x_axis = Axis::default().bounds([-seconds, 0.0]).labels([from, "now".into()]);
        let labels = ["0".to_owned(), rate(max)];
        let y_axis = Axis::default().bounds([0.0, max]).labels(labels).style(PALE);
        let y_axis = y_axis.labels_alignment(Alignment::Right);
        let chart = Chart::new(datasets.collect()).x_axis(x_axis.style(PALE)).y_axis(y_axis);
        frame.render_widget(chart.legend_position(None), plot);
    }

    /// Returns the points of a line: seconds before the last sample, which are negative, and the
    /// value.
    fn points(&self, value: fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
        let Some(last) = self.history.last() else { return Vec::new() };
        let seconds = f64::from(self.minutes()) * 60.0;
        let all = self.history.samples();
        let points =
            all.filter_map(|sample| Some((sample.elapsed_s - last.elapsed_s, value(sample)?)));
        points.filter(|(at_s, _)| -at_s <= seconds).collect()
    }
}

/// Returns a round number that is not less.
fn nice(max: f64) -> f64 {
    if max.is_nan() || max <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(max.log10().floor());
    let step = [1.0, 2.0, 4.0, 5.0].into_iter().find(|step| step * power >= max);
    step.unwrap_or(10.0) * power
}

fn color(condition: Condition) -> Color {
    match condition {
        Condition::Unknown => Color::Reset,
        Condition::Calm => Color::Green,
        Condition::Limiting | Condition::Overloaded | Condition::Refusing => Color::Yellow,
        Condition::Failing => Color::Red,
    }
}

fn loops_table(loops: &[(u64, Sample)], height: u16) -> Table<'static> {
    let rows = loops.iter().map(|(index, sample)| {
        let cpu = sample.cpus.map_or("–".into(), |cpus| format!("{:.0} %", 100.0 * cpus));
        vec![
            format!("loop {index}"),
            rate(sample.answered),
            rate(sample.accepted),
            rate(sample.refused_in_all()),
            count(sample.open as f64),
            count(sample.queue as f64),
            cpu,
        ]
    });
    let head = ["", "answered/s", "accepted/s", "refused/s", "open", "queue", "CPU"];
    table(&head, rows.collect(), height)
}

fn upstreams_table(upstreams: &[UpstreamState], height: u16) -> Table<'static> {
    let rows = upstreams.iter().map(|each| {
        vec![
            each.name.clone(),
            count(each.in_flight as f64),
            each.limit.map_or("none".into(), |limit| count(limit as f64)),
            count(each.waiting as f64),
            format!("{} of {}", each.servers.saturating_sub(each.servers_down), each.servers),
        ]
    });
    let head = ["upstream", "in flight", "limit", "waiting", "servers up"];
    table(&head, rows.collect(), height)
}

/// Returns a table whose first column is text, and the others numbers. Rows for which there is no
/// room are counted in the last.
fn table(head: &[&'static str], mut rows: Vec<Vec<String>>, height: u16) -> Table<'static> {
    let room = usize::from(height).saturating_sub(1);
    if rows.len() > room {
        let left_out = rows.len() + 1 - room.max(1);
        rows.truncate(room.saturating_sub(1));
        rows.push(vec![format!("and {left_out} more")]);
    }
    let right = |text: String| Line::from(text).alignment(Alignment::Right);
    let cells = |texts: Vec<String>| {
        let cells = texts.into_iter().enumerate();
        Row::new(cells.map(|(index, text)| if index == 0 { text.into() } else { right(text) }))
    };
    let head_row = cells(head.iter().map(|text| (*text).to_owned()).collect()).style(PALE);
    let widths = (0..head.len()).map(|index| match index {
        0 => Constraint::Fill(1),
        _ => Constraint::Length(10),
    });
    Table::new(rows.into_iter().map(cells), widths).header(head_row)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Cell;
    use weir_stats::live::Reading;

    use super::*;

    fn history(loops: u64) -> History {
        let mut history = History::default();
        for second in 0..40 {
            let mut reading = Reading { taken_ns: second * 1_000_000_000, ..Reading::default() };
            reading.elapsed_s = second as f64;
            reading.target_ns = 20_000_000;
            reading.total.counters.status_2xx.add(470 * second);
            reading.total.counters.accepted.add(470 * second);
            reading.total.counters.refused_stale.add(400 * second);
            reading.workers = (0..loops).map(|index| (index, reading.total.clone())).collect();
            let upstream = UpstreamState { name: "app".into(), servers: 2, ..Default::default() };
            reading.upstreams = vec![upstream];
            history.add(reading);
        }
        history
    }

    fn drawn(history: &History, (columns, rows): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let view = View { history, about: "weir 1, process 7", range: Range::default() };
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(columns.into());
        lines.map(|line| line.iter().map(Cell::symbol).collect::<String>() + "\n").collect()
    }

    #[test]
    fn the_sentence_the_figures_and_the_tables_are_there() {
        for size in [(80, 24), (120, 40)] {
            let text = drawn(&history(2), size);
            for words in [
                "Refusing 85 % of new connections: 470/s arrive",
                "answered 470/s",
                "refused 400/s",
                "loop 1",
                "app",
                "2 of 2",
                "waited too long",
                "q quit",
                "now",
            ] {
                assert!(text.contains(words), "{words:?} at {size:?}:\n{text}");
            }
        }
    }

    #[test]
    fn a_reason_is_cut_where_there_is_no_room_and_its_number_is_not() {
        let mut history = History::default();
        for second in 0..3 {
            let mut reading = Reading { taken_ns: second * 1_000_000_000, ..Reading::default() };
            reading.total.counters.upstream_stale.add(1234 * second);
            reading.total.counters.refused_memory_requests.add(56 * second);
            history.add(reading);
        }
        let text = drawn(&history, (80, 24));
        let rows = [("waited too long for u", " 1,234"), ("memory used up, op", " 56")];
        for (words, number) in rows {
            let row = text.lines().find(|line| line.contains(words)).expect(words);
            assert!(row.trim_end().ends_with(number), "{row:?}:\n{text}");
        }
    }

    #[test]
    fn loops_for_which_there_is_no_room_are_counted() {
        let text = drawn(&history(64), (80, 24));
        assert!(text.contains("loop 3") && text.contains("and 60 more"), "{text}");
    }

    #[test]
    fn any_size_will_do_and_so_will_no_history() {
        for size in [(1, 1), (3, 2), (20, 5), (40, 12), (300, 100)] {
            drawn(&history(2), size);
            drawn(&History::default(), size);
        }
    }

    #[test]
    fn all_is_shown_until_a_range_is_chosen() {
        let history = history(1);
        let mut range = Range::default();
        let mut minutes = vec![range.minutes(&history)];
        for _ in 0..4 {
            range = range.next();
            minutes.push(range.minutes(&history));
        }
        assert_eq!(minutes, [1, 1, 5, 15, 1]);
    }

    #[test]
    fn a_scale_ends_in_a_round_number() {
        let of = [0.0, 0.7, 1.0, 12.0, 470.0, 812.0, f64::NAN].map(nice);
        assert_eq!(of, [1.0, 1.0, 1.0, 20.0, 500.0, 1000.0, 1.0]);
    }
}
