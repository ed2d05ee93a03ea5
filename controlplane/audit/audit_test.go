package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/audit"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
)

var noon = time.Date(2026, 11, 11, 12, 0, 0, 0, time.UTC)

type rig struct {
	t        *testing.T
	store    *store.Store
	view     *view.View
	leader   core.Leader
	clock    *clock.Manual
	registry *prometheus.Registry
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, clock: clock.NewManual(noon), registry: prometheus.NewRegistry()}
	var err error
	if r.store, err = store.Open(store.Config{Endpoints: testkit.Etcd(t, 1).Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	if r.view, err = view.New(r.store, view.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.view.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	lease, err := r.store.GrantLease(testkit.Deadline(t), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if r.leader, err = r.store.TakeLead(testkit.Deadline(t), lease, "here", ids.NewOperationID()); err != nil {
		t.Fatal(err)
	}
	return r
}

// done writes n records of one mutation each, a second apart.
func (r *rig) done(from time.Time, n int, actor, subject string) {
	r.t.Helper()
	for i := range n {
		_, err := r.store.Update(testkit.Deadline(r.t), "act", func(tx *store.Tx) error {
			return tx.Audit(core.Audit{At: from.Add(time.Duration(i) * time.Second), Actor: actor, Method: "/m", Subject: subject, Reason: fmt.Sprint("nr ", i)})
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// all reads every record page by page, newest first.
func (r *rig) all(reader audit.Reader, size int, f audit.Filter) (out []core.Audit) {
	r.t.Helper()
	before := ""
	for pages := 0; ; pages++ {
		page, next, err := reader.Page(testkit.Deadline(r.t), before, size, f)
		if err != nil || len(page) > size || pages > 1_000 {
			r.t.Fatalf("page of %d, %v", len(page), err)
		}
		for _, t := range page {
			out = append(out, t.Audit)
		}
		if before = next; next == "" {
			return out
		}
	}
}

func (r *rig) keeper(a archive.Archive) *audit.Keeper {
	r.t.Helper()
	k, err := audit.NewKeeper(time.Hour, audit.KeeperDeps{Store: r.store, View: r.view, Archive: a, Clock: r.clock, Log: slog.New(slog.DiscardHandler), Registry: r.registry})
	if err != nil {
		r.t.Fatal(err)
	}
	return k
}

// Mutations and refusals come in one list, newest first, whatever the page's size
// and the filter.
func TestPages(t *testing.T) {
	r := newRig(t)
	r.done(noon, 5, "ann", "cell cell-1")
	r.done(noon.Add(500*time.Millisecond), 5, "bob", "campaign c")
	if err := r.store.PutRefusals(testkit.Deadline(t), []core.Audit{{At: noon.Add(2 * time.Second), Actor: "eve", Method: "/m", Refusals: 7, Refusal: "PERMISSION_DENIED"}}); err != nil {
		t.Fatal(err)
	}
	reader := audit.Reader{Store: r.store}
	whole := r.all(reader, 100, audit.Filter{})
	if len(whole) != 11 || !slices.IsSortedFunc(whole, func(a, b core.Audit) int { return b.At.Compare(a.At) }) {
		t.Fatalf("%d records: %v", len(whole), whole)
	}
	if i := slices.IndexFunc(whole, func(a core.Audit) bool { return a.Actor == "eve" }); i < 5 || whole[i].Refusals != 7 || whole[i].Refusal != "PERMISSION_DENIED" {
		t.Errorf("the refusals stand at %d: %v", i, whole)
	}
	for _, size := range []int{1, 2, 3, 10, 11} {
		if got := r.all(reader, size, audit.Filter{}); fmt.Sprint(got) != fmt.Sprint(whole) {
			t.Errorf("in pages of %d: %v", size, got)
		}
	}
	if got := r.all(reader, 2, audit.Filter{Actor: "bob"}); len(got) != 5 || got[0].Actor != "bob" {
		t.Errorf("of bob: %v", got)
	}
	if got := r.all(reader, 2, audit.Filter{Subject: "cell "}); len(got) != 5 || got[0].Actor != "ann" {
		t.Errorf("about cells: %v", got)
	}
}

// forgetful is an archive whose first answer is lost: the object is there.
type forgetful struct {
	archive.Archive
	lose bool
}

func (f *forgetful) Put(ctx context.Context, name string, content []byte) (core.ArchiveObject, error) {
	object, err := f.Archive.Put(ctx, name, content)
	if f.lose {
		f.lose = false
		return core.ArchiveObject{}, errors.New("the answer was lost")
	}
	return object, err
}

// What is old moves into the archive, once, and is read from there; a round that
// ended between the object and the removal loses and doubles nothing.
func TestOldAuditMovesToTheArchive(t *testing.T) {
	r := newRig(t)
	reader := audit.Reader{Store: r.store, Archive: archive.Directory{Dir: t.TempDir()}}
	r.done(noon.Add(-3*time.Hour), 4, "ann", "cell cell-1")
	r.done(noon, 3, "ann", "cell cell-2")
	if err := r.store.PutRefusals(testkit.Deadline(t), []core.Audit{{At: noon.Add(-2 * time.Hour), Actor: "eve", Refusals: 2}, {At: noon, Actor: "eve", Refusals: 1}}); err != nil {
		t.Fatal(err)
	}
	whole := r.all(reader, 100, audit.Filter{})
	keeper := r.keeper(&forgetful{Archive: reader.Archive, lose: true})
	if err := keeper.Round(testkit.Deadline(t), r.leader); err == nil {
		t.Error("a lost answer of the archive was no error")
	}
	r.clock.Advance(time.Hour + time.Second) // more is old by now: another cut than the one whose answer was lost
	if err := keeper.Round(testkit.Deadline(t), r.leader); err != nil {
		t.Fatal(err)
	}
	left, err := r.store.TrailBefore(testkit.Deadline(t), store.KindAudit, "", 100)
	if err != nil || len(left) != 2 {
		t.Errorf("%d records are left in etcd, %v; want the 2 of the last hour", len(left), err)
	}
	for _, size := range []int{1, 3, 100} {
		if got := r.all(reader, size, audit.Filter{}); fmt.Sprint(got) != fmt.Sprint(whole) {
			t.Errorf("in pages of %d:\n%v, want\n%v", size, got, whole)
		}
	}
	if got := r.all(reader, 2, audit.Filter{Subject: "cell cell-1"}); len(got) != 4 {
		t.Errorf("a filter finds %d of 4 in the archive", len(got))
	}
	text := `
# HELP cellquota_audit_removed_total Records that became too old for etcd, by folder (audit, refusals, tokens); with an archive those of the audit went there first.
# TYPE cellquota_audit_removed_total counter
cellquota_audit_removed_total{folder="audit"} 5
cellquota_audit_removed_total{folder="refusals"} 2
`
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(text), "cellquota_audit_removed_total"); err != nil {
		t.Error(err)
	}
}

// An archive that does not answer keeps the records in etcd; who does not lead
// removes nothing.
func TestNothingIsRemovedThatWasNotArchived(t *testing.T) {
	r := newRig(t)
	r.done(noon.Add(-3*time.Hour), 2, "ann", "cell cell-1")
	if err := r.keeper(archive.Directory{Dir: "/dev/null/nowhere"}).Round(testkit.Deadline(t), r.leader); err == nil {
		t.Error("an archive that is not there took something")
	}
	r.registry = prometheus.NewRegistry()
	if err := r.keeper(nil).Round(testkit.Deadline(t), core.Leader{CreateRevision: 1}); !errors.Is(err, core.ErrNotLeader) {
		t.Errorf("who does not lead: %v", err)
	}
	if got := r.all(audit.Reader{Store: r.store}, 10, audit.Filter{}); len(got) != 2 {
		t.Errorf("%d of 2 records are left", len(got))
	}
	r.registry = prometheus.NewRegistry()
	if err := r.keeper(nil).Round(testkit.Deadline(t), r.leader); err != nil {
		t.Fatal(err)
	}
	if got := r.all(audit.Reader{Store: r.store}, 10, audit.Filter{}); len(got) != 0 {
		t.Errorf("without an archive %d are left", len(got))
	}
}

// A token that nobody could use for longer than audit is kept is removed; others stay.
func TestDeadTokensAreRemoved(t *testing.T) {
	r := newRig(t)
	var revision int64
	for id, ends := range map[string]time.Time{"long": noon.Add(-2 * time.Hour), "just": noon.Add(-time.Minute), "live": noon.Add(time.Hour)} {
		var err error
		revision, err = r.store.Update(testkit.Deadline(t), "token", func(tx *store.Tx) error {
			_, _, err := tx.Token(id)
			return errors.Join(err, tx.PutToken(core.Token{ID: id, Name: "bob", Role: "viewer", ExpiresAt: ends, Digest: [32]byte{1}}))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.view.WaitFor(testkit.Deadline(t), revision); err != nil {
		t.Fatal(err)
	}
	if err := r.keeper(nil).Round(testkit.Deadline(t), r.leader); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		var left []string
		for _, token := range r.view.Snapshot().Tokens() {
			left = append(left, token.ID)
		}
		if fmt.Sprint(left) != "[just live]" {
			return fmt.Errorf("left are %v", left)
		}
		return nil
	})
	if got := r.all(audit.Reader{Store: r.store}, 10, audit.Filter{Subject: "token long"}); len(got) != 1 {
		t.Errorf("the removal has %d audit records", len(got))
	}
}

// sink takes counts, or loses them.
type sink struct {
	fail   error
	counts []core.Audit
}

func (s *sink) PutRefusals(_ context.Context, counts []core.Audit) error {
	if s.fail == nil {
		s.counts = append(s.counts, counts...)
	}
	return s.fail
}

// Refusals are counted per actor, method and minute; what is no refusal is not.
func TestRefusalsAreCounted(t *testing.T) {
	to, at, registry := &sink{}, clock.NewManual(noon.Add(30*time.Second)), prometheus.NewRegistry()
	r, err := audit.NewRefusals(to, at, slog.New(slog.DiscardHandler), registry)
	if err != nil {
		t.Fatal(err)
	}
	ann := transport.Principal{Name: "ann"}
	for range 3 {
		r.Refused(ann, "/a", rpcstatus.ErrPermissionDenied)
	}
	r.Refused(ann, "/b", fmt.Errorf("x: %w", rpcstatus.ErrInvalidArgument))
	r.Refused(transport.Principal{}, "/a", rpcstatus.ErrUnauthenticated)
	for _, none := range []error{rpcstatus.ErrNotFound, rpcstatus.ErrUnavailable, context.Canceled, errors.New("a defect"), nil} {
		r.Refused(ann, "/a", none)
	}
	at.Advance(time.Minute)
	r.Refused(ann, "/a", rpcstatus.ErrFailedPrecondition)
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range to.counts {
		got = append(got, fmt.Sprintf("%s %s %s %d %s", a.At.Format("15:04:05"), a.Actor, a.Method, a.Refusals, a.Refusal))
	}
	want := []string{
		"12:00:00 ann /a 3 PERMISSION_DENIED", "12:00:00 ann /b 1 INVALID_ARGUMENT",
		"12:00:00 unauthenticated /a 1 UNAUTHENTICATED", "12:01:00 ann /a 1 FAILED_PRECONDITION",
	}
	if !slices.Equal(got, want) {
		t.Errorf("counted\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	text := `
# HELP cellquota_refusals_total Calls that were refused to their callers, by gRPC code.
# TYPE cellquota_refusals_total counter
cellquota_refusals_total{code="FailedPrecondition"} 1
cellquota_refusals_total{code="InvalidArgument"} 1
cellquota_refusals_total{code="PermissionDenied"} 3
cellquota_refusals_total{code="Unauthenticated"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "cellquota_refusals_total"); err != nil {
		t.Error(err)
	}
}

// However many actors call, a minute holds a bounded number of counts and loses
// no refusal; a flush that fails is counted and not kept.
func TestRefusalsAreBounded(t *testing.T) {
	to, at, registry := &sink{}, clock.NewManual(noon), prometheus.NewRegistry()
	r, err := audit.NewRefusals(to, at, slog.New(slog.DiscardHandler), registry)
	if err != nil {
		t.Fatal(err)
	}
	const callers = audit.MaxCounts + 500
	many := func() {
		for i := range callers {
			r.Refused(transport.Principal{Name: fmt.Sprint("n", i)}, "/a", rpcstatus.ErrPermissionDenied)
		}
	}
	many()
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, a := range to.counts {
		sum += a.Refusals
		if a.Actor == audit.Other && a.Refusals != 500 {
			t.Errorf("counted together: %d, want 500", a.Refusals)
		}
	}
	if len(to.counts) != audit.MaxCounts+1 || sum != callers {
		t.Errorf("%d counts of %d refusals, want %d of %d", len(to.counts), sum, audit.MaxCounts+1, callers)
	}
	to.fail = errors.New("etcd is away")
	many()
	if err := r.Flush(t.Context()); err == nil {
		t.Error("a lost flush was no error")
	}
	to.fail, to.counts = nil, nil
	if err := r.Flush(t.Context()); err != nil || len(to.counts) != 0 {
		t.Errorf("after a lost flush: %d counts, %v", len(to.counts), err)
	}
	lost := fmt.Sprintf("# HELP cellquota_refusals_lost_total Refused calls whose count could not be written to etcd: the audit does not show them.\n# TYPE cellquota_refusals_lost_total counter\ncellquota_refusals_lost_total %d\n", callers)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(lost), "cellquota_refusals_lost_total"); err != nil {
		t.Error(err)
	}
}
