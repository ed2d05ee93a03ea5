package identity

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cellquota/cellquota/internal/ids"
)

// claims are what every call needs; the rest of the payload is read only where a campaign asks.
type claims struct {
	jwt.RegisteredClaims
	HomeRegion string           `json:"home_region"`
	Since      *jwt.NumericDate `json:"home_region_since"`
	DeviceID   string           `json:"device_id"`
	RiskTier   string           `json:"risk_tier"`
}

// identity checks what a verified token says about its bearer.
func (c *claims) identity(payload []byte) (*Identity, error) {
	user, err := ids.ParseUserID(c.Subject)
	if err != nil {
		return nil, fmt.Errorf("%w: sub: %w", ErrInvalid, err)
	}
	for name, value := range map[string]string{"home_region": c.HomeRegion, "device_id": c.DeviceID, "risk_tier": c.RiskTier} {
		if !plain(value) {
			return nil, fmt.Errorf("%w: %s: must be at most %d bytes of UTF-8 without control characters", ErrInvalid, name, maxClaim)
		}
	}
	out := &Identity{
		User: user, HomeRegion: c.HomeRegion, DeviceID: c.DeviceID, RiskTier: c.RiskTier,
		Expires: c.ExpiresAt.Time, payload: payload,
	}
	if c.Since != nil {
		out.Since = c.Since.Time
	}
	return out, nil
}

// plain reports whether a claim may travel on: to the cell, into a limiter's key, into a log (K82).
func plain(s string) bool {
	return len(s) <= maxClaim && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' })
}

// Values returns all values of a claim as text, none if the token does not have it: strings and
// booleans as they are, numbers as written, lists element by element. Objects have no value.
func (i *Identity) Values(name string) []string {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(i.payload, &all); err != nil {
		return nil
	}
	raw, ok := all[name]
	if !ok {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		var out []string
		for _, element := range list {
			if v, ok := text(element); ok {
				out = append(out, v)
			}
		}
		return out
	}
	if v, ok := text(raw); ok {
		return []string{v}
	}
	return nil
}

func text(raw json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		return s, true
	}
	switch {
	case len(raw) == 0, raw[0] == '{', raw[0] == '[', string(raw) == "null":
		return "", false
	default:
		return string(raw), true
	}
}

// clockSkew is how far the issuer's clock and ours may differ.
const clockSkew = time.Second
