package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/MicahParks/jwkset"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// Bounds of a JWK set.
const (
	maxSet  = 1 << 20 // bytes
	maxKeys = 256
)

// get reads the set from the provider.
func (k *JWKS) get(ctx context.Context) (map[string]publicKey, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := k.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // it was read, or its error is returned
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxSet+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxSet {
		return nil, fmt.Errorf("more than %d bytes", maxSet)
	}
	return k.read(ctx, body)
}

// read reads the public keys of a set. A key that has no id, or that cannot be read or does not sign, is
// passed over; two of one id are neither.
func (k *JWKS) read(ctx context.Context, body []byte) (map[string]publicKey, error) {
	var set struct {
		Keys []jwkset.JWKMarshal `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("not a JWK set: %w", err)
	}
	if len(set.Keys) == 0 || len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys; 1 to %d are read", len(set.Keys), maxKeys)
	}
	out, seen := map[string]publicKey{}, map[string]bool{}
	for _, m := range set.Keys {
		m.X5U = "" // we fetch nothing that a key points to
		one, err := publicKeyOf(m)
		if err == nil && seen[m.KID] {
			err = errors.New("there are two of that id")
			delete(out, m.KID)
		}
		if err != nil {
			k.log.WarnContext(ctx, "a key of the identity provider is not used", slog.String(telemetry.Event, "jwks_key_refused"),
				slog.String("kid", m.KID), slog.Any(telemetry.Error, err))
			continue
		}
		seen[m.KID], out[m.KID] = true, one
	}
	return out, nil
}

func publicKeyOf(m jwkset.JWKMarshal) (publicKey, error) {
	if m.KID == "" {
		return publicKey{}, errors.New("it has no id")
	}
	if m.USE != "" && m.USE != jwkset.UseSig {
		return publicKey{}, errors.New("it does not sign")
	}
	jwk, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return publicKey{}, err
	}
	key := jwk.Key()
	algorithm := algorithmOf(key)
	if algorithm == "" {
		return publicKey{}, fmt.Errorf("a %T is no public key for signatures", key)
	}
	if named := m.ALG.String(); named != "" {
		algorithm = named
	}
	return publicKey{key, algorithm}, nil
}

// algorithmOf is the one algorithm of a key that names none.
func algorithmOf(key any) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RS256"
	case ed25519.PublicKey:
		return "EdDSA"
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return "ES256"
		case 384:
			return "ES384"
		case 521:
			return "ES512"
		}
	}
	return ""
}
