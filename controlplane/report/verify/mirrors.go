package verify

import (
	"context"
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
)

// maxAside bounds the mirrors that are named as not quiet.
const maxAside = 5

// restless are the mirrors that were not compared, some of them with why.
type restless struct {
	names []string
	n     int
}

func (r *restless) add(who, why string) {
	if r.n++; len(r.names) < maxAside {
		r.names = append(r.names, who+": "+why)
	}
}

// aside names some of them in brackets.
func (r *restless) aside() string {
	if r.n == 0 {
		return ""
	}
	more := ""
	if n := r.n - len(r.names); n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return " (not compared: " + strings.Join(r.names, "; ") + more + ")"
}

// judgeMirrors checks I9 for every cell that sells the SKU and is quiet: mirror stock =
// available − parked admissions of its build. It answers how many were compared; others has
// why the rest was not: not quiet yet is no breach, and nobody to ask is not one either.
func (v *Verifier) judgeMirrors(ctx context.Context, t *tally, b core.Book, cuts []shardCut, others *restless) (quiet int) {
	for _, s := range cuts {
		if _, sells := b.Allocation(s.cell.Spec.ID); !sells || s.err != nil || s.fence.State != "ACTIVE" {
			continue // nobody sells from it, or its shard is named elsewhere
		}
		why := v.judgeMirror(ctx, t, b, s)
		if why != "" {
			others.add(fmt.Sprintf("%s of %s", b.Key, s.cell.Spec.ID), why)
			continue
		}
		quiet++
	}
	return quiet
}

// judgeMirror compares one mirror, or says why it cannot be yet.
func (v *Verifier) judgeMirror(ctx context.Context, t *tally, b core.Book, s shardCut) string {
	switch {
	case s.effects > 0:
		return fmt.Sprintf("%d effects are not applied", s.effects)
	case s.parked > 0:
		return fmt.Sprintf("%d parked messages are of nobody", s.parked)
	}
	m, err := v.mirrors.Mirror(ctx, s.cell.Spec.ID, b.Key)
	switch {
	case err != nil:
		return err.Error()
	case !m.Present:
		return "there is no mirror"
	case m.FenceVersion != s.fence.Version:
		return fmt.Sprintf("it is of fence version %d, the shard of %d", m.FenceVersion, s.fence.Version)
	case m.Outstanding > 0 || m.Stream > 0:
		return fmt.Sprintf("%d admissions in flight, %d not in the log", m.Outstanding, m.Stream)
	}
	again := readShard(ctx, v.reader, s.cell, string(b.Key.Campaign), nil, false)
	if again.err != nil || again.effects > 0 || again.stocks[b.Key].Version != s.stocks[b.Key].Version {
		return "it moved while it was looked at"
	}
	available, parked := again.stocks[b.Key].Available, again.held[parkedBy{b.Key, m.Build}]
	if m.Stock != available-parked {
		t.breach(I9, string(b.Key.Campaign), string(b.Key.SKU), string(s.cell.Spec.ID), "quiet mirror of build %s has %d, the shard has %d available and %d of them parked", m.Build, m.Stock, available, parked)
	}
	return ""
}
