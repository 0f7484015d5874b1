use std::ffi::CString;
use std::time::{Duration, SystemTime};

use super::message::{Order, Plan, Report};
use crate::process::control::SignalTarget;
use crate::process::exit::{SpawnFailure, SpawnStage, Usage, WaitStatus};
use crate::process::tree::LeaderExit;

#[test]
fn messages_survive_their_encoding_and_no_prefix_of_them_is_one() {
    for order in [
        Order::Launch,
        Order::Terminate,
        Order::Kill,
        Order::Signal(SignalTarget::Leader, 9),
        Order::Signal(SignalTarget::Group, 64),
    ] {
        let bytes = order.encode();
        assert_eq!(Order::decode(&bytes), Some(order));
        for length in 0..bytes.len() {
            assert_eq!(Order::decode(&bytes[..length]), None);
        }
    }
    let exit = |status| LeaderExit {
        status,
        usage: Usage {
            user_cpu: Duration::from_micros(1_500_001),
            system_cpu: Duration::from_nanos(7),
            max_rss: 1 << 40,
            block_inputs: 3,
            block_outputs: 4,
            cgroup_peak: None,
        },
        ended_at: SystemTime::now(),
    };
    for report in [
        Report::Ready,
        Report::Begun(1),
        Report::Started(4_194_304),
        Report::Failed(SpawnFailure {
            stage: SpawnStage::WorkingDirectory,
            errno: libc::EACCES,
        }),
        Report::Exited(exit(WaitStatus::Code(255))),
        Report::Exited(exit(WaitStatus::Signal(9))),
        Report::Exited(exit(WaitStatus::Lost)),
    ] {
        let bytes = report.encode();
        assert!(bytes.len() <= super::message::LONGEST);
        assert_eq!(Report::decode(&bytes), Some(report));
        for length in 0..bytes.len() {
            assert_eq!(Report::decode(&bytes[..length]), None);
        }
    }
}

#[test]
fn a_plan_survives_its_encoding_and_a_false_count_is_refused() {
    let list = |texts: &[&str]| texts.iter().map(|t| CString::new(*t).unwrap()).collect();
    let plan = Plan {
        programs: list(&["/bin/sh", ""]),
        argv: list(&["sh", "-c", "echo é"]),
        envp: list(&["A=b"]),
        terminal: list(&[]),
    };
    let bytes = plan.encode();
    assert_eq!(Plan::decode(&bytes), Some(plan));
    assert_eq!(Plan::decode(&u64::MAX.to_le_bytes()), None);
    assert_eq!(Plan::decode(b"x"), None);
}
