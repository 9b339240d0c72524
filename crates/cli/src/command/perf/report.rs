//! What a client prints: iperf3's table, or its JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use whimbrel_node::perf::client::{Interval, Options, Report, StreamBytes};

use crate::command::{json_line, out};

/// The error of a test whose server has not answered at its end.
pub(super) const SERVER_GONE: &str =
    "the server has gone: it gave no result, and the rates are those until it was last heard";

/// Collects a test's intervals.
pub(super) struct Table {
    options: Options,
    json: bool,
    /// When it began, seconds since 1970.
    began_at: u64,
    intervals: Vec<Interval>,
}

/// A time of a test, in its seconds.
type Span = (Duration, Duration);

impl Table {
    pub(super) fn new(options: &Options, json: bool) -> Table {
        Table {
            options: options.clone(),
            json,
            began_at: 0,
            intervals: Vec::new(),
        }
    }

    fn has_both(&self) -> bool {
        self.options.plan.up > 0 && self.options.plan.down > 0
    }

    pub(super) fn begin(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.began_at = now.map_or(0, |time| time.as_secs());
        if !self.json {
            out(&format!(
                "[ ID]{}  {:<19}  {:>12}  {:>17}\n",
                self.role(None),
                "Interval",
                "Transfer",
                "Bitrate"
            ));
        }
    }

    /// Returns the column that tells directions apart, where there are two.
    fn role(&self, up: Option<bool>) -> &'static str {
        match (self.has_both(), up) {
            (false, _) => "",
            (true, None) => "[Role]",
            (true, Some(true)) => "[TX-C]",
            (true, Some(false)) => "[RX-C]",
        }
    }

    fn line(&self, id: &str, up: bool, span: Span, bytes: u64, note: &str) {
        let (from, to) = (span.0.as_secs_f64(), span.1.as_secs_f64());
        out(&format!(
            "[{id:>3}]{}  {from:>7.2}-{to:<7.2} sec  {:>12}  {:>17}{note}\n",
            self.role(Some(up)),
            amount(bytes),
            rate(bytes, span)
        ));
    }

    pub(super) fn interval(&mut self, interval: Interval) {
        if !self.json {
            let span = (interval.from, interval.to);
            self.streams(span, &interval.streams, "");
            if interval.links.len() > 1 {
                for link in &interval.links {
                    let (received, delivered) = (link.received, link.delivered);
                    out(&format!(
                        "      by {}: {} in, {} out\n",
                        link.peer,
                        rate(received, span),
                        rate(delivered, span)
                    ));
                }
            }
        }
        self.intervals.push(interval);
    }

    /// Prints a line for each stream, and the sums of those that have the same direction.
    fn streams(&self, span: Span, streams: &[StreamBytes], note: &str) {
        for stream in streams {
            self.line(
                &stream.stream.to_string(),
                stream.up,
                span,
                stream.bytes,
                note,
            );
        }
        for up in [true, false] {
            let same = streams.iter().filter(|stream| stream.up == up);
            if same.clone().count() > 1 {
                self.line("SUM", up, span, same.map(|stream| stream.bytes).sum(), note);
            }
        }
    }

    pub(super) fn end(&self, report: &Report) {
        if self.json {
            return json_line(&self.document(report));
        }
        out("- - - - - - - - - - - - - - - - - - - - - - - - -\n");
        let span = (Duration::ZERO, report.time);
        self.streams(span, &report.sent, "  sender");
        self.streams(span, &report.received, "  receiver");
        if report.links.len() > 1 {
            for link in &report.links {
                let (received, delivered) = (amount(link.received), amount(link.delivered));
                out(&format!(
                    "      by {}: {received} in, {delivered} out\n",
                    link.peer
                ));
            }
        }
        if report.interrupted {
            out("interrupted\n");
        }
    }

    /// Returns iperf3's document, with what it has no place for below `whimbrel`.
    fn document(&self, report: &Report) -> Value {
        let plan = &self.options.plan;
        let span = (Duration::ZERO, report.time);
        let intervals = self.intervals.iter().map(|interval| {
            let span = (interval.from, interval.to);
            let mut value = sums(&interval.streams, span, ["sum", "sum_bidir_reverse"]);
            value["streams"] = interval.streams.iter().map(|it| stream(it, span)).collect();
            value["whimbrel"] = json!({ "links": interval.links });
            value
        });
        let sent_by = |number: u16| report.sent.iter().find(|sent| sent.stream == number);
        let streams = report.received.iter().map(|received| {
            // Of its own streams the server says only what it has received.
            let sent = sent_by(received.stream).unwrap_or(received);
            json!({ "sender": stream(sent, span), "receiver": stream(received, span) })
        });
        let sent: Vec<StreamBytes> = report
            .received
            .iter()
            .map(|received| *sent_by(received.stream).unwrap_or(received))
            .collect();
        let mut end = sums(
            &report.received,
            span,
            ["sum_received", "sum_received_bidir_reverse"],
        );
        merge(
            &mut end,
            sums(&sent, span, ["sum_sent", "sum_sent_bidir_reverse"]),
        );
        end["streams"] = streams.collect();
        let mut document = json!({
            "start": {
                "version": concat!("whimbrel ", env!("CARGO_PKG_VERSION")),
                "timestamp": { "timesecs": self.began_at },
                "connecting_to": { "host": self.options.server.to_string() },
                "test_start": {
                    "protocol": "MFTP",
                    "num_streams": plan.up.max(plan.down),
                    "blksize": 1u64 << plan.chunk_log2,
                    "duration": self.options.time.map_or(0.0, |time| time.as_secs_f64()),
                    "bytes": plan.bytes.unwrap_or(0),
                    "reverse": u8::from(plan.up == 0),
                    "bidir": u8::from(self.has_both()),
                    "omit": 0,
                },
            },
            "intervals": intervals.collect::<Vec<_>>(),
            "end": end,
            "whimbrel": {
                "links": report.links,
                "server_seconds": report.server_time.map(|time| time.as_secs_f64()),
                "interrupted": report.interrupted,
            },
        });
        if report.server_time.is_none() {
            document["error"] = SERVER_GONE.into();
        }
        document
    }
}

