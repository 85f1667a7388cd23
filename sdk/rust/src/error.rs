//! What goes wrong, by kind, and in the server's own words.

use std::fmt;

/// What a controller may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    NotFound,
    AlreadyExists,
    Conflict,
    Forbidden,
    /// The request is wrong, by the host's or the API server's word.
    Invalid,
    /// The `next` of a list is too old: begin anew.
    Gone,
    TooMany,
    /// An answer, or an object: ask for less.
    TooLarge,
    Timeout,
    Unavailable,
    /// Anything else; see [`Error::reason`]. Errors of a controller's own are of this kind.
    Other,
}

/// A request that failed, or an error of a controller's own (`"text".into()`).
#[derive(Clone, Debug)]
pub struct Error {
    pub kind: ErrorKind,
    /// HTTP status; 0 if no server was asked.
    pub code: u16,
    /// `NotFound`; empty for errors of a controller's own.
    pub reason: String,
    /// What was tried, and the server's own words.
    pub message: String,
}

impl Error {
    pub(crate) fn of_answer(what: &str, code: u16, reason: &str, message: &str) -> Error {
        Error {
            kind: kind_of(reason, code),
            code,
            reason: reason.to_owned(),
            message: format!("{}: {}: {}", what, reason, message),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(message: String) -> Error {
        Error { kind: ErrorKind::Other, code: 0, reason: String::new(), message }
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Error {
        message.to_owned().into()
    }
}

/// By reason first: 409 stands for two of them.
fn kind_of(reason: &str, code: u16) -> ErrorKind {
    match reason {
        "NotFound" => ErrorKind::NotFound,
        "AlreadyExists" => ErrorKind::AlreadyExists,
        "Conflict" => ErrorKind::Conflict,
        "Forbidden" => ErrorKind::Forbidden,
        "Invalid" | "BadRequest" | "InvalidRequest" => ErrorKind::Invalid,
        "Expired" | "Gone" => ErrorKind::Gone,
        "TooManyRequests" | "TooManyCalls" => ErrorKind::TooMany,
        "TooLarge" | "RequestEntityTooLarge" => ErrorKind::TooLarge,
        "Timeout" | "ServerTimeout" => ErrorKind::Timeout,
        "Unavailable" | "ServiceUnavailable" => ErrorKind::Unavailable,
        _ => match code {
            400 | 422 => ErrorKind::Invalid,
            403 => ErrorKind::Forbidden,
            404 => ErrorKind::NotFound,
            409 => ErrorKind::Conflict,
            410 => ErrorKind::Gone,
            413 => ErrorKind::TooLarge,
            429 => ErrorKind::TooMany,
            503 => ErrorKind::Unavailable,
            504 => ErrorKind::Timeout,
            _ => ErrorKind::Other,
        },
    }
}
