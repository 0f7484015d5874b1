//! Where the frames of HTTP/2 begin (RFC 9113, section 4.1).

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From the client.
    Requests,
    /// From the daemon.
    Answers,
}

/// Finds frames in what goes one way.
#[derive(Debug)]
pub(super) struct Frames {
    way: Way,
    /// Of the client's preface, or of a frame's payload, still to come.
    skip: usize,
    header: Vec<u8>,
    /// The present frame is the last one of its request.
    last: bool,
}

impl Frames {
    /// Bytes of `PRI * HTTP/2.0…`.
    const PREFACE: usize = 24;
    const HEADER: usize = 9;
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const END_STREAM: u8 = 1;

    /// At the beginning of a connection.
    pub(super) fn new(way: Way) -> Self {
        let skip = match way {
            Way::Requests => Self::PREFACE,
            Way::Answers => 0,
        };
        Self {
            way,
            skip,
            header: Vec::new(),
            last: false,
        }
    }

    /// Whether a request ended in this piece, or an answer began.
    pub(super) fn take(&mut self, mut piece: &[u8]) -> bool {
        let mut found = false;
        while !piece.is_empty() {
            let skipped = self.skip.min(piece.len());
            piece = &piece[skipped..];
            self.skip -= skipped;
            if self.skip > 0 {
                break;
            }
            found |= std::mem::take(&mut self.last);
            let wanted = (Self::HEADER - self.header.len()).min(piece.len());
            self.header.extend_from_slice(&piece[..wanted]);
            piece = &piece[wanted..];
            if self.header.len() < Self::HEADER {
                break;
            }
            let header = std::mem::take(&mut self.header);
            let length = [0, header[0], header[1], header[2]];
            self.skip = usize::try_from(u32::from_be_bytes(length)).unwrap();
            let (kind, flags) = (header[3], header[4]);
            match self.way {
                Way::Requests => {
                    let carries = kind == Self::DATA || kind == Self::HEADERS;
                    self.last = carries && flags & Self::END_STREAM != 0;
                }
                Way::Answers => found |= kind == Self::HEADERS,
            }
            if self.skip == 0 {
                found |= std::mem::take(&mut self.last);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.extend(vec![b'x'; length.into()]);
        frame
    }

    #[test]
    fn a_request_ends_with_its_last_byte_whatever_the_pieces() {
        let mut all = vec![b'P'; Frames::PREFACE];
        all.extend(frame(4, 0, 18));
        all.extend(frame(Frames::HEADERS, 4, 30));
        all.extend(frame(Frames::DATA, Frames::END_STREAM, 5));
        let end = all.len();
        all.extend(frame(8, 0, 4));
        for size in [1, 5, 23, 24, 25, 100, all.len()] {
            let mut frames = Frames::new(Way::Requests);
            let mut passed = 0;
            for piece in all.chunks(size) {
                let before = passed;
                passed += piece.len();
                let due = before < end && end <= passed;
                assert_eq!(frames.take(piece), due, "{size} at {passed}");
            }
        }
    }
}
