//! Random loss.

use core::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use whimbrel_core::SeededRng;
use whimbrel_core::units::{self, ProbabilityError};

/// The random loss of a link. Written as a probability (`0.01`, `"1 %"`), as `"none"`, or as a
/// table with the parameters of [`GilbertElliott`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// The loss of each frame with this probability, independently of other frames.
    Independent(f64),
    /// Losses in bursts.
    GilbertElliott(GilbertElliott),
}

/// A channel that alternates between a good and a bad state, with a fixed transition probability
/// after every frame. Names and meaning as in netem's `gemodel` and in G. Haßlinger and O.
/// Hohlfeld, "The Gilbert-Elliott Model for Packet Loss in Real Time Services on the Internet", MMB
/// 2008. It starts in the good state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability of the transition from good to bad.
    #[serde(with = "units::probability")]
    pub p: f64,
    /// Probability of the transition from bad to good. With the default `h` and `k` the mean length
    /// of a loss burst is 1/r frames.
    #[serde(with = "units::probability")]
    pub r: f64,
    /// Probability that a frame survives the bad state. Default 0.
    #[serde(with = "units::probability", default = "never")]
    pub h: f64,
    /// Probability that a frame survives the good state. Default 1.
    #[serde(with = "units::probability", default = "always")]
    pub k: f64,
}

fn never() -> f64 {
    0.0
}

fn always() -> f64 {
    1.0
}

impl GilbertElliott {
    /// Returns the simple Gilbert model with this loss rate and mean burst length in frames (1 or
    /// more).
    pub fn bursts(loss_rate: f64, mean_burst: f64) -> GilbertElliott {
        let r = 1.0 / mean_burst.max(1.0);
        let p = (loss_rate * r / (1.0 - loss_rate).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        GilbertElliott {
            p,
            r,
            h: 0.0,
            k: 1.0,
        }
    }

    /// Returns the long-run share of lost frames.
    pub fn loss_rate(&self) -> f64 {
        let bad = if self.p + self.r > 0.0 {
            self.p / (self.p + self.r)
        } else {
            0.0
        };
        bad * (1.0 - self.h) + (1.0 - bad) * (1.0 - self.k)
    }
}

impl Loss {
    /// Returns losses of this rate in bursts of this mean length in frames, or independent ones for a length of 1.
    pub fn in_bursts(loss_rate: f64, mean_burst: f64) -> Loss {
        if loss_rate <= 0.0 {
            Loss::None
        } else if mean_burst <= 1.0 {
            Loss::Independent(loss_rate)
        } else {
            Loss::GilbertElliott(GilbertElliott::bursts(loss_rate, mean_burst))
        }
    }

    /// Checks that all parameters are probabilities.
    pub fn validate(&self) -> Result<(), ProbabilityError> {
        let all = match self {
            Loss::None => [0.0; 4],
            Loss::Independent(p) => [*p, 0.0, 0.0, 0.0],
            Loss::GilbertElliott(GilbertElliott { p, r, h, k }) => [*p, *r, *h, *k],
        };
        all.into_iter()
            .try_for_each(|value| units::check_probability(value).map(drop))
    }
}

/// Draws the losses of one direction.
#[derive(Clone, Debug)]
pub(super) struct LossProcess {
    rng: SeededRng,
    bad: bool,
}

impl LossProcess {
    pub(super) fn new(rng: SeededRng) -> LossProcess {
        LossProcess { rng, bad: false }
    }

    /// Draws whether the next frame is lost under `loss`.
    pub(super) fn loses(&mut self, loss: &Loss) -> bool {
        match loss {
            Loss::None => false,
            Loss::Independent(probability) => self.rng.chance(*probability),
            Loss::GilbertElliott(model) => {
                let (survives, changes) = if self.bad {
                    (model.h, model.r)
                } else {
                    (model.k, model.p)
                };
                let lost = !self.rng.chance(survives);
                self.bad ^= self.rng.chance(changes);
                lost
            }
        }
    }
}

impl Serialize for Loss {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Loss::None => serializer.serialize_str("none"),
            Loss::Independent(probability) => serializer.serialize_f64(*probability),
            Loss::GilbertElliott(model) => model.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Loss, D::Error> {
        deserializer.deserialize_any(LossVisitor)
    }
}

struct LossVisitor;

impl LossVisitor {
    fn independent<E: serde::de::Error>(value: f64) -> Result<Loss, E> {
        let probability = units::check_probability(value).map_err(E::custom)?;
        Ok(if probability == 0.0 {
            Loss::None
        } else {
            Loss::Independent(probability)
        })
    }
}

impl<'de> Visitor<'de> for LossVisitor {
    type Value = Loss;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a loss: \"none\", 0.01, \"1 %\", or the Gilbert-Elliott parameters { p, r, h, k }",
        )
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Loss, E> {
        if text == "none" {
            return Ok(Loss::None);
        }
        LossVisitor::independent(units::parse_probability(text).map_err(E::custom)?)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Loss, E> {
        LossVisitor::independent(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Loss, E> {
        LossVisitor::independent(value as f64)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Loss, E> {
        LossVisitor::independent(value as f64)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
        GilbertElliott::deserialize(MapAccessDeserializer::new(map)).map(Loss::GilbertElliott)
    }
}
