package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

// Operators knows the operators by the SHA-256 of their tokens.
type Operators struct {
	byDigest map[[sha256.Size]byte]transport.Principal
}

type operatorsFile struct {
	Operators []operator `yaml:"operators"`
}

type operator struct {
	Name    string   `yaml:"name"`
	Role    string   `yaml:"role"`
	Digest  string   `yaml:"token_sha256"`
	Regions []string `yaml:"regions"`
}

var (
	nameGrammar   = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}$`)
	regionGrammar = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
)

const maxOperatorsFile = 1 << 20

// LoadOperators reads an operators_file; every problem is told at once.
func LoadOperators(path string) (*Operators, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("operators_file: %w", err)
	}
	if len(raw) > maxOperatorsFile {
		return nil, fmt.Errorf("operators_file: %s: must be at most %d bytes", path, maxOperatorsFile)
	}
	var file operatorsFile
	if err := yaml.UnmarshalWithOptions(raw, &file, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("operators_file: %s: %w", path, err)
	}
	out := &Operators{byDigest: map[[sha256.Size]byte]transport.Principal{}}
	var problems []error
	for i, o := range file.Operators {
		for _, rule := range out.add(o) {
			problems = append(problems, fmt.Errorf("operators_file: %s: operators[%d].%s", path, i, rule))
		}
	}
	return out, errors.Join(problems...)
}

// add takes one operator over, or gives the rules that it breaks.
func (o *Operators) add(in operator) (broken []string) {
	if !nameGrammar.MatchString(in.Name) {
		broken = append(broken, "name: must be 1 to 64 of A-Z, a-z, 0-9, ., _, @ and -")
	}
	if !slices.Contains(Roles(), in.Role) {
		broken = append(broken, fmt.Sprintf("role: must be one of %v", Roles()))
	}
	for _, r := range in.Regions {
		if !regionGrammar.MatchString(r) {
			broken = append(broken, "regions: must be 1 to 63 of a-z, 0-9 and -")
		}
	}
	raw, err := hex.DecodeString(in.Digest)
	if err != nil || len(raw) != sha256.Size {
		return append(broken, "token_sha256: must be 64 hexadecimal digits")
	}
	digest := [sha256.Size]byte(raw)
	if _, twice := o.byDigest[digest]; twice {
		return append(broken, "token_sha256: is given twice")
	}
	o.byDigest[digest] = transport.Principal{Name: in.Name, Role: in.Role, Regions: in.Regions}
	return broken
}

// Authenticate knows a caller by its bearer token. The token is looked up by its
// digest, so how long that takes tells nothing about it.
func (o *Operators) Authenticate(_ context.Context, c transport.Caller) (transport.Principal, error) {
	token, ok := c.Bearer()
	if !ok {
		return transport.Principal{}, fmt.Errorf("%w: a bearer token is needed", rpcstatus.ErrUnauthenticated)
	}
	p, known := o.byDigest[sha256.Sum256([]byte(token))]
	if !known {
		return transport.Principal{}, fmt.Errorf("%w: the token is not known", rpcstatus.ErrUnauthenticated)
	}
	return p, nil
}
