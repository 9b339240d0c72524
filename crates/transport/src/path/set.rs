//! The paths of one connection.

use core::time::Duration;

use whimbrel_core::{RttOptions, Time};

use super::{Answer, Path, PathId, PathOptions, PathState};
use crate::congestion::{Congestion, WindowOptions};

/// All paths of a connection, and the schedule.
#[derive(Debug)]
pub struct Paths {
    paths: Vec<Path>,
    /// The state of `paths`, in the same order; empty if there is only one.
    states: Vec<PathState>,
}

impl Paths {
    /// One path for each of `options`, at most 65,535; if empty, one on the first face.
    pub fn new(
        options: &[PathOptions],
        window: WindowOptions,
        rtt: RttOptions,
        once_per_window: bool,
        now: Time,
    ) -> Paths {
        let default = [PathOptions::default()];
        let options = if options.is_empty() {
            &default
        } else {
            options
        };
        let path = |(id, options): (u16, &PathOptions)| {
            let law = window.law(now);
            Path::new(PathId(id), options.clone(), law, rtt, once_per_window)
        };
        Paths::of((0..u16::MAX).zip(options).map(path).collect())
    }

    /// These paths, whose numbers must be their indices.
    pub fn of(paths: Vec<Path>) -> Paths {
        let several = paths.iter().filter(|_| paths.len() > 1);
        Paths {
            states: several.map(Path::state).collect(),
            paths,
        }
    }

    /// Adds a path, or puts it in place of one; `None` beyond 65,535. Interests in flight on the
    /// replaced one must have been removed.
    pub fn put(&mut self, path: Path) -> Option<PathId> {
        let (id, len) = (path.id(), self.paths.len());
        match self.paths.get_mut(id.index()) {
            Some(known) => *known = path,
            None if id.index() == len => self.paths.push(path),
            None => return None,
        }
        let several = self.paths.iter().filter(|_| self.paths.len() > 1);
        self.states = several.map(Path::state).collect();
        Some(id)
    }

