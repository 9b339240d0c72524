//! `strategy list|show|set|unset`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use whimbrel_ndn_mgmt::{ControlParameters, StrategyChoice};
use whimbrel_ndn_packet::Name;

use super::manage::{Change, Manage, refusal};
use super::name;
use super::words::Keys;
use crate::command::{Outcome, json_line, out};
use crate::exit::{Exit, Failure, MANAGEMENT_HELP};

/// The common prefix of strategies' names, which users may omit.
const PLACE: &str = "/localhost/nfd/strategy/";

#[derive(Subcommand, Debug)]
pub(crate) enum StrategyCommand {
    /// List the strategies by prefix
    #[command(after_help = format!("Example:\n  whimbrel strategy list\n\n{MANAGEMENT_HELP}"))]
    List(List),
    /// Show the strategy of a name
    #[command(after_help = format!("Example:\n  whimbrel strategy show /example/film\n\n{MANAGEMENT_HELP}"))]
    Show(Show),
    /// Set the strategy of a prefix
    #[command(after_help = format!(
        "Examples:\n  whimbrel strategy set /example multicast\n  \
         whimbrel strategy set prefix / strategy /localhost/nfd/strategy/asf\n  \
         whimbrel strategy set / asf/v=5/probing-interval~30000       (parameters follow the version)\n\n{MANAGEMENT_HELP}"
    ))]
    Set(Set),
    /// Remove a prefix's strategy, so that the one of a shorter prefix applies
    #[command(after_help = format!("Example:\n  whimbrel strategy unset /example\n\n{MANAGEMENT_HELP}"))]
    Unset(Unset),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Also list the available strategies (Whimbrel routers only)
    #[arg(long)]
    available: bool,
    #[command(flatten)]
    manage: Manage,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// [prefix] NAME
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    manage: Manage,
}

#[derive(Args, Debug)]
pub(crate) struct Set {
    /// [prefix] PREFIX [strategy] STRATEGY: a name, or its part after /localhost/nfd/strategy/
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    change: Change,
}

#[derive(Args, Debug)]
pub(crate) struct Unset {
    /// [prefix] PREFIX
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    change: Change,
}

pub(crate) fn run(command: StrategyCommand) -> Outcome {
    match command {
        StrategyCommand::List(arguments) => list(&arguments),
        StrategyCommand::Show(arguments) => show(&arguments),
        StrategyCommand::Set(arguments) => set(&arguments),
        StrategyCommand::Unset(arguments) => unset(&arguments),
    }
}

fn list(arguments: &List) -> Outcome {
    let mut control = arguments.manage.look()?;
    let choices: Vec<StrategyChoice> = control.list("strategy-choice", "list")?;
    let available: Option<Value> = if arguments.available {
        let content = control.content("whimbrel", "strategies")?;
        serde_json::from_slice(&content).ok()
    } else {
        None
    };
    if arguments.manage.json {
        let choices: Vec<Value> = choices.iter().map(choice_json).collect();
        match available {
            Some(available) => json_line(&json!({ "choices": choices, "available": available })),
            None => json_line(&choices),
        }
        return Ok(Exit::Done);
    }
    out(&choices.iter().map(line).collect::<String>());
    for strategy in available
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        out(&format!(
            "available={}\n",
            strategy.as_str().unwrap_or_default()
        ));
    }
    Ok(Exit::Done)
}

fn show(arguments: &Show) -> Outcome {
    let keys = Keys {
        ordered: &["prefix"],
        named: &[],
        flags: &[],
    };
    let values = keys.read(&arguments.words, &[])?;
    values.required("prefix")?;
    let wanted = values.with("prefix", name)?.unwrap_or_default();
    let choices: Vec<StrategyChoice> = arguments.manage.look()?.list("strategy-choice", "list")?;
    let covers = |choice: &&StrategyChoice| choice.name.as_ref().is_prefix_of(wanted.as_ref());
    let Some(choice) = choices
        .iter()
        .filter(covers)
        .max_by_key(|choice| choice.name.len())
    else {
        return Err(Failure::new(
            Exit::NoStrategy,
            format!("no strategy covers {wanted}"),
        ));
    };
    if arguments.manage.json {
        json_line(&choice_json(choice))
    } else {
        out(&line(choice))
    }
    Ok(Exit::Done)
}

fn set(arguments: &Set) -> Outcome {
    let keys = Keys {
        ordered: &["prefix", "strategy"],
        named: &[],
        flags: &[],
    };
    let values = keys.read(&arguments.words, &[])?;
    values.required("prefix")?;
    values.required("strategy")?;
    let wish = ControlParameters {
        name: values.with("prefix", name)?,
        strategy: values.with("strategy", strategy_name)?,
        ..ControlParameters::default()
    };
    let mut control = arguments.change.control()?;
    let made = control
        .command("strategy-choice", "set", &wish)
        .map_err(|error| match refusal(&error) {
            Some(404) => Failure::new(Exit::NoStrategy, error),
            _ => error.into(),
        })?;
    told(
        arguments.change.manage.json,
        "strategy-set",
        &ControlParameters {
            name: wish.name,
            ..made
        },
    );
    Ok(Exit::Done)
}

fn strategy_name(text: &str) -> Result<Name, String> {
    if text.starts_with('/') || text.starts_with("ndn:") {
        name(text)
    } else {
        name(&format!("{PLACE}{text}"))
    }
}

fn unset(arguments: &Unset) -> Outcome {
    let keys = Keys {
        ordered: &["prefix"],
        named: &[],
        flags: &[],
    };
    let values = keys.read(&arguments.words, &[])?;
    values.required("prefix")?;
    let prefix = values.with("prefix", name)?.unwrap_or_default();
    if prefix.is_empty() {
        let text = "the strategy of / cannot be removed: every name must have one; `whimbrel strategy set /` changes it";
        return Err(Failure::new(Exit::Usage, text));
    }
    let wish = ControlParameters {
        name: Some(prefix),
        ..ControlParameters::default()
    };
    arguments
        .change
        .control()?
        .command("strategy-choice", "unset", &wish)?;
    told(arguments.change.manage.json, "strategy-unset", &wish);
    Ok(Exit::Done)
}

fn told(json: bool, what: &str, choice: &ControlParameters) {
    let prefix = choice.name.clone().unwrap_or_default();
    let strategy = choice.strategy.as_ref().map(ToString::to_string);
    if json {
        return json_line(
            &json!({ "event": what, "prefix": prefix.to_string(), "strategy": strategy }),
        );
    }
    let strategy = strategy.map_or(String::new(), |strategy| format!(" strategy={strategy}"));
    out(&format!("{what} prefix={prefix}{strategy}\n"));
}

fn line(choice: &StrategyChoice) -> String {
    format!("prefix={} strategy={}\n", choice.name, choice.strategy)
}

fn choice_json(choice: &StrategyChoice) -> Value {
    json!({ "prefix": choice.name.to_string(), "strategy": choice.strategy.to_string() })
}
