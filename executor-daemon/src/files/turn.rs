//! Turns: mutations of one file happen one after another.
//!
//! A turn is an entry in the queues of what it is about (a name in a directory,
//! an inode with several names, an operation). It is taken for all of them at
//! once and begins when it stands first in each:
//!
//! ```text
//!  take ──► waiting ──first in every queue──► held ──drop──► gone
//!              └────────deadline────────────────────────────► Busy
//! ```
//!
//! 1. Two turns about the same thing are never held at the same time.
//! 2. Turns about one thing begin in the order in which they were asked for.
//! 3. No wait is for ever: entries join all their queues in one step, so the
//!    oldest waits for nobody younger, and each has a deadline.
//! 4. The mutex guards the queues only. It is held for a few assignments,
//!    never while a file is touched.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use executor_proto::id::{OperationId, SessionId};

use super::cancel::Cancel;

/// Mutations that may wait for one thing. One more is told that it is busy.
pub const QUEUE: usize = 1_024;

/// How often one that waits looks whether its caller is still there.
const LOOK: Duration = Duration::from_millis(50);

/// What a turn is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A name in a directory: the directory's device and inode.
    Name(u64, u64, OsString),
    /// A file with several names: its device and inode.
    Inode(u64, u64),
    /// One operation of a session: a repeat waits for the first.
    Operation(SessionId, OperationId),
    /// What is kept on disk for one session.
    Session(SessionId),
}

/// Others were first for all the time that there was, or too many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Turns {
    // Std: held for a few assignments, see invariant 4.
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    waiting: HashMap<Key, VecDeque<Arc<Ticket>>>,
}

/// An entry; one and the same in all its queues.
#[derive(Debug)]
struct Ticket {
    keys: Vec<Key>,
    /// Notified when it may have become first.
    moved: Condvar,
}

/// A turn that is held; dropping it lets the next ones begin.
#[derive(Debug)]
#[must_use]
pub struct Turn<'a> {
    turns: &'a Turns,
    ticket: Arc<Ticket>,
}

