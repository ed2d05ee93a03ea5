package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
)

// TokenClaims are what a development identity token says.
type TokenClaims struct {
	Issuer   string
	Audience string
	User     string    // sub
	Expires  time.Time // exp, to the second

	HomeRegion      string    // "" leaves home_region and home_region_since out
	HomeRegionSince time.Time // to the second
	DeviceID        string    // "" leaves it out
	RiskTier        string    // "" leaves it out
	// More are further claims; a name from above wins over one from here.
	More map[string]any
}

// header is the JOSE header of every token minted here, encoded.
var header = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`))

// SignToken mints an identity token (JWT, HS256) that an edge with the same secret, issuer and
// audience accepts. It is for development and load: real tokens come from the identity provider.
func SignToken(secret []byte, c TokenClaims) (string, error) {
	claims := make(map[string]any, len(c.More)+8)
	for name, value := range c.More {
		claims[name] = value
	}
	claims["iss"], claims["aud"], claims["sub"], claims["exp"] = c.Issuer, c.Audience, c.User, c.Expires.Unix()
	if c.HomeRegion != "" {
		claims["home_region"], claims["home_region_since"] = c.HomeRegion, c.HomeRegionSince.Unix()
	}
	if c.DeviceID != "" {
		claims["device_id"] = c.DeviceID
	}
	if c.RiskTier != "" {
		claims["risk_tier"] = c.RiskTier
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	signing := header + "." + base64.RawURLEncoding.EncodeToString(payload)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signing))
	return signing + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}
