package audit

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
)

const (
	// maxLooks bounds the records that one call looks at for a filter.
	maxLooks = 20_000
	// fetch is how many records of a folder are read at once.
	fetch = 1_000
)

// folders of the audit, both named by time.
var folders = []store.Kind{store.KindAudit, store.KindRefusal}

// Reader shows the audit, newest first.
type Reader struct {
	Store *store.Store
	// Archive has what is older; nil: none is configured.
	Archive archive.Archive
}

// Filter says which records are wanted; its zero value wants all.
type Filter struct {
	Actor   string // exactly
	Subject string // how it begins
}

func (f Filter) wants(a core.Audit) bool {
	return (f.Actor == "" || a.Actor == f.Actor) && strings.HasPrefix(a.Subject, f.Subject)
}

// Page gives at most size records whose names are below before (empty: all) that
// the filter wants, newest first, and the name to go on below; empty: there are
// no more. It may give fewer than size, even none, with a name to go on.
func (r Reader) Page(ctx context.Context, before string, size int, f Filter) (page []core.Trail, next string, err error) {
	at := fetch
	if f == (Filter{}) {
		at = size
	}
	for looked := 0; looked < maxLooks; {
		some, err := r.merged(ctx, before, at)
		if err != nil {
			return nil, "", err
		}
		for _, t := range some {
			if before = t.Name; f.wants(t.Audit) {
				page = append(page, t)
			}
			if len(page) == size {
				return page, before, nil
			}
		}
		if len(some) < at {
			return page, "", nil
		}
		looked += len(some)
	}
	return page, before, nil
}

// merged gives the newest n records below a name, of both folders.
func (r Reader) merged(ctx context.Context, before string, n int) ([]core.Trail, error) {
	var all []core.Trail
	for _, folder := range folders {
		some, err := r.Store.TrailBefore(ctx, folder, before, n)
		if err != nil {
			return nil, err
		}
		if len(some) < n {
			below := before
			if len(some) > 0 {
				below = some[len(some)-1].Name
			}
			older, err := r.older(ctx, folder, below, n-len(some))
			if err != nil {
				return nil, err
			}
			some = append(some, older...)
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b core.Trail) int { return cmp.Compare(b.Name, a.Name) })
	return all[:min(len(all), n)], nil
}

// older gives records of the archive below a name (empty: all), newest first.
func (r Reader) older(ctx context.Context, folder store.Kind, before string, bound int) ([]core.Trail, error) {
	if r.Archive == nil {
		return nil, nil
	}
	objects, err := r.Store.Archived(ctx, objectPrefix(folder))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(objects, func(a, b core.ArchiveIndex) int { return cmp.Compare(b.Object.Name, a.Object.Name) })
	var out []core.Trail
	for _, x := range objects {
		if len(out) >= bound {
			break
		}
		if before != "" && core.TrailFrom(x.From) > before {
			continue // all of it is newer
		}
		content, err := r.Archive.Get(ctx, x.Object)
		if err != nil {
			return nil, err
		}
		records, err := decode(content)
		if err != nil {
			return nil, err
		}
		slices.Reverse(records) // an object has its oldest first
		for _, t := range records {
			if (before == "" || t.Name < before) && len(out) < bound {
				out = append(out, t)
			}
		}
	}
	return out, nil
}
