//! Writes the history of a failed run and the logs of its nodes to a directory, to find the cause.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::history::History;

pub(crate) fn write(dir: &Path, run: &str, history: &History, logs: &[String], failure: &str) -> Result<()> {
    let dir = dir.join(run);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("failure.txt"), failure)?;
    fs::write(dir.join("history.txt"), text(history)?)?;
    for (number, log) in logs.iter().enumerate() {
        fs::write(dir.join(format!("node-{number}.log")), log)?;
    }
    Ok(())
}

/// One line per event, in the order of their starts.
fn text(history: &History) -> Result<String> {
    let mut lines: Vec<(Duration, String)> = Vec::new();
    let name = |key: usize| history.keys[key].name.as_str();
    for request in &history.requests {
        let response = request.response.map(|response| {
            let (status, day, remaining) = (response.status, response.day, response.remaining);
            format!("{status} day {day:?} remaining {remaining:?}{}", if response.is_burst { " burst" } else { "" })
        });
        let what = format!(
            "process {} {} secret {}: {}",
            request.process,
            name(request.key),
            request.secret,
            response.as_deref().unwrap_or("no response")
        );
        lines.push((request.start, format!("{:>12?} {what}", request.took())));
    }
    for change in &history.changes {
        let what = format!("{:?} {} {:?}", change.action, name(change.key), change.outcome);
        lines.push((change.start, format!("{:>12?} CHANGE {what}", change.end.saturating_sub(change.start))));
    }
    for window in &history.faults {
        let length = window.until.saturating_sub(window.from);
        let (effect, process, keys) = (window.effect, window.process, &window.keys);
        lines.push((window.from, format!("{length:>12?} FAULT {effect:?} process {process:?} keys {keys:?}")));
    }
    for pair in history.samples.windows(2).filter(|pair| pair[1].is_degraded || pair[1].pending > 0) {
        lines.push((pair[1].at, format!("{:>12} SAMPLE {:?}", "", pair[1])));
    }
    lines.sort();
    let mut text = String::new();
    for (start, line) in lines {
        writeln!(text, "{:>12.6} {line}", start.as_secs_f64())?;
    }
    writeln!(text, "charges {:?}\nrefusals {:?}", history.charges, history.refusals)?;
    writeln!(text, "unverifiable {:?}\noutcomes {:?}", history.unverifiable, history.outcomes)?;
    Ok(text)
}
