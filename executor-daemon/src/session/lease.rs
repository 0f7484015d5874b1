//! The lease of a session: how long it lives without contact. Pure; time is
//! `CLOCK_MONOTONIC`, as `tokio::time` has it.

use std::time::Duration;

use tokio::time::Instant;

/// See the module's documentation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    /// `None`: the session never ends by itself.
    length: Option<Duration>,
    last_contact: Instant,
}

impl Lease {
    pub(crate) fn new(length: Option<Duration>, now: Instant) -> Self {
        Self {
            length,
            last_contact: now,
        }
    }

    /// The client was heard of.
    pub(crate) fn touch(&mut self, now: Instant) {
        self.last_contact = self.last_contact.max(now);
    }

    /// When it runs out.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.length.map(|length| self.last_contact + length)
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contact_renews_a_lease_and_none_never_ends() {
        let start = Instant::now();
        let mut lease = Lease::new(Some(Duration::from_secs(30)), start);
        assert!(!lease.is_over(start + Duration::from_secs(29)));
        lease.touch(start + Duration::from_secs(20));
        assert!(!lease.is_over(start + Duration::from_secs(49)));
        assert!(lease.is_over(start + Duration::from_secs(50)));
        lease.touch(start);
        assert!(
            lease.is_over(start + Duration::from_secs(50)),
            "time does not go back"
        );
        assert_eq!(Lease::new(None, start).deadline(), None);
    }
}
