use super::*;

#[tokio::test]
async fn the_machine_describes_itself_without_a_session() {
    let here = Here::new();
    let mut client = MachineServiceClient::new(here.channel());
    let machine = client.get_machine(v1::GetMachineRequest {}).await.unwrap();
    let machine = machine.into_inner().machine.unwrap();
    assert!(machine.machine_id.starts_with("mch_"));
    assert!(machine.epoch.starts_with("epo_"));
    assert_eq!(machine.protocols, ["executor.v1"]);
    assert_eq!(machine.limits.unwrap().stdin_write_bytes, 131_072);
}

#[tokio::test]
async fn a_session_is_opened_once_and_only_its_secret_opens_it() {
    let here = Here::new();
    let session = here.session().await;
    let roots = vec![v1::Root {
        path: b"/nowhere".to_vec(),
        mode: 0,
    }];
    let again = v1::OpenSessionRequest {
        roots,
        ..Default::default()
    };
    let again = session.open_again(again).await.unwrap();
    assert!(!again.created, "as it is, whatever the other fields say");
    let other = Session {
        secret: SessionSecret::random(),
        ..session.clone()
    };
    let open = other.open_again(v1::OpenSessionRequest::default()).await;
    assert_eq!(reason(open), Reason::SessionSecretMismatch);
    assert_eq!(
        reason(other.start("say x").await),
        Reason::SessionSecretMismatch
    );
    let end = session.request(v1::EndSessionRequest::default());
    session.sessions().end_session(end).await.unwrap();
    let end = session.request(v1::EndSessionRequest::default());
    session.sessions().end_session(end).await.unwrap();
    assert_eq!(reason(session.start("say x").await), Reason::SessionEnded);
    let open = session.open_again(v1::OpenSessionRequest::default()).await;
    assert_eq!(reason(open), Reason::SessionEnded);
}

#[tokio::test]
async fn a_call_without_its_metadata_is_refused_by_name() {
    let here = Here::new();
    let session = here.session().await;
    for key in ["executor-session", "executor-secret", "executor-epoch"] {
        for value in [None, Some("nonsense")] {
            let mut request = session.request(v1::ListProcessesRequest::default());
            request.metadata_mut().remove(key);
            if let Some(value) = value {
                request.metadata_mut().insert(key, value.parse().unwrap());
            }
            let refused = failure(session.processes().list_processes(request).await);
            assert_eq!(refused.reason, Reason::SessionRequired);
            assert_eq!(refused.metadata["field"], key);
        }
    }
}

#[tokio::test]
async fn a_start_of_another_epoch_has_an_unknown_outcome_and_the_rest_is_lost() {
    let here = Here::new();
    let mut session = here.session().await;
    let now = std::mem::replace(&mut session.epoch, "epo_aaaaaaaaaaaaaaaaaaaaaaaaaa".into());
    assert_eq!(
        reason(session.start("say x").await),
        Reason::StartOutcomeUnknown
    );
    let list = session.request(v1::ListProcessesRequest::default());
    let lost = failure(session.processes().list_processes(list).await);
    assert_eq!(lost.reason, Reason::HostLost);
    assert_eq!(lost.metadata["epoch"], now);
}

#[tokio::test]
async fn a_start_returns_the_process_and_its_first_page() {
    let here = Here::new();
    let session = here.session().await;
    let start = start_request("say hello");
    let started = session.start_as(start.clone()).await.unwrap();
    assert!(started.created);
    assert_eq!(&started.output.unwrap().data[..], b"hello");
    let process = started.process.unwrap();
    assert_eq!(process.label, "say hello");
    assert_eq!(process.exit.unwrap().shell_code, 0);
    let mut again = start.clone();
    again.max_bytes = 3;
    let again = session.start_as(again).await.unwrap();
    assert!(!again.created);
    assert_eq!(&again.output.unwrap().data[..], b"hel");
    let mut other = start;
    other.label = "another spec".to_owned();
    assert_eq!(
        reason(session.start_as(other).await),
        Reason::ProcessIdConflict
    );
}

#[tokio::test]
async fn b080_a_bad_directory_is_named_and_the_next_start_works() {
    let here = Here::new();
    let session = here.session().await;
    let file = here.directory.path().join("file.txt");
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .unwrap();
    for (name, expected) in [
        ("nope", Reason::CwdNotFound),
        ("file.txt", Reason::CwdNotADirectory),
    ] {
        let mut start = start_request("say x");
        start.working_directory = name.into();
        let refused = failure(session.start_as(start).await);
        assert_eq!(refused.reason, expected);
        assert!(refused.message.contains(name), "{}", refused.message);
        assert!(
            refused.message.contains("working directory"),
            "{}",
            refused.message
        );
    }
    session.start("say fine").await.unwrap();
}