    /// Returns all paths, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter()
    }

    /// Their numbers.
    pub fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.paths.len() as u16).map(PathId)
    }

    /// Returns the number of paths.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Returns true if there are no paths.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// One path.
    pub fn get(&self, id: PathId) -> Option<&Path> {
        self.paths.get(id.index())
    }

    /// Calls `action` with a path whose state it may change.
    pub fn with<R>(
        &mut self,
        id: PathId,
        action: impl FnOnce(&mut Path, &[PathState]) -> R,
    ) -> Option<R> {
        let path = self.paths.get_mut(id.index())?;
        let result = action(path, &self.states);
        if let Some(state) = self.states.get_mut(id.index()) {
            *state = path.state();
        }
        Some(result)
    }

    /// Of the paths for which `fits` is true, the one with the lowest smoothed round-trip time; one
    /// without a sample is preferred.
    pub fn best(&self, fits: impl Fn(&Path) -> bool) -> Option<&Path> {
        let smoothed = |path: &Path| path.rtt().smoothed().unwrap_or(Duration::ZERO);
        let mut fitting = self.paths.iter().filter(|path| fits(path));
        // Usually there is one path, whose round trip decides nothing.
        let first = fitting.next()?;
        Some(fitting.fold(first, |best, path| {
            if smoothed(path) < smoothed(best) {
                path
            } else {
                best
            }
        }))
    }

    /// Returns true if a path is failing while another one is not.
    pub fn is_abandoned(&self, path: &Path) -> bool {
        path.is_failing() && self.has_other(path.id())
    }

    /// Returns true if one more Interest may be sent on a path. An abandoned one is probed with one
    /// at a time.
    pub fn has_room(&self, path: &Path) -> bool {
        path.has_room() && (path.in_flight() == 0 || !self.is_abandoned(path))
    }

    /// Ends the waits that are over of paths with windows below 1.
    pub fn release(&mut self, now: Time) {
        for path in &mut self.paths {
            path.release(now);
        }
    }

    /// When the first of the paths that wait may send again.
    pub fn held_until(&self) -> Option<Time> {
        let waiting = self.paths.iter().filter(|path| path.is_up());
        waiting.filter_map(Path::held_until).min()
    }

    /// Records the transmission of an Interest for `segment` on a path, the first one on any path
    /// or a further one.
    pub fn on_sent(&mut self, id: PathId, segment: u64, first: bool) {
        self.count(id, |path| path.on_sent(segment, first));
    }

    /// Handles an Interest in flight that was declared lost or abandoned.
    pub fn on_removed(&mut self, id: PathId, lost: bool) {
        self.count(id, |path| path.on_removed(lost));
    }

    /// Calls `action`, which may change only the number of Interests in flight.
    fn count(&mut self, id: PathId, action: impl FnOnce(&mut Path)) {
        let Some(path) = self.paths.get_mut(id.index()) else {
            return;
        };
        action(path);
        if let Some(state) = self.states.get_mut(id.index()) {
            state.in_flight = path.in_flight();
        }
    }

    /// Handles a Data on a path; returns true if its mark shrank the path's window.
    pub fn on_answer(&mut self, id: PathId, answer: &Answer) -> bool {
        self.with(id, |path, states| path.on_answer(answer, states))
            .unwrap_or(false)
    }

    /// Handles the loss of segments up to `highest` at once on a path; returns true if that shrank
    /// its window.
    pub fn on_loss(&mut self, id: PathId, now: Time, highest: u64, sign: Congestion) -> bool {
        self.with(id, |path, states| path.on_loss(now, highest, sign, states))
            .unwrap_or(false)
    }

    /// Returns true if a path other than `id` is up and not failing.
    pub fn has_other(&self, id: PathId) -> bool {
        self.paths.iter().any(|other| {
            other.id() != id && other.is_up() && !other.is_failing() && !other.is_probing()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{CongestionControl, Delivered, LawPhase, Siblings};

    const MS: Duration = Duration::from_millis(1);

    /// The whole connection grows like one path: each Data adds its path's share of one over the
    /// sum of all windows.
    #[derive(Debug)]
    struct Coupled(f64);

    impl CongestionControl for Coupled {
        fn window(&self) -> f64 {
            self.0
        }

        fn phase(&self) -> LawPhase {
            LawPhase::Avoidance
        }

        fn threshold(&self) -> f64 {
            0.0
        }

        fn on_delivered(&mut self, _delivered: &Delivered, siblings: &Siblings<'_>) {
            assert_eq!(siblings.paths[siblings.own.index()].window, self.0);
            self.0 += 1.0 / siblings.paths.iter().map(|path| path.window).sum::<f64>();
        }

        fn on_congestion(&mut self, _now: Time, _sign: Congestion, _siblings: &Siblings<'_>) {
            self.0 = (self.0 / 2.0).max(1.0);
        }

        fn restart(&mut self) {}
    }

    fn coupled(windows: [f64; 3]) -> Paths {
        let path = |(id, window)| {
            let law = Box::new(Coupled(window));
            let rtt = RttOptions::rfc6298(1000 * MS, MS, 60_000 * MS);
            Path::new(PathId(id), PathOptions::default(), law, rtt, true)
        };
        let mut paths = Paths::of((0..).zip(windows).map(path).collect());
        for id in paths.ids() {
            paths.with(id, |path, _| path.set_up(true));
        }
        paths
    }

    /// Returns the state of a path, as the laws of the others see it.
    fn state(paths: &Paths, id: u16) -> PathState {
        let state = paths.paths[usize::from(id)].state();
        assert_eq!(paths.states[usize::from(id)], state);
        state
    }

    fn answer(segment: u64, rtt: Duration) -> Answer {
        Answer {
            now: Time::ZERO,
            segment,
            bytes: 1000,
            rtt: Some(rtt),
            to_latest: true,
            late: None,
            in_flight: true,
            marked: false,
            route: None,
            intermediate: false,
            limit: 1000.0,
        }
    }

    #[test]
    fn a_law_sees_the_windows_of_all_paths_as_they_are() {
        let mut paths = coupled([10.0, 6.0, 4.0]);
        paths.on_sent(PathId(1), 0, true);
        paths.on_answer(PathId(1), &answer(0, MS));
        assert_eq!(state(&paths, 1).window, 6.05);
        paths.on_sent(PathId(0), 1, true);
        paths.on_answer(PathId(0), &answer(1, MS));
        assert_eq!(state(&paths, 0).window, 10.0 + 1.0 / 20.05);
        assert!(paths.on_loss(PathId(2), Time::ZERO, 2, Congestion::Loss));
        let windows: Vec<f64> = paths.iter().map(Path::window).collect();
        assert_eq!(windows, [10.0 + 1.0 / 20.05, 6.05, 2.0]);
    }

    #[test]
    fn the_path_with_room_and_the_shortest_round_trip_comes_first() {
        let mut paths = coupled([2.0, 2.0, 2.0]);
        let best = |paths: &Paths| paths.best(|path| paths.has_room(path)).map(Path::id);
        // All paths are tried before any is measured.
        for (id, rtt) in [(0, 30 * MS), (1, 10 * MS), (2, 20 * MS)] {
            assert_eq!(best(&paths), Some(PathId(id)));
            paths.on_sent(PathId(id), u64::from(id), true);
            paths.on_answer(PathId(id), &answer(u64::from(id), rtt));
        }
        let order: Vec<Option<PathId>> = (3..10)
            .map(|segment| {
                let best = best(&paths);
                best.into_iter()
                    .for_each(|id| paths.on_sent(id, segment, true));
                best
            })
            .collect();
        let expected = [Some(1), Some(1), Some(2), Some(2), Some(0), Some(0), None];
        assert_eq!(order, expected.map(|id| id.map(PathId)));
        paths.on_removed(PathId(0), true);
        assert_eq!(best(&paths), Some(PathId(0)));
        assert_eq!(state(&paths, 0).in_flight, 1);
    }

    #[test]
    fn one_window_of_losses_causes_one_reaction_and_its_time_out_grows_alone() {
        let mut paths = coupled([16.0, 16.0, 16.0]);
        let before = state(&paths, 1).timeout;
        (0..10).for_each(|segment| paths.on_sent(PathId(0), segment, true));
        assert!(paths.on_loss(PathId(0), Time::ZERO, 3, Congestion::Loss));
        assert!(!paths.on_loss(PathId(0), Time::ZERO, 9, Congestion::Timeout));
        paths.on_sent(PathId(0), 10, true);
        assert!(paths.on_loss(PathId(0), Time::ZERO, 10, Congestion::Timeout));
        let states = [state(&paths, 0), state(&paths, 1)];
        assert_eq!((states[0].window, states[1].window), (4.0, 16.0));
        assert_eq!((states[0].timeout, states[1].timeout), (before * 4, before));
    }

    #[test]
    fn a_path_that_answers_nothing_is_probed_one_by_one_while_another_one_answers() {
        let mut paths = coupled([64.0, 4.0, 4.0]);
        for segment in [1, 2] {
            paths.on_sent(PathId(0), segment, true);
            paths.on_removed(PathId(0), true);
            paths.on_loss(PathId(0), Time::ZERO, segment, Congestion::Timeout);
        }
        let room = |paths: &Paths| {
            paths
                .get(PathId(0))
                .is_some_and(|path| paths.has_room(path))
        };
        assert!(room(&paths));
        paths.on_sent(PathId(0), 3, true);
        assert!(!room(&paths), "one at a time");
        for other in [1, 2] {
            paths.with(PathId(other), |path, _| path.set_up(false));
        }
        assert_eq!(paths.get(PathId(0)).map(Path::window), Some(16.0));
        assert!(room(&paths), "it is the only one");
        for other in [1, 2] {
            paths.with(PathId(other), |path, _| path.set_up(true));
        }
        assert!(!room(&paths));
        paths.on_answer(PathId(0), &answer(3, MS));
        assert!(room(&paths));
    }
}
