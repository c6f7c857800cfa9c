//! Charts as SVG elements for a page whose style sheet colours them.
//!
//! Coordinates are CSS pixels of the chart's own width; the page shows the width that fits it. Text
//! is measured by guess (the style sheet's font is not known here), generously.

use maud::{Markup, html};

use super::document::{Bar, BarGroup, Chart, Line, Origin, Scale, number};
use super::labels;

const TEXT_HEIGHT: f64 = 16.0;
/// A guess for 13 px of a sans-serif font.
const TEXT_WIDTH: f64 = 6.9;

fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * TEXT_WIDTH
}

/// The chart, `width` wide. `id` begins the ids in it, which must differ from all others of the
/// page.
pub(super) fn chart(chart: &Chart, id: &str, width: f64) -> Markup {
    let (height, body) = match chart {
        Chart::Lines {
            x_label,
            y_label,
            y_scale,
            lines,
            ..
        } => lines_chart(lines, x_label, (y_label, *y_scale), width),
        Chart::Bars {
            unit,
            decimals,
            groups,
            ..
        } => bars_chart(groups, unit, *decimals, width),
    };
    let (title, description) = (format!("{id}-t"), format!("{id}-d"));
    html! {
        svg role="img" viewBox={ "0 0 " (px(width)) " " (px(height)) } width=(px(width))
            height=(px(height)) aria-labelledby=(title) aria-describedby=(description) {
            title id=(title) { (chart.title()) }
            desc id=(description) { (chart.description()) }
            (body)
        }
    }
}

/// A coordinate with as many digits as can be seen.
fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

fn origin_class(origin: Origin) -> &'static str {
    match origin {
        Origin::Published => "published",
        Origin::Measured => "measured",
        Origin::Predicted => "predicted",
    }
}

/// A step of 1, 2 or 5 times a power of ten that cuts `most` into at most `pieces`.
fn step(most: f64, pieces: f64) -> f64 {
    let raw = most / pieces;
    let power = 10f64.powf(raw.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    factors
        .into_iter()
        .find(|step| *step >= raw * (1.0 - 1e-9))
        .unwrap_or(raw)
}

/// Where things of a line chart stand.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x_min: f64,
    x_max: f64,
    /// Of a logarithmic axis; 0 of a linear one.
    y_min: f64,
    y_max: f64,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        let span = (self.x_max / self.x_min).ln();
        let part = if span > 0.0 {
            (value / self.x_min).ln() / span
        } else {
            0.5
        };
        self.left + part * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        let part = if self.y_min > 0.0 {
            (value.max(self.y_min) / self.y_min).ln() / (self.y_max / self.y_min).ln()
        } else {
            value / self.y_max
        };
        self.bottom - part * (self.bottom - self.top)
    }
}

/// The marks of a vertical axis for values from `least` to `most`, each with its digits after the
/// point.
fn y_ticks(scale: Scale, least: f64, most: f64) -> Vec<(f64, usize)> {
    let decimals_of = |value: f64| (-value.log10().floor()).max(0.0) as usize;
    if scale == Scale::Linear {
        let step = step(most, 5.0);
        let count = (most / step).ceil() as u32;
        let tick = |number| (f64::from(number) * step, decimals_of(step));
        return (0..=count).map(tick).collect();
    }
    let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    let factors: &[f64] = if high - low > 2 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let all: Vec<(f64, usize)> = (low..=high + 1)
        .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
        .map(|tick| (tick, decimals_of(tick * 1.001)))
        .collect();
    // From the last mark below all values to the first above them.
    let first = all.iter().rposition(|tick| tick.0 <= least).unwrap_or(0);
    let last = all.iter().position(|tick| tick.0 >= most);
    let last = last.unwrap_or(all.len() - 1).max(first + 1);
    all[first..=last.min(all.len() - 1)].to_vec()
}

