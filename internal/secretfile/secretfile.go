package secretfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// MaxSize bounds a file, in bytes.
const MaxSize = 64 << 10

// ErrFile: what is named is no file that could hold a secret.
var ErrFile = errors.New("no regular file, or too large")

// Rule is what a file that is named must be, for people.
var Rule = fmt.Sprintf("must be a regular file of at most %d bytes that the control plane can read", MaxSize)

// Read gives a small regular file. It is opened without waiting, so that a FIFO
// that nobody writes holds nobody up, and judged once it is open, so that what was
// judged is what is read. ErrFile, and os's errors.
func Read(ctx context.Context, name string) (text []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxSize {
		return nil, ErrFile
	}
	if text, err = io.ReadAll(io.LimitReader(f, MaxSize+1)); err != nil { // it may grow, and files of the kernel tell no size
		return nil, err
	}
	if len(text) > MaxSize {
		return nil, ErrFile
	}
	return text, ctx.Err()
}

// Class tells a file's fault without more than whoever named it wrote himself.
func Class(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "no such file"
	case errors.Is(err, os.ErrPermission):
		return "may not be read"
	case errors.Is(err, ErrFile):
		return ErrFile.Error()
	default:
		return "cannot be read"
	}
}
