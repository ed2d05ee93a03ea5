package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/deploy/local/layout"
	"github.com/cellquota/cellquota/deploy/local/supervise"
)

// etcdSpec is one member. Its own /health is a read that needs most members, so
// it is ready only with them.
func (b *boot) etcdSpec(m layout.EtcdMember) supervise.Spec {
	return supervise.Spec{
		Name: m.Name, Path: b.programs.Self, Env: b.env,
		Args:  append([]string{"cellquota-dev"}, b.plan.EtcdArgs(m, b.secrets)...),
		Log:   b.plan.Log(m.Name),
		Probe: b.httpProbe(m.Client + "/health"), Tier: tierStores,
	}
}

// startEtcd starts every member. One that was killed while it made its data
// directory can leave a log without a member in it, and would wait for an
// election for ever; one that lost its log after it had voted could vote twice. So
// the directories count, all of them, from the first time that all members were
// ready, which is before anybody has written to them.
func (b *boot) startEtcd(ctx context.Context) error {
	if err := b.sameEtcd(); err != nil {
		return err
	}
	mark := b.plan.EtcdMade()
	_, err := os.Stat(mark)
	switch {
	case errors.Is(err, os.ErrNotExist):
		for _, m := range b.plan.Etcd.Members {
			if err := os.RemoveAll(b.plan.StoreDir(m.Name)); err != nil {
				return err
			}
		}
	case err != nil:
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, m := range b.plan.Etcd.Members {
		all.Go(func() error { return b.startUntilReady(ctx, m.Name) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return writeMark(mark, "")
}

// sameEtcd refuses a data directory whose records are in the other kind of etcd:
// the shards would face a control plane that has never heard of them.
func (b *boot) sameEtcd() error {
	_, err := os.Stat(b.plan.OtherEtcdMade())
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: --etcd %s: this data directory was made with the other kind; keep to it, or take another directory",
		layout.ErrOption, b.plan.Options.Etcd)
}

// writeMark makes a file, whole or not at all, that is still there after the
// machine has stopped in whatever way: what it stands for is.
func writeMark(file, text string) error {
	f, err := os.OpenFile(file+".next", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(file+".next", file); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
