package layout

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cellquota/cellquota/deploy/local/platform"
)

// Role is a login role of a shard.
type Role string

// The roles of every shard.
const (
	RoleSuperuser Role = "postgres"
	RoleApp       Role = "cellquota_app"
	RoleFencer    Role = "cellquota_fencer"
	RoleReader    Role = "cellquota_reader"
)

var shardRoles = []Role{RoleSuperuser, RoleApp, RoleFencer, RoleReader}

// operatorRoles each have one token.
var operatorRoles = []string{"region-operator", "campaign-manager", "sre", "viewer"}

// keyUses each have one key, of this id.
var keyUses = []string{"permit", "receipt", "payment"}

const (
	keyID       = "k1"
	secretBytes = 32
)

// Secrets are the random texts of a data directory.
type Secrets struct {
	Operators map[string]string // role → token
	Payment   string            // the payment channel's key, as its file holds it
	Cluster   string            // tells one etcd cluster from another

	passwords map[string]map[Role]string // cell → role → password
}

// Password is what a shard's role logs in with.
func (s Secrets) Password(c Cell, r Role) string { return s.passwords[c.ID][r] }

// DSN is how a shard is reached as a role. Of a replicated one whichever server takes writes is meant,
// so that it leads to the standby once that is promoted; primary and not read-write, for sessions that
// are opened read-only have their place there too.
func (p Plan) DSN(s Secrets, c Cell, r Role) string {
	if c.Replicas == nil {
		return p.ServerDSN(s, c, c.Postgres, r, Database)
	}
	return fmt.Sprintf("postgres://%s:%s@%s,%s/%s?%s&target_session_attrs=primary",
		r, s.Password(c, r), c.Postgres.Addr, c.Replicas.Postgres.Addr, Database, p.encrypted())
}

// ServerDSN is how one server of a shard is reached, whatever its role is now.
func (p Plan) ServerDSN(s Secrets, c Cell, server Store, r Role, database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?%s", r, s.Password(c, r), server.Addr, database, p.encrypted())
}

// encrypted is how connections to a shard are encrypted.
func (p Plan) encrypted() string {
	if p.Options.TLS {
		return "sslmode=verify-full&sslrootcert=" + url.QueryEscape(p.CAFile())
	}
	return "sslmode=disable"
}

// MakeSecrets reads the secrets of the plan's data directory and makes those
// that are missing, each a file of mode 0600.
func (p Plan) MakeSecrets() (Secrets, error) {
	var errs []error
	get := func(parts ...string) string {
		text, err := makeSecret(p.path(parts...))
		errs = append(errs, err)
		return text
	}
	s := Secrets{Operators: map[string]string{}, passwords: map[string]map[Role]string{}}
	for _, role := range operatorRoles {
		s.Operators[role] = get("secrets", "operators", role)
	}
	for _, use := range keyUses {
		text := get("keys", use, keyID)
		if use == "payment" {
			s.Payment = text
		}
	}
	_, err := makeSecret(platform.IdentitySecretFile(p.Options.DataDir))
	errs = append(errs, err)
	s.Cluster = get("secrets", "cluster")
	for _, c := range p.Cells {
		s.passwords[c.ID] = map[Role]string{}
		for _, r := range shardRoles {
			s.passwords[c.ID][r] = get("secrets", c.ID, string(r)+".password")
		}
	}
	return s, errors.Join(errs...)
}

// PasswordFile holds the password of a shard's role.
func (p Plan) PasswordFile(c Cell, r Role) string {
	return p.path("secrets", c.ID, string(r)+".password")
}

// DSNFile holds the address and password of a shard's role.
func (p Plan) DSNFile(c Cell, r Role) string { return p.path("secrets", c.ID, string(r)+".dsn") }

// makeSecret returns the text of a file without its newline; it makes the file
// with 64 random hexadecimal characters when there is none.
func makeSecret(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSuffix(string(text), "\n"), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("secret: %w", err)
	}
	raw := make([]byte, secretBytes)
	_, _ = rand.Read(raw) // never fails
	made := hex.EncodeToString(raw)
	if err := writeSecret(file, made+"\n"); err != nil {
		return "", err
	}
	return made, nil
}

// writeSecret puts text into a file of mode 0600, whole or not at all: half a
// secret, left by a crash, would be taken for one.
func writeSecret(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	next := file + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	if err := os.Rename(next, file); err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	return nil
}
