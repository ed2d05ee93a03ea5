package boot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// startEtcd starts the member. One that was killed while it made its data
// directory can leave a log without a member in it, and would wait for an
// election for ever. So the directory counts from the first time that the
// member was ready, which is before anybody has written to it.
func (b *boot) startEtcd(ctx context.Context) error {
	dir := b.plan.StoreDir(b.plan.Etcd.Name)
	mark := dir + ".made"
	_, err := os.Stat(mark)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	if err := b.startUntilReady(ctx, b.plan.Etcd.Name); err != nil {
		return err
	}
	return writeMark(mark, "")
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
