//! Ten lines from nothing to a command's result: the daemon inside this
//! program, nothing installed, nothing left behind.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use executor_client::{Machine, SessionOptions};

fn main() -> anyhow::Result<()> {
    // Our own program serves as the small process that watches over a command.
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
    let done = session.run("echo \"hello from $(uname -s)\"").await?;
    anyhow::ensure!(done.exit.success() && done.output == b"hello from Linux\n");
    println!(
        "the command printed {:?}",
        String::from_utf8_lossy(&done.output)
    );
    embedded.shutdown().await;
    Ok(())
}
