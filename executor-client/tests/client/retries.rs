//! What is repeated and what is not.

use std::sync::atomic::Ordering;
use std::time::Duration;

use executor_client::{ClientError, Reason, v1};

use crate::fake::{self, State};

#[tokio::test]
async fn a_start_whose_answer_was_lost_runs_once() {
    let (session, state) = fake::session(State::default(), Vec::new()).await;
    state.lose_next_answer.store(true, Ordering::SeqCst);
    let started = session.command("make").start().await.unwrap();
    assert_eq!(state.start_calls.load(Ordering::SeqCst), 2);
    assert_eq!(
        *state.started.lock().unwrap(),
        [started.process.id().to_string()]
    );
    assert!(!started.created, "the first arrival made it");
}

#[tokio::test]
async fn an_unknown_outcome_is_the_callers_to_decide() {
    for reason in [Reason::StartOutcomeUnknown, Reason::HostLost] {
        let state = State {
            refuse_starts: Some(reason),
            ..Default::default()
        };
        let (session, state) = fake::session(state, Vec::new()).await;
        let error = session.command("make").spawn().await.unwrap_err();
        assert_eq!(error.reason(), Some(reason));
        assert_eq!(state.start_calls.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_signal_that_may_have_arrived_is_not_sent_again() {
    let (process, state) = fake::process(State::default(), Vec::new()).await;
    state.lose_next_answer.store(true, Ordering::SeqCst);
    let error = process
        .signal(10, v1::SignalTarget::Leader)
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::Unreachable {
                never_sent: false,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(state.signals.load(Ordering::SeqCst), 1);

    state.lose_next_answer.store(true, Ordering::SeqCst);
    process.interrupt().await.unwrap_err();
    assert_eq!(state.stops.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_stop_is_sent_again() {
    let (process, state) = fake::process(State::default(), Vec::new()).await;
    state.lose_next_answer.store(true, Ordering::SeqCst);
    process.stop(Duration::from_secs(2)).await.unwrap();
    assert_eq!(state.stops.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_connection_that_was_cut_is_made_again() {
    let (process, state) = fake::process(State::default(), Vec::new()).await;
    for sent in 1..=3 {
        state.cut();
        process.stop(Duration::ZERO).await.unwrap();
        assert!(state.stops.load(Ordering::SeqCst) >= sent);
    }
}

#[tokio::test]
async fn a_lease_is_renewed_while_the_guard_lives() {
    let (session, state) = fake::session(State::default(), Vec::new()).await;
    let guard = session.keep_alive();
    let renewed = async {
        while state.keep_alives.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), renewed)
        .await
        .unwrap();
    drop(guard);
}
