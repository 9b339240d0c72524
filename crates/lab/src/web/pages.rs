//! A model of pages: how many objects, how large, and which must arrive before which is known.
//!
//! The pages of [MFTP §5.3], the 200 most visited sites of 2013, are not to be had. Known of such pages are the means of
//! HTTP Archive: in July 2013 a page of the thousand most visited sites has 1,246 kB in 100 requests. Counts and sizes are
//! log-normal about these means; the spreads and the depths are assumptions.

use whimbrel_core::SeededRng;

/// Mean objects of a page, its document included.
const MEAN_OBJECTS: f64 = 100.0;
/// Spread of the count: the standard deviation of its logarithm.
const SPREAD_OBJECTS: f64 = 0.8;
/// Most objects of a page.
const MOST_OBJECTS: f64 = 400.0;
/// Mean octets of a document.
const MEAN_DOCUMENT: f64 = 34e3;
/// Spread of documents.
const SPREAD_DOCUMENT: f64 = 0.8;
/// Mean octets of any other object: what is left of 1,246 kB.
const MEAN_OBJECT: f64 = 12.2e3;
/// Spread of objects: half of them have less than a third of the mean.
const SPREAD_OBJECT: f64 = 1.5;
/// Octets of the smallest and the largest object.
const SIZES: (f64, f64) = (100.0, 2e6);
/// The share of objects that the document names, and the share that it or an object of its own names; the others are
/// named by one of those.
const DEPTHS: [f64; 2] = [0.65, 0.92];

/// One object of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebObject {
    /// Octets.
    pub size: u32,
    /// The object that names it; `None` for the document.
    pub after: Option<usize>,
}

/// A page: its document and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebPage {
    /// Objects, the document first; each comes after the one that names it.
    pub objects: Vec<WebObject>,
}

impl WebPage {
    /// Draws page `number` of the set with this seed: the same one in every run.
    pub fn draw(seed: u64, number: usize) -> WebPage {
        let mut rng = SeededRng::stream(seed, &format!("page {number}"));
        let count = log_normal(&mut rng, MEAN_OBJECTS, SPREAD_OBJECTS).clamp(2.0, MOST_OBJECTS);
        let mut objects = vec![WebObject {
            size: octets(&mut rng, MEAN_DOCUMENT, SPREAD_DOCUMENT),
            after: None,
        }];
        // Objects by their depth: each names some of the next depth.
        let mut levels = [vec![0], Vec::new(), Vec::new()];
        while objects.len() < count as usize {
            let share = rng.unit();
            let depth = DEPTHS.iter().filter(|below| share >= **below).count();
            // The first objects of a page are the document's.
            let depth = depth.min(levels.iter().filter(|level| !level.is_empty()).count() - 1);
            let level = &levels[depth];
            let after = level[rng.below(level.len() as u64) as usize];
            if let Some(next) = levels.get_mut(depth + 1) {
                next.push(objects.len());
            }
            objects.push(WebObject {
                size: octets(&mut rng, MEAN_OBJECT, SPREAD_OBJECT),
                after: Some(after),
            });
        }
        WebPage { objects }
    }

    /// Returns a page of one object with this many octets.
    pub fn of_one(size: u32) -> WebPage {
        WebPage {
            objects: vec![WebObject { size, after: None }],
        }
    }

    /// Returns its octets.
    pub fn octets(&self) -> u64 {
        self.objects
            .iter()
            .map(|object| u64::from(object.size))
            .sum()
    }

    /// Returns the objects that this one names.
    pub fn named_by(&self, object: usize) -> impl Iterator<Item = usize> {
        let all = self.objects.iter().enumerate();
        all.filter(move |(_, it)| it.after == Some(object))
            .map(|(index, _)| index)
    }
}

/// Draws from a log-normal distribution with this mean.
fn log_normal(rng: &mut SeededRng, mean: f64, spread: f64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    let normal = radius * (core::f64::consts::TAU * rng.unit()).cos();
    mean * (spread * normal - spread * spread / 2.0).exp()
}

fn octets(rng: &mut SeededRng, mean: f64, spread: f64) -> u32 {
    log_normal(rng, mean, spread).clamp(SIZES.0, SIZES.1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_means_of_their_source() {
        let pages: Vec<WebPage> = (0..2000).map(|number| WebPage::draw(7, number)).collect();
        let mean = |of: &dyn Fn(&WebPage) -> f64| pages.iter().map(of).sum::<f64>() / 2000.0;
        let objects = mean(&|page| page.objects.len() as f64);
        let octets = mean(&|page| page.octets() as f64);
        assert!((90.0..=105.0).contains(&objects), "{objects}");
        assert!((1.1e6..=1.35e6).contains(&octets), "{octets}");
    }

    #[test]
    fn every_object_comes_after_the_one_that_names_it() {
        for number in 0..200 {
            let page = WebPage::draw(2013, number);
            assert_eq!(page, WebPage::draw(2013, number));
            assert_eq!(page.objects[0].after, None);
            for (index, object) in page.objects.iter().enumerate().skip(1) {
                let after = object.after.unwrap();
                assert!(after < index);
                assert!(page.named_by(after).any(|it| it == index));
            }
        }
    }
}