fn measured(bytes: u64, span: Span) -> Value {
    let (from, to) = span;
    let seconds = (to.saturating_sub(from)).as_secs_f64();
    json!({
        "start": from.as_secs_f64(),
        "end": to.as_secs_f64(),
        "seconds": seconds,
        "bytes": bytes,
        "bits_per_second": per_second(bytes, seconds),
        "omitted": false,
    })
}

fn stream(of: &StreamBytes, span: Span) -> Value {
    let mut value = measured(of.bytes, span);
    value["socket"] = of.stream.into();
    value["sender"] = of.up.into();
    value
}

/// Returns the sum of the test's direction below the first key, and below the second one that of the
/// other direction, if there are both.
fn sums(streams: &[StreamBytes], span: Span, [first, second]: [&str; 2]) -> Value {
    let mut value = json!({});
    let sum = |up: bool| {
        let mut same = streams.iter().filter(|stream| stream.up == up).peekable();
        same.peek()?;
        let mut sum = measured(same.map(|stream| stream.bytes).sum(), span);
        sum["sender"] = up.into();
        Some(sum)
    };
    match (sum(true), sum(false)) {
        (Some(up), Some(down)) => {
            value[first] = up;
            value[second] = down;
        }
        (one, other) => value[first] = one.or(other).unwrap_or_default(),
    }
    value
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

fn per_second(bytes: u64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => bytes as f64 * 8.0 / seconds,
        false => 0.0,
    }
}

fn amount(bytes: u64) -> String {
    format!("{:.3} MB", bytes as f64 / 1e6)
}

fn rate(bytes: u64, span: Span) -> String {
    let (from, to) = span;
    let seconds = to.saturating_sub(from).as_secs_f64();
    format!("{:.3} Mbit/s", per_second(bytes, seconds) / 1e6)
}
