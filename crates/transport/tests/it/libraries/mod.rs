//! Client libraries work with the embedded store unchanged.

mod redis_py;
mod redis_rs;