fn lines_chart(
    lines: &[Line],
    x_label: &str,
    (y_label, y_scale): (&str, Scale),
    width: f64,
) -> (f64, Markup) {
    let lines: Vec<&Line> = lines
        .iter()
        .filter(|line| !line.points.is_empty())
        .collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let mut ticks: Vec<f64> = points().map(|point| point.0).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    let height = (width * 0.62).clamp(260.0, 380.0);
    let positive = points().map(|point| point.1).filter(|y| *y > 0.0);
    let y_ticks = y_ticks(y_scale, positive.fold(most, f64::min), most);
    let y_max = y_ticks.last().map_or(1.0, |tick| tick.0);
    let widest = y_ticks
        .iter()
        .map(|tick| text_width(&number(tick.0, tick.1)));
    let widest = widest.fold(0.0, f64::max);
    let named = lines.iter().map(|line| text_width(&line.name));
    let room = named.fold(0.0, f64::max).min(width * 0.45) + 14.0;
    let frame = Frame {
        left: widest + 10.0,
        right: width - room,
        top: 30.0,
        bottom: height - 42.0,
        x_min: ticks.first().copied().unwrap_or(1.0),
        x_max: ticks.last().copied().unwrap_or(1.0),
        y_min: y_ticks.first().map_or(0.0, |tick| tick.0),
        y_max,
    };
    let ends: Vec<f64> = lines
        .iter()
        .filter_map(|line| line.points.last())
        .map(|point| frame.y(point.1))
        .collect();
    let places = labels::place(&ends, TEXT_HEIGHT, frame.top, frame.bottom);
    let body = html! {
        text.axis x="0" y="14" { (y_label) }
        @for (tick, decimals) in y_ticks.iter().copied() {
            @let y = px(frame.y(tick));
            line.grid x1=(px(frame.left)) x2=(px(frame.right)) y1=(y) y2=(y) {}
            text.tick.end x=(px(frame.left - 6.0)) y=(px(frame.y(tick) + 4.5)) { (number(tick, decimals)) }
        }
        @for tick in shown_ticks(&frame, &ticks) {
            text.tick.middle x=(px(frame.x(tick))) y=(px(frame.bottom + 18.0)) { (number(tick, 0)) }
        }
        text.axis.middle x=(px(f64::midpoint(frame.left, frame.right))) y=(px(height - 6.0)) { (x_label) }
        @for ((line, end), place) in lines.iter().zip(&ends).zip(&places) {
            (one_line(line, &frame, *end, *place))
        }
    };
    (height, body)
}

/// Those ticks of the horizontal axis that have room.
fn shown_ticks(frame: &Frame, ticks: &[f64]) -> Vec<f64> {
    let mut shown: Vec<f64> = Vec::new();
    for tick in ticks {
        let is_free = shown.last().is_none_or(|last| {
            let wide = text_width(&number(*tick, 0)) + 6.0;
            frame.x(*tick) - frame.x(*last) >= wide
        });
        if is_free {
            shown.push(*tick);
        }
    }
    shown
}

fn one_line(line: &Line, frame: &Frame, end: f64, place: f64) -> Markup {
    let at = |point: &(f64, f64)| format!("{},{}", px(frame.x(point.0)), px(frame.y(point.1)));
    let path: Vec<String> = line.points.iter().map(at).collect();
    let last = line.points.last().map_or(frame.right, |p| frame.x(p.0));
    html! {
        g class={ (line.tone.class()) " " (origin_class(line.origin)) } {
            polyline.line points=(path.join(" ")) {}
            @if line.origin != Origin::Predicted {
                @for point in &line.points {
                    circle.mark cx=(px(frame.x(point.0))) cy=(px(frame.y(point.1))) r="3.5" {}
                }
            }
            polyline.leader points={ (px(last + 5.0)) "," (px(end)) " " (px(frame.right + 11.0)) "," (px(place)) } {}
            text.name x=(px(frame.right + 13.0)) y=(px(place + 4.5)) { (line.name) }
        }
    }
}

const BAR_HEIGHT: f64 = 16.0;
const BAR_GAP: f64 = 6.0;
const GROUP_GAP: f64 = 14.0;

fn bars_chart(groups: &[BarGroup], unit: &str, decimals: usize, width: f64) -> (f64, Markup) {
    let bars = || groups.iter().flat_map(|group| &group.bars);
    let most = bars().map(|bar| bar.value).fold(0.0, f64::max);
    let longest = bars().map(|bar| text_width(&bar.name)).fold(0.0, f64::max);
    // Names stand before their bars where there is room, else above them.
    let is_wide = longest < width * 0.4;
    let left = if is_wide { longest + 10.0 } else { 0.0 };
    let values = bars().map(|bar| text_width(&number(bar.value, decimals)));
    let room = width - left - values.fold(0.0, f64::max) - 10.0;
    let scale = if most > 0.0 { room / most } else { 0.0 };
    let mut y = 6.0;
    let mut rows = Vec::new();
    for group in groups {
        y += TEXT_HEIGHT;
        rows.push(html! { text.group x="0" y=(px(y - 3.0)) { (group.name) } });
        y += 5.0;
        for bar in &group.bars {
            if !is_wide {
                y += TEXT_HEIGHT;
            }
            rows.push(one_bar(bar, decimals, y, is_wide.then_some(left), scale));
            y += BAR_HEIGHT + BAR_GAP;
        }
        y += GROUP_GAP;
    }
    rows.push(html! { text.axis x=(px(left)) y=(px(y + 6.0)) { (unit) } });
    (y + 14.0, html! { @for row in rows { (row) } })
}

