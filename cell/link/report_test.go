package link

import (
	"testing"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func stock(version int64) *pb.UsageReport {
	return &pb.UsageReport{Stock: &pb.StockFacts{CampaignId: "c", SkuId: "s", Version: version}}
}

// K57: only what is newer by (fence version, stock version) is worth a report, whatever order the
// readings come in.
func TestReportsNeverGoBack(t *testing.T) {
	for _, row := range []struct {
		name         string
		fence1, v1   int64
		fence2, v2   int64
		sendsSecond  bool
		changeMirror bool
	}{
		{"the same again", 1, 5, 1, 5, false, false},
		{"newer", 1, 5, 1, 6, true, false},
		{"an older reading", 1, 5, 1, 4, false, false},
		{"an older reading with other mirror figures", 1, 5, 1, 4, false, true},
		{"a higher fence version counts first", 1, 5, 2, 1, true, false},
		{"a lower fence version never", 2, 1, 1, 9, false, false},
		{"the mirror's figures alone", 1, 5, 1, 5, true, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			var r reports
			first := []*pb.UsageReport{stock(row.v1)}
			if got := r.changed(row.fence1, first); len(got) != 1 {
				t.Fatalf("the first report has %d usages", len(got))
			}
			r.sent(row.fence1, first)
			second := stock(row.v2)
			if row.changeMirror {
				second.Admitted = 3
			}
			if got := r.changed(row.fence2, []*pb.UsageReport{second}); (len(got) == 1) != row.sendsSecond {
				t.Fatalf("second report has %d usages", len(got))
			}
		})
	}
}

// usageReport picks reports that have something to say.
func usageReport(m *pb.LinkRequest) *pb.Report {
	if r := m.GetReport(); len(r.GetUsages()) > 0 {
		return r
	}
	return nil
}

// Where nothing changes, a report without usages says so, again and again: what was told before still stands.
func TestNothingChangedIsTold(t *testing.T) {
	_, _, s := selling(t)
	for {
		if u := expect(s, usageReport).GetUsages()[0]; u.GetStock().GetGranted() == 10 {
			break
		}
	}
	for range 2 {
		r := expect(s, (*pb.LinkRequest).GetReport)
		for len(r.GetUsages()) > 0 { // the last change of the mirror's figures
			r = expect(s, (*pb.LinkRequest).GetReport)
		}
		if r.GetFenceVersion() != 1 {
			t.Fatalf("report %v", r)
		}
	}
}

// TestOnlyTheReporterReports and what it reports is the shard's row.
func TestReportsFollowTheShard(t *testing.T) {
	_, _, s := selling(t)
	for {
		r := expect(s, usageReport)
		if u := r.GetUsages()[0]; u.GetStock().GetGranted() == 10 {
			if r.GetFenceVersion() != 1 || u.GetStock().GetAvailable() != 10 {
				t.Fatalf("report %v", r)
			}
			break
		}
	}
	before := int64(0)
	for n := int64(2); n < 12; n++ {
		s.order(adjustment("g"+string(rune('a'+n)), n, grantKind, 1))
	}
	for {
		u := expect(s, usageReport).GetUsages()[0].GetStock()
		if u.GetVersion() <= before {
			t.Fatalf("version %d after %d", u.GetVersion(), before)
		}
		before = u.GetVersion()
		if u.GetGranted() == 20 {
			return
		}
	}
}

// A second process of the cell does not report while the first one holds the lock.
func TestOnlyTheReporterReports(t *testing.T) {
	p, _, _ := selling(t)
	other := newProcessOn(t, p)
	other.cfg.Instance = "p-2"
	l, s := other.registered()
	_ = l
	if s.hello.GetReporter() {
		t.Fatal("two reporters")
	}
	for range 10 {
		if k := expect(s, (*pb.LinkRequest).GetKeepAlive); k.GetReporter() {
			t.Fatal("two reporters")
		}
	}
	for len(s.in) > 0 {
		if m := <-s.in; m.GetReport() != nil {
			t.Fatalf("a process that is not the reporter reports: %v", m)
		}
	}
	p.stop() // the reporter dies, and its lock with it
	p.shard.Close()
	if r := expect(s, usageReport); r.GetUsages()[0].GetStock().GetGranted() != 10 {
		t.Fatalf("%v", r)
	}
	if k := expect(s, (*pb.LinkRequest).GetKeepAlive); !k.GetReporter() {
		t.Fatal("a reporter that does not say so")
	}
}
