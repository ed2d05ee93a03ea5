package identity

import (
	"bytes"
	"fmt"
	"os"

	"github.com/golang-jwt/jwt/v5"
)

// minSecret is the shortest secret that HS256 may be used with, in bytes (RFC 7518, 3.2).
const minSecret = 32

// NewHS256 returns a verifier by the shared secret in a file (its trailing newline is not part of
// it). The file is read once.
func NewHS256(s Settings, secretFile string) (*Verifier, error) {
	secret, err := os.ReadFile(secretFile)
	if err != nil {
		return nil, fmt.Errorf("identity: hs256_secret_file: %w", err)
	}
	secret = bytes.TrimRight(secret, "\r\n")
	if len(secret) < minSecret {
		return nil, fmt.Errorf("identity: hs256_secret_file: must hold at least %d bytes", minSecret)
	}
	return newVerifier(s, []string{jwt.SigningMethodHS256.Alg()}, func(string, string) (any, error) { return secret, nil })
}
