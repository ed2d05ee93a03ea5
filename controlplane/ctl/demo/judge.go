package demo

import (
	"context"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/ctl/oracle"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/edge/load/history"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	settleWithin = 30 * time.Second
	quietWithin  = 20 * time.Second
	judgeWithin  = 2 * time.Minute
)

// judge holds everything against everything: the history against the shards, the invariants on a
// stable cut, what the witness saw, the sums of the table.
func (t *story) judge(ctx context.Context, historyFile string) error {
	cp, err := t.as(target.SRE)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, judgeWithin)
	defer cancel()
	told, err := t.judgeHistory(ctx, cp, historyFile)
	if err != nil {
		return err
	}
	verified, err := t.verifyQuiet(ctx, cp)
	if err != nil {
		return err
	}
	oracle.Merge(verified, told)
	sales, err := cp.Reports.GetSales(ctx, &pb.GetSalesRequest{CampaignId: string(t.key.Campaign)})
	if err != nil {
		return fmt.Errorf("read the sales: %w", err)
	}
	if t.report.Ledger, err = ledgerOf(sales, string(t.key.SKU)); err != nil {
		return err
	}
	for _, row := range t.report.Ledger.Rows {
		if row.Cell == string(t.victim) {
			t.report.Fence.ConfirmedAtEnd = row.Confirmed
		}
		if row.Unreachable != "" {
			t.report.Unchecked = append(t.report.Unchecked, row.Cell+": "+row.Unreachable)
		}
	}
	return t.sentence(verified)
}

func (t *story) judgeHistory(ctx context.Context, cp *client.Client, file string) (history.Report, error) {
	resolver := oracle.New(cp.Reports)
	if _, err := oracle.Settle(ctx, records(file), resolver, t.Clock, settleWithin); err != nil {
		return history.Report{}, fmt.Errorf("history: %w", err)
	}
	told, err := history.Check(ctx, records(file), resolver)
	if err != nil {
		return told, err
	}
	t.report.History = History{told.Records, told.Requests, told.Promised, told.Orders, told.Unknown}
	return told, nil
}

// verifyQuiet verifies until the mirrors are quiet and the campaign has drained (I9 and I10 have a
// verdict), or the wait is over: what is skipped then is shown as skipped.
func (t *story) verifyQuiet(ctx context.Context, cp *client.Client) (*pb.VerifyResponse, error) {
	deadline := t.Clock.Now().Add(quietWithin)
	for {
		out, err := cp.Reports.Verify(ctx, &pb.VerifyRequest{CampaignId: string(t.key.Campaign)})
		if err != nil {
			return nil, fmt.Errorf("verify: %w", err)
		}
		if len(out.GetBreaches()) > 0 || settled(out) || t.Clock.Now().After(deadline) {
			return out, nil
		}
		if err := t.Clock.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

func settled(out *pb.VerifyResponse) bool {
	for _, c := range out.GetChecks() {
		if (c.GetInvariant() == "I9" || c.GetInvariant() == "I10") && c.GetVerdict() == pb.Verdict_VERDICT_SKIPPED {
			return false
		}
	}
	return true
}

// sentence gathers every fault into the report and says how the demo ends.
func (t *story) sentence(v *pb.VerifyResponse) error {
	r := t.report
	for _, b := range v.GetBreaches() {
		r.fault("%s %s %s: %s", b.GetInvariant(), b.GetSkuId(), b.GetCellId(), b.GetDetail())
	}
	for _, f := range r.Ledger.faults() {
		r.fault("%s", f)
	}
	for _, u := range v.GetUnchecked() {
		r.Unchecked = append(r.Unchecked, fmt.Sprintf("%s %s: %s", u.GetInvariant(), u.GetWhat(), u.GetWhy()))
	}
	r.Invariants = verdicts(v, r.Witness)
	t.blame()
	if r.Witness.Samples == 0 {
		r.Unchecked = append(r.Unchecked, "the witness took no sample: "+r.Witness.LastErr)
	}
	r.OK = len(r.Faults) == 0 && len(r.Unchecked) == 0
	switch {
	case len(r.Faults) > 0:
		return fmt.Errorf("%d faults: %w", len(r.Faults), ErrBroken)
	case len(r.Unchecked) > 0:
		return fmt.Errorf("%d things: %w", len(r.Unchecked), ErrUnchecked)
	}
	return nil
}

// blame takes over what the witness saw.
func (t *story) blame() {
	for _, b := range t.report.Witness.First {
		t.report.fault("witness: %s", b)
	}
	if more := t.report.Witness.Breaches - int64(len(t.report.Witness.First)); more > 0 {
		t.report.fault("witness: and %d more", more)
	}
}

// verdicts joins the verification's word with the witness's: what either saw broken is broken.
func verdicts(v *pb.VerifyResponse, w Testimony) (list []Invariant) {
	for _, c := range v.GetChecks() {
		i := Invariant{Name: c.GetInvariant(), Verdict: render.Word(c.GetVerdict()), Detail: c.GetDetail()}
		for broken, n := range w.broken {
			if string(broken) == i.Name {
				i.Verdict, i.Detail = render.Word(pb.Verdict_VERDICT_BROKEN), fmt.Sprintf("%d breaches seen by the witness; %s", n, i.Detail)
			}
		}
		list = append(list, i)
	}
	return list
}

func records(file string) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		f, err := os.Open(file)
		if err != nil {
			yield(history.Record{}, err)
			return
		}
		defer func() { _ = f.Close() }() // only read
		for r, err := range history.Read(f) {
			if !yield(r, err) {
				return
			}
		}
	}
}
