//! The lease of a session: how long it lives without contact. Pure; time is
//! `CLOCK_MONOTONIC`, as `tokio::time` has it.

use std::time::Duration;

use tokio::time::Instant;

/// See the module's documentation.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) struct Lease {
    /// `None`: the session never ends by itself.
    length: Option<Duration>,
    #[serde(with = "crate::process::moment")]
    last_contact: Instant,
    /// Since when no daemon is there through which a client could be heard.
    #[serde(with = "crate::process::moment::optional")]
    standing_since: Option<Instant>,
}

impl Lease {
    pub(crate) fn new(length: Option<Duration>, now: Instant) -> Self {
        Self {
            length,
            last_contact: now,
            standing_since: None,
        }
    }

    /// No client can be heard from now on: the time stands still.
    pub(crate) fn stand_still(&mut self, now: Instant) {
        self.standing_since.get_or_insert(now);
    }

    /// Clients can be heard again: the time goes on.
    pub(crate) fn go_on(&mut self, now: Instant) {
        if let Some(since) = self.standing_since.take() {
            self.last_contact += now.saturating_duration_since(since);
        }
    }

    /// The client was heard of.
    pub(crate) fn touch(&mut self, now: Instant) {
        self.last_contact = self.last_contact.max(now);
    }

    /// When it runs out; `None` for never, or while the time stands still.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let length = self.length.filter(|_| self.standing_since.is_none())?;
        Some(self.last_contact + length)
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_stands_still_while_no_client_can_be_heard() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lease = Lease::new(Some(Duration::from_secs(30)), start);
        lease.stand_still(at(20));
        lease.stand_still(at(25));
        assert!(!lease.is_over(at(1000)));
        lease.go_on(at(1000));
        assert!(!lease.is_over(at(1009)));
        assert!(lease.is_over(at(1010)));
    }

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
