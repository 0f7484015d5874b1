//! Messages with descriptors beside them (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Most descriptors beside one message.
pub const DESCRIPTORS: usize = 8;
/// Most descriptors that the kernel passes at once (`SCM_MAX_FD`).
pub const DESCRIPTORS_AT_ONCE: usize = 253;

/// Sends one message of a `SOCK_SEQPACKET` socket with `descriptors` beside it.
///
/// # Errors
/// `EINVAL` for more than [`DESCRIPTORS`], `EAGAIN` when the socket is
/// non-blocking and full, `EPIPE` when the other end is gone.
pub fn send(
    socket: BorrowedFd<'_>,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(
            socket,
            &[IoSlice::new(message)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )
    })?;
    Ok(())
}

/// Receives one message into `buffer` and the descriptors beside it, which are
/// close-on-exec. `None` when the other end is gone.
///
/// # Errors
/// `EAGAIN` when the socket is non-blocking and empty.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(buffer)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            // The other end died with a message of ours unread.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            answer => break answer?,
        }
    };
    let descriptors = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        })
        .flatten()
        .collect();
    // No message of ours is empty.
    Ok((received.bytes > 0).then_some((received.bytes, descriptors)))
}

/// Sends the beginning of `bytes` on a `SOCK_STREAM` socket, with
/// `descriptors` beside the first of them. Does not block. Returns how many
/// bytes went; once any has, so have the descriptors.
///
/// # Errors
/// `EAGAIN` when nothing can be sent now, `EINVAL` for more than
/// [`DESCRIPTORS_AT_ONCE`], `EPIPE` when the other end is gone.
pub fn send_some(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        )
    })?)
}

/// What one [`receive_some`] gave.
#[derive(Debug)]
pub struct Received {
    /// How many; 0 when the other end is gone.
    pub bytes: usize,
    /// The descriptors that one call of [`send_some`] sent, close-on-exec;
    /// those that this process had no room for are missing at the end. `None`:
    /// none were sent beside these bytes.
    pub descriptors: Option<Vec<OwnedFd>>,
}

/// Receives bytes of a `SOCK_STREAM` socket. Does not block. The kernel ends
/// what it gives at once where descriptors were sent, so that two batches of
/// them never come together (unix(7)).
///
/// # Errors
/// `EAGAIN` when nothing is there.
pub fn receive_some(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(buffer)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            // The other end died with something of ours unread.
            Err(rustix::io::Errno::CONNRESET) => {
                return Ok(Received {
                    bytes: 0,
                    descriptors: None,
                });
            }
            answer => break answer?,
        }
    };
    let rights: Vec<Vec<OwnedFd>> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights.collect()),
            _ => None,
        })
        .collect();
    let truncated = received.flags.contains(ReturnFlags::CTRUNC);
    let descriptors = (truncated || !rights.is_empty()).then(|| rights.into_iter().flatten());
    Ok(Received {
        bytes: received.bytes,
        descriptors: descriptors.map(Iterator::collect),
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn batches_of_descriptors_come_apart_and_where_they_were_sent() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        for (bytes, descriptors) in [
            (&b"one"[..], vec![]),
            (b"two", vec![reader.as_fd(), writer.as_fd()]),
            (b"three", vec![]),
            (b"four", vec![reader.as_fd()]),
        ] {
            let sent = send_some(ours.as_fd(), bytes, &descriptors).expect("sent");
            assert_eq!(sent, bytes.len());
        }
        drop(ours);
        let (mut all, mut batches) = (Vec::new(), Vec::new());
        loop {
            let mut buffer = [0; 64];
            let received = receive_some(theirs.as_fd(), &mut buffer).expect("received");
            if received.bytes == 0 {
                break;
            }
            if let Some(batch) = &received.descriptors {
                batches.push((all.len(), received.bytes, batch.len()));
            }
            all.extend_from_slice(&buffer[..received.bytes]);
        }
        assert_eq!(all, b"onetwothreefour");
        let counts: Vec<_> = batches.iter().map(|(_, _, count)| *count).collect();
        assert_eq!(counts, [2, 1]);
        for ((begin, length, _), place) in batches.iter().zip([3, 11]) {
            assert!((*begin..begin + length).contains(&place), "{batches:?}");
        }
    }
}
