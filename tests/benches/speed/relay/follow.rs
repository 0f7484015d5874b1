//! Output of one program as a stream of messages.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use executor_client::v1;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio_stream::Stream;
use tokio_util::io::ReaderStream;
use tonic::Status;

/// A program that runs.
pub(super) struct Running {
    pub(super) child: Child,
    /// A pipe, or a terminal's master.
    pub(super) output: pipe::Receiver,
}

type Waited = Pin<Box<dyn Future<Output = std::io::Result<Option<i32>>> + Send>>;

/// Output → exit → end.
pub(super) struct Follow {
    output: Option<ReaderStream<pipe::Receiver>>,
    exit: Option<Waited>,
}

impl Follow {
    pub(super) fn new(running: Running, read: usize) -> Self {
        let Running { mut child, output } = running;
        Self {
            output: Some(ReaderStream::with_capacity(output, read)),
            exit: Some(Box::pin(async move { Ok(child.wait().await?.code()) })),
        }
    }
}

impl Stream for Follow {
    type Item = Result<v1::StreamOutputResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(output) = &mut self.output {
            // An error is EIO: the last holder of the terminal closed it.
            if let Some(Ok(data)) = ready!(Pin::new(output).poll_next(cx)) {
                let page = v1::OutputPage {
                    data,
                    ..Default::default()
                };
                return Poll::Ready(Some(Ok(v1::StreamOutputResponse {
                    page: Some(page),
                    ..Default::default()
                })));
            }
            self.output = None;
        }
        let Some(exit) = &mut self.exit else {
            return Poll::Ready(None);
        };
        let code = ready!(exit.as_mut().poll(cx))?;
        self.exit = None;
        Poll::Ready(Some(Ok(v1::StreamOutputResponse {
            exit: Some(v1::Exit {
                code,
                ..Default::default()
            }),
            output_ended: true,
            ..Default::default()
        })))
    }
}
