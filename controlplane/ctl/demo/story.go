package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/controlplane/ctl/traffic"
	"github.com/cellquota/cellquota/edge/load"
	"github.com/cellquota/cellquota/edge/load/history"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// Setup is what a demo is given.
type Setup struct {
	Settings
	// Self is this program's path: cellquota-dev lies beside it.
	Self string
	// Target is a platform that runs already; nil: the demo starts one of its own.
	Target *target.Target
	Clock  clock.Clock
	// Out gets the story while it is told; Terminal: a bar at its foot.
	Out      io.Writer
	Terminal bool
}

// story is a demo under way.
type story struct {
	Setup
	stage  *stage
	roles  map[target.Role]*client.Client
	key    core.BookKey
	cells  []ids.CellID
	victim ids.CellID
	opened time.Time
	report *Report
	peaks  peaks
	say    io.Writer
}

// Run tells the whole story. The report is answered with every error that comes after the platform was
// there; ErrBroken and ErrUnchecked say what the end was.
func Run(ctx context.Context, s Setup) (_ *Report, err error) {
	t := &story{Setup: s, say: s.Out, roles: map[target.Role]*client.Client{}, peaks: peaks{}, report: &Report{Settings: s.Settings, Faults: []string{}, Unchecked: []string{}}}
	defer func() {
		if werr := t.report.write(s.ReportFile); werr != nil {
			err = errors.Join(err, werr)
		}
	}()
	if t.stage, err = t.raise(ctx); t.stage != nil {
		defer func() { err = errors.Join(err, t.end(err)) }()
	}
	if err != nil {
		return t.report, err
	}
	return t.report, t.tell(ctx)
}

func (t *story) raise(ctx context.Context) (*stage, error) {
	if t.Target != nil {
		return onto(*t.Target)
	}
	fmt.Fprintf(t.say, "starting a platform of %d cells\n", t.Cells)
	st, err := raise(ctx, t.Clock, t.Self, t.Settings)
	if err == nil {
		t.report.SetUpSeconds = st.setUp.Seconds()
		fmt.Fprintf(t.say, "platform ready in %.1f s\n", st.setUp.Seconds())
	}
	return st, err
}

// end closes connections and takes the platform down; after a failure its logs stay.
func (t *story) end(failed error) error {
	for _, c := range t.roles {
		_ = c.Close() // everything was answered
	}
	keep := t.Keep && failed == nil
	if keep || t.Target != nil {
		t.farewell()
	}
	spare := failed != nil && !errors.Is(failed, context.Canceled)
	if spare && t.stage.dir != "" {
		fmt.Fprintf(t.say, "the platform's files and logs stay in %s\n", t.stage.dir)
	}
	return t.stage.lower(keep, spare)
}

// farewell prints five commands to try.
func (t *story) farewell() {
	file := t.stage.Name
	fmt.Fprintf(t.say, "\nthe platform is still there; try\n")
	for _, command := range []string{
		"cellctl status --endpoints-file " + file,
		fmt.Sprintf("cellctl quota list %s -o json --endpoints-file %s", t.key.Campaign, file),
		fmt.Sprintf("cellctl quota history %s --endpoints-file %s", t.key.Campaign, file),
		"cellctl cell gate " + string(t.victim) + " --endpoints-file " + file,
		fmt.Sprintf("cellctl verify --campaign %s --endpoints-file %s", t.key.Campaign, file),
	} {
		fmt.Fprintln(t.say, "  "+command)
	}
	if t.stage.child != nil {
		fmt.Fprintf(t.say, "and end it with: kill %d\n", t.stage.child.cmd.Process.Pid)
	}
}

// tell is the story in chapters.
func (t *story) tell(ctx context.Context) error {
	began := t.Clock.Now()
	defer func() { t.report.DemoSeconds = t.Clock.Now().Sub(began).Seconds() }()
	t.peaks.look(ctx, t.stage.super)
	// 1. Publish.
	if err := t.publish(ctx); err != nil {
		return err
	}
	// 2. A witness looks from here to the end.
	e, err := t.stage.Endpoints()
	if err != nil {
		return err
	}
	w, err := call(ctx, t.Clock, e.Etcd.Endpoints, t.key)
	if err != nil {
		return err
	}
	// 3. The sale, with everything that happens in it.
	file, saleErr := t.sale(ctx, w)
	if file != "" && t.stage.dir == "" {
		defer func() { _ = os.Remove(file) }() // ours, beside somebody else's platform
	}
	// 4. Close, drain, judge.
	if saleErr == nil {
		saleErr = t.finish(ctx, w)
	}
	t.report.Witness = w.dismiss()
	if saleErr != nil {
		t.blame()
		return saleErr
	}
	return t.judge(ctx, file)
}

