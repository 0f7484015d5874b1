//! What arrives from outside: field values, bytes, connections, sizes.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use executor_client::{Reason, v1};
use executor_proto::reason::Failure;
use executor_tests::{Daemon, DaemonOptions, eventually, in_time};

use super::dice::{Dice, hostile_round};
use super::{Raw, is_well, reason, start};

#[tokio::test]
async fn invariant_9_no_value_of_any_field_harms_the_daemon() {
    let daemon = Daemon::start().await;
    let raw = Raw::new(&daemon).await;
    let mut sleeper = start("exec sleep 1000");
    sleeper.io = Some(v1::start_process_request::Io::Terminal(
        v1::TerminalIo::default(),
    ));
    let known = sleeper.process_id.clone();
    raw.processes()
        .start_process(raw.with(sleeper))
        .await
        .unwrap();
    let mut dice = Dice(9);
    for _ in 0..40 {
        in_time("a round", hostile_round(&raw, &mut dice, &known)).await;
    }
    is_well(&daemon).await;
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn invariant_9_garbage_on_the_socket_harms_nobody() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let daemon = Daemon::start().await;
    // The first command opens what is kept.
    is_well(&daemon).await;
    let before = daemon.descriptors().await;
    let mut dice = Dice(5);
    let mut silent = Vec::new();
    for round in 0..200 {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        let mut bytes = if round % 2 == 0 {
            PREFACE.to_vec()
        } else {
            Vec::new()
        };
        // A frame of a random kind, or no frame at all.
        let body = dice.bytes();
        if dice.yes() {
            let length = u32::try_from(body.len()).unwrap().to_be_bytes();
            bytes.extend(&length[1..]);
            bytes.extend([
                dice.next().to_le_bytes()[0] % 12,
                dice.next().to_le_bytes()[0],
            ]);
            bytes.extend(dice.narrow().to_be_bytes());
        }
        bytes.extend(body);
        // The daemon may have hung up already.
        let _ = stream.write_all(&bytes);
        if round % 4 == 0 {
            silent.push(stream);
        }
    }
    // Those that say nothing more are still there.
    is_well(&daemon).await;
    drop(silent);
    eventually("the connections' descriptors", || async {
        (daemon.descriptors().await <= before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn invariant_9_connections_and_calls_have_a_bound_that_frees_itself() {
    let daemon = Daemon::start_with(DaemonOptions {
        configuration: "[limits]\nconnections = 8\ncalls = 16\n".to_owned(),
        ..DaemonOptions::default()
    })
    .await;
    let raw = Raw::new(&daemon).await;
    let sleeper = start("exec sleep 1000");
    let id = sleeper.process_id.clone();
    raw.processes()
        .start_process(raw.with(sleeper))
        .await
        .unwrap();

    let mut waiting = tokio::task::JoinSet::new();
    let limit = eventually("the bound of calls", || {
        let get = v1::GetProcessRequest {
            process_id: id.clone(),
            wait: Some(prost_types::Duration {
                seconds: 300,
                nanos: 0,
            }),
            all_sessions: false,
        };
        let (mut processes, get) = (raw.processes(), raw.with(get));
        waiting.spawn(async move { processes.get_process(get).await });
        let mut machines = raw.machines();
        let info = raw.with(v1::GetMachineRequest {});
        async move { machines.get_machine(info).await.err() }
    })
    .await;
    assert_eq!(reason(&limit), Some(Reason::CallLimit));
    let failure = Failure::from_status(&limit).unwrap();
    assert_eq!(failure.metadata["limit"], "calls");
    waiting.shutdown().await;
    eventually("room for calls", || async {
        let info = raw.with(v1::GetMachineRequest {});
        raw.machines().get_machine(info).await.ok()
    })
    .await;

    let mut held = Vec::new();
    let closed = |mut stream: UnixStream| {
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        // A connection that is served begins with SETTINGS.
        match stream.read(&mut [0; 9]) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(stream),
        }
    };
    loop {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        // Refused here already, it cannot be written to.
        let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        let Some(stream) = tokio::task::spawn_blocking(move || closed(stream))
            .await
            .unwrap()
        else {
            break;
        };
        held.push(stream);
        assert!(held.len() <= 8, "no bound");
    }
    drop(held);
    eventually("room for connections", || async {
        executor_client::Machine::connect(&daemon.address())
            .await
            .ok()
    })
    .await;
    is_well(&daemon).await;
}

#[tokio::test]
async fn a_start_of_a_million_strings_is_refused_by_its_size() {
    let daemon = Daemon::start().await;
    let raw = Raw::new(&daemon).await;
    let mut arguments = start("");
    arguments.command = Some(v1::start_process_request::Command::Argv(v1::ArgvCommand {
        argv: vec![b"x".to_vec(); 600_000],
    }));
    let mut set = start(":");
    set.environment = Some(v1::Environment {
        unset: vec![b"x".to_vec(); 600_000],
        ..Default::default()
    });
    for request in [arguments, set] {
        let refused = raw.processes().start_process(raw.with(request)).await;
        let failure = Failure::from_status(&refused.unwrap_err()).unwrap();
        assert_eq!(failure.reason, Reason::InvalidArgument);
        assert_eq!(failure.metadata["limit"], "command_bytes");
    }
}
