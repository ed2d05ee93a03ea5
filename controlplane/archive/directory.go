package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cellquota/cellquota/controlplane/core"
)

// Directory is the archive in a directory that all replicas share.
type Directory struct {
	// Dir must exist: a mount that is not there must not look like an empty archive.
	Dir string
}

// suffix of an object's file; part is that of one being written.
const (
	suffix = ".gz"
	part   = ".part"
)

// Put implements Archive.
func (d Directory) Put(ctx context.Context, name string, content []byte) (core.ArchiveObject, error) {
	if err := checkName(name); err != nil {
		return core.ArchiveObject{}, err
	}
	if len(content) > MaxContent {
		return core.ArchiveObject{}, fmt.Errorf("%w: %s of %d bytes, at most %d", core.ErrTooLarge, name, len(content), MaxContent)
	}
	object := describe(name, content)
	if err := ctx.Err(); err != nil {
		return core.ArchiveObject{}, err
	}
	err := d.write(d.path(name), content)
	if errors.Is(err, fs.ErrExist) {
		return object, d.same(object)
	}
	if err != nil {
		return core.ArchiveObject{}, fmt.Errorf("%w: put %s: %w", ErrUnavailable, name, err)
	}
	return object, nil
}

// same is nil when the file under the object's name holds the object. The folder
// is synced: whoever wrote it may have died before that.
func (d Directory) same(object core.ArchiveObject) error {
	content, err := d.read(object)
	if err != nil {
		return err
	}
	if found := describe(object.Name, content); found != object {
		return refuse(ErrDiffers, object, found.SHA256)
	}
	if err := syncFolder(filepath.Dir(d.path(object.Name))); err != nil {
		return fmt.Errorf("%w: put %s: %w", ErrUnavailable, object.Name, err)
	}
	return nil
}

// Get implements Archive.
func (d Directory) Get(ctx context.Context, object core.ArchiveObject) ([]byte, error) {
	if err := checkName(object.Name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	content, err := d.read(object)
	if err != nil {
		return nil, err
	}
	if found := describe(object.Name, content); found != object {
		return nil, refuse(ErrCorrupt, object, found.SHA256)
	}
	return content, nil
}

// read decompresses the file under the object's name; never more than an object
// may have, so that a damaged file cannot fill the memory.
func (d Directory) read(object core.ArchiveObject) ([]byte, error) {
	file, err := os.Open(d.path(object.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(ErrMissing, object, "nothing")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrUnavailable, object.Name, err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	unzip, err := gzip.NewReader(file)
	if err != nil {
		return nil, refuse(ErrCorrupt, object, err.Error())
	}
	content, err := io.ReadAll(io.LimitReader(unzip, MaxContent+1))
	if err != nil {
		return nil, refuse(ErrCorrupt, object, err.Error())
	}
	return content, nil
}

func (d Directory) path(name string) string {
	return filepath.Join(d.Dir, filepath.FromSlash(name)) + suffix
}

// write makes the file complete and durable before it has its name. fs.ErrExist
// when the name is taken.
func (d Directory) write(path string, content []byte) error {
	if err := d.folder(filepath.Dir(path)); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+part)
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // under its own name the object stays; a part that stays hurts nobody
	if err := errors.Join(compress(file, content), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil { // unlike a rename it never replaces
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func compress(to io.Writer, content []byte) error {
	zip := gzip.NewWriter(to)
	_, err := io.Copy(zip, bytes.NewReader(content))
	return errors.Join(err, zip.Close())
}

// folder makes the folders of an object below Dir and syncs the parents of those
// it made, so that they are there after a power cut as the object is.
func (d Directory) folder(dir string) error {
	if _, err := os.Stat(dir); err == nil || dir == filepath.Clean(d.Dir) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := d.folder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(parent)
}

func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
