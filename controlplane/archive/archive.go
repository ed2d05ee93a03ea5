package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// The errors of an archive; the package comment says what each asks for.
var (
	ErrName        = errors.New("not a name of an archive object")
	ErrMissing     = errors.New("the archive object is missing")
	ErrCorrupt     = errors.New("the archive object is not what its digest says")
	ErrDiffers     = errors.New("the archive has other content under this name")
	ErrUnavailable = errors.New("the archive does not answer")
)

// Archive keeps immutable objects. Safe for concurrent use, also by several
// replicas on one store.
type Archive interface {
	// Put writes content under name, durably, and gives what etcd has to keep of it.
	// The same content again is the same object. ErrName, ErrDiffers, ErrCorrupt
	// (what stands there cannot be read), ErrUnavailable.
	Put(ctx context.Context, name string, content []byte) (core.ArchiveObject, error)
	// Get gives the content of an object, checked against its digest. ErrName,
	// ErrMissing, ErrCorrupt, ErrUnavailable.
	Get(ctx context.Context, object core.ArchiveObject) ([]byte, error)
}

// MaxContent bounds one object, in bytes; larger content goes into several. A
// reader holds one object in memory.
const MaxContent = 64 << 20

// maxName leaves room for what Directory puts after it.
const maxName = 200

// names begin with a letter or digit, and so does every segment: "..", hidden
// files and absolute paths are no names.
var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$`)

func checkName(name string) error {
	if len(name) > maxName || !names.MatchString(name) {
		return fmt.Errorf("%w: %q", ErrName, name)
	}
	return nil
}

// describe gives the object that content is under a name.
func describe(name string, content []byte) core.ArchiveObject {
	sum := sha256.Sum256(content)
	return core.ArchiveObject{Name: name, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content))}
}

// refuse names the object with the digests that do not agree.
func refuse(sentinel error, want core.ArchiveObject, found string) error {
	return rpcstatus.With(fmt.Errorf("%w: %s: expected sha256 %s of %d bytes, found %s", sentinel, want.Name, want.SHA256, want.Size, found),
		map[string]string{"object": want.Name, "sha256": want.SHA256, "size": strconv.FormatInt(want.Size, 10), "found": found}, nil, 0)
}
