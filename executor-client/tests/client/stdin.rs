//! Input arrives once, in order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::fake::{self, State};

#[tokio::test]
async fn input_arrives_exactly_over_lost_connections() {
    let data: Vec<u8> = (0..600_000u32).flat_map(|n| n.to_le_bytes()).collect();
    let budgets = (0..12).map(|n| 140_000 + 31_000 * (n % 5)).collect();
    let (process, state) = fake::process(State::default(), budgets).await;
    let mut stdin = process.stdin();
    for piece in data.chunks(200_000) {
        stdin.write(piece.to_vec()).await.unwrap();
    }
    stdin.close().await.unwrap();
    assert!(*state.stdin.lock().unwrap() == data);
    assert_eq!(stdin.offset(), data.len() as u64);
    assert!(state.stdin_closed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_not_written_twice() {
    let (process, state) = fake::process(State::default(), Vec::new()).await;
    let mut stdin = process.stdin();
    state.lose_next_answer.store(true, Ordering::SeqCst);
    stdin.write("once").await.unwrap();
    assert_eq!(*state.stdin.lock().unwrap(), b"once");
    assert_eq!(state.stdin_calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_dropped_write_is_finished_by_the_next_one() {
    let state = State {
        hold_writes: Some(Semaphore::new(0)),
        ..Default::default()
    };
    let (process, state) = fake::process(state, Vec::new()).await;
    let mut stdin = process.stdin();
    // Dropped when it has arrived and its answer has not.
    let arrived = async {
        while state.stdin_calls.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = stdin.write("first ") => panic!("the answer is held back"),
        () = arrived => {}
    }
    state.hold_writes.as_ref().unwrap().add_permits(100);
    stdin.write("second").await.unwrap();
    stdin.close().await.unwrap();
    assert_eq!(*state.stdin.lock().unwrap(), b"first second");
    assert_eq!(stdin.offset(), 12);
}
