//! Work that is done by many at once and told in one order.
//!
//! A task has a place. When it is done, what came of it takes its place: parts
//! of the answer and more tasks, in their order. Parts are told from the front
//! on, as far as no task stands before them.
//!
//! ```text
//! queued ──take──► running ──finish──► steps in its place: done | queued …
//!                                        done, nothing unfinished before it ──► ready
//! ```
//!
//! 1. What is ready comes in the order of places, whoever finished first.
//! 2. [`Order::take`] gives the first queued task. So the first unfinished one
//!    of all is never queued while somebody works on a later one that was taken
//!    after it was queued: whoever waits for room waits for somebody who works.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where a task or a part stands: what its steps are counted by, from the first
/// task on. Compared as bytes, a place comes before those within it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(Vec<u8>);

impl Place {
    fn within(&self, step: u32) -> Self {
        let mut place = Vec::with_capacity(self.0.len() + 4);
        place.extend_from_slice(&self.0);
        place.extend_from_slice(&step.to_be_bytes());
        Self(place)
    }
}

/// What takes the place of a task that is done.
#[derive(Debug)]
pub(super) enum Step<T, P> {
    /// To be told.
    Part(P),
    /// To be done.
    Task(T),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Order<T, P> {
    queued: BTreeMap<Place, T>,
    running: BTreeSet<Place>,
    done: BTreeMap<Place, P>,
    ready: VecDeque<P>,
}

impl<T, P> Order<T, P> {
    /// These tasks, one after the other.
    pub(super) fn new(tasks: impl IntoIterator<Item = T>) -> Self {
        let first = Place(Vec::new());
        let queued = (0..)
            .zip(tasks)
            .map(|(step, task)| (first.within(step), task));
        Self {
            queued: queued.collect(),
            running: BTreeSet::new(),
            done: BTreeMap::new(),
            ready: VecDeque::new(),
        }
    }

    /// The first queued task; it runs from now on.
    pub(super) fn take(&mut self) -> Option<(Place, T)> {
        let (place, task) = self.queued.pop_first()?;
        self.running.insert(place.clone());
        Some((place, task))
    }

    /// The task at `place` is done, and `steps` come in its place.
    pub(super) fn finish(&mut self, place: &Place, steps: impl IntoIterator<Item = Step<T, P>>) {
        for (at, step) in (0..).zip(steps) {
            let place = place.within(at);
            match step {
                Step::Part(part) => drop(self.done.insert(place, part)),
                Step::Task(task) => drop(self.queued.insert(place, task)),
            }
        }
        self.running.remove(place);
        self.advance();
    }

    /// The next part that can be told.
    pub(super) fn pop(&mut self) -> Option<P> {
        self.ready.pop_front()
    }

    /// There is one.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Tasks that nobody works on yet.
    pub(super) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// The first unfinished task of all is one that nobody works on.
    pub(super) fn first_is_queued(&self) -> bool {
        match (self.queued.first_key_value(), self.running.first()) {
            (Some((queued, _)), Some(running)) => queued < running,
            (queued, _) => queued.is_some(),
        }
    }

    /// Nothing is left to be done.
    pub(super) fn is_done(&self) -> bool {
        self.queued.is_empty() && self.running.is_empty()
    }

    /// Gives up what is queued and what was not told.
    pub(super) fn clear(&mut self) {
        self.queued.clear();
        self.done.clear();
        self.ready.clear();
    }

    fn advance(&mut self) {
        let queued = self.queued.first_key_value().map(|(place, _)| place);
        let first = match (queued, self.running.first()) {
            (Some(queued), Some(running)) => Some(queued.min(running)),
            (queued, running) => queued.or(running),
        };
        while let Some(entry) = self.done.first_entry() {
            if first.is_some_and(|first| first < entry.key()) {
                break;
            }
            self.ready.push_back(entry.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A task that is a tree; a leaf is what is told.
    #[derive(Debug, Clone)]
    enum Tree {
        Leaf(u32),
        Node(Vec<Tree>),
    }

    fn trees() -> impl Strategy<Value = Tree> {
        let leaf = any::<u32>().prop_map(Tree::Leaf);
        leaf.prop_recursive(5, 60, 5, |inner| {
            prop::collection::vec(inner, 0..5).prop_map(Tree::Node)
        })
    }

    fn leaves(tree: &Tree, told: &mut Vec<u32>) {
        match tree {
            Tree::Leaf(leaf) => told.push(*leaf),
            Tree::Node(below) => below.iter().for_each(|tree| leaves(tree, told)),
        }
    }

    fn steps(tree: Tree) -> Vec<Step<Tree, u32>> {
        let step = |tree| match tree {
            Tree::Leaf(leaf) => Step::Part(leaf),
            node @ Tree::Node(_) => Step::Task(node),
        };
        match tree {
            leaf @ Tree::Leaf(_) => vec![step(leaf)],
            Tree::Node(below) => below.into_iter().map(step).collect(),
        }
    }

    proptest! {
        #[test]
        fn whoever_finishes_first_the_order_is_one(
            tree in trees(),
            choices in prop::collection::vec(any::<(bool, prop::sample::Index)>(), 400),
        ) {
            let mut expected = Vec::new();
            leaves(&tree, &mut expected);
            let mut order = Order::new([tree]);
            let (mut running, mut told) = (Vec::new(), Vec::new());
            let mut choices = choices.into_iter().cycle();
            while !order.is_done() {
                let (take, which) = choices.next().unwrap();
                if (take || running.is_empty()) && order.queued() > 0 {
                    running.push(order.take().unwrap());
                } else {
                    let (place, task) = running.swap_remove(which.index(running.len()));
                    order.finish(&place, steps(task));
                }
                told.extend(std::iter::from_fn(|| order.pop()));
                prop_assert!(expected.starts_with(&told));
            }
            prop_assert_eq!(told, expected);
        }
    }

    #[test]
    fn a_part_waits_for_the_tasks_before_it() {
        let mut order = Order::<&str, &str>::new(["a", "b"]);
        let (a, _) = order.take().unwrap();
        let (b, _) = order.take().unwrap();
        assert!(!order.first_is_queued());
        order.finish(&b, [Step::Part("of b")]);
        assert_eq!(order.pop(), None);
        order.finish(&a, [Step::Task("in a"), Step::Part("of a")]);
        assert_eq!(order.pop(), None);
        assert!(order.first_is_queued() && !order.is_done());
        let (inner, task) = order.take().unwrap();
        assert_eq!(task, "in a");
        order.finish(&inner, []);
        assert!(order.is_done());
        assert_eq!(
            (order.pop(), order.pop(), order.pop()),
            (Some("of a"), Some("of b"), None)
        );
    }
}
