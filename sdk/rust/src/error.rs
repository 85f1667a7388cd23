//! Errors by kind, with the message of the server.

use std::fmt;

/// Kinds of errors that a controller can distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    NotFound,
    AlreadyExists,
    Conflict,
    Forbidden,
    /// The host or the API server rejected the request as invalid.
    Invalid,
    /// The `next` of a list has expired: restart the list.
    Gone,
    TooMany,
    /// An answer or an object is too large: request less.
    TooLarge,
    Timeout,
    Unavailable,
    /// Other errors, with [`Error::reason`]; also the errors that a controller creates.
    Other,
}

/// A failed request, or an error that the controller creates (`"text".into()`).
#[derive(Clone, Debug)]
pub struct Error {
    pub kind: ErrorKind,
    /// HTTP status; 0 if no request was sent.
    pub code: u16,
    /// Reason, such as `NotFound`; empty for errors that the controller creates.
    pub reason: String,
    /// The operation, and the message of the server.
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

/// By reason first: status 409 has two reasons.
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
