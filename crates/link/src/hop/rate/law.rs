//! The model of the path as a law of congestion control.

use core::time::Duration;

use whimbrel_core::Time;

use super::RateModel;
use crate::hop::congestion::{Answer, Law};

impl Law for RateModel {
    fn bandwidth(&self) -> f64 {
        RateModel::bandwidth(self)
    }

    fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    fn loss(&self) -> f64 {
        self.loss
    }

    fn bandwidth_delay(&self) -> u64 {
        RateModel::bandwidth_delay(self)
    }

    fn on_round_trip(&mut self, now: Time, rtt: Duration) {
        self.round_trip(now, rtt);
    }

    fn on_answer(&mut self, now: Time, answer: &Answer) {
        self.sample(now, answer);
    }

    fn on_outage_over(&mut self, _: Time) {
        self.resume();
    }

    fn on_path_change(&mut self, _: Time) {
        self.forget_path();
    }

    fn set_burst(&mut self, bytes: u64, frame: usize) {
        RateModel::set_burst(self, bytes, frame);
    }

    fn expect(&mut self, rate: u64, least: u64) {
        RateModel::expect(self, rate, least);
    }

    fn pace(&self) -> Option<f64> {
        RateModel::pace(self)
    }

    fn slowest_share(&self) -> f64 {
        match (&self.scavenger, RateModel::pace(self)) {
            (Some(_), Some(_)) => 0.25,
            _ => 1.0,
        }
    }

    fn paces_unmeasured(&self) -> bool {
        self.scavenger.is_some()
    }

    fn window(&self, feedback: u64) -> u64 {
        self.inflight_cap(feedback)
    }

    fn trial_window(&self) -> Option<u64> {
        match self.scavenger {
            Some(_) => None,
            None => RateModel::trial_window(self),
        }
    }

    fn is_starting(&self) -> bool {
        RateModel::is_starting(self)
    }

    fn is_refreshing(&self) -> bool {
        RateModel::is_refreshing(self)
    }

    fn sends_trains(&self) -> bool {
        self.scavenger.is_none()
    }

    fn wants_train(&self) -> bool {
        RateModel::wants_train(self)
    }

    fn on_train(&mut self, now: Time, rate: f64, is_spread: bool) {
        self.note_train(now, rate, is_spread);
    }

    fn lift_bound(&mut self) {
        RateModel::lift_bound(self);
    }

    fn shown(&self) -> Option<f64> {
        RateModel::shown(self)
    }
}
