package controller

import "errors"

// What a controller may want to tell apart, with errors.Is.
var (
	ErrNotFound      = errors.New("not found")
	ErrAlreadyExists = errors.New("already exists")
	ErrConflict      = errors.New("conflict")
	ErrForbidden     = errors.New("forbidden")
	ErrInvalid       = errors.New("invalid")        // the request, by the host's or the API server's word
	ErrGone          = errors.New("gone")           // the Next of a list is too old: begin anew
	ErrTooMany       = errors.New("too many calls") // later
	ErrTooLarge      = errors.New("too large")      // an answer, or an object: ask for less
	ErrTimeout       = errors.New("timeout")        //
	ErrUnavailable   = errors.New("not available")  //
)

// An Error is a request that failed.
type Error struct {
	Operation string // what was tried: "get ConfigMap team-a/settings"
	Code      int    // HTTP status; 0 if no server was asked
	Reason    string // "NotFound"
	Message   string // the server's own words
}

func (e *Error) Error() string { return e.Operation + ": " + e.Reason + ": " + e.Message }

// Unwrap makes errors.Is(err, ErrNotFound) and the like work.
func (e *Error) Unwrap() error {
	if kind, ok := byReason[e.Reason]; ok { // by reason first: 409 stands for two of them
		return kind
	}
	return byCode[e.Code]
}

var byReason = map[string]error{
	"NotFound": ErrNotFound, "AlreadyExists": ErrAlreadyExists, "Conflict": ErrConflict, "Forbidden": ErrForbidden,
	"Invalid": ErrInvalid, "BadRequest": ErrInvalid, "InvalidRequest": ErrInvalid, "Expired": ErrGone, "Gone": ErrGone,
	"TooManyRequests": ErrTooMany, "TooManyCalls": ErrTooMany, "TooLarge": ErrTooLarge,
	"RequestEntityTooLarge": ErrTooLarge, "Timeout": ErrTimeout, "ServerTimeout": ErrTimeout,
	"Unavailable": ErrUnavailable, "ServiceUnavailable": ErrUnavailable,
}

var byCode = map[int]error{
	400: ErrInvalid, 403: ErrForbidden, 404: ErrNotFound, 409: ErrConflict, 410: ErrGone, 413: ErrTooLarge,
	422: ErrInvalid, 429: ErrTooMany, 503: ErrUnavailable, 504: ErrTimeout,
}
