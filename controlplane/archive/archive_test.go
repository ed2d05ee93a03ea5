package archive_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
)

const name = "campaigns/summer/journal-0001"

func file(d archive.Directory, name string) string {
	return filepath.Join(d.Dir, filepath.FromSlash(name)) + ".gz"
}

func put(t *testing.T, d archive.Directory, content string) core.ArchiveObject {
	t.Helper()
	object, err := d.Put(t.Context(), name, []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func TestWhatWasPutIsReadBack(t *testing.T) {
	d := archive.Directory{Dir: t.TempDir()}
	for _, content := range []string{"", "x", strings.Repeat("a journal record ", 100_000)} {
		object, err := d.Put(t.Context(), fmt.Sprintf("a/b/c-%d", len(content)), []byte(content))
		if err != nil || object.Size != int64(len(content)) || len(object.SHA256) != 64 {
			t.Fatalf("put: %+v, %v", object, err)
		}
		if got, err := d.Get(t.Context(), object); err != nil || string(got) != content {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
	if left := parts(t, d); len(left) > 0 {
		t.Errorf("parts are left: %v", left)
	}
}

func TestTheSameBytesAgainAreTheSameObject(t *testing.T) {
	d := archive.Directory{Dir: t.TempDir()}
	first := put(t, d, "journal")
	before, err := os.Stat(file(d, name))
	if err != nil {
		t.Fatal(err)
	}
	if again := put(t, d, "journal"); again != first {
		t.Errorf("another object: %+v, %+v", first, again)
	}
	if after, err := os.Stat(file(d, name)); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was written again: %v", err)
	}
}

func TestOtherBytesUnderANameAreRefused(t *testing.T) {
	d := archive.Directory{Dir: t.TempDir()}
	first := put(t, d, "journal")
	if _, err := d.Put(t.Context(), name, []byte("another")); !errors.Is(err, archive.ErrDiffers) || !strings.Contains(err.Error(), name) {
		t.Errorf("err = %v", err)
	}
	if got, err := d.Get(t.Context(), first); err != nil || string(got) != "journal" {
		t.Errorf("the first content is gone: %q, %v", got, err)
	}
}

// Two leaders that do not know of each other put different bytes at once: one
// wins and stays.
func TestOfManyAtOnceOneContentWins(t *testing.T) {
	d := archive.Directory{Dir: t.TempDir()}
	const writers = 16
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		winners []core.ArchiveObject
	)
	for i := range writers {
		wg.Go(func() {
			object, err := d.Put(context.Background(), name, []byte{byte(i)})
			if err != nil && !errors.Is(err, archive.ErrDiffers) {
				t.Errorf("put: %v", err)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				winners = append(winners, object)
			}
		})
	}
	wg.Wait()
	if len(winners) != 1 {
		t.Fatalf("%d of %d won: %+v", len(winners), writers, winners)
	}
	if _, err := d.Get(t.Context(), winners[0]); err != nil {
		t.Error(err)
	}
}

// A process that dies before its object has a name leaves a part: no object, and
// in nobody's way.
func TestAHalfWrittenFileIsNoObject(t *testing.T) {
	d := archive.Directory{Dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Dir(file(d, name)), 0o750); err != nil {
		t.Fatal(err)
	}
	half := file(d, name) + ".123.part"
	if err := os.WriteFile(half, zipped(t, "journal")[:5], 0o600); err != nil {
		t.Fatal(err)
	}
	object := put(t, d, "journal")
	if got, err := d.Get(t.Context(), object); err != nil || string(got) != "journal" {
		t.Errorf("got %q, %v", got, err)
	}
}

// What stands under the name is damaged: the object is named, in Get and in Put.
func TestDamageIsNamed(t *testing.T) {
	for what, damage := range map[string][]byte{
		"nothing in it": {}, "no gzip": []byte("journal"), "cut off": zipped(t, "journal")[:12], "other content": zipped(t, "jouRnal"),
		"a longer one": append(zipped(t, "journal"), zipped(t, "journal")...),
	} {
		t.Run(what, func(t *testing.T) {
			d := archive.Directory{Dir: t.TempDir()}
			object := put(t, d, "journal")
			if err := os.Remove(file(d, name)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file(d, name), damage, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := d.Get(t.Context(), object); !errors.Is(err, archive.ErrCorrupt) || !strings.Contains(err.Error(), name) || got != nil {
				t.Errorf("get: %q, %v", got, err)
			}
			if _, err := d.Put(t.Context(), name, []byte("journal")); !errors.Is(err, archive.ErrCorrupt) && !errors.Is(err, archive.ErrDiffers) {
				t.Errorf("put over it: %v", err)
			}
		})
	}
}

func TestAMissingObjectIsNamed(t *testing.T) {
	d := archive.Directory{Dir: t.TempDir()}
	object := put(t, d, "journal")
	if err := os.Remove(file(d, name)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(t.Context(), object); !errors.Is(err, archive.ErrMissing) || !strings.Contains(err.Error(), name) {
		t.Errorf("err = %v", err)
	}
}

// A directory that is not there, such as a share that is not mounted, is not an
// archive, and none is made in its place.
func TestADirectoryThatIsNotThereIsNoArchive(t *testing.T) {
	d := archive.Directory{Dir: filepath.Join(t.TempDir(), "not-mounted")}
	if _, err := d.Put(t.Context(), name, nil); !errors.Is(err, archive.ErrUnavailable) {
		t.Errorf("err = %v", err)
	}
	if _, err := os.Stat(d.Dir); err == nil {
		t.Error("it was made")
	}
}

func TestNamesStayInsideTheDirectory(t *testing.T) {
	d := archive.Directory{Dir: t.TempDir()}
	for _, bad := range []string{"", "/etc/x", "../x", "a/../x", "a//b", "a/", ".hidden", "a/.b", "a b", "a\x00", "ü", strings.Repeat("a", 201)} {
		if _, err := d.Put(t.Context(), bad, nil); !errors.Is(err, archive.ErrName) {
			t.Errorf("put %q: %v", bad, err)
		}
		if _, err := d.Get(t.Context(), core.ArchiveObject{Name: bad}); !errors.Is(err, archive.ErrName) {
			t.Errorf("get %q: %v", bad, err)
		}
	}
}

func zipped(t *testing.T, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if _, err := zip.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func parts(t *testing.T, d archive.Directory) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(d.Dir, "*", "*", "*.part"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}
