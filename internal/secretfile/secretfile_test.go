package secretfile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cellquota/cellquota/internal/secretfile"
)

// What could not hold a secret is refused at once, and no text repeats a file.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]struct{ file, class string }{
		"a secret":       {put("secret", "hunter2\n"), ""},
		"as large as is": {put("most", strings.Repeat("x", secretfile.MaxSize)), ""},
		"too large":      {put("large", strings.Repeat("x", secretfile.MaxSize+1)), "no regular file, or too large"},
		"a device":       {"/dev/zero", "no regular file, or too large"},
		"a directory":    {dir, "no regular file, or too large"},
		"a FIFO":         {fifo, "no regular file, or too large"},
		"nothing":        {filepath.Join(dir, "nothing"), "no such file"},
		"no file's part": {put("file", "") + "/x", "cannot be read"},
	} {
		text, err := secretfile.Read(t.Context(), r.file)
		if (err == nil) != (r.class == "") || err != nil && (secretfile.Class(err) != r.class || len(text) > 0) {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := secretfile.Read(over, put("late", "x")); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}