#[tokio::test]
async fn a_repeated_start_finds_its_process_although_its_directory_is_gone() {
    let here = Here::new();
    let session = here.session().await;
    let gone = here.directory.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut start = start_request("say x");
    start.working_directory = b"gone".to_vec();
    assert!(session.start_as(start.clone()).await.unwrap().created);
    std::fs::remove_dir(&gone).unwrap();
    assert!(!session.start_as(start.clone()).await.unwrap().created);
    start.process_id = ProcessId::random().to_string();
    assert_eq!(reason(session.start_as(start).await), Reason::CwdNotFound);
}

#[tokio::test]
async fn one_session_does_not_see_anothers_processes_unless_an_administrator_asks() {
    let here = Here::new();
    let (one, other) = (here.session().await, here.session().await);
    let process = one
        .start("say x")
        .await
        .unwrap()
        .process
        .unwrap()
        .process_id;
    let get = |all_sessions| v1::GetProcessRequest {
        process_id: process.clone(),
        all_sessions,
        ..Default::default()
    };
    let hidden = other
        .processes()
        .get_process(other.request(get(false)))
        .await;
    assert_eq!(reason(hidden), Reason::ProcessNotFound);
    other
        .processes()
        .get_process(other.request(get(true)))
        .await
        .unwrap();
    let read = |all_sessions| v1::ReadOutputRequest {
        process_id: process.clone(),
        all_sessions,
        ..Default::default()
    };
    other
        .processes()
        .read_output(other.request(read(true)))
        .await
        .unwrap();
    let hidden = other
        .processes()
        .read_output(other.request(read(false)))
        .await;
    assert_eq!(
        reason(hidden),
        Reason::ProcessNotFound,
        "not by way of a kept reader"
    );
}

#[tokio::test]
async fn a_page_is_waited_for_and_comes_with_the_exit() {
    let here = Here::new();
    let session = here.session().await;
    let started = session.start("run").await.unwrap().process.unwrap();
    let read = |cursor, seconds| v1::ReadOutputRequest {
        process_id: started.process_id.clone(),
        cursor,
        wait: Some(prost_types::Duration { seconds, nanos: 0 }),
        ..Default::default()
    };
    let mut client = session.processes();
    let empty = client
        .read_output(session.request(read(0, 0)))
        .await
        .unwrap()
        .into_inner();
    assert!(empty.page.unwrap().data.is_empty());
    assert!(empty.exit.is_none() && !empty.output_ended);
    let mut waiting = client.clone();
    let request = session.request(read(0, 300));
    let stop = v1::StopProcessRequest {
        process_id: started.process_id.clone(),
        ..Default::default()
    };
    let (page, stopped) = in_time(async {
        tokio::join!(
            waiting.read_output(request),
            client.stop_process(session.request(stop))
        )
    })
    .await;
    stopped.unwrap();
    let page = page.unwrap().into_inner();
    assert_eq!(&page.page.unwrap().data[..], b"bye");
    let ahead = failure(client.read_output(session.request(read(99, 0))).await);
    assert_eq!(ahead.reason, Reason::CursorAhead);
    assert_eq!(ahead.metadata["end"], "3");
    let last = client
        .read_output(session.request(read(3, 300)))
        .await
        .unwrap()
        .into_inner();
    let exit = last.exit.unwrap();
    assert_eq!(exit.cause(), v1::ExitCause::Stopped);
    assert_eq!(exit.stopped_by, session.id.to_string());
    assert!(last.output_ended);
}

