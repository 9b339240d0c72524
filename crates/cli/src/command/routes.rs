//! `router routes`: the ways to other routers, their costs, and why each is used or not.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_client::Question;
use whimbrel_core::units::format_duration;

use super::Outcome;
use super::directory::shown;
use super::status::{Asked, answer, print};
use crate::exit::Exit;

#[derive(Args, Debug)]
pub(crate) struct Routes {
    /// The router's socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the ways of the router on its socket, by default `path`.
pub(super) fn routes(command: &Routes, path: PathBuf) -> Outcome {
    let asked = Asked {
        path: command.socket.as_ref().unwrap_or(&path),
        what: "router",
        command: "router run",
        json: command.json,
    };
    let status = answer(asked, Question::Status)?;
    let learned = &status["routing"];
    let routes = match learned.is_null() {
        true => json!({ "guid": status["guid"], "routing": "static" }),
        false => json!({
            "guid": status["guid"],
            "routing": "learned",
            "routers": learned["routers"],
            "counters": learned["counters"],
        }),
    };
    print(asked, &routes, table);
    Ok(Exit::Done)
}

fn name(value: &Value) -> String {
    let text = value.as_str().unwrap_or("-");
    text.parse().map_or(text.to_owned(), |guid| shown(&guid))
}

fn time(value: &Value) -> String {
    let micros = value.as_u64().map(core::time::Duration::from_micros);
    micros.map_or("-".to_owned(), format_duration)
}

fn table(routes: &Value) -> String {
    if routes["routing"] == "static" {
        return String::from(
            "the routes of this router are static: those of its configuration (`routing = \"learned\"` in [router] \
             finds ways by measured costs)\n",
        );
    }
    let mut text = String::new();
    for router in routes["routers"].as_array().into_iter().flatten() {
        text += &format!(
            "{}  cost {}, usually {}\n",
            name(&router["router"]),
            time(&router["cost_us"]),
            time(&router["usual_us"])
        );
        for way in router["ways"].as_array().into_iter().flatten() {
            let why = match way["why"].as_str().unwrap_or("-") {
                "best" => "best".to_owned(),
                "alternate" => {
                    "alternate: takes over at once, or a part of a divided flow".to_owned()
                }
                "could-loop" => {
                    format!(
                        "not used: its own distance, {}, does not rule out a loop",
                        time(&way["told_us"])
                    )
                }
                "neighbour-has-no-way" => "not used: it knows no way".to_owned(),
                "not-announced" => {
                    "not used: no path of announced links leads there by it".to_owned()
                }
                "link-held-down" => {
                    "not used: the link has failed several times of late".to_owned()
                }
                other => other.to_owned(),
            };
            text += &format!(
                "  via {}  cost {}  {why}\n",
                name(&way["neighbour"]),
                time(&way["cost_us"])
            );
        }
    }
    if text.is_empty() {
        text += "no other router is known: neighbours that learn their ways, too, must be named in [router] \
                 neighbours or by a link's name, at both ends\n";
    }
    text
}
