package identity

import (
	"errors"
	"time"

	"github.com/cellquota/cellquota/internal/ids"
)

// ErrUnauthenticated refuses a token, whatever the cause (401).
var ErrUnauthenticated = errors.New("unauthenticated")

// ErrInvalid refuses a token that verifies but whose subject or claims break a rule (400). The
// error's text names claim and rule.
var ErrInvalid = errors.New("invalid identity")

// Identity is who calls, as the verified token says.
type Identity struct {
	User ids.UserID

	HomeRegion string    // "" if not said
	Since      time.Time // of the home region; zero if not said
	DeviceID   string    // "" if not said
	RiskTier   string    // "" if not said
	Expires    time.Time

	payload []byte // the token's claims as JSON, for rules that name others
}

// maxClaim bounds the claims that travel on, in bytes.
const maxClaim = 128
