package core

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Bounds of tokens.
const (
	MinTokenTTL     = time.Minute
	MaxTokenTTL     = 366 * 24 * time.Hour
	DefaultTokenTTL = 30 * 24 * time.Hour
	// MaxTokens bounds the records: every replica holds all of them in memory.
	MaxTokens = 10_000
	// MaxIssuers bounds how deep a token may stand below an operator of the file.
	MaxIssuers = 8
)

// Token is an operator's bearer token: all but its secret, which nobody keeps.
type Token struct {
	ID      string // from TokenID; no underscore
	Name    string // who it speaks for
	Role    string
	Regions []string
	// CreatedBy minted it; Issuers are CreatedBy and whoever minted the token that
	// CreatedBy called with, nearest first: none of them is a second person for its
	// bearer.
	CreatedBy string
	Issuers   []string
	CreatedAt time.Time
	ExpiresAt time.Time
	RevokedAt time.Time // zero: it was not
	Digest    [sha256.Size]byte
	// OperationID created it.
	OperationID string
	// ModRevision is etcd's; 0: not stored.
	ModRevision int64
}

// TokenID gives the id of the token that an operation creates: always the same,
// so that a repeat finds it.
func TokenID(operationID string) string {
	sum := sha256.Sum256([]byte("token\x00" + operationID))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10])) // 16 characters
}

// tokenPrefix tells our tokens from others at a glance, also to secret scanners.
const tokenPrefix = "cq"

// TokenText is what a client shows.
func TokenText(id, secret string) string { return tokenPrefix + "_" + id + "_" + secret }

// SplitToken cuts what a client showed; false when it is none of ours.
func SplitToken(text string) (id, secret string, ok bool) {
	parts := strings.SplitN(text, "_", 3)
	if len(parts) != 3 || parts[0] != tokenPrefix || parts[1] == "" || parts[2] == "" {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// Admits tells whether a secret opens the token now, and else why not, for the
// log: whoever calls learns nothing but that it is refused. The comparison takes
// the same time for every secret.
func (t Token) Admits(secret string, now time.Time) (bool, string) {
	digest := sha256.Sum256([]byte(secret))
	switch {
	case subtle.ConstantTimeCompare(digest[:], t.Digest[:]) != 1:
		return false, "wrong secret"
	case !t.RevokedAt.IsZero():
		return false, "revoked"
	case !now.Before(t.ExpiresAt):
		return false, "expired"
	}
	return true, ""
}

// Revoke ends a token; a revoked one stays as it is.
func (t Token) Revoke(now time.Time) (Token, bool) {
	if !t.RevokedAt.IsZero() {
		return t, false
	}
	t.RevokedAt = now
	return t, true
}

// Dead tells since when nobody can use the token; false while somebody can.
func (t Token) Dead(now time.Time) (time.Time, bool) {
	if !t.RevokedAt.IsZero() {
		return t.RevokedAt, true
	}
	return t.ExpiresAt, !now.Before(t.ExpiresAt)
}

var tokenNameGrammar = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,128}$`)

// ownActors are names that audit records use for our own loops.
var ownActors = []string{"planner", "unknown"}

// CheckNew tells every fault of a token that is about to be created, given the
// roles that there are and the one whose holders must have regions.
func (t Token) CheckNew(roles []string, bound string, ttl time.Duration) (v []rpcstatus.Violation) {
	add := func(field, rule string) { v = append(v, rpcstatus.Violation{Field: field, Rule: rule}) }
	switch {
	case !tokenNameGrammar.MatchString(t.Name):
		add("name", "must be 1 to 128 of A-Z, a-z, 0-9, ., _, @ and -")
	case slices.Contains(ownActors, t.Name):
		add("name", "is what audit records call our own loops")
	}
	if !slices.Contains(roles, t.Role) {
		add("role", "must be one of "+strings.Join(roles, ", "))
	}
	switch {
	case t.Role == bound && len(t.Regions) == 0:
		add("regions", "a "+bound+" needs at least one")
	case t.Role != bound && len(t.Regions) > 0:
		add("regions", "only a "+bound+" has regions")
	case len(t.Regions) > 64:
		add("regions", "at most 64")
	}
	for _, r := range t.Regions {
		if !regionGrammar.MatchString(r) {
			add("regions", "must be 1 to 63 of a-z, 0-9 and -")
			break
		}
	}
	if ttl < MinTokenTTL || ttl > MaxTokenTTL {
		add("ttl_seconds", "must be from 60 to 31622400, or 0 for 30 days")
	}
	if len(t.Issuers) > MaxIssuers {
		add("name", "a token may stand at most 8 tokens below an operator of operators_file")
	}
	return v
}

// Check verifies a record that was read or is to be stored. ErrBroken.
func (t Token) Check() error {
	if t.ID == "" || strings.Contains(t.ID, "_") || t.Name == "" || t.Role == "" || t.ExpiresAt.IsZero() || t.Digest == [sha256.Size]byte{} {
		return broken("token %q of %q, role %q, expires at %s", t.ID, t.Name, t.Role, t.ExpiresAt)
	}
	return nil
}