fn one_bar(bar: &Bar, decimals: usize, y: f64, left: Option<f64>, scale: f64) -> Markup {
    let start = left.unwrap_or(0.0);
    let length = (bar.value * scale).max(1.0);
    let base = y + BAR_HEIGHT - 3.5;
    html! {
        g class={ (bar.tone.class()) " " (origin_class(bar.origin)) } {
            @match left {
                Some(left) => text.name.end x=(px(left - 8.0)) y=(px(base)) { (bar.name) },
                None => text.name x="0" y=(px(y - 4.0)) { (bar.name) },
            }
            rect.bar x=(px(start)) y=(px(y)) width=(px(length)) height=(px(BAR_HEIGHT)) rx="2" {}
            text.value x=(px(start + length + 6.0)) y=(px(base)) { (number(bar.value, decimals)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tone;
    use super::*;

    #[test]
    fn steps_are_round() {
        for (most, expected) in [
            (1.0, 0.2),
            (9.0, 2.0),
            (1607.0, 500.0),
            (4.69, 1.0),
            (0.03, 0.01),
        ] {
            assert!((step(most, 5.0) / expected - 1.0).abs() < 1e-9, "{most}");
        }
    }

    #[test]
    fn logarithmic_axes_enclose_their_values() {
        for (least, most) in [
            (0.11, 64.0),
            (1.0, 64.0),
            (0.5, 0.5),
            (3.0, 7.0),
            (1e-4, 1e6),
        ] {
            let ticks = y_ticks(Scale::Logarithmic, least, most);
            let ticks: Vec<f64> = ticks.into_iter().map(|tick| tick.0).collect();
            assert!(ticks.len() > 1 && ticks.is_sorted(), "{ticks:?}");
            assert!(
                ticks[0] <= least && ticks[ticks.len() - 1] >= most,
                "{ticks:?}"
            );
        }
    }

    #[test]
    fn names_are_escaped_and_nothing_leaves_the_frame() {
        let line = |name: &str, points: Vec<(f64, f64)>| Line {
            name: name.to_owned(),
            origin: Origin::Measured,
            tone: Tone::Fine,
            points,
        };
        let lines = Chart::Lines {
            title: "a < b".to_owned(),
            x_label: "CPUs".to_owned(),
            y_label: "ops/s".to_owned(),
            y_scale: Scale::Linear,
            lines: vec![
                line("<script>", vec![(1.0, 10.0), (256.0, 1e6)]),
                line("empty", Vec::new()),
                line("one", vec![(4.0, 0.0)]),
            ],
        };
        let bar = |value| Bar {
            name: "b".to_owned(),
            value,
            origin: Origin::Published,
            tone: Tone::Spin,
        };
        let bars = Chart::Bars {
            title: "t".to_owned(),
            unit: "MB/s".to_owned(),
            decimals: 1,
            groups: vec![BarGroup {
                name: "g".to_owned(),
                bars: vec![bar(0.0), bar(12.5)],
            }],
        };
        for width in [360.0, 640.0] {
            let text = chart(&lines, "x", width).into_string();
            assert!(text.contains("&lt;script&gt;") && !text.contains("<script>"));
            assert!(text.contains("<title id=\"x-t\">a &lt; b</title>"));
            let text = text + &chart(&bars, "y", width).into_string();
            for attribute in ["x=\"", "cx=\"", "x1=\"", "x2=\""] {
                for value in text.split(&format!(" {attribute}")).skip(1) {
                    let value = value.split('"').next().unwrap();
                    let value: f64 = value.parse().unwrap();
                    assert!((0.0..=width).contains(&value), "{attribute}{value}: {text}");
                }
            }
        }
        assert_eq!(lines_chart(&[], "x", ("y", Scale::Linear), 360.0).0, 260.0);
    }
}
