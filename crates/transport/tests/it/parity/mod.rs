//! The embedded store answers as a real server does: the same words, frame by frame.

mod blocking;
mod connections;
mod generated;
mod groups;
mod keys;
mod pair;
mod streams;
