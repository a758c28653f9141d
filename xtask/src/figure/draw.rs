//! The drawing: a column of names and a panel of bars for each case, as SVG. Light and opaque, so
//! that it reads on dark pages too; nothing smaller than 12 px at its own width. Texts are placed
//! by their ends, so no font has to be measured; what the figures mean is not known here.

use anyhow::Result;
use plotters::backend::DrawingBackend;
use plotters::prelude::{FontDesc, FontFamily, FontStyle, RGBColor, SVGBackend, TextStyle};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Panel;
use super::read::{Case, Machine};
use crate::spread::Spread;

/// The servers, from the top.
const ORDER: [&str; 5] = ["weir", "bare loop", "nginx", "h2o", "lighttpd"];

/// The one the figure is about.
const OURS: &str = "weir";

const SIZE: (u32, u32) = (800, 336);
const MARGIN: i32 = 20;
/// Where the first panel begins, and how far apart they are.
const PANELS_X: i32 = 104;
const PANEL_STEP: i32 = 232;
/// The length of the longest bar with its whisker; the rest of a panel is for the number.
const LONGEST: f64 = 166.0;
const ROWS_Y: i32 = 122;
const ROW_STEP: i32 = 32;
const BAR: i32 = 20;

const PAPER: RGBColor = RGBColor(255, 255, 255);
const FRAME: RGBColor = RGBColor(208, 215, 222);
const INK: RGBColor = RGBColor(31, 35, 40);
const PALE_INK: RGBColor = RGBColor(89, 99, 110);
const ACCENT: RGBColor = RGBColor(9, 105, 218);
const GREY: RGBColor = RGBColor(190, 197, 205);
const WHISKER: RGBColor = RGBColor(40, 45, 51);

/// The figure of `cases`, which belong to `panels` in this order.
pub(super) fn figure(panels: &[Panel], cases: &[Case]) -> Result<String> {
    let mut svg = String::new();
    draw(&mut Sheet(SVGBackend::with_string(&mut svg, SIZE)), panels, cases)?;
    Ok(format!("{}\n", svg.trim_end()))
}

fn draw(sheet: &mut Sheet<'_>, panels: &[Panel], cases: &[Case]) -> Result<()> {
    sheet.paper()?;
    let title = "Core time a reply takes – less is better";
    sheet.text(title, (MARGIN, 32), &Ink { size: 19.0, bold: true, ..NAME })?;
    for (row, name) in ORDER.iter().enumerate() {
        let bold = *name == OURS;
        sheet.text(name, (PANELS_X - 10, row_y(row)), &Ink { bold, from: HPos::Right, ..NAME })?;
    }
    for (nth, (panel, case)) in panels.iter().zip(cases).enumerate() {
        sheet.panel(PANELS_X + PANEL_STEP * nth as i32, panel, case)?;
    }
    sheet.captions(cases)?;
    Ok(sheet.0.present()?)
}

fn row_y(row: usize) -> i32 {
    ROWS_Y + ROW_STEP * row as i32
}

/// How a text looks; `size` is in px.
struct Ink {
    size: f64,
    bold: bool,
    color: RGBColor,
    /// The end of the text that its place is.
    from: HPos,
}

const NAME: Ink = Ink { size: 15.0, bold: false, color: INK, from: HPos::Left };
const SMALL: Ink = Ink { size: 13.0, bold: false, color: PALE_INK, from: HPos::Left };

/// The drawing.
struct Sheet<'a>(SVGBackend<'a>);

impl Sheet<'_> {
    fn paper(&mut self) -> Result<()> {
        let (width, height) = (SIZE.0 as i32 - 1, SIZE.1 as i32 - 1);
        self.bar((0, 0), (width, height), PAPER)?;
        Ok(self.0.draw_rect((0, 0), (width, height), &FRAME, false)?)
    }

    fn panel(&mut self, left: i32, panel: &Panel, case: &Case) -> Result<()> {
        self.text(panel.title, (left, 66), &Ink { bold: true, ..NAME })?;
        self.text(panel.unit, (left, 87), &SMALL)?;
        let most = case.servers.iter().map(|(_, spread)| spread.most).fold(0.0, f64::max);
        for (row, name) in ORDER.iter().enumerate() {
            match case.servers.iter().find(|(server, _)| server == name) {
                Some((_, spread)) => {
                    self.row((left, row_y(row)), *name == OURS, *spread, LONGEST / most)?;
                }
                None => self.text("not measured", (left + 8, row_y(row)), &SMALL)?,
            }
        }
        let (top, bottom) = (row_y(0) - BAR, row_y(ORDER.len() - 1) + BAR);
        self.line((left, top), (left, bottom), PALE_INK)
    }

    fn row(&mut self, (left, y): (i32, i32), ours: bool, cost: Spread, px: f64) -> Result<()> {
        let x = |cost_us: f64| left + (cost_us * px).round() as i32;
        let color = if ours { ACCENT } else { GREY };
        self.bar((left, y - BAR / 2), (x(cost.median), y + BAR / 2), color)?;
        let (least, most) = (x(cost.least), x(cost.most));
        self.line((least, y), (most, y), WHISKER)?;
        for end in [least, most] {
            self.line((end, y - 4), (end, y + 4), WHISKER)?;
        }
        self.text(&figures(cost.median), (most + 8, y), &Ink { bold: ours, ..NAME })
    }

    fn captions(&mut self, cases: &[Case]) -> Result<()> {
        let Some(case) = cases.first() else { return Ok(()) };
        let runs = cases.iter().map(|case| case.runs).min().unwrap_or_default();
        let bottom = SIZE.1 as i32;
        let what = format!(
            "Bars: median of {runs} runs; whiskers: least and greatest; \
             bare loop: one fixed reply, no parser, no files."
        );
        self.text(&what, (MARGIN, bottom - 42), &SMALL)?;
        self.text(&machine(&case.machine), (MARGIN, bottom - 21), &SMALL)
    }

    fn bar(&mut self, from: (i32, i32), to: (i32, i32), color: RGBColor) -> Result<()> {
        Ok(self.0.draw_rect(from, to, &color, true)?)
    }

    fn line(&mut self, from: (i32, i32), to: (i32, i32), color: RGBColor) -> Result<()> {
        Ok(self.0.draw_line(from, to, &color)?)
    }

    fn text(&mut self, text: &str, at: (i32, i32), ink: &Ink) -> Result<()> {
        // The backend divides the sizes of fonts by this.
        const EM: f64 = 1.24;
        let weight = if ink.bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = FontDesc::new(FontFamily::SansSerif, ink.size * EM, weight);
        let style = TextStyle::from(font).color(&ink.color).pos(Pos::new(ink.from, VPos::Center));
        Ok(self.0.draw_text(text, &style, at)?)
    }
}

/// A figure with three digits, or all before the point.
fn figures(value: f64) -> String {
    let digits = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

fn machine(machine: &Machine) -> String {
    let Machine { date, cores, cpu_model, virtual_machine, kernel } = machine;
    let cpu = cpu_model.replace("(R)", "").replace("(TM)", "");
    let kind = if *virtual_machine { " (virtual)" } else { "" };
    let kernel = kernel.split('-').next().unwrap_or_default();
    format!("{cores} cores{kind}, {cpu}, Linux {kernel}; server and load on a core each; {date}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let texts = [5.864, 15.51, 116.36, 9.0, 1234.5].map(figures);
        assert_eq!(texts, ["5.86", "15.5", "116", "9.00", "1234"]);
    }
}
