//! Shares of the back-pressure buffer, of each program and each of its downloads.
//!
//! A chunk holds room until its program has it. Programs that do not read would fill the buffer, and
//! a host whose buffer is full accepts no chunk from any neighbour. So programs have shares that shrink as more of
//! them hold something, and a quarter of the buffer belongs to no program: it is for chunks in transit.

use std::collections::BTreeMap;

use super::App;
use whimbrel_link::Pool;

/// A program may hold a third of what others leave: alone a quarter of the buffer.
const PARTS: u64 = 3;

/// What the downloads of one program hold.
#[derive(Debug)]
struct OfProgram {
    held: Pool,
    downloads: u64,
}

/// What programs hold of the buffer.
#[derive(Debug)]
pub(super) struct Shares {
    // Of the whole buffer, in packets.
    capacity: u64,
    held: Pool,
    programs: BTreeMap<App, OfProgram>,
}

impl Shares {
    pub(super) fn new(buffer_packets: usize) -> Shares {
        Shares {
            capacity: buffer_packets as u64,
            held: Pool::default(),
            programs: BTreeMap::new(),
        }
    }

    /// Adds a download of a program, and returns its share, in which the room of its chunks counts.
    pub(super) fn open(&mut self, app: App) -> Pool {
        let holder = self.programs.entry(app).or_insert_with(|| OfProgram {
            held: self.held.part(),
            downloads: 0,
        });
        holder.downloads += 1;
        holder.held.part()
    }

    /// Removes a download of a program.
    pub(super) fn close(&mut self, app: App) {
        if let Some(holder) = self.programs.get_mut(&app) {
            holder.downloads -= 1;
            if holder.downloads == 0 {
                self.programs.remove(&app);
            }
        }
    }

    /// Returns the packets that each download of `app` may hold.
    pub(super) fn limit(&self, app: App) -> u64 {
        let downloads = self.programs.get(&app).map_or(1, |holder| holder.downloads);
        self.limit_of_program() / downloads.max(1)
    }

    fn limit_of_program(&self) -> u64 {
        self.capacity.saturating_sub(self.held.packets()) / PARTS
    }

    /// Returns true if a download of `app` may hold `packets` more.
    pub(super) fn admits(&self, app: App, share: &Pool, packets: u32) -> bool {
        let packets = u64::from(packets);
        let by_program = self.programs.get(&app).map_or(0, |it| it.held.packets());
        share.packets() + packets <= self.limit(app)
            && by_program + packets <= self.limit_of_program()
            && self.has_room(packets)
    }

    /// Returns true if all programs together may hold `packets` more.
    pub(super) fn has_room(&self, packets: u64) -> bool {
        self.held.packets() + packets <= self.capacity / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_link::{Buffer, Room};

    /// Fills a share with chunks of `packets` packets.
    fn fill(shares: &Shares, app: App, share: &Pool, packets: u32) -> Vec<Room> {
        let mut buffer = Buffer::new(1 << 20);
        let mut loads = Vec::new();
        while shares.admits(app, share, packets) {
            let room = buffer.take(packets, 0).expect("room");
            loads.push(share.hold_with(room));
        }
        loads
    }

    #[test]
    fn one_program_may_hold_a_quarter_and_all_together_three() {
        let mut shares = Shares::new(1_000);
        let mut loads = Vec::new();
        for number in 0..100 {
            let app = App::Inner(number);
            let share = shares.open(app);
            loads.extend(fill(&shares, app, &share, 1));
            match number {
                0 => assert_eq!(share.packets(), 250),
                1 => assert_eq!(share.packets(), 187),
                _ => assert!(shares.held.packets() <= 750),
            }
        }
        assert!(shares.held.packets() > 700);
        drop(loads);
        assert_eq!(shares.held.packets(), 0);
    }

    #[test]
    fn the_downloads_of_a_program_divide_its_share() {
        let mut shares = Shares::new(1_000);
        let app = App::Inner(1);
        let opened = [shares.open(app), shares.open(app)];
        let loads = fill(&shares, app, &opened[0], 1);
        assert!(loads.len() <= 143, "{}", loads.len());
        assert!(shares.admits(app, &opened[1], 50));
        shares.close(app);
        shares.close(app);
        assert!(shares.programs.is_empty());
        // Chunks on their way to the program count as well.
        assert_eq!(shares.held.packets(), loads.len() as u64);
    }
}
