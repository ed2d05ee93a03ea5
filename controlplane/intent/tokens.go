package intent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// NewToken says for whom a token is.
type NewToken struct {
	Name, Role  string
	Regions     []string
	TTL         time.Duration // 0: 30 days
	OperationID string
	Reason      string
	// Roles are those there are; Bound is the one whose holders must have regions.
	Roles []string
	Bound string
}

// CreateToken mints a token and gives its text, which nobody can give again: etcd
// has the secret's SHA-256 only. The same operation id again, whoever calls, is
// core.ErrTokenExists. validate only gives the token it would be, without a text.
func (s *Service) CreateToken(ctx context.Context, who Caller, in NewToken, validateOnly bool) (core.Token, string, error) {
	ttl := in.TTL
	if ttl == 0 {
		ttl = core.DefaultTokenTTL
	}
	secret := newSecret()
	token := core.Token{
		ID: core.TokenID(in.OperationID), Name: in.Name, Role: in.Role, Regions: in.Regions,
		CreatedBy: who.Name, Issuers: append([]string{who.Name}, who.Issuers...), Digest: sha256.Sum256([]byte(secret)), OperationID: in.OperationID,
	}
	if v := token.CheckNew(in.Roles, in.Bound, ttl); len(v) > 0 {
		return core.Token{}, "", rpcstatus.Invalid(v...)
	}
	if n := len(s.View.Snapshot().Tokens()); n >= core.MaxTokens {
		return core.Token{}, "", rpcstatus.With(fmt.Errorf("%w: %d of %d", core.ErrTokenLimit, n, core.MaxTokens),
			map[string]string{"tokens": fmt.Sprint(n), "limit": fmt.Sprint(core.MaxTokens)}, nil, 0)
	}
	revision, err := s.Store.Update(ctx, "create token "+token.ID, func(tx *store.Tx) error {
		_, known, err := tx.Token(token.ID)
		switch {
		case err != nil:
			return err
		case known:
			return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrTokenExists, token.ID), map[string]string{"token_id": token.ID, "operation_id": in.OperationID}, nil, 0)
		}
		token.CreatedAt = tx.Now()
		token.ExpiresAt = token.CreatedAt.Add(ttl)
		if validateOnly {
			return nil
		}
		return errors.Join(tx.PutToken(token), tx.Audit(who.audit(in.OperationID, "token "+token.ID, fmt.Sprintf("%s for %s: %s", token.Role, token.Name, in.Reason))))
	})
	if err != nil || validateOnly {
		return token, "", err
	}
	s.visible(ctx, revision)
	return token, core.TokenText(token.ID, secret), nil
}

// newSecret gives 256 random bits as text.
func newSecret() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails, by its promise
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// RevokeToken ends a token; every replica refuses it once its view has this. A
// repeat changes nothing. core.ErrUnknownToken.
func (s *Service) RevokeToken(ctx context.Context, who Caller, id, operationID, reason string, validateOnly bool) (core.Token, error) {
	var out core.Token
	revision, err := s.Store.Update(ctx, "revoke token "+id, func(tx *store.Tx) error {
		token, known, err := tx.Token(id)
		switch {
		case err != nil:
			return err
		case !known:
			return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrUnknownToken, id), map[string]string{"token_id": id}, nil, 0)
		}
		var changed bool
		if out, changed = token.Revoke(tx.Now()); !changed || validateOnly {
			return nil
		}
		return errors.Join(tx.PutToken(out), tx.Audit(who.audit(operationID, "token "+id, reason)))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}

// secondPerson refuses a caller who is not another person than the requester as
// far as tokens tell: one whose token the requester minted, or who minted a token
// that speaks for the requester: the one that was shown, as the approval says, or,
// as this replica's view says, any other of that name.
func (s *Service) secondPerson(who Caller, a core.Approval) error {
	requester := a.Requester
	minted := a.OneHand(who.Name, who.Issuers) || slices.ContainsFunc(s.View.Snapshot().Tokens(), func(t core.Token) bool {
		return t.Name == requester && slices.Contains(t.Issuers, who.Name)
	})
	if !minted {
		return nil
	}
	return rpcstatus.With(fmt.Errorf("%w: the tokens of %s and %s come from one hand", core.ErrSelfApproval, who.Name, requester),
		map[string]string{"requester": requester, "approver": who.Name}, nil, 0)
}
