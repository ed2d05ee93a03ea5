package link

import (
	"errors"
	"testing"

	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// becomesReporter reads a stream until its process reports.
func becomesReporter(s *played) {
	s.t.Helper()
	testkit.Eventually(s.t, patience, func() error {
		if !expect(s, (*pb.LinkRequest).GetKeepAlive).GetReporter() {
			return errors.New("it does not report")
		}
		return nil
	})
}

// A process that lives but lost its way to the control plane gives the reporter's lock up: directives go
// to the reporter alone, so a cell whose reporter has no stream would get no grant and send no report.
func TestAReporterWithoutAStreamMakesRoom(t *testing.T) {
	p := newProcess(t)
	_, first := p.registered()
	becomesReporter(first)
	other := newProcessOn(t, p)
	other.cfg.Instance = "p-2"
	_, s := other.registered()
	if s.hello.GetReporter() {
		t.Fatal("two reporters")
	}
	p.mu.Lock()
	delete(p.replicas, "a") // nobody answers this process any more
	p.mu.Unlock()
	first.end <- nil
	becomesReporter(s)
}

// A process of a group that lost the cell may live on and ask again and again; it does not keep the
// processes of the group that has the cell from reporting.
func TestAProcessOfAnotherGroupDoesNotReport(t *testing.T) {
	p := newProcess(t)
	p.cfg.Group = "green"
	l := p.replica("a")
	p.start()
	l.next(t).refuse(pb.RefusalCode_REFUSAL_CODE_OTHER_GROUP, "")
	if again := l.next(t); again.hello.GetReporter() {
		t.Fatal("a process of another group reports")
	}
	other := newProcessOn(t, p)
	other.cfg.Instance = "p-2"
	_, s := other.registered()
	becomesReporter(s)
}
