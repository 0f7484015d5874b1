//! A client that is not ours: Python, generated from our .proto files, over
//! the daemon's socket.

use std::path::{Path, PathBuf};
use std::process::Command;

use executor_tests::Daemon;

const CLIENT: &str = include_str!("python_client.py");

/// The Python with grpcio-tools: `EXECUTOR_TEST_PYTHON`, or the virtual
/// environment that `.ci/run` makes.
fn python() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let python = std::env::var_os("EXECUTOR_TEST_PYTHON")
        .map_or_else(|| here.join(".venv/bin/python"), PathBuf::from);
    if !python.is_file() {
        // The one thing the tests need besides Rust; made once.
        let venv = here.join(".venv");
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
        let packages = [
            "grpcio-tools==1.85.*",
            "grpcio-reflection==1.85.*",
            "grpcio-health-checking==1.85.*",
        ];
        run(Command::new(venv.join("bin/pip"))
            .args(["install", "--quiet"])
            .args(packages));
        return venv.join("bin/python");
    }
    python
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[tokio::test]
async fn a_python_client_starts_streams_and_stops() {
    let daemon = Daemon::start().await;
    let generated = daemon.directory().join("generated");
    std::fs::create_dir(&generated).unwrap();
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../executor-proto/proto");
    let (python, socket, work) = (python(), daemon.socket(), daemon.work());
    let printed = tokio::task::spawn_blocking(move || {
        run(Command::new(&python)
            .args(["-m", "grpc_tools.protoc"])
            .arg(format!("-I{}", protos.display()))
            .arg(format!("--python_out={}", generated.display()))
            .arg(format!("--grpc_python_out={}", generated.display()))
            .args(["machine", "session", "process"].map(|name| {
                protos
                    .join(format!("executor/v1/{name}.proto"))
                    .display()
                    .to_string()
            })));
        std::fs::write(generated.join("client.py"), CLIENT).unwrap();
        run(Command::new(&python)
            .arg(generated.join("client.py"))
            .arg(socket)
            .arg(work)
            .env("PYTHONPATH", &generated))
    });
    assert_eq!(printed.await.unwrap().trim(), "all held");
}
