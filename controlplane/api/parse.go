package api

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// fields gathers every fault of a request.
type fields struct{ violations []rpcstatus.Violation }

func (f *fields) add(field, rule string) {
	f.violations = append(f.violations, rpcstatus.Violation{Field: field, Rule: rule})
}

// err is nil when there was no fault.
func (f *fields) err() error { return rpcstatus.Invalid(f.violations...) }

func (f *fields) refused(err error) {
	var bad *ids.Error
	if errors.As(err, &bad) {
		f.add(bad.Field, bad.Rule)
	}
}

func (f *fields) campaign(s string) ids.CampaignID {
	id, err := ids.ParseCampaignID(s)
	f.refused(err)
	return id
}

func (f *fields) sku(s string) ids.SKUID {
	id, err := ids.ParseSKUID(s)
	f.refused(err)
	return id
}

func (f *fields) cell(s string) ids.CellID {
	id, err := ids.ParseCellID(s)
	f.refused(err)
	return id
}

// operation reads a caller's id of a mutation. It is required: a retry without it
// could not be told from another call.
func (f *fields) operation(field, s string) string {
	id, err := ids.ParseOperationID(field, s)
	f.refused(err)
	return id
}

// adjustment reads a caller's id of a move of units.
func (f *fields) adjustment(s string) string { return f.own("adjustment_id", s) }

// own reads a caller's id under which a record of the journal is kept.
func (f *fields) own(field, s string) string {
	id := f.operation(field, s)
	if core.OwnID(id) {
		f.add(field, "must not begin as the ids do that the platform gives: "+strings.Join(core.OwnPrefixes(), " "))
	}
	return id
}

func (f *fields) units(field string, n int32) quantity.Quantity {
	if n < 1 || n > quantity.Max {
		f.add(field, "must be from 1 to 1000000000")
		return quantity.Quantity{}
	}
	return quantity.Must(int64(n))
}

const maxReason = 1 << 10

func (f *fields) reason(s string, required bool) string {
	if required && strings.TrimSpace(s) == "" {
		f.add("reason", "is required")
	}
	if len(s) > maxReason {
		f.add("reason", "must be at most 1024 bytes")
	}
	return s
}

func (f *fields) version(n int64) int64 {
	if n < 0 {
		f.add("expected_version", "must not be negative")
	}
	return n
}

const (
	defaultPage = 100
	maxPage     = 1_000
)

func (f *fields) pageSize(n int32) int {
	switch {
	case n == 0:
		return defaultPage
	case n < 0 || n > maxPage:
		f.add("page_size", "must be from 1 to 1000, or 0 for 100")
	}
	return int(n)
}

// after reads a token that names the last id of the previous page.
func (f *fields) after(token string) string {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		f.add("page_token", "must be the next_page_token of an earlier answer")
	}
	return string(raw)
}

func pageToken(parts ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, " ")))
}

// before reads a token that names a revision and how much of that record was
// shown already.
func (f *fields) before(token string) (revision int64, shown int) {
	if token == "" {
		return 0, 0
	}
	a, b, _ := strings.Cut(f.after(token), " ")
	revision, err1 := strconv.ParseInt(a, 10, 64)
	shown, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || revision < 1 || shown < 0 {
		f.add("page_token", "must be the next_page_token of an earlier answer")
		return 0, 0
	}
	return revision, shown
}

// page cuts a sorted list: what comes behind the last id, at most size, and the
// next token.
func page[T any](all []T, id func(T) string, after string, size int) (out []T, next string) {
	for _, v := range all {
		if id(v) <= after {
			continue
		}
		if len(out) == size {
			return out, pageToken(id(out[len(out)-1]))
		}
		out = append(out, v)
	}
	return out, ""
}

func unknownCampaign(id ids.CampaignID) error {
	return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrUnknownCampaign, id), map[string]string{"campaign_id": string(id)}, nil, 0)
}

func unknownCell(id ids.CellID) error {
	return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrUnknownCell, id), map[string]string{"cell_id": string(id)}, nil, 0)
}