impl Turns {
    /// Waits for the turn about all of `keys`. Blocks the thread, at most until
    /// `deadline`.
    ///
    /// # Errors
    /// [`Busy`] at the deadline, or at once where [`QUEUE`] others wait.
    pub fn take(&self, keys: Vec<Key>, deadline: Instant) -> Result<Turn<'_>, Busy> {
        self.take_unless(keys, deadline, Cancel::never())
    }

    /// As [`Turns::take`], and gives up soon after `cancel` was raised.
    ///
    /// # Errors
    /// [`Busy`] then, too.
    pub fn take_unless(
        &self,
        mut keys: Vec<Key>,
        deadline: Instant,
        cancel: &Cancel,
    ) -> Result<Turn<'_>, Busy> {
        keys.sort();
        keys.dedup();
        let ticket = Arc::new(Ticket {
            keys,
            moved: Condvar::new(),
        });
        let mut queues = self.locked();
        queues.join(&ticket)?;
        while !queues.is_first(&ticket) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || cancel.is_raised() {
                queues.leave(&ticket);
                return Err(Busy);
            }
            queues = ticket
                .moved
                .wait_timeout(queues, left.min(LOOK))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        drop(queues);
        Ok(Turn {
            turns: self,
            ticket,
        })
    }

    /// Entries about `key`, the one that is held included.
    #[cfg(test)]
    pub(crate) fn waiting(&self, key: &Key) -> usize {
        self.locked().waiting.get(key).map_or(0, VecDeque::len)
    }

    fn locked(&self) -> MutexGuard<'_, Queues> {
        // Nothing panics half-way through a change of the queues.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    fn join(&mut self, ticket: &Arc<Ticket>) -> Result<(), Busy> {
        let full = |key| self.waiting.get(key).is_some_and(|q| q.len() > QUEUE);
        if ticket.keys.iter().any(full) {
            return Err(Busy);
        }
        for key in &ticket.keys {
            let queue = self.waiting.entry(key.clone()).or_default();
            queue.push_back(Arc::clone(ticket));
        }
        Ok(())
    }

    fn is_first(&self, ticket: &Arc<Ticket>) -> bool {
        ticket.keys.iter().all(|key| {
            let first = self.waiting.get(key).and_then(VecDeque::front);
            first.is_some_and(|first| Arc::ptr_eq(first, ticket))
        })
    }

    fn leave(&mut self, ticket: &Arc<Ticket>) {
        for key in &ticket.keys {
            let Some(queue) = self.waiting.get_mut(key) else {
                continue;
            };
            queue.retain(|one| !Arc::ptr_eq(one, ticket));
            match queue.front() {
                Some(first) => first.moved.notify_one(),
                None => drop(self.waiting.remove(key)),
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.locked().leave(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn name(text: &str) -> Key {
        Key::Name(1, 2, text.into())
    }

    fn soon() -> Instant {
        Instant::now() + LONG
    }

    fn until(what: impl Fn() -> bool) {
        let deadline = Instant::now() + LONG;
        while !what() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }

    #[test]
    fn invariant_1_two_turns_about_one_thing_are_never_held_together() {
        let turns = Turns::default();
        let inside: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..8_usize {
                let (turns, inside) = (&turns, &inside);
                scope.spawn(move || {
                    for round in 0..300_usize {
                        // Two things each, in either order, all combinations.
                        let two = [(thread + round) % 4, (thread * 3 + round / 4) % 4];
                        let keys = two.iter().map(|n| name(&n.to_string())).collect();
                        let turn = turns.take(keys, soon()).unwrap();
                        let mut about = two.to_vec();
                        about.dedup();
                        for n in &about {
                            assert_eq!(inside[*n].fetch_add(1, Ordering::SeqCst), 0);
                        }
                        for n in &about {
                            inside[*n].fetch_sub(1, Ordering::SeqCst);
                        }
                        drop(turn);
                    }
                });
            }
        });
        assert!(turns.locked().waiting.is_empty(), "queues were left behind");
    }

    #[test]
    fn invariant_2_turns_begin_in_the_order_they_were_asked_for() {
        let turns = Turns::default();
        let order = Mutex::new(Vec::new());
        let first = turns.take(vec![name("f")], soon()).unwrap();
        std::thread::scope(|scope| {
            for n in 0..20_usize {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = turns.take(vec![name("f")], soon()).unwrap();
                    order.lock().unwrap().push(n);
                });
                until(|| turns.waiting(&name("f")) == n + 2);
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn invariant_3_who_waits_past_the_deadline_is_told_and_hinders_nobody() {
        let turns = Turns::default();
        let held = turns.take(vec![name("a")], soon()).unwrap();
        let keys = vec![name("b"), name("a")];
        assert_eq!(turns.take(keys, Instant::now()).err(), Some(Busy));
        let other = turns.take(vec![name("b")], Instant::now());
        assert!(other.is_ok(), "one that gave up still stands in a queue");
        drop(held);
        assert!(turns.take(vec![name("a")], Instant::now()).is_ok());
    }

    #[test]
    fn a_younger_one_for_two_things_does_not_hold_up_the_second() {
        let turns = Turns::default();
        let a = turns.take(vec![name("a")], soon()).unwrap();
        std::thread::scope(|scope| {
            let both = scope.spawn(|| drop(turns.take(vec![name("a"), name("b")], soon())));
            until(|| turns.waiting(&name("b")) == 1);
            drop(a);
            both.join().unwrap();
        });
        assert!(turns.locked().waiting.is_empty());
    }

    #[test]
    fn a_queue_has_a_bound() {
        let turns = Turns::default();
        let _held = turns.take(vec![name("f")], soon()).unwrap();
        {
            let mut queues = turns.locked();
            for _ in 0..QUEUE {
                let ticket = Arc::new(Ticket {
                    keys: vec![name("f")],
                    moved: Condvar::new(),
                });
                queues.join(&ticket).unwrap();
            }
        }
        assert_eq!(turns.take(vec![name("f")], soon()).err(), Some(Busy));
    }
}
