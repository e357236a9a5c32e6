//! Renders the CPU time per request of server and Redis as an SVG chart, in light or dark colors.

use std::fmt::Write as _;

use crate::report::SubjectRow;

const WIDTH: f64 = 860.0;
const LABELS: f64 = 230.0;
const VALUES: f64 = 110.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 56.0;
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1c2430}.soft{fill:#5b6675}.server{fill:#2f6fde}.redis{fill:#d9822b}\
    @media(prefers-color-scheme:dark){text{fill:#e6eaf0}.soft{fill:#9aa5b4}.server{fill:#6ea0ff}.redis{fill:#f0a65a}}";

pub(crate) fn render_svg(rows: &[SubjectRow]) -> String {
    let max_us = rows.iter().map(|row| row.measurement.server_us + row.measurement.redis_us).fold(1.0, f64::max);
    let scale = (WIDTH - LABELS - VALUES) / max_us;
    let height = HEAD + ROW * rows.len() as f64 + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"title\">\n\
         <title id=\"title\">CPU time per request in microseconds</title>\n<style>{STYLE}</style>\n\
         <text x=\"0\" y=\"16\">CPU time per request in microseconds (lower is better)</text>\n\
         <rect class=\"server\" x=\"0\" y=\"28\" width=\"12\" height=\"12\"/><text class=\"soft\" x=\"18\" y=\"39\">server</text>\n\
         <rect class=\"redis\" x=\"80\" y=\"28\" width=\"12\" height=\"12\"/><text class=\"soft\" x=\"98\" y=\"39\">Redis</text>\n"
    );
    for (index, row) in rows.iter().enumerate() {
        let top = HEAD + ROW * index as f64;
        let (server_us, redis_us) = (row.measurement.server_us, row.measurement.redis_us);
        let (server, redis) = (server_us * scale, redis_us * scale);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"0\" y=\"{:.0}\">{}</text><rect class=\"server\" x=\"{LABELS}\" y=\"{top:.0}\" width=\"{server:.1}\" height=\"16\"/>\
             <rect class=\"redis\" x=\"{:.1}\" y=\"{top:.0}\" width=\"{redis:.1}\" height=\"16\"/>\
             <text class=\"soft\" x=\"{:.1}\" y=\"{:.0}\">{}</text>",
            top + 13.0,
            row.name,
            LABELS + server,
            LABELS + server + redis + 6.0,
            top + 13.0,
            value_label(server_us, redis_us),
        );
    }
    svg + "</svg>\n"
}

fn value_label(server_us: f64, redis_us: f64) -> String {
    match (server_us > 0.0, redis_us >= 0.05) {
        (true, true) => format!("{server_us:.1} + {redis_us:.1}"),
        (true, false) => format!("{server_us:.1}"),
        (false, _) => format!("{redis_us:.1}"),
    }
}