async fn stream(
    session: &Session,
    open: v1::StreamOutputOpen,
    consumed: Vec<u64>,
) -> Result<tonic::Streaming<v1::StreamOutputResponse>, Status> {
    use v1::stream_output_request::Message;
    let messages = std::iter::once(Message::Open(open))
        .chain(consumed.into_iter().map(Message::Consumed))
        .map(|message| v1::StreamOutputRequest {
            message: Some(message),
        });
    let request = session.request(tokio_stream::iter(messages.collect::<Vec<_>>()));
    session
        .processes()
        .stream_output(request)
        .await
        .map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_stream_ends_with_the_exit_also_where_the_client_has_nothing_more_to_say() {
    let here = Here::new();
    let session = here.session().await;
    let text = format!("say {}", "0123456789".repeat(60_000));
    let process_id = session
        .start(&text)
        .await
        .unwrap()
        .process
        .unwrap()
        .process_id;
    let open = v1::StreamOutputOpen {
        process_id,
        cursor: 4,
        ..Default::default()
    };
    let mut messages = stream(&session, open, Vec::new()).await.unwrap();
    let (mut cursor, mut exits, mut ended) = (4, 0, 0);
    while let Some(message) = in_time(messages.message()).await.unwrap() {
        assert_eq!(ended, 0, "the end is in the last message");
        if let Some(page) = &message.page {
            assert_eq!(page.start, cursor);
            assert!(page.data.len() <= 256 << 10);
            cursor = page.next_cursor;
        }
        if let Some(exit) = message.exit {
            assert!(
                cursor >= exit.output_end,
                "all it wrote comes before the exit"
            );
            exits += 1;
        }
        ended += usize::from(message.output_ended);
    }
    assert_eq!((cursor, exits, ended), (600_000, 1, 1));
}

#[tokio::test]
async fn the_exit_does_not_wait_for_an_output_that_something_holds_open() {
    let here = Here::new();
    let session = here.session().await;
    let process_id = session
        .start("leave x")
        .await
        .unwrap()
        .process
        .unwrap()
        .process_id;
    let open = v1::StreamOutputOpen {
        process_id: process_id.clone(),
        ..Default::default()
    };
    let mut messages = stream(&session, open, Vec::new()).await.unwrap();
    let first = in_time(messages.message()).await.unwrap().unwrap();
    assert_eq!(&first.page.unwrap().data[..], b"x");
    assert!(first.exit.is_some() && !first.output_ended);
    let stop = v1::StopProcessRequest {
        process_id,
        ..Default::default()
    };
    session
        .processes()
        .stop_process(session.request(stop))
        .await
        .unwrap();
    let mut rest = Vec::new();
    while let Some(message) = in_time(messages.message()).await.unwrap() {
        assert!(message.exit.is_none(), "once");
        rest.push(message);
    }
    assert!(rest.last().unwrap().output_ended);
}

#[tokio::test]
async fn a_stream_must_begin_with_open_and_at_a_cursor_that_exists() {
    let here = Here::new();
    let session = here.session().await;
    let request = session.request(tokio_stream::iter([v1::StreamOutputRequest::default()]));
    let refused = failure(session.processes().stream_output(request).await);
    assert_eq!(refused.metadata["field"], "open");
    let process_id = session
        .start("say x")
        .await
        .unwrap()
        .process
        .unwrap()
        .process_id;
    let open = v1::StreamOutputOpen {
        process_id,
        cursor: 2,
        ..Default::default()
    };
    assert_eq!(
        reason(stream(&session, open, Vec::new()).await),
        Reason::CursorAhead
    );
}

/// What the engine was told of readers, as the fake one gives it away.
async fn told(session: &Session, process_id: &str) -> String {
    let write = v1::WriteStdinRequest {
        process_id: process_id.to_owned(),
        writer_id: "w".to_owned(),
        ..Default::default()
    };
    failure(
        session
            .processes()
            .write_stdin(session.request(write))
            .await,
    )
    .message
}

async fn until_times(session: &Session, process_id: &str, line: &str, times: usize) {
    in_time(async {
        while told(session, process_id).await.matches(line).count() != times {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn until_told(session: &Session, process_id: &str, what: &str) {
    in_time(async {
        while !told(session, process_id).await.contains(what) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_lossless_reader_attaches_acknowledges_and_is_gone_with_its_stream() {
    let here = Here::new();
    let session = here.session().await;
    let process_id = session
        .start("run x")
        .await
        .unwrap()
        .process
        .unwrap()
        .process_id;
    let open = v1::StreamOutputOpen {
        process_id: process_id.clone(),
        reader_id: "r1".to_owned(),
        ..Default::default()
    };
    let first = stream(&session, open.clone(), vec![1]).await.unwrap();
    until_told(&session, &process_id, "attach r1, consumed r1 1").await;
    // The same reader comes back before its old connection was seen to end.
    let mut second = stream(&session, open, vec![]).await.unwrap();
    // The engine counts connections: the one whose place was taken is let go.
    until_times(&session, &process_id, "attach r1", 2).await;
    until_times(&session, &process_id, "detach r1", 1).await;
    drop(first);
    assert_eq!(
        in_time(second.message())
            .await
            .unwrap()
            .unwrap()
            .page
            .unwrap()
            .data
            .len(),
        1
    );
    let lines = told(&session, &process_id).await;
    assert_eq!(lines.matches("detach").count(), 1, "the newer is there");
    drop(second);
    until_times(&session, &process_id, "detach r1", 2).await;
}

#[tokio::test]
async fn what_is_not_built_is_refused_by_name() {
    let here = Here::new();
    let session = here.session().await;
    let mut limits = start_request("say x");
    limits.limits = Some(v1::ProcessLimits {
        pids: Some(3),
        ..Default::default()
    });
    let refused = failure(session.start_as(limits).await);
    assert_eq!(refused.reason, Reason::LimitUnsupported);
    assert_eq!(refused.metadata["field"], "limits.pids");
    let mut sandbox = start_request("say x");
    sandbox.sandbox = v1::Sandbox::Strict.into();
    assert_eq!(reason(session.start_as(sandbox).await), Reason::Unsupported);
    let mut user = start_request("say x");
    user.user = "nobody".to_owned();
    assert_eq!(reason(session.start_as(user).await), Reason::Unsupported);
    let list = session.request(v1::ListProcessesRequest::default());
    let all = session
        .processes()
        .list_processes(list)
        .await
        .unwrap()
        .into_inner();
    assert!(all.processes.is_empty(), "nothing was started");
}
