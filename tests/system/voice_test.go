//go:build system || chaos

package system

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/edge/load/history"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// choir is a sale's customers, by home cell: each cell's voice lets a new customer ask every pace, whatever
// became of those before, and keeps what each was told. It stands beside `dev load`, which shows totals
// and not who was told what when.
type choir struct {
	t        *testing.T
	client   *client.Client
	secret   []byte
	campaign string
	record   *history.Writer
	voices   map[string]*voice
}

// voice is one cell's customers.
type voice struct {
	cell string
	next int

	mu    sync.Mutex
	heard []heard
}

// heard is what one customer was told.
type heard struct {
	at, until time.Time
	status    int           // 0: no answer
	code      string        // of a refusal; of a 2xx the request's state
	after     time.Duration // Retry-After, for a refusal
}

func (h heard) String() string {
	if h.status == 0 {
		return "no answer"
	}
	return fmt.Sprintf("%d %s", h.status, h.code)
}

// sing starts the voices of a campaign, of all cells unless some are named; the function it gives ends them
// and closes the history.
func (p *local) sing(campaign string, pace time.Duration, cells ...string) (c *choir, historyFile string, stop func()) {
	p.t.Helper()
	text, err := os.ReadFile(platform.IdentitySecretFile(p.dir))
	if err != nil {
		p.t.Fatal(err)
	}
	e := p.endpoints()
	var edges []string
	for _, edge := range e.Edges {
		edges = append(edges, edge.HTTP)
	}
	caller, err := client.New(client.Config{BaseURLs: edges, Timeout: answered})
	if err != nil {
		p.t.Fatal(err)
	}
	historyFile = filepath.Join(p.t.TempDir(), "voices.jsonl")
	file, err := os.Create(historyFile)
	if err != nil {
		p.t.Fatal(err)
	}
	c = &choir{
		t: p.t, client: caller, secret: []byte(strings.TrimSuffix(string(text), "\n")), campaign: campaign,
		record: history.NewWriter(file), voices: map[string]*voice{},
	}
	homes := p.homes(campaign)
	ctx, cancel := context.WithCancel(p.t.Context())
	var all sync.WaitGroup
	for _, cell := range e.Cells {
		if len(cells) > 0 && !slices.Contains(cells, cell.CellID) {
			continue
		}
		v := &voice{cell: cell.CellID}
		c.voices[v.cell] = v
		all.Go(func() { c.lead(ctx, v, pace, homes, &all) })
	}
	return c, historyFile, sync.OnceFunc(func() {
		cancel()
		all.Wait()
		caller.Close()
		if err := c.record.Close(); err != nil {
			p.t.Errorf("history: %v", err)
		}
	})
}

// answered is how long a customer waits for an answer: more than an edge may take.
const answered = 6 * time.Second

// lead lets a customer of the cell ask every pace, each beside those before.
func (c *choir) lead(ctx context.Context, v *voice, pace time.Duration, homes func(ids.UserID) string, all *sync.WaitGroup) {
	tick := clock.System().NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			user := v.newcomer(homes)
			all.Go(func() { c.ask(context.WithoutCancel(ctx), v, user) })
		}
	}
}

// newcomer is the next user whose home is the cell.
func (v *voice) newcomer(homes func(ids.UserID) string) ids.UserID {
	for {
		v.next++
		if user := ids.UserID(fmt.Sprintf("voice-%s-%d", v.cell, v.next)); homes(user) == v.cell {
			return user
		}
	}
}

