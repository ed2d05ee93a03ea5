package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxFile bounds a file that holds a password or an address, in bytes.
const maxFile = 64 << 10

// errFile: what is named is no file that could hold a password or an address.
var errFile = errors.New("no small regular file")

// readFile reads a small regular file. It is opened without waiting, so that a FIFO
// that nobody writes holds nobody up, and judged once it is open, so that what was
// judged is what is read.
func readFile(ctx context.Context, name string) (text []byte, err error) {
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
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, errFile
	}
	if text, err = io.ReadAll(io.LimitReader(f, maxFile+1)); err != nil { // it may grow, and files of the kernel tell no size
		return nil, err
	}
	if len(text) > maxFile {
		return nil, errFile
	}
	return text, ctx.Err()
}

// fileRule is what a file that is named must be.
var fileRule = fmt.Sprintf("must be a regular file of at most %d bytes that the control plane can read", maxFile)

// readable is a file's fault without more than the operator wrote himself.
func readable(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "no such file"
	case errors.Is(err, os.ErrPermission):
		return "may not be read"
	case errors.Is(err, errFile):
		return "no regular file, or too large"
	default:
		return "cannot be read"
	}
}