// sale sends the customers and plays the chapters beside them.
func (t *story) sale(ctx context.Context, w *witness) (historyFile string, err error) {
	o, err := traffic.Options(t.stage.Target, t.Clock, string(t.key.Campaign), maxActive)
	if err != nil {
		return "", err
	}
	defer o.Client.Close()
	file, err := os.CreateTemp(t.stage.dir, "history-*.jsonl") // "" is the system's folder
	if err != nil {
		return "", fmt.Errorf("history: %w", err)
	}
	o.History = history.NewWriter(file)
	run, err := load.New(o, t.plan())
	if err != nil {
		return file.Name(), errors.Join(err, o.History.Close())
	}
	var stop func()
	t.say, stop = traffic.Watch(ctx, t.Clock, t.Out, t.Terminal, run, t.Users)
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan load.Result, 1)
	t.opened = t.Clock.Now()
	t.chapter("the doors open: %d customers over %s for %d units", t.Users, t.Pace, t.Stock)
	go func() {
		r, _ := run.Do(over) // ends when over does; what was recorded counts
		result <- r
	}()
	err = t.accidents(ctx, w)
	if err != nil {
		cancel()
	}
	r := <-result
	stop()
	t.say = t.Out
	t.count(r, w)
	if cerr := o.History.Close(); cerr != nil {
		err = errors.Join(err, cerr)
	}
	return filepath.Clean(file.Name()), errors.Join(err, ctx.Err())
}

// maxActive bounds the customers under way at one moment, each with a connection of its own: on a
// machine that cannot serve them as fast as they come, more of them would only wait in our own queues.
// Who came late for that is counted.
const maxActive = 3000

// plan is how the demo's customers behave.
func (t *story) plan() load.Plan {
	return load.Plan{
		Users: t.Users, Rate: float64(t.Users) / t.Pace.Seconds(), MaxActive: maxActive, SKUs: []string{string(t.key.SKU)}, Quantity: 1,
		Seed: t.Seed, Prefix: "demo", Patience: 90 * time.Second, GiveUp: 6 * time.Second,
		Mix: load.Mix{Repeat: 0.02, Clash: 0.002, Second: 0.01, Press: 1, Pay: 0.88, Cancel: 0.02, PayTwice: 0.02, PayDelay: 6 * time.Second, Linger: 0.2},
	}
}

// count takes over what the customers saw.
func (t *story) count(r load.Result, w *witness) {
	rep := t.report
	rep.Answers, rep.Latencies, rep.Totals, rep.Late = r.Counts, r.Latencies, r.Snapshot, r.Late
	rep.Sale.Orders, rep.Sale.OrdersPerSecondPeak = r.Snapshot.Ordered, r.OrdersPerSecond
	rep.Sale.OpeningToLastOrderMS = millis(r.OpenToLastOrder)
	if s := r.OpenToLastOrder.Seconds(); s > 0 {
		rep.Sale.OrdersPerSecondAverage = float64(r.Snapshot.Ordered) / s
	}
	most := int64(t.demand()) * 9 / 10
	if l, ok := w.firstSince(t.opened, func(l look) bool { return l.sold(every) >= most }); ok {
		rep.Sale.OpeningToNineInTenUnits = millis(l.at.Sub(t.opened))
	}
	t.chapter("the last customer has gone: %s", traffic.Line(r.Snapshot, t.Users))
}

// chapter says what happened and keeps it for the report.
func (t *story) chapter(format string, args ...any) {
	c := Chapter{What: fmt.Sprintf(format, args...)}
	mark := "       "
	if !t.opened.IsZero() {
		c.AtMS = millis(t.Clock.Now().Sub(t.opened))
		mark = fmt.Sprintf("%6.1fs", c.AtMS/1000)
	}
	t.report.Chapters = append(t.report.Chapters, c)
	fmt.Fprintf(t.say, "%s  %s\n", mark, c.What)
}

// as speaks to the control plane in a role.
func (t *story) as(r target.Role) (*client.Client, error) {
	if c, ok := t.roles[r]; ok {
		return c, nil
	}
	c, err := t.stage.Dial(r)
	if err != nil {
		return nil, err
	}
	t.roles[r] = c
	return c, nil
}

// victimOf is the cell that dies: cell-2 where there is one, else the last.
func victimOf(cells []ids.CellID) ids.CellID {
	if slices.Contains(cells, "cell-2") {
		return "cell-2"
	}
	return cells[len(cells)-1]
}
