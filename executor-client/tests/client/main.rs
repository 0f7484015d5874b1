//! The client against a small machine in memory that drops connections.

#[cfg(test)]
mod fake;
#[cfg(test)]
mod fake_files;
#[cfg(test)]
mod files;
#[cfg(test)]
mod output;
#[cfg(test)]
mod retries;
#[cfg(test)]
mod stdin;
