package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// drop takes the demo's book out of etcd, as another replica does, with or
// without the tombstone of its campaign.
func (p *platform) drop(t *testing.T, tombstone bool) {
	t.Helper()
	other, err := store.Open(store.Config{Endpoints: p.etcd.Endpoints(), Prefix: prefix}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	_, err = other.Update(testkit.Deadline(t), "drop", func(tx *store.Tx) error {
		if _, _, err := tx.Book(key); err != nil {
			return err
		}
		if _, _, err := tx.Tombstone(key.Campaign); err != nil {
			return err
		}
		if tombstone {
			if err := tx.PutTombstone(core.Tombstone{Campaign: key.Campaign, DeletedAt: tx.Now(), OperationID: "delete"}); err != nil {
				return err
			}
		}
		return tx.DropBook(key)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (p *platform) list(t *testing.T) {
	t.Helper()
	if _, err := p.List(testkit.Deadline(t), func([]store.Entry) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// A replica whose watch was cut while a campaign was deleted lists again and finds
// the book gone: that is no etcd that lost its past, which would stop every grant.
func TestADeletedCampaignIsNoLoss(t *testing.T) {
	p := demo(t)
	p.list(t)
	p.drop(t, true)
	p.list(t)
	if err := p.Intact(testkit.Deadline(t)); err != nil {
		t.Errorf("a look at etcd: %v", err)
	}
	if p.Lost() != "" {
		t.Errorf("the listing after it: %s", p.Lost())
	}
}

// Without a tombstone nothing explains that a book is gone.
func TestABookThatIsGoneIsALoss(t *testing.T) {
	p := demo(t)
	if _, err := p.Move(testkit.Deadline(t), topUp("a1", "cell-1", 1)); err != nil {
		t.Fatal(err)
	}
	p.list(t)
	p.drop(t, false)
	p.list(t)
	if p.Lost() == "" {
		t.Error("a book is gone, and nothing was noticed")
	}
	if err := p.Intact(testkit.Deadline(t)); !errors.Is(err, core.ErrRestored) {
		t.Errorf("a look at etcd: %v", err)
	}
}

// Somebody who only looks, as verify does, may look at an older revision than the
// watch: what the watch forgot since stays forgotten.
func TestALookBringsNothingBack(t *testing.T) {
	p := demo(t)
	follow(t, p.Store)
	_, err := p.Survey(testkit.Deadline(t), func(page []store.Entry) error {
		if len(page) > 0 && page[0].Kind == store.KindBook { // read, and not handed over yet
			p.drop(t, true)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error { return p.Intact(testkit.Deadline(t)) })
	if p.Lost() != "" {
		t.Error(p.Lost())
	}
}

// A book that this program cannot read, as one that a newer replica wrote, is
// quarantined: it is not lost.
func TestAnUnreadableBookIsNoLoss(t *testing.T) {
	p := demo(t)
	p.list(t)
	if _, err := p.etcd.Client(t).Put(testkit.Deadline(t), p.Key(store.KindBook, key.String()), "\xffnewer"); err != nil {
		t.Fatal(err)
	}
	p.list(t)
	if err := p.Intact(testkit.Deadline(t)); err != nil || p.Lost() != "" {
		t.Errorf("%v, lost %q", err, p.Lost())
	}
}
