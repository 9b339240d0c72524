use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[derive(Debug)]
struct Empty;

impl Collector for Empty {
    fn encode(
        &self,
        _encoder: prometheus_client::encoding::DescriptorEncoder,
    ) -> Result<(), std::fmt::Error> {
        Ok(())
    }
}

/// A node that counts the snapshots that it is asked for, and takes them when it is told to.
#[derive(Default)]
struct Slow {
    asked: AtomicU32,
    waiting: std::sync::Mutex<Vec<mpsc::Sender<Taken>>>,
}

impl Slow {
    /// Returns its pages, which are given again for `fresh`.
    fn pages(self: &Arc<Slow>, fresh: Duration) -> Arc<Pages> {
        let node = Arc::clone(self);
        let source = Source(Arc::new(move || {
            let (sender, snapshot) = mpsc::channel();
            node.waiting.lock().ok()?.push(sender);
            // Last: a test that has seen it may answer.
            node.asked.fetch_add(1, Ordering::Release);
            Some(snapshot)
        }));
        Arc::new(Pages::of(vec![source], fresh))
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Acquire)
    }

    async fn is_asked(&self, times: u32) {
        while self.asked() < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Takes all snapshots, or gives up.
    fn answer(&self, takes: bool) {
        let mut waiting = self.waiting.lock().expect("nobody has panicked");
        for sender in waiting.drain(..).filter(|_| takes) {
            sender.send(Box::new(Empty)).expect("a request waits");
        }
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(test);
}

const HOUR: Duration = Duration::from_secs(3600);

type Asked = tokio::task::JoinHandle<Option<Bytes>>;

fn ask(pages: &Arc<Pages>) -> Asked {
    let pages = Arc::clone(pages);
    tokio::spawn(async move { pages.newest().await })
}

async fn is_there(page: Asked) -> bool {
    page.await.is_ok_and(|page| page.is_some())
}

#[test]
fn who_asks_often_makes_no_further_snapshots() {
    run(async {
        let node = Arc::new(Slow::default());
        let pages = node.pages(HOUR);
        let asked: Vec<_> = (0..200).map(|_| ask(&pages)).collect();
        node.is_asked(1).await;
        // Those who give up free the way for no other.
        asked.iter().take(100).for_each(|request| request.abort());
        let later: Vec<_> = (0..100).map(|_| ask(&pages)).collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(node.asked(), 1);
        node.answer(true);
        for page in asked.into_iter().skip(100).chain(later) {
            assert!(is_there(page).await);
        }
        assert_eq!(node.asked(), 1);
    });
}

#[test]
fn all_who_wait_for_a_node_that_does_not_answer_are_told_so_at_once() {
    run(async {
        let node = Arc::new(Slow::default());
        let pages = node.pages(HOUR);
        let asked = [ask(&pages), ask(&pages), ask(&pages)];
        node.is_asked(1).await;
        node.answer(false);
        for page in asked {
            assert!(!is_there(page).await);
        }
        assert_eq!(node.asked(), 1);
    });
}

#[test]
fn a_page_that_is_old_is_made_anew() {
    run(async {
        let node = Arc::new(Slow::default());
        let pages = node.pages(Duration::ZERO);
        for (times, takes) in [(1, true), (2, false), (3, true)] {
            let page = ask(&pages);
            node.is_asked(times).await;
            node.answer(takes);
            assert_eq!(is_there(page).await, takes);
        }
    });
}
