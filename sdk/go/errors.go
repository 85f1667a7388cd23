package controller

import "errors"

// Errors that a controller can distinguish with errors.Is.
var (
	ErrNotFound      = errors.New("not found")
	ErrAlreadyExists = errors.New("already exists")
	ErrConflict      = errors.New("conflict")
	ErrForbidden     = errors.New("forbidden")
	ErrInvalid       = errors.New("invalid")        // the host or the API server rejected the request
	ErrGone          = errors.New("gone")           // the Next of a list has expired: restart the list
	ErrTooMany       = errors.New("too many calls") // retry later
	ErrTooLarge      = errors.New("too large")      // an answer or an object: request less
	ErrTimeout       = errors.New("timeout")        //
	ErrUnavailable   = errors.New("not available")  //
)

// An Error is a failed request.
type Error struct {
	Operation string // operation: "get ConfigMap team-a/settings"
	Code      int    // HTTP status; 0 if no request was sent
	Reason    string // "NotFound"
	Message   string // message of the server
}

func (e *Error) Error() string { return e.Operation + ": " + e.Reason + ": " + e.Message }

// Unwrap supports errors.Is(err, ErrNotFound).
func (e *Error) Unwrap() error {
	if kind, ok := byReason[e.Reason]; ok { // by reason first: status 409 has two reasons
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
