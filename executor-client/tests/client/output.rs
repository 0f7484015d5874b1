//! Output is followed without a hole and without a repeat.

use std::sync::atomic::Ordering;
use std::time::Duration;

use executor_client::{CallOptions, ClientError, OutputEvent, OutputOptions, Process, Reason};

use crate::fake::{self, State};

fn text(length: usize) -> Vec<u8> {
    (0..)
        .flat_map(|n: u32| format!("{n}\n").into_bytes())
        .take(length)
        .collect()
}

fn state(length: usize) -> State {
    State {
        output: text(length),
        exit_at: length as u64,
        page: 1000,
        ..Default::default()
    }
}

/// Follows to the end: bytes, told gaps, exits, where the exit came.
async fn follow(
    process: &Process,
    options: OutputOptions,
    taken: impl Fn(u64),
) -> (Vec<u8>, u64, Vec<u64>) {
    let mut stream = process.stream_output(options);
    let (mut bytes, mut gaps, mut exits) = (Vec::new(), 0, Vec::new());
    while let Some(event) = stream.next().await.unwrap() {
        match event {
            OutputEvent::Page(page) => {
                gaps += page.gap.map_or(0, |gap| gap.to - gap.from);
                bytes.extend_from_slice(&page.data);
            }
            OutputEvent::Exit(_) => exits.push(stream.cursor()),
            OutputEvent::End => assert!(stream.next().await.unwrap().is_none()),
        }
        taken(stream.cursor());
    }
    (bytes, gaps, exits)
}

#[tokio::test]
async fn output_goes_on_from_its_cursor_over_lost_connections() {
    let budgets = (0..40).map(|n| 1500 + 313 * (n % 11)).collect();
    let (process, state) = fake::process(state(60_000), budgets).await;
    let (bytes, gaps, exits) = follow(&process, OutputOptions::default(), |_| {}).await;
    assert!(bytes == text(60_000));
    assert_eq!(gaps, 0);
    assert_eq!(exits, [60_000], "the exit is told once");
    let connections = state.reader_ids.lock().unwrap().len();
    assert!(
        connections > 5,
        "only {connections} connections: nothing was lost"
    );
}

#[tokio::test]
async fn a_lossless_reader_keeps_its_name_and_acknowledges_what_was_taken() {
    let budgets = (0..6).map(|n| 2500 + 517 * n).collect();
    let (process, state) = fake::process(state(60_000), budgets).await;
    let options = OutputOptions {
        cursor: 0,
        reader_id: Some("me".into()),
    };
    let watched = state.clone();
    let (bytes, ..) = follow(&process, options, move |cursor| {
        let cursor = usize::try_from(cursor).unwrap();
        watched.taken.store(cursor, Ordering::SeqCst);
    })
    .await;
    assert!(bytes == text(60_000));
    assert!(state.acknowledged.load(Ordering::SeqCst) > 0);
    let readers = state.reader_ids.lock().unwrap();
    assert!(readers.len() > 2 && readers.iter().all(|id| id == "me"));
}

#[tokio::test]
async fn what_is_gone_is_told_and_the_rest_follows() {
    let state = State {
        dropped: 7_500,
        ..state(20_000)
    };
    let (process, _state) = fake::process(state, vec![2_000, 4_000, 4_000]).await;
    let (bytes, gaps, _) = follow(&process, OutputOptions::default(), |_| {}).await;
    assert_eq!(gaps, 7_500);
    assert!(bytes == text(20_000)[7_500..]);
}

#[tokio::test]
async fn the_exit_comes_before_the_output_of_those_who_hold_the_pipe() {
    let state = State {
        exit_at: 3_000,
        ..state(5_000)
    };
    let (process, _state) = fake::process(state, vec![2_500, 4_500]).await;
    let (bytes, _, exits) = follow(&process, OutputOptions::default(), |_| {}).await;
    assert_eq!(exits, [3_000]);
    assert!(bytes == text(5_000));
}

#[tokio::test]
async fn dropping_the_future_loses_nothing() {
    let (process, _state) = fake::process(state(30_000), vec![5_000, 5_000, 5_000]).await;
    let mut stream = process.output();
    let mut bytes = Vec::new();
    loop {
        // A timer that has run out already: the future is polled once.
        match tokio::time::timeout(Duration::ZERO, stream.next()).await {
            Ok(event) => match event.unwrap() {
                Some(OutputEvent::Page(page)) => bytes.extend_from_slice(&page.data),
                Some(_) => {}
                None => break,
            },
            Err(_) => tokio::task::yield_now().await,
        }
    }
    assert!(bytes == text(30_000));
}

#[tokio::test(start_paused = true)]
async fn an_outage_longer_than_the_deadline_is_an_error_that_keeps_the_place() {
    let (process, state) = fake::process(state(10_000), Vec::new()).await;
    let mut stream = process.output();
    let Some(OutputEvent::Page(first)) = stream.next().await.unwrap() else {
        panic!("a page comes first");
    };
    state.unreachable.store(true, Ordering::SeqCst);
    state.cut();
    let begin = tokio::time::Instant::now();
    let mut bytes = first.data.to_vec();
    let error = loop {
        match stream.next().await {
            Ok(Some(OutputEvent::Page(page))) => bytes.extend_from_slice(&page.data),
            Ok(_) => panic!("the end cannot have come"),
            Err(error) => break error,
        }
    };
    assert!(matches!(
        error,
        ClientError::Unreachable {
            never_sent: true,
            ..
        }
    ));
    assert_eq!(error.reason(), Some(Reason::Unreachable));
    let deadline = CallOptions::default().deadline;
    assert!(begin.elapsed() > deadline / 2 && begin.elapsed() <= deadline);
    state.unreachable.store(false, Ordering::SeqCst);
    while let Some(event) = stream.next().await.unwrap() {
        if let OutputEvent::Page(page) = event {
            bytes.extend_from_slice(&page.data);
        }
    }
    assert!(bytes == text(10_000));
}
