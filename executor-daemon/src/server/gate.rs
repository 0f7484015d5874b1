//! How much may be on its way at once, whatever the clients do.
//!
//! A layer around every service, authentication included. It counts calls from
//! their first header to the end of their answer, and the bytes of messages
//! that have begun and not yet arrived whole. Beyond a bound the call is
//! refused with the bound's name: nobody waits for somebody else's message.
//!
//! Invariant: what a call holds is given back when its bodies are dropped,
//! whatever way it ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use executor_proto::reason::{Failure, Reason};
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::limits::Limits;

/// Bytes before each message: a flag and the message's length.
const PREFIX: usize = 5;

/// The layer. Its clones share one account.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    calls: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    calls_limit: usize,
    bytes_limit: usize,
}

impl Gate {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            calls: Arc::new(Semaphore::new(limits.calls)),
            bytes: Arc::new(Semaphore::new(limits.request_bytes)),
            calls_limit: limits.calls,
            bytes_limit: limits.request_bytes,
        }
    }
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated {
            gate: self.clone(),
            inner,
        }
    }
}

/// A service behind the gate.
#[derive(Debug, Clone)]
pub(super) struct Gated<S> {
    gate: Gate,
    inner: S,
}

impl<S, B> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<Held<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Ok(permit) = Arc::clone(&self.gate.calls).try_acquire_owned() else {
            let refusal = Status::from(refused("calls", self.gate.calls_limit));
            let response = refusal.into_http::<()>().map(|()| Held {
                body: None,
                _call: None,
            });
            return Box::pin(std::future::ready(Ok(response)));
        };
        let metered = |body| {
            Body::new(Metered {
                body,
                message: Message::default(),
                held: None,
                bytes: Arc::clone(&self.gate.bytes),
                limit: self.gate.bytes_limit,
            })
        };
        let answer = self.inner.call(request.map(metered));
        Box::pin(async move {
            let response = answer.await?;
            Ok(response.map(|body| Held {
                body: Some(body),
                _call: Some(permit),
            }))
        })
    }
}

fn refused(limit: &'static str, value: usize) -> Failure {
    Failure::new(
        Reason::CallLimit,
        format!(
            "the daemon takes at most {value} {limit} at a time, and they are taken; \
             try again, or raise limits.{limit}"
        ),
    )
    .with("limit", limit)
}

/// The body of an answer; its call counts until it is dropped.
#[derive(Debug)]
pub(super) struct Held<B> {
    /// `None`: a refusal, which is all in the headers.
    body: Option<B>,
    _call: Option<OwnedSemaphorePermit>,
}

impl<B: HttpBody + Unpin> HttpBody for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match &mut self.get_mut().body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// How much of a message has come.
#[derive(Debug, Default)]
struct Message {
    prefix: [u8; PREFIX],
    /// Bytes of the prefix that have come.
    begun: usize,
    /// Bytes of the message itself.
    come: usize,
    length: usize,
}

impl Message {
    /// Follows the stream of messages through `data`. Returns the bytes of the
    /// last one, if it is not whole.
    fn pass(&mut self, mut data: &[u8]) -> usize {
        while !data.is_empty() {
            let used = if let Some(missing) = self.prefix.get_mut(self.begun..)
                && !missing.is_empty()
            {
                let n = missing.len().min(data.len());
                for (to, from) in missing.iter_mut().zip(data) {
                    *to = *from;
                }
                self.begun += n;
                let [_, length @ ..] = self.prefix;
                self.length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                n
            } else {
                let n = (self.length - self.come).min(data.len());
                self.come += n;
                n
            };
            if self.begun == PREFIX && self.come == self.length {
                *self = Self::default();
            }
            data = data.get(used..).unwrap_or_default();
        }
        self.come
    }
}

/// The body of a request: what of it has to be kept is on the gate's account.
struct Metered {
    body: Body,
    message: Message,
    held: Option<OwnedSemaphorePermit>,
    bytes: Arc<Semaphore>,
    limit: usize,
}

impl Metered {
    fn hold(&mut self, kept: usize) -> Result<(), Status> {
        if kept == 0 {
            self.held = None;
            return Ok(());
        }
        let before = self
            .held
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(kept.saturating_sub(before)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.bytes)
            .try_acquire_many_owned(more)
            .map_err(|_| Status::from(refused("request_bytes", self.limit)))?;
        match &mut self.held {
            Some(held) => held.merge(permit),
            None => self.held = Some(permit),
        }
        Ok(())
    }
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        // A request that its client gave up is no whole one, and whoever reads it
        // must not take a part for all: hyper ends the body of a stream that was
        // reset with NO_ERROR, tonic takes CANCELLED for the end of a request.
        let broken_off = match &frame {
            None => !this.body.is_end_stream(),
            Some(Err(status)) => status.code() == Code::Cancelled,
            Some(Ok(_)) => false,
        };
        if broken_off {
            let status = Status::aborted("the client broke the request off before its end");
            return Poll::Ready(Some(Err(status)));
        }
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let kept = this.message.pass(data);
            if let Err(refusal) = this.hold(kept) {
                return Poll::Ready(Some(Err(refusal)));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_that_is_not_whole_counts() {
        let mut stream = Vec::new();
        for length in [0u8, 3, 7] {
            stream.extend([0, 0, 0, 0, length]);
            stream.extend(vec![9; usize::from(length)]);
        }
        for size in 1..=stream.len() {
            let mut message = Message::default();
            let last = stream.chunks(size).map(|chunk| message.pass(chunk)).last();
            assert_eq!(last, Some(0), "in pieces of {size}");
        }
        let mut message = Message::default();
        assert_eq!(message.pass(&[0, 0, 0, 0, 9, 1, 2]), 2);
        assert_eq!(message.pass(&[3]), 3);
        assert_eq!(message.pass(&[4, 5, 6, 7, 8, 9, 0, 0]), 0);
        assert_eq!(message.pass(&[255, 255, 255, 1]), 1);
    }

    #[test]
    fn what_is_kept_is_bounded_and_given_back() {
        let limits = Limits {
            request_bytes: 10,
            ..Limits::default()
        };
        let gate = Gate::new(&limits);
        let body = || Metered {
            body: Body::empty(),
            message: Message::default(),
            held: None,
            bytes: Arc::clone(&gate.bytes),
            limit: gate.bytes_limit,
        };
        let (mut one, mut two) = (body(), body());
        one.hold(6).unwrap();
        one.hold(8).unwrap();
        let refusal = two.hold(3).unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::ResourceExhausted);
        assert!(refusal.message().contains("limits.request_bytes"));
        two.hold(2).unwrap();
        one.hold(0).unwrap();
        two.hold(10).unwrap();
        drop(two);
        one.hold(10).unwrap();
    }
}
