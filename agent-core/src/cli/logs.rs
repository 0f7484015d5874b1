//! `executor logs`

use std::time::Duration;

use executor_client::{ExitStatus, OutputEvent, OutputOptions, Process, runs, v1};

use super::args::LogsArgs;
use super::failure::{CliError, notice};
use super::select::select;
use super::session_file::persistent_session;
use super::sink::{Sink, Target};
use super::{Context, daemon, json};

/// Largest page of one read.
const PAGE: u32 = 65_536;

/// Prints output as bytes on stdout; what is gone is told on stderr.
pub(crate) async fn run(context: &Context, args: &LogsArgs) -> Result<u8, CliError> {
    let machine = daemon::find_or_start(context).await?;
    let session = persistent_session(context, &machine).await?;
    let process = select(&session, &args.id).await?;
    let info = process.info().await?;
    let end = info.output_end;
    let cursor = args.tail.map_or(0, |tail| end.saturating_sub(tail));
    let printer = Printer {
        sink: Sink::start()?,
        json: context.json,
    };
    if args.follow {
        follow(&process, cursor, &printer).await?;
    } else {
        print_up_to(&process, cursor, end, &printer).await?;
    }
    printer.sink.finish().await?;
    Ok(0)
}

async fn follow(process: &Process, cursor: u64, printer: &Printer) -> Result<(), CliError> {
    let mut stream = process.stream_output(OutputOptions {
        cursor,
        reader_id: None,
    });
    while let Some(event) = stream.next().await? {
        match event {
            OutputEvent::Page(page) => printer.page(&page).await?,
            OutputEvent::Exit(exit) if printer.json => {
                let mut line = json::exit(&exit);
                if let Some(object) = line.as_object_mut() {
                    object.insert("event".into(), "exit".into());
                }
                printer.line(&line).await?;
            }
            OutputEvent::Exit(exit) => match exit.status {
                ExitStatus::Code(0) => {}
                _ => notice(format_args!(
                    "{} ended: {}",
                    process.id(),
                    super::table::how(&exit)
                )),
            },
            OutputEvent::End => {}
        }
    }
    Ok(())
}

/// What there is now; what is printed meanwhile is left for the next time.
async fn print_up_to(
    process: &Process,
    mut cursor: u64,
    end: u64,
    printer: &Printer,
) -> Result<(), CliError> {
    while cursor < end {
        let answer = process.read_output(cursor, PAGE, Duration::ZERO).await?;
        let Some(page) = answer.page.filter(|page| page.next_cursor > cursor) else {
            break;
        };
        cursor = page.next_cursor;
        printer.page(&page).await?;
    }
    Ok(())
}

struct Printer {
    sink: Sink,
    json: bool,
}

impl Printer {
    async fn page(&self, page: &v1::OutputPage) -> Result<(), CliError> {
        if !self.json {
            if let Some(gap) = &page.gap {
                // In its place: what came before is written first.
                self.sink.settle().await?;
                tell_gap(gap);
            }
            return self.sink.write(Target::Stdout, page.data.clone()).await;
        }
        if let Some(gap) = &page.gap {
            self.line(&json::gap(gap)).await?;
        }
        let mut offset = page.start;
        for (stream, data) in runs(page) {
            self.line(&json::output(stream, offset, &data)).await?;
            offset += data.len() as u64;
        }
        Ok(())
    }

    async fn line(&self, line: &serde_json::Value) -> Result<(), CliError> {
        self.sink.write(Target::Stdout, format!("{line}\n")).await
    }
}

/// Says on stderr what is no longer there.
pub(crate) fn tell_gap(gap: &v1::OutputGap) {
    use std::io::Write as _;
    let bytes = gap.to.saturating_sub(gap.from);
    // Whoever has closed stderr does not want to know.
    let _ = writeln!(std::io::stderr(), "[… {bytes} bytes not retained …]");
}
