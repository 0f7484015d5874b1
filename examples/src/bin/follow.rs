//! Follow a long command, type into it, stop another with all it started.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::time::Duration;

use executor_client::{Machine, OutputEvent, SessionOptions};

fn main() -> anyhow::Result<()> {
    executor_daemon::reaper_entry();
    tokio::runtime::Runtime::new()?.block_on(example())
}

async fn example() -> anyhow::Result<()> {
    let embedded = executor_daemon::embed(executor_daemon::Config::for_embedding())?;
    let connector = embedded.connector();
    let machine = Machine::from_connector(move || {
        let connector = connector.clone();
        async move { connector.connect().await }
    });
    let session = machine.open_session(SessionOptions::default()).await?;

    let sorted = session.command("sort").stdin_pipe().spawn().await?;
    let mut stdin = sorted.stdin();
    stdin.write("pear\napple\n").await?;
    stdin.close().await?;
    let (mut output, mut stream) = (Vec::new(), sorted.output());
    while let Some(event) = stream.next().await? {
        match event {
            OutputEvent::Page(page) => output.extend_from_slice(&page.data),
            OutputEvent::Exit(exit) => anyhow::ensure!(exit.success()),
            OutputEvent::End => {}
        }
    }
    anyhow::ensure!(output == b"apple\npear\n");
    println!("sorted: {:?}", String::from_utf8_lossy(&output));

    let server = session.command("sleep 600 & sleep 600").spawn().await?;
    let stopped = server.stop(Duration::from_secs(2)).await?;
    anyhow::ensure!(stopped.survivors.is_empty());
    println!("stopped {} processes", stopped.signalled);

    session.end(Duration::from_secs(2)).await?;
    embedded.shutdown().await;
    Ok(())
}
