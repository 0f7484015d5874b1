//! The client against a small machine in memory that drops connections.

#[cfg(test)]
mod fake;
#[cfg(test)]
mod output;
#[cfg(test)]
mod retries;
#[cfg(test)]
mod stdin;