// ask is one customer: a permit, then the request.
func (c *choir) ask(ctx context.Context, v *voice, user ids.UserID) {
	now := clock.System().Now
	h := heard{at: now()}
	token := c.token(user)
	permit, a, err := c.client.Permit(ctx, token, c.campaign, "phone-x")
	if err == nil && a.OK() {
		var body client.Request
		body, a, err = c.buy(ctx, user, token, permit.Permit, 0)
		a.Code += body.State
	}
	h.until = now()
	if err == nil {
		h.status, h.code, h.after = a.Status, a.Code, a.RetryAfter
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = append(v.heard, h)
}

// buy is one try of a user's only request, and its record.
func (c *choir) buy(ctx context.Context, user ids.UserID, token, permit string, attempt int) (client.Request, client.Answer, error) {
	now := clock.System().Now
	r := history.Record{Op: history.OpRequest, Campaign: c.campaign, SKU: "phone-x", Scope: "phone-x", User: string(user), Request: "r1", Quantity: 1, Attempt: attempt, Start: now().UnixMicro()}
	body, a, err := c.client.Buy(ctx, token, c.campaign, "phone-x", client.Try{RequestID: "r1", Quantity: 1, Permit: permit, RetryAttempt: attempt})
	r.End, r.Unknown = now().UnixMicro(), err != nil
	if err == nil {
		r.Status, r.Code = a.Status, a.Code
	}
	if err == nil && a.OK() {
		r.State, r.Reason, r.Reservation, r.Order = body.State, body.Reason, body.ReservationID, body.OrderID
	}
	c.record.Add(r)
	return body, a, err
}

func (c *choir) token(user ids.UserID) string {
	token, err := client.SignToken(c.secret, client.TokenClaims{
		Issuer: platform.TokenIssuer, Audience: platform.TokenAudience, User: string(user), Expires: clock.System().Now().Add(time.Hour),
	})
	if err != nil {
		c.t.Error(err)
	}
	return token
}

// between counts what a cell's customers who asked within a time were told.
func (c *choir) between(cell string, from, to time.Time) map[string]int {
	v := c.voices[cell]
	v.mu.Lock()
	defer v.mu.Unlock()
	told := map[string]int{}
	for _, h := range v.heard {
		if !h.at.Before(from) && h.at.Before(to) {
			told[h.String()]++
		}
	}
	return told
}

// accepted tells whether a customer of the cell who asked after a moment was answered 202.
func (c *choir) accepted(cell string, after time.Time) bool {
	v := c.voices[cell]
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.heard, func(h heard) bool { return h.status == 202 && h.at.After(after) })
}

// sells is nil when a customer of each cell who asked after a moment was answered 202.
func (c *choir) sells(after time.Time) error {
	for cell := range c.voices {
		if !c.accepted(cell, after) {
			return fmt.Errorf("no 202 from %s", cell)
		}
	}
	return nil
}

// calm is nil when every customer who asked after a moment was answered 202, of every cell.
func (c *choir) calm(after time.Time) error {
	for cell := range c.voices {
		counts := c.between(cell, after, time.Now())
		if len(counts) == 0 {
			return fmt.Errorf("nobody of %s was answered", cell)
		}
		for what, n := range counts {
			if !strings.HasPrefix(what, "202 ") {
				return fmt.Errorf("%s still says %s (%d times)", cell, what, n)
			}
		}
	}
	return nil
}

// told is a count of answers as a line.
func told(counts map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s × %d", what, counts[what]))
	}
	return strings.Join(parts, ", ")
}

// homes gives every user's home in a campaign, as the shards have it.
func (p *local) homes(campaign string) func(ids.UserID) string {
	p.t.Helper()
	type owned struct {
		cell     string
		from, to int
	}
	var all []owned
	for _, cell := range p.endpoints().Cells {
		conn, err := pgx.Connect(p.t.Context(), cell.PostgresSuperuser)
		if err != nil {
			p.t.Fatal(err)
		}
		rows, err := conn.Query(p.t.Context(), "SELECT bucket_from, bucket_to FROM cellquota.v_buckets WHERE campaign_id = $1 AND state = 'OPEN'", campaign)
		if err == nil {
			o := owned{cell: cell.CellID}
			_, err = pgx.ForEachRow(rows, []any{&o.from, &o.to}, func() error {
				all = append(all, o)
				return nil
			})
		}
		if err = errors.Join(err, conn.Close(p.t.Context())); err != nil {
			p.t.Fatal(err)
		}
	}
	homes := make([]string, ids.Buckets)
	for _, o := range all {
		for bucket := o.from; bucket <= o.to; bucket++ {
			homes[bucket] = o.cell
		}
	}
	if slices.Contains(homes, "") {
		p.t.Fatalf("a bucket of %s is nobody's: %+v", campaign, all)
	}
	return func(user ids.UserID) string { return homes[ids.Bucket(user)] }
}
